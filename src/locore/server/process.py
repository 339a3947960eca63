"""The server's side of a worker process: start it, talk to it, watch it, kill it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from locore.errors import LocoreError
from locore.server.errors import NO_RETRY, OUT_OF_MEMORY, ApiError, from_worker, shutting_down, timed_out, worker_died
from locore.server.jobs import Job
from locore.server.metrics import Metrics
from locore.server.settings import Settings

log = logging.getLogger("locore.server")

LOOK_SECONDS = 0.1  # between looks at clients, clocks and memory
LINE_BYTES = 2**28  # of one answer


class StartFailed(LocoreError):
    """The worker could not load its model."""


class WorkerProcess:
    """One process with one model, which computes for one group of requests at a time.

    Attributes:
        facts: what it says of its model; None while it is loading.
        restarts: how often it had to be started again.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.facts: dict[str, Any] | None = None
        self.restarts = -1
        self._process: asyncio.subprocess.Process | None = None
        self._memory_at_start = 0

    @property
    def pid(self) -> int | None:
        """Of the process, if one is running."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Is the process there?"""
        return self._process is not None and self._process.returncode is None

    async def ended(self) -> None:
        """Return when the process is gone."""
        if self._process is not None:
            await self._process.wait()

    async def start(self) -> None:
        """Load the model.

        Raises:
            StartFailed: it cannot be loaded.
        """
        names = ("model", "device", "compile_seconds", "compile_memory")
        options = json.dumps({name: getattr(self.settings, name) for name in names})
        pipe = asyncio.subprocess.PIPE
        # The key is the server's alone.
        environment = {name: value for name, value in os.environ.items() if name != "LOCORE_API_KEY"}
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "locore.server.worker", options),
            stdin=pipe,
            stdout=pipe,
            limit=LINE_BYTES,
            env=environment,
        )
        self.restarts += 1
        first = await self._receive()
        if first is None or "ready" not in first:
            await self.stop()
            raise StartFailed("the worker ended while loading its model." if first is None else str(first["failed"]))
        self.facts = first["ready"]
        log.info("a worker has loaded %s", self.settings.model_id)
        self._memory_at_start = self._memory()

    async def stop(self) -> None:
        """Kill the process, if there is one."""
        process, self._process, self.facts = self._process, None, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def run(self, jobs: list[Job]) -> None:
        """Compute for requests that may share a run; every one of them gets its answer or an error.

        The process may be gone after that; see `running`.
        """
        pending = {job.number: job for job in jobs}
        told: set[int] = set()
        if not await self._send({"jobs": [job.message() for job in jobs]}):
            return await self._lost(pending, worker_died())
        reading = asyncio.ensure_future(self._receive())
        try:
            while pending:
                await asyncio.wait({reading}, timeout=LOOK_SECONDS)
                if not reading.done():
                    error = await self._look(pending, told)
                    if error is not None:
                        return await self._lost(pending, error)
                    continue
                message = reading.result()
                if message is None:
                    return await self._lost(pending, worker_died())
                self._finish(pending.pop(message["id"]), message)
                if pending:
                    reading = asyncio.ensure_future(self._receive())
        finally:
            reading.cancel()
            for job in pending.values():  # the server stops
                job.fail(shutting_down())

    async def _look(self, pending: dict[int, Job], told: set[int]) -> ApiError | None:
        """Stop what nobody waits for; the error with which the process has to be given up, if so."""
        for number, job in pending.items():
            if job.done and number not in told:
                told.add(number)
                await self._send({"stop": number})
        if self._memory() - self._memory_at_start > self.settings.worker_memory:
            log.warning("worker killed: it took more than %d bytes of memory", self.settings.worker_memory)
            return ApiError(500, OUT_OF_MEMORY, "out_of_memory", headers=NO_RETRY)
        if all(job.overdue > self.settings.grace for job in pending.values()):
            log.warning("worker killed: it did not stop %g seconds after the deadline", self.settings.grace)
            return timed_out(self.settings.timeout)
        return None

    async def _lost(self, pending: dict[int, Job], error: ApiError) -> None:
        """The process is gone, or goes now: nobody waits in vain."""
        await self.stop()
        for job in pending.values():
            job.fail(error)

    async def _send(self, message: dict[str, Any]) -> bool:
        if self._process is None or self._process.stdin is None:
            return False
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()
        except (ConnectionError, OSError):
            return False
        return True

    async def _receive(self) -> dict[str, Any] | None:
        """One message; None if the process has ended, or sent half a line."""
        if self._process is None or self._process.stdout is None:
            return None
        try:
            line = await self._process.stdout.readline()
        except (ConnectionError, ValueError):
            return None
        return json.loads(line) if line.endswith(b"\n") else None

    def _memory(self) -> int:
        """Bytes in memory; 0 where the system does not tell."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, AttributeError, IndexError):
            return 0

    def _finish(self, job: Job, message: dict[str, Any]) -> None:
        if "result" in message:
            job.succeed(message["result"])
        elif message["error"]["kind"] == "Stopped":
            self.metrics.stopped.labels("left" if job.answer.cancelled() else "deadline").inc()
        else:
            job.fail(from_worker(message["error"]["kind"], message["error"]["message"]))
