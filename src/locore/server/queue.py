"""A bounded queue of requests, which hands them to worker processes that have room. Owners take turns, and their requests.

There are two lanes: small runs wait for no large one, and of those a worker computes one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any

from locore.server.access import Metrics
from locore.server.errors import ApiError, shutting_down
from locore.server.jobs import Bundle, Job, Request
from locore.server.offences import Offences, digests_of
from locore.server.process import StartFailed, WorkerProcess
from locore.server.settings import Settings
from locore.server.task import Task
from locore.server.turns import Turns

log = logging.getLogger("locore.server")
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between tries to start a worker again
USUAL_SECONDS = 1.0  # of a request, before any was measured
LONGEST_RETRY = 60


class Queue:
    """Runs that wait, and the workers that take them."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.offences = Offences()
        self.workers = [WorkerProcess(settings, metrics, self.offences) for _ in range(settings.workers)]
        self.failure: StartFailed | None = None  # of the first start; later ones are tried again
        self._small, self._large = self._lanes = Turns(), Turns()
        self._works: dict[WorkerProcess, asyncio.Task[None]] = {}
        self._reloading: asyncio.Task[None] | None = None
        self._wants_reload = False
        self._seconds = USUAL_SECONDS
        self.refuses = False  # new requests, since the server stops

    @property
    def facts(self) -> dict[str, Any] | None:
        """What a worker that is ready says of the model; None if there is none."""
        return next((worker.facts for worker in self.workers if worker.facts is not None), None)

    @property
    def depth(self) -> int:
        """How many runs wait."""
        return sum(map(len, self._lanes))

    @property
    def running(self) -> int:
        """How many runs workers are busy with."""
        return sum(len(worker.jobs) for worker in self.workers)

    @property
    def rows(self) -> int:
        """How many rows of forward passes these may fill."""
        return sum(worker.rows for worker in self.workers)

    def refuse(self) -> None:
        """Take no more requests."""
        self.refuses = True

    def open(self, on_failure: Callable[[], None]) -> None:
        """Start the workers; `on_failure` is called if the model cannot be loaded at all."""
        for worker in self.workers:
            self._works[worker] = asyncio.create_task(self._begin(worker, on_failure))

    def drain(self) -> None:
        """Take no more requests; whoever waits or is computed for gets 503."""
        self.refuses = True
        waiting = [job for lane in self._lanes for job in lane]
        for job in [*waiting, *(job for worker in self.workers for job in worker.jobs.values())]:
            job.fail(shutting_down())

    async def close(self) -> None:
        """Kill the workers; who still waits gets 503."""
        self.drain()
        tasks = [*self._works.values(), *([] if self._reloading is None else [self._reloading])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for worker in self.workers:
            await worker.stop()

    def submit(self, tasks: list[Task], owner: str = "", **more: Any) -> Bundle:
        """The runs of a request, which wait for their turn. A request is taken as a whole or not at all.

        Args:
            tasks: one for each run.
            owner: of the request.
            more: what else a `Request` says.

        Raises:
            ApiError: 429, too many of this owner wait already, or it was this request that ended a process; 503, the server is
                shutting down.
        """
        if self.refuses:
            raise shutting_down()
        request = Request(owner, **more)
        waiting = set.union(*(lane.requests_of(owner) for lane in self._lanes))
        if len(waiting) >= self.settings.queue_size:
            seconds = math.ceil(self._seconds * self.depth / (self.settings.workers * self.settings.together))
            raise ApiError(
                429,
                f"{len(waiting)} requests are waiting already; try again later.",
                "queue_full",
                headers={"Retry-After": str(min(max(1, seconds), LONGEST_RETRY))},
            )
        digests = digests_of(tasks)
        self.offences.admit(owner, digests)
        jobs = [
            Job(task, self.settings.timeout, request, digest, self.offences.is_suspect(digest))
            for task, digest in zip(tasks, digests, strict=True)
        ]
        for job in jobs:
            self._lane(job).add(job)
            job.when_done(lambda job=job: self._forget(job))  # type: ignore[misc]
        self._dispatch()
        return Bundle(jobs)

    def _lane(self, job: Job) -> Turns:
        return self._small if job.rows <= self.settings.small_rows else self._large

    def state(self, job: Job) -> dict[str, Any]:
        """How far it is: where it stands among those that wait, or what its worker told last."""
        position = self._position(job)
        return {"state": "running", **job.progress} if position is None else {"state": "queued", "position": position}

    def _position(self, job: Job) -> int | None:
        """1 for the next of its lane to run, if nobody leaves or comes. None if it does not wait."""
        return next((number for number, other in enumerate(self._lane(job), 1) if other is job), None)

    def _forget(self, job: Job) -> None:
        """Nobody waits for it any more, so it does not wait either."""
        if job in self._lane(job):
            self._lane(job).remove(job)
            self._dispatch()

    def _dispatch(self) -> None:
        """Hand out what waits, as long as there is room. In its lane nobody is passed over by what is smaller."""
        for lane in self._lanes:
            while (job := lane.first(self._has_share)) is not None:
                free = [worker for worker in self.workers if worker.has_room(job)]
                if not free:
                    if job.alone:
                        return  # a worker has to become idle for it
                    break
                lane.take(job)
                begun = time.monotonic()
                job.when_done(lambda begun=begun: self._measure(time.monotonic() - begun))  # type: ignore[misc]
                min(free, key=lambda worker: worker.rows).take(job)

    def _has_share(self, job: Job) -> bool:
        """Of what runs, at most half is of its request: else nobody could come in beside one of many runs."""
        running = [other for worker in self.workers for other in worker.jobs.values()]
        most = max(1, len(self.workers) * self.settings.together // 2)
        return sum(other.request == job.request for other in running) < most

    def _measure(self, seconds: float) -> None:
        self._seconds += 0.2 * (seconds - self._seconds)

    async def _begin(self, worker: WorkerProcess, on_failure: Callable[[], None]) -> None:
        """The life of a worker that is there from the beginning."""
        try:
            await worker.start()
        except StartFailed as error:
            self.failure = error
            on_failure()
        else:
            await self._work(worker)

    async def _work(self, worker: WorkerProcess) -> None:
        """What a worker that is ready does all its life, however often its process ends."""
        while True:
            self._dispatch()
            innocent = await worker.compute(self._dispatch)
            for job in reversed(innocent):
                self._lane(job).add(job, again=True)
            if worker.retired:
                break
            log.warning("a worker ended and is started again")
            self.metrics.restarts.inc()
            await self._started_again(worker)
        self.workers.remove(worker)
        del self._works[worker]
        self._dispatch()

    async def _started_again(self, worker: WorkerProcess) -> None:
        pause = FIRST_PAUSE
        while not worker.retired:
            try:
                await worker.start()
            except StartFailed:
                log.error("a worker could not be started again; next try in %g seconds", pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                return

    def reload(self) -> None:
        """Load the model as it lies there now, and then let go of what is loaded; again, if that has begun already."""
        self._wants_reload = True
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.create_task(self._reload())

    async def _reload(self) -> None:
        while self._wants_reload and not self.refuses:
            self._wants_reload = False
            try:
                for old in list(self.workers):
                    await self._replace(old)
            except StartFailed as error:
                log.error("the model is not reloaded, and the old one stays: %s", error)
                self.metrics.reloads.labels("failure").inc()
            else:
                log.info("the model is reloaded")
                self.metrics.reloads.labels("success").inc()

    async def _replace(self, old: WorkerProcess) -> None:
        """By a worker that has loaded its model. Then the old one is gone: there is one model more than usual at most."""
        new, ending = WorkerProcess(self.settings, self.metrics, self.offences), self._works[old]
        self.workers.append(new)
        try:
            await new.start()
        except StartFailed:
            self.workers.remove(new)
            raise
        old.retired = True
        self._works[new] = asyncio.create_task(self._work(new))
        await asyncio.wait({ending})
