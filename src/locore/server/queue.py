"""A bounded queue of requests, which hands them to worker processes that have room. Owners of requests take turns."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from locore.server.access import Metrics
from locore.server.errors import ApiError, shutting_down
from locore.server.jobs import Bundle, Job
from locore.server.process import StartFailed, WorkerProcess
from locore.server.settings import Settings
from locore.server.task import Task

log = logging.getLogger("locore.server")
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between tries to start a worker again
USUAL_SECONDS = 1.0  # of a request, before any was measured
LONGEST_RETRY = 60


class Queue:
    """Runs that wait, and the workers that take them."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.workers = [WorkerProcess(settings, metrics) for _ in range(settings.workers)]
        self.failure: StartFailed | None = None  # of the first start; later ones are tried again
        self._waiting: OrderedDict[str, deque[Job]] = OrderedDict()  # by owner; the first has its turn
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
        return sum(map(len, self._waiting.values()))

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
        waiting = [job for jobs in self._waiting.values() for job in jobs]
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

    def submit(self, tasks: list[Task], owner: str = "", constrained_by: str = "constraint") -> Bundle:
        """The runs of a request, which wait for their turn. A request is taken as a whole or not at all.

        Raises:
            ApiError: 429, too many wait already; 503, the server is shutting down.
        """
        if self.refuses:
            raise shutting_down()
        if self.depth >= self.settings.queue_size:
            seconds = math.ceil(self._seconds * self.depth / (self.settings.workers * self.settings.together))
            raise ApiError(
                429,
                f"{self.depth} requests are waiting already; try again later.",
                "queue_full",
                headers={"Retry-After": str(min(max(1, seconds), LONGEST_RETRY))},
            )
        jobs = [Job(task, self.settings.timeout, owner, constrained_by) for task in tasks]
        for job in jobs:
            self._waiting.setdefault(owner, deque()).append(job)
            job.when_done(lambda job=job: self._forget(job))  # type: ignore[misc]
        self._dispatch()
        return Bundle(jobs)

    def state(self, job: Job) -> dict[str, Any]:
        """How far it is: where it stands among those that wait, or what its worker told last."""
        position = self._position(job)
        return {"state": "running", **job.progress} if position is None else {"state": "queued", "position": position}

    def _position(self, job: Job) -> int | None:
        """1 for the next to run, if nobody leaves or comes; owners take turns. None if it does not wait."""
        mine = self._waiting.get(job.owner, deque())
        if job not in mine:
            return None
        before = mine.index(job)  # of its owner; so many turns does each other owner have until then
        owners = list(self._waiting)
        turns = [before + (owners.index(owner) < owners.index(job.owner)) for owner in owners if owner != job.owner]
        others = [len(self._waiting[owner]) for owner in owners if owner != job.owner]
        return 1 + before + sum(map(min, turns, others))

    def _forget(self, job: Job) -> None:
        """Nobody waits for it any more, so it does not wait either."""
        mine = self._waiting.get(job.owner, ())
        if job in mine:
            mine.remove(job)  # type: ignore[union-attr]
            self._drop_empty(job.owner)
            self._dispatch()

    def _drop_empty(self, owner: str) -> None:
        if not self._waiting[owner]:
            del self._waiting[owner]

    def _dispatch(self) -> None:
        """Hand out what waits, as long as there is room. Who waits longest is not passed over by what is smaller."""
        while self._waiting:
            owner, mine = next(iter(self._waiting.items()))
            free = [worker for worker in self.workers if worker.has_room(mine[0])]
            if not free:
                return
            job, begun = mine.popleft(), time.monotonic()
            self._waiting.move_to_end(owner)
            self._drop_empty(owner)
            job.when_done(lambda begun=begun: self._measure(time.monotonic() - begun))  # type: ignore[misc]
            min(free, key=lambda worker: worker.rows).take(job)

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
                self._waiting.setdefault(job.owner, deque()).appendleft(job)
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
        new, ending = WorkerProcess(self.settings, self.metrics), self._works[old]
        self.workers.append(new)
        try:
            await new.start()
        except StartFailed:
            self.workers.remove(new)
            raise
        old.retired = True
        self._works[new] = asyncio.create_task(self._work(new))
        await asyncio.wait({ending})
