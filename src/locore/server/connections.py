"""Connections from anybody: bounded in number and in the time that headers may take, so that slow ones shut nobody out."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
MOST = 1000  # connections; for one more that of them is closed which has waited longest without a request
OWN_FILES = 64  # of this process, beside connections
FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
UNREAD_SECONDS = 20.0  # in which a client must read something of its answer
HEADER_SECONDS = 20.0  # until all headers of a request must have come


class Connection(H11Protocol):
    """Uvicorn's, which would wait for headers for ever."""

    _without_request: ClassVar[OrderedDict[Connection, None]] = OrderedDict()  # the one that waits longest comes first
    _open: ClassVar[int] = 0
    most: ClassVar[int] = MOST
    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _has_read = False

    def connection_made(self, transport: Any) -> None:
        """Somebody has come."""
        super().connection_made(transport)
        Connection._open += 1
        self._wait()
        if Connection._open > Connection.most:
            oldest = next(iter(self._without_request))
            oldest._close(FULL if oldest is self else b"")  # where all others have asked for something, the new one has to go

    def connection_lost(self, exc: Exception | None) -> None:
        """And left."""
        Connection._open -= 1
        self._wait_no_more()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A piece of a request, perhaps its headers' last."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """The next request may come."""
        super().on_response_complete()
        self._look()
        self._watch_reader()

    def pause_writing(self) -> None:
        """The client reads more slowly than it is sent."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """It has read most of what it was sent."""
        super().resume_writing()
        self._has_read = True

    def _watch_reader(self) -> None:
        """Who reads nothing for some time is cut off."""
        size = self.transport.get_write_buffer_size()
        if size and self._unread is None:
            self._has_read = False
            self._unread = self.loop.call_later(UNREAD_SECONDS, self._read_since, size)

    def _read_since(self, size: int) -> None:
        self._unread = None
        if self._has_read or self.transport.get_write_buffer_size() < size:
            self._watch_reader()
        else:
            self.transport.abort()

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
            self._watch_reader()  # what is not read keeps it open


def bound_by_files(accepted: int) -> int:
    """Let as many files be open as this process may, and keep so many connections that a flood never needs more.

    Args:
        accepted: how many the system hands over at once.
    """
    try:
        import resource
    except ImportError:  # not every system has such limits
        return Connection.most
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + accepted + OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        Connection.most = max(1, min(MOST, soft - accepted - OWN_FILES))
    return Connection.most
