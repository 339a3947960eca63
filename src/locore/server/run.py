"""Run the server until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
import time

import uvicorn

from locore.kernel.errors import InvalidArgument
from locore.server.access import JsonLines
from locore.server.app import create_app
from locore.server.connections import Connection, bound_by_files
from locore.server.queue import Queue
from locore.server.settings import Settings

LEAVING_SECONDS = 10  # for answers that are on their way
TELLING_SECONDS = 2  # of these, to tell those who will get none
LOOK_SECONDS = 0.05  # between looks whether all have their answers
WAITING = 1024  # connections that nobody has accepted yet
# Connections that are accepted at once: many fewer than are kept, or a flood would have a new one closed before it is read.
ACCEPTED = 100


class Server(uvicorn.Server):
    """Uvicorn's, which tells those who wait that it stops, and loads the model anew on SIGHUP."""

    def __init__(self, config: uvicorn.Config, queue: Queue) -> None:
        super().__init__(config)
        self.queue = queue
        self._has_terminal = _is_terminal()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, to SIGHUP too where there is such a signal."""
        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hang_up)
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(WAITING)  # asyncio has one number for both

    def _hang_up(self) -> None:
        """Somebody has changed the model, or closed the terminal, which sends the same signal."""
        if self._has_terminal and not _is_terminal():
            self.should_exit = True
        else:
            self.queue.reload()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """No new requests, who comes is told so; those that are running have some seconds, and then 503."""
        self.queue.refuse()
        end = time.monotonic() + LEAVING_SECONDS - TELLING_SECONDS
        while self.queue.depth + self.queue.running and time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(LOOK_SECONDS)
        self.queue.drain()
        await super().shutdown(sockets)


def _is_terminal() -> bool:
    """Does a terminal read and write here, which is still open?"""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def serve(settings: Settings) -> None:
    """Listen, print the address on standard output, and serve until SIGINT or SIGTERM; SIGHUP loads the model anew.

    Raises:
        InvalidArgument: the address cannot be listened at.
        LocoreError: the model cannot be loaded.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if settings.json_logs:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonLines())
    bound_by_files(ACCEPTED)
    listening = listen(settings.host, settings.port)

    def stop() -> None:
        server.should_exit = True

    app = create_app(settings, on_failure=stop)
    # Uvicorn's own access log would show paths, in which a client may have put anything.
    config = uvicorn.Config(
        app,
        http=Connection,
        backlog=ACCEPTED,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=LEAVING_SECONDS,
        server_header=False,
    )
    server = Server(config, app.state.queue)
    host, port = listening.getsockname()[:2]
    print(f"http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
    asyncio.run(server.serve(sockets=[listening]))
    if app.state.queue.failure is not None:
        raise app.state.queue.failure


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # Without its protocol's number asyncio would not know that it is TCP, and leave 40 ms between headers and body.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind((host, port))
            listening.listen(WAITING)
        except OSError:
            listening.close()
            raise
        return listening
    except OSError as error:
        raise InvalidArgument(f"cannot listen at {host}, port {port}: {error.strerror}; choose another.") from error
