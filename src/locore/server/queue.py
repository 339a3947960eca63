"""A bounded queue of requests, which hands them to worker processes that have room.

Owners share what the workers have: who has had the least time comes first, and who has less than an equal share of the places
is let in although others fill them. So nobody waits for the end of what another has begun.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from locore.kernel.request import drawn_seed
from locore.server.access import Metrics
from locore.server.api_errors import ApiError, shutting_down
from locore.server.fork_server import ForkServer, StartFailed
from locore.server.jobs import Bundle, Job, Request, Turns
from locore.server.offences import Offences, digests_of
from locore.server.process import WorkerProcess
from locore.server.settings import ROOM, Settings
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
        self.offences = Offences()
        self.failure: StartFailed | None = None  # of the first start; later ones are tried again
        self._turns = Turns()
        self._forks = ForkServer()
        self.workers = [self._worker() for _ in range(settings.workers)]
        self._works: dict[WorkerProcess, asyncio.Task[None]] = {}
        self._reloading: asyncio.Task[None] | None = None
        self._wants_reload = False
        self._facts: dict[str, Any] | None = None
        self._seconds = USUAL_SECONDS
        self.refuses = False  # new requests, since the server stops

    def _worker(self) -> WorkerProcess:
        return WorkerProcess(self.settings, self.metrics, self.offences, self._turns.charge, self._forks)

    @property
    def facts(self) -> dict[str, Any] | None:
        """What a worker says of the model, or said last; None before the first is ready."""
        self._facts = next((worker.facts for worker in self.workers if worker.facts is not None), self._facts)
        return self._facts

    @property
    def is_ready(self) -> bool:
        """Is a worker there?"""
        return any(worker.facts is not None for worker in self.workers)

    @property
    def depth(self) -> int:
        """How many runs wait."""
        return len(self._turns)

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
        for job in [*self._turns, *self._jobs()]:
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
        await self._forks.stop()

    def submit(self, tasks: list[Task], owner: str = "", **more: Any) -> Bundle:
        """The runs of a request, which wait for their turn. A request is taken as a whole or not at all.

        Args:
            tasks: one for each run.
            owner: of the request: a key, or an address.
            more: what else a `Request` says.

        Raises:
            ApiError: 429, too many of this owner wait already, or for too long, or it was this request that ended a process;
                503, the server is shutting down.
        """
        if self.refuses:
            raise shutting_down()
        request = Request(owner, **more)
        waiting = self._turns.requests_of(owner)
        seconds = self._seconds * len(waiting) / self._share(owner)
        if len(waiting) >= self.settings.queue_size or seconds > self.settings.timeout:
            raise ApiError(
                429,
                f"{len(waiting)} requests are waiting already, for about {seconds:.2g} seconds; try again later.",
                "queue_full",
                headers={"Retry-After": str(min(max(1, math.ceil(seconds)), LONGEST_RETRY))},
            )
        digests = digests_of(tasks)
        self.offences.admit(request.key, digests)
        self._enter(owner)
        jobs = [
            Job(
                replace(task, seed=drawn_seed(task.seed)),
                self.settings.timeout,
                request,
                digest,
                self.offences.is_suspect(digest),
            )
            for task, digest in zip(tasks, digests, strict=True)
        ]
        for job in jobs:
            self._turns.add(job)
            job.when_done(lambda job=job: self._forget(job))  # type: ignore[misc]
        self._dispatch()
        return Bundle(jobs)

    def _jobs(self) -> list[Job]:
        """What runs."""
        return [job for worker in self.workers for job in worker.jobs.values()]

    def _enter(self, owner: str) -> None:
        """Of one who has nothing here, what he has had is counted from where the others are."""
        others = {*self._turns.owners, *(job.owner for job in self._jobs())}
        if owner not in others:
            self._turns.enter(owner, others)

    def state(self, job: Job) -> dict[str, Any]:
        """How far it is: where it stands among those that wait, or what its worker told last."""
        position = self._position(job)
        if position is not None:
            return {"state": "queued", "position": position}
        return {"state": "running", **{name: job.progress[name] for name in ("phase", "lm_tokens")}}

    def _position(self, job: Job) -> int | None:
        """1 for the next to run, if nobody leaves or comes. None if it does not wait."""
        return next((number for number, other in enumerate(self._turns, 1) if other is job), None)

    def _forget(self, job: Job) -> None:
        """Nobody waits for it any more, so it does not wait either."""
        if job in self._turns:
            self._turns.remove(job)
            self._dispatch()

    def _dispatch(self) -> None:
        """Hand out what waits, as long as there is room: to those first who have less than their share."""
        while len(self._turns):
            below = self._below()
            job = self._turns.first(below) or self._turns.first()
            assert job is not None  # one waits
            times = ROOM if job.owner in below else 1
            free = [worker for worker in self.workers if worker.has_room(job, times)]
            if not free:
                return  # nobody is passed over by what is smaller
            self._turns.take(job)
            begun = time.monotonic()
            job.when_done(lambda begun=begun: self._measure(time.monotonic() - begun))  # type: ignore[misc]
            min(free, key=lambda worker: worker.rows).take(job)

    def _below(self) -> set[str]:
        """Owners with something waiting who have fewer runs, and fewer rows, than if all had equally many."""
        runs, rows = Counter[str](), Counter[str]()
        for job in self._jobs():
            runs[job.owner] += 1
            rows[job.owner] += self.settings.rows_of(job.rows)
        places = self._share(*runs)
        most = places * self.settings.max_rows / self.settings.together
        return {owner for owner in self._turns.owners if runs[owner] < places and (rows[owner] < most or not runs[owner])}

    def _share(self, *more: str) -> float:
        """Of the places, of each owner of whom something waits or of these."""
        owners = len({*self._turns.owners, *more}) or 1
        return max(1.0, len(self.workers) * self.settings.together / owners)

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
                self._turns.add(job, again=True)
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
        new, ending = self._worker(), self._works[old]
        self.workers.append(new)
        try:
            await new.start()
        except StartFailed:
            self.workers.remove(new)
            raise
        old.retired = True
        self._works[new] = asyncio.create_task(self._work(new))
        await asyncio.wait({ending})
