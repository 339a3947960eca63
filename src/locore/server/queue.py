"""A bounded queue of requests, and the worker processes that empty it: started, talked to, watched, killed.

A request ends exactly once, with a result or an error.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from locore.errors import LocoreError
from locore.server.access import Metrics
from locore.server.errors import NO_RETRY, OUT_OF_MEMORY, ApiError, from_worker, shutting_down, timed_out, worker_died
from locore.server.settings import Settings

INDIVIDUAL = ("n", "seed", "return_particles")  # what may differ between requests that share a run
SHARED_SAMPLERS = (None, "auto", "exact", "masked")  # see `locore.server.worker`
_numbers = itertools.count(1)
log = logging.getLogger("locore.server")
LOOK_SECONDS = 0.1  # between looks at clients, clocks and memory
LINE_BYTES = 2**28  # of one answer
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between tries to start a worker again
USUAL_SECONDS = 1.0  # of a request, before any was measured
LONGEST_RETRY = 60


class Job:
    """One request.

    Attributes:
        number: its own among all of this server.
        settings: what to compute, as plain JSON.
        answer: a future of the result; an `ApiError` is its exception.
    """

    def __init__(self, settings: dict[str, Any], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.number = next(_numbers)
        self.settings = settings
        self.answer: asyncio.Future[dict[str, Any]] = loop.create_future()
        # Nobody may be left to fetch it.
        self.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        self._deadline = time.monotonic() + seconds
        timer = loop.call_later(seconds, lambda: self.fail(timed_out(seconds)))
        self.when_done(timer.cancel)

    @property
    def done(self) -> bool:
        """Has it an answer, or does nobody wait for one?"""
        return self.answer.done()

    @property
    def overdue(self) -> float:
        """Seconds since its deadline, negative before it."""
        return time.monotonic() - self._deadline

    def when_done(self, call: Callable[[], object]) -> None:
        """Call this once it has its answer."""
        self.answer.add_done_callback(lambda _: call())

    def message(self) -> dict[str, Any]:
        """What the worker is sent."""
        return {"id": self.number, **self.settings}

    def key(self) -> str | None:
        """Equal for requests that may share a run; None for one that runs by itself.

        Independent particles of one run are divided, so such a request must not ask for its own seed or budget. An exact
        posterior is the same for every seed.
        """
        sampler = self.settings["sampler"]
        if self.settings["task"] != "sample":
            return None
        if sampler not in SHARED_SAMPLERS or self.settings["budget"] is not None:
            return None
        if sampler == "masked" and self.settings["seed"] is not None:
            return None
        return json.dumps({name: value for name, value in self.settings.items() if name not in INDIVIDUAL}, sort_keys=True)

    def succeed(self, result: dict[str, Any]) -> None:
        """The result, if somebody still waits."""
        if not self.answer.done():
            self.answer.set_result(result)

    def fail(self, error: ApiError) -> None:
        """An error instead."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def leave(self) -> None:
        """The client has left."""
        self.answer.cancel()


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
