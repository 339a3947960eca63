"""Processes for workers, forked from one that has imported everything: a worker is there once its model is loaded.

Imports take longer than small models do, and workers share what is imported until they change it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Any

from locore.kernel.errors import LocoreError
from locore.server.settings import CAN_FORK

LINE_BYTES = 2**28  # of one answer
# Nothing looks for garbage before there is a model: that would take a fifth of the time, and there is none.
FORK_SERVER = "import gc; gc.disable(); from locore.server.fork_server import serve; serve()"
WORKER = "import gc; gc.disable(); from locore.server.model_worker import main; main()"
Channel = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class StartFailed(LocoreError):
    """The worker could not load its model, or has no process."""


class Forked:
    """A process of a worker, with what a `Process` of asyncio has.

    Attributes:
        pid: process id.
        stdin, stdout: lines to it and from it.
        returncode: None while it runs.
    """

    def __init__(self, pid: int, lines: Channel, reports: Channel) -> None:
        self.pid, (self.stdout, self.stdin) = pid, lines
        self.returncode: int | None = None
        self._end = asyncio.ensure_future(self._ended(*reports))

    def kill(self) -> None:
        """As by the system."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def wait(self) -> None:
        """Until it has ended."""
        await asyncio.shield(self._end)

    async def _ended(self, reports: asyncio.StreamReader, unused: asyncio.StreamWriter) -> None:
        line = await reports.readline()
        if not line:  # who would have told is gone, and with it goes what it has made
            self.kill()
        self.returncode = int(line or -signal.SIGKILL)
        self.stdin.close()
        unused.close()


class ForkServer:
    """Makes processes for workers, on systems where it can by forking."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._line: socket.socket | None = None
        self._starting = asyncio.Lock()

    async def started(self) -> Process | Forked:
        """A process that waits for its options.

        Raises:
            StartFailed: there is none.
        """
        if not CAN_FORK:
            return await _begun(WORKER, stdin=PIPE, stdout=PIPE, limit=LINE_BYTES)
        (lines, its_lines), (reports, its_reports) = socket.socketpair(), socket.socketpair()
        with its_lines, its_reports:
            line = await self._ready()
            with suppress(OSError):  # it has ended
                socket.send_fds(line, [b"."], [its_lines.fileno(), its_reports.fileno()])
        hears, unused = await asyncio.open_connection(sock=reports)
        own = await asyncio.open_connection(sock=lines, limit=LINE_BYTES)
        pid = await hears.readline()
        if not pid:
            for channel in (own[1], unused):
                channel.close()
            raise StartFailed("the process that makes workers has ended; the reason stands in the log.")
        return Forked(int(pid), own, (hears, unused))

    async def _ready(self) -> socket.socket:
        """The line to the process that forks, which is begun where there is none."""
        async with self._starting:
            if self._line is None or self._process is None or self._process.returncode is not None:
                await self.stop()
                self._line, theirs = socket.socketpair()
                with theirs:
                    self._process = await _begun(FORK_SERVER, stdin=theirs.fileno())
            return self._line

    async def stop(self) -> None:
        """The process that forks ends; to be called after those that it has made."""
        if self._line is not None:
            self._line.close()
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


async def _begun(code: str, **options: Any) -> Process:
    """Python that runs this, without the key, which is the server's alone."""
    public = {name: value for name, value in os.environ.items() if name != "LOCORE_API_KEY"}
    return await asyncio.create_subprocess_exec(sys.executable, "-c", code, env=public, **options)


# In the process that forks.


def serve() -> None:
    """Fork for each two sockets that come through standard input, until nobody is there any more.

    One socket is the worker's own, for lines; through the other its process id is told, and its exit code in the end.
    """
    import locore.models.huggingface  # noqa: F401  and torch and transformers
    from locore.server.model_worker import main

    gc.freeze()
    for name in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to all
        signal.signal(name, signal.SIG_IGN)
    line, (seen, wakes) = socket.socket(fileno=os.dup(0)), socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    workers: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([line, seen], [], [])
        if seen in ready:
            seen.recv(4096)
            _tell_ends(workers)
        if line not in ready:
            continue
        _, handles, _, _ = socket.recv_fds(line, 1, 2)
        if not handles:
            return
        lines, reports = (socket.socket(fileno=handle) for handle in handles)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number in (0, 1):
                os.dup2(lines.fileno(), number)
            for other in (line, seen, wakes, lines, reports, *workers.values()):
                other.close()
            return main()
        lines.close()
        reports.sendall(f"{pid}\n".encode())
        workers[pid] = reports


def _tell_ends(workers: dict[int, socket.socket]) -> None:
    while workers:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with workers.pop(pid) as reports, suppress(OSError):
            reports.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
