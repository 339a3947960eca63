"""The worker processes: started, talked to, watched, killed."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from locore.kernel.limits import resident_memory
from locore.server.access import Metrics
from locore.server.api_errors import NO_RETRY, OUT_OF_MEMORY, ApiError, from_worker, worker_died
from locore.server.fork_server import Forked, ForkServer, StartFailed
from locore.server.jobs import Job
from locore.server.offences import Offences
from locore.server.settings import Settings

log = logging.getLogger("locore.server")
FULL = 0.7  # of its memory: a worker with more takes nothing more until it has less
FORGETTING_SECONDS = 10.0  # between two times that it is told to forget what it keeps
LOOK_SECONDS = 0.1  # between looks at clients, clocks and memory
COMPILES = "compile_seconds", "compile_memory"
OF_WORKERS = "model", "device", "threads", "steer_dtype", *COMPILES, "together", "max_rows", "exact_batches"
CRASHES, KILLS = 2, 3  # so many processes may a run see end by themselves, or by somebody from outside
FROM_OUTSIDE = (None, 0, -9, -15)  # exit codes of a process that somebody has ended, or something


@dataclass(frozen=True)
class Loss:
    """Why a process is given up.

    Attributes:
        error: for the job that is to blame, if it is known.
        guilty: numbers of such jobs; the others may be tried again.
        suspected: who has seen so many processes end is tried again by itself; infinite where the guilty alone are to blame,
            who then have ended none.
    """

    error: ApiError
    guilty: set[int]
    suspected: float = math.inf


class WorkerProcess:
    """One process with one model, which computes for several requests at a time.

    Attributes:
        facts: what it says of its model; None while it is loading.
        restarts: how often it had to be started again.
        jobs: what it computes, by number.
        retired: it takes nothing more, and ends when it has computed what it took.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        offences: Offences | None = None,
        charge: Callable[[str, float], None] = lambda owner, seconds: None,
        forks: ForkServer | None = None,
    ) -> None:
        """`charge` is told of each owner's seconds, while they are used."""
        self.settings = settings
        self.metrics = metrics
        self.offences = offences or Offences()
        self._charge = charge
        self._forks = forks or ForkServer()
        self.facts: dict[str, Any] | None = None
        self.restarts = -1
        self.jobs: dict[int, Job] = {}
        self.retired = False
        self._process: asyncio.subprocess.Process | Forked | None = None
        self._is_full, self._forgets_at = False, 0.0  # of memory
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
            StartFailed: it cannot be loaded, or there is no process for it.
        """
        options = {**{name: getattr(self.settings, name) for name in OF_WORKERS}, "table": self._table}
        self._process = await self._forks.started()
        self._send(options)
        self.restarts += 1
        first = await self._receive()
        if first is None or "ready" not in first:
            await self.stop()
            raise StartFailed("the worker ended while loading its model." if first is None else str(first["failed"]))
        memory, most = self._memory(), self.settings.worker_memory
        if memory > most:  # it would be killed before its first request, again and again
            await self.stop()
            raise StartFailed(
                f"a worker takes {memory / 1e6:.0f} MB with its model alone, more than its part of --memory, "
                f"{most / 1e6:.0f} MB; give more, or have fewer workers."
            )
        self.facts, self._table = first["ready"], first["ready"]["table"]
        log.info("a worker has loaded %s", self.settings.model_id)

    async def stop(self) -> None:
        """Kill the process, if there is one."""
        process, self._process, self.facts = self._process, None, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def take(self, job: Job) -> None:
        """Compute this too."""
        self.jobs[job.number] = job
        job.begin()
        self._send({"id": job.number, "owner": job.owner, "task": job.task.to_json()})

    def has_room(self, job: Job, times: int = 1) -> bool:
        """May this job be run beside those that are running, in so many times the usual places?"""
        if self.facts is None or self.retired or not self.running:
            return False
        if not self.jobs:
            return True
        if self._is_full or job.alone or any(other.alone for other in self.jobs.values()):
            return False
        together = self.settings.together if self.facts["meets"] else 1
        rows = self.rows + self.settings.rows_of(job.rows)
        return len(self.jobs) < times * together and rows <= times * self.settings.max_rows

    @property
    def rows(self) -> int:
        """How many rows of a forward pass its jobs may fill."""
        return sum(self.settings.rows_of(job.rows) for job in self.jobs.values())

    async def compute(self, freed: Callable[[], None]) -> list[Job]:
        """Answer what it takes, until the process is gone, or done and retired; `freed` is called when there may be more room.

        Returns:
            Jobs that did nothing wrong and may be asked of another process.
        """
        reading = asyncio.ensure_future(self._receive())
        stopped: set[int] = set()
        try:
            while self.jobs or not self.retired:
                await asyncio.wait({reading}, timeout=LOOK_SECONDS)
                lost = self._look(stopped)
                if lost is not None:
                    return await self._given_up(lost)
                if not reading.done():
                    continue
                message = reading.result()
                if message is None:
                    return await self._given_up(await self._died())
                if "progress" in message:
                    self._progress(self.jobs[message["id"]], message["progress"])
                elif "piece" in message:
                    assert self.facts is not None  # it is ready
                    self.jobs[message["id"]].say(message["piece"], self.facts["fingerprint"])
                else:
                    self._finish(self.jobs.pop(message["id"]), message)
                    stopped.discard(message["id"])
                    freed()
                reading = asyncio.ensure_future(self._receive())
            await self.stop()
            return []
        finally:
            reading.cancel()

    def _progress(self, job: Job, progress: dict[str, Any]) -> None:
        """How far a run is; its owner is charged with what it has used since it was told last."""
        self._charge(job.owner, progress["seconds"] - job.progress["seconds"])
        job.progress = progress

    def _look(self, stopped: set[int]) -> Loss | None:
        """Stop what nobody waits for; why the process has to be given up, if so."""
        for number, job in self.jobs.items():
            if job.done and number not in stopped:
                stopped.add(number)
                self._send({"stop": number})
        overdue = {number for number, job in self.jobs.items() if job.overdue > self.settings.grace}
        if overdue:
            log.warning("worker killed: a request did not stop %g seconds after the deadline", self.settings.grace)
            return Loss(worker_died(), overdue)  # these have had their answer
        memory, most = self._memory(), self.settings.worker_memory
        if memory > most:
            log.warning("worker killed: it took more than %d bytes of memory", most)
            return self._loss(ApiError(500, OUT_OF_MEMORY, "out_of_memory", headers=NO_RETRY))
        self._is_full = memory > FULL * most
        if self._is_full and time.monotonic() > self._forgets_at:
            self._forgets_at = time.monotonic() + FORGETTING_SECONDS
            self._send({"forget": True})
        return None

    def _loss(self, error: ApiError, certain: bool = True) -> Loss:
        """Of several nobody knows which it was: they are tried again, each by itself in the end."""
        most = CRASHES if certain else KILLS
        guilty = {number for number, job in self.jobs.items() if job.deaths + 1 >= most or (certain and len(self.jobs) == 1)}
        return Loss(error, guilty, most - 1)

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
            if loss.suspected < math.inf:
                self.offences.convict(job.of.key, job.digest)
            job.fail(loss.error)
        for job in jobs.values():
            job.begin_again()
            if job.deaths >= loss.suspected:
                job.alone = True
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
        return resident_memory(self.pid)

    def _finish(self, job: Job, message: dict[str, Any]) -> None:
        self._charge(job.owner, message["seconds"] - job.progress["seconds"])
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
