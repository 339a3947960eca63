"""Connections from anybody: bounded in number and in the time that headers may take, so that slow ones shut nobody out."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
MOST = 1000  # connections; for one more that of them is closed which has waited longest without a request
HEADER_SECONDS = 20.0  # until all headers of a request must have come


class Connection(H11Protocol):
    """Uvicorn's, which would wait for headers for ever."""

    _without_request: ClassVar[OrderedDict[Connection, None]] = OrderedDict()  # the one that waits longest comes first
    _open: ClassVar[int] = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Somebody has come."""
        super().connection_made(transport)
        Connection._open += 1
        if Connection._open > MOST and self._without_request:
            next(iter(self._without_request))._close(b"")
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """And left."""
        Connection._open -= 1
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A piece of a request, perhaps its headers' last."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """The next request may come."""
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        asked = self.cycle is not None and not self.cycle.response_complete
        if asked:
            self._wait_no_more()
        elif self._timer is None and not self.transport.is_closing():
            self._wait()

    def _wait(self) -> None:
        self._without_request[self] = None
        self._timer = self.loop.call_later(HEADER_SECONDS, self._close, LATE)

    def _wait_no_more(self) -> None:
        self._without_request.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self, last: bytes) -> None:
        self._wait_no_more()
        if not self.transport.is_closing():
            if last:
                self.transport.write(last)
            self.transport.close()
