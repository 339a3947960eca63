"""The worker processes: started, talked to, watched, killed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from locore.kernel.errors import LocoreError
from locore.server.access import Metrics
from locore.server.errors import NO_RETRY, OUT_OF_MEMORY, ApiError, from_worker, timed_out, worker_died
from locore.server.jobs import Job
from locore.server.offences import Offences
from locore.server.settings import Settings
from locore.server.task import BEGUN

log = logging.getLogger("locore.server")
LOOK_SECONDS = 0.1  # between looks at clients, clocks and memory
LINE_BYTES = 2**28  # of one answer
FROM_OUTSIDE = (None, 0, -9, -15)  # exit codes of a process that somebody has ended, or something


class StartFailed(LocoreError):
    """The worker could not load its model."""


@dataclass(frozen=True)
class Loss:
    """Why a process is given up.

    Attributes:
        error: for the job that is to blame, if it is known.
        guilty: numbers of such jobs; the others may be tried again.
        suspects: those are tried again one by one.
        certain: it was the job, and nobody from outside who killed the process.
    """

    error: ApiError
    guilty: set[int]
    suspects: bool = False
    certain: bool = True


class WorkerProcess:
    """One process with one model, which computes for several requests at a time.

    Attributes:
        facts: what it says of its model; None while it is loading.
        restarts: how often it had to be started again.
        jobs: what it computes, by number.
        retired: it takes nothing more, and ends when it has computed what it took.
    """

    def __init__(self, settings: Settings, metrics: Metrics, offences: Offences | None = None) -> None:
        self.settings = settings
        self.metrics = metrics
        self.offences = offences or Offences()
        self.facts: dict[str, Any] | None = None
        self.restarts = -1
        self.jobs: dict[int, Job] = {}
        self.retired = False
        self._process: asyncio.subprocess.Process | None = None
        self._memory_at_start = 0
        self._table = True  # may a prepared table steer? As at the first start, whatever is prepared between two

    @property
    def pid(self) -> int | None:
        """Of the process, if one is running."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Is the process there?"""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Load the model.

        Raises:
            StartFailed: it cannot be loaded.
        """
        names = ("model", "device", "threads", "compile_seconds", "compile_memory", "together", "max_rows", "small_rows")
        options = json.dumps({**{name: getattr(self.settings, name) for name in names}, "table": self._table})
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
        self.facts, self._table = first["ready"], first["ready"]["table"]
        log.info("a worker has loaded %s", self.settings.model_id)
        self._memory_at_start = self._memory()

    async def stop(self) -> None:
        """Kill the process, if there is one."""
        process, self._process, self.facts = self._process, None, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def take(self, job: Job) -> None:
        """Compute this too."""
        self.jobs[job.number], job.progress = job, BEGUN
        self._send({"id": job.number, "task": job.task.to_json()})

    def has_room(self, job: Job) -> bool:
        """May this job be run beside those that are running? Of large ones there is one at a time, beside small ones."""
        if self.facts is None or self.retired or not self.running:
            return False
        if not self.jobs:
            return True
        if job.alone or any(other.alone for other in self.jobs.values()):
            return False
        small = [other.rows for other in self.jobs.values() if other.rows <= self.settings.small_rows]
        if job.rows > self.settings.small_rows:
            return len(small) == len(self.jobs)
        return len(small) < self.settings.together and sum(small) + job.rows <= self.settings.max_rows

    @property
    def rows(self) -> int:
        """How many rows of a forward pass its jobs may fill."""
        return sum(job.rows for job in self.jobs.values())

    async def compute(self, freed: Callable[[], None]) -> list[Job]:
        """Answer what it takes, until the process is gone, or done and retired; `freed` is called when there may be more room.

        Returns:
            Jobs that did nothing wrong and may be asked of another process.
        """
        reading = asyncio.ensure_future(self._receive())
        told: set[int] = set()
        try:
            while self.jobs or not self.retired:
                await asyncio.wait({reading}, timeout=LOOK_SECONDS)
                lost = self._look(told)
                if lost is not None:
                    return await self._given_up(lost)
                if not reading.done():
                    continue
                message = reading.result()
                if message is None:
                    return await self._given_up(await self._died())
                if "progress" in message:
                    self.jobs[message["id"]].progress = message["progress"]
                elif "piece" in message:
                    assert self.facts is not None  # it is ready
                    self.jobs[message["id"]].say(message["piece"], self.facts["fingerprint"])
                else:
                    self._finish(self.jobs.pop(message["id"]), message)
                    told.discard(message["id"])
                    freed()
                reading = asyncio.ensure_future(self._receive())
            await self.stop()
            return []
        finally:
            reading.cancel()

    def _look(self, told: set[int]) -> Loss | None:
        """Stop what nobody waits for; why the process has to be given up, if so."""
        for number, job in self.jobs.items():
            if job.done and number not in told:
                told.add(number)
                self._send({"stop": number})
        overdue = {number for number, job in self.jobs.items() if job.overdue > self.settings.grace}
        if overdue:
            log.warning("worker killed: a request did not stop %g seconds after the deadline", self.settings.grace)
            return Loss(timed_out(self.settings.timeout), overdue)
        if self.jobs and self._memory() - self._memory_at_start > self.settings.worker_memory:
            log.warning("worker killed: it took more than %d bytes of memory", self.settings.worker_memory)
            return self._loss(ApiError(500, OUT_OF_MEMORY, "out_of_memory", headers=NO_RETRY))
        return None

    def _loss(self, error: ApiError, certain: bool = True) -> Loss:
        """Of several nobody knows which it was: each is tried again by itself."""
        return Loss(error, set(self.jobs) if len(self.jobs) == 1 else set(), suspects=True, certain=certain)

    async def _died(self) -> Loss:
        """Why the process has ended by itself: a crash is that of a job, a kill may be anybody's."""
        process = self._process
        if process is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), LOOK_SECONDS)
        return self._loss(worker_died(), certain=process is not None and process.returncode not in FROM_OUTSIDE)

    async def _given_up(self, loss: Loss) -> list[Job]:
        """The process is gone, or goes now: nobody waits in vain."""
        await self.stop()
        jobs, self.jobs = self.jobs, {}
        for job in jobs.values():
            self.metrics.tokens.inc(job.progress["lm_tokens"])
        for number in loss.guilty:
            job = jobs.pop(number)
            job.of.charge(job.progress["lm_tokens"])
            # Killed twice from outside while it is alone is no accident either.
            if loss.certain or self.offences.is_suspect(job.digest):
                self.offences.convict(job.owner, job.digest)
            self.offences.suspect(job.digest)
            job.fail(loss.error)
        for job in jobs.values():
            if job.pieces:  # another draw would take back what the client has read
                job.fail(worker_died())
            job.alone = job.alone or loss.suspects
            if loss.suspects:
                self.offences.suspect(job.digest)
        return [job for job in jobs.values() if not job.done]

    def _send(self, message: dict[str, Any]) -> None:
        """Into the pipe; if the process is gone, whoever reads its answers finds out."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(ConnectionError, OSError):
                self._process.stdin.write(json.dumps(message).encode() + b"\n")

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
        job.of.charge(message["lm_tokens"])
        self.metrics.tokens.inc(message["lm_tokens"])
        if job.alone:
            self.offences.acquit(job.digest)
        if "result" in message:
            job.succeed(message["result"])
        elif message["error"]["kind"] == "Stopped":
            self.metrics.stopped.labels("left" if job.answer.cancelled() else "deadline").inc()
        else:
            job.fail(from_worker(message["error"]["kind"], message["error"]["message"], job.of.constrained_by))
