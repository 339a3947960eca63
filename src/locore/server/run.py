"""Run the server until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import socket

import uvicorn

from locore.errors import InvalidArgument
from locore.server.app import create_app
from locore.server.settings import Settings

CONNECTIONS = 1000  # more get a plain 503
LEAVING_SECONDS = 10  # for answers that are on their way


def serve(settings: Settings) -> None:
    """Listen, print the address on standard output, and serve until SIGINT or SIGTERM.

    Raises:
        InvalidArgument: the address cannot be listened at.
        LocoreError: the model cannot be loaded.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    listening = listen(settings.host, settings.port)

    def stop() -> None:
        server.should_exit = True

    app = create_app(settings, on_failure=stop)
    # Uvicorn's own access log would show paths, in which a client may have put anything.
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=LEAVING_SECONDS,
        server_header=False,
    )
    server = uvicorn.Server(config)
    host, port = listening.getsockname()[:2]
    print(f"http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
    asyncio.run(server.serve(sockets=[listening]))
    if app.state.queue.failure is not None:
        raise app.state.queue.failure


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise InvalidArgument(f"cannot listen at {host}, port {port}: {error.strerror}; choose another.") from error
