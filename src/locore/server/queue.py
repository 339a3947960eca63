"""A bounded queue of requests, and the workers that empty it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from contextlib import suppress
from typing import Any

from locore.server.errors import ApiError, shutting_down
from locore.server.jobs import Job
from locore.server.metrics import Metrics
from locore.server.process import StartFailed, WorkerProcess
from locore.server.settings import Settings

log = logging.getLogger("locore.server")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between tries to start a worker again
USUAL_SECONDS = 1.0  # of a request, before any was measured
LONGEST_RETRY = 60


class Queue:
    """Requests in the order in which they came; those that may share a run with the first are taken along."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.workers = [WorkerProcess(settings, metrics) for _ in range(settings.workers)]
        self.failure: StartFailed | None = None  # of the first start; later ones are tried again
        self._waiting: deque[Job] = deque()
        self._changed = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []
        self._seconds = USUAL_SECONDS
        self._closed = False

    @property
    def facts(self) -> dict[str, Any] | None:
        """What a worker that is ready says of the model; None if there is none."""
        return next((worker.facts for worker in self.workers if worker.facts is not None), None)

    @property
    def depth(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def open(self, on_failure: Any) -> None:
        """Start the workers; `on_failure` is called if the model cannot be loaded at all."""
        self._tasks = [asyncio.create_task(self._work(worker, on_failure)) for worker in self.workers]

    async def close(self) -> None:
        """Kill the workers; who still waits gets 503."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for job in self._waiting:
            job.fail(shutting_down())
        for worker in self.workers:
            await worker.stop()

    async def submit(self, settings: dict[str, Any]) -> Job:
        """A request that waits for its turn.

        Raises:
            ApiError: 429, too many wait already; 503, the server is shutting down.
        """
        if self._closed:
            raise shutting_down()
        if self.depth >= self.settings.queue_size:
            seconds = math.ceil(self._seconds * self.depth / self.settings.workers)
            raise ApiError(
                429,
                f"{self.depth} requests are waiting already; try again later.",
                "queue_full",
                headers={"Retry-After": str(min(max(1, seconds), LONGEST_RETRY))},
            )
        job = Job(settings, self.settings.timeout)
        async with self._changed:
            self._waiting.append(job)
            self._changed.notify()
        job.when_done(lambda: self._forget(job))
        return job

    def _forget(self, job: Job) -> None:
        """Nobody waits for it any more, so it does not wait either."""
        with suppress(ValueError):
            self._waiting.remove(job)

    async def _take(self) -> list[Job]:
        """The first request that waits, and others that may share its run."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting)
            first = self._waiting.popleft()
            key = first.key()
            if key is None:
                return [first]
            alike = [job for job in self._waiting if job.key() == key][: self.settings.max_batch - 1]
            for job in alike:
                self._waiting.remove(job)
            return [first, *alike]

    async def _work(self, worker: WorkerProcess, on_failure: Any) -> None:
        """What one worker does all its life, however often its process ends."""
        await self._started(worker, on_failure)
        if self.failure is not None:
            return
        taking = asyncio.ensure_future(self._take())
        try:
            while True:
                ended = asyncio.ensure_future(worker.ended())
                await asyncio.wait({taking, ended}, return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    ended.cancel()
                    await self._run(worker, taking.result())
                    taking = asyncio.ensure_future(self._take())
                if not worker.running:
                    await worker.stop()
                    log.warning("a worker ended and is started again")
                    self.metrics.restarts.inc()
                    await self._started(worker, on_failure)
        finally:
            taking.cancel()
            for job in [] if not taking.done() or taking.cancelled() else taking.result():
                job.fail(shutting_down())

    async def _run(self, worker: WorkerProcess, jobs: list[Job]) -> None:
        start = time.monotonic()
        with self.metrics.running.track_inprogress():
            await worker.run(jobs)
        self._seconds += 0.2 * ((time.monotonic() - start) / len(jobs) - self._seconds)

    async def _started(self, worker: WorkerProcess, on_failure: Any) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                await worker.start()
            except StartFailed as error:
                if worker.restarts == 0:
                    self.failure = error
                    on_failure()
                    return
                log.error("a worker could not be started again; next try in %g seconds", pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                return
