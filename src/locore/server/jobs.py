"""Runs that somebody waits for. Each ends exactly once, with a result or an error; those of one request belong together."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from locore.server.errors import ApiError, timed_out
from locore.server.task import BEGUN, Result, Task

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Request:
    """What the runs of one request share.

    Attributes:
        owner: whose it is; where several have runs waiting, they take turns.
        constrained_by: the field that the constraint came by, for errors.
        charge: is told of the LM tokens that a run has cost, whatever became of it.
        number: its own among all of this process.
    """

    owner: str = ""
    constrained_by: str = "constraint"
    charge: Callable[[int], None] = lambda lm_tokens: None
    number: int = field(default_factory=lambda: next(_numbers))


class Job:
    """One run.

    Attributes:
        number: its own among all of this process.
        task: what to compute.
        of: the request that it belongs to.
        digest: a short name for what it asks.
        answer: a future of what the worker sent; an `ApiError` is its exception.
        alone: it is not run beside others, since one of them ended a process, or took too much memory.
        progress: what the worker last told of it.
        pieces: what it told of the texts so far, which all begin like that.
        fingerprint: of the model that computes it, once there are pieces.
    """

    def __init__(self, task: Task, seconds: float, of: Request | None = None, digest: str = "", alone: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self.number = next(_numbers)
        self.task = task
        self.of = of or Request()
        self.digest = digest
        self.alone = alone
        self.progress = BEGUN
        self.pieces: list[str] = []
        self.fingerprint = ""
        self._listeners: list[Callable[[], None]] = []
        self.answer: asyncio.Future[dict[str, Any]] = loop.create_future()
        # Nobody may be left to fetch it.
        self.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        self._deadline = time.monotonic() + seconds
        timer = loop.call_later(seconds, lambda: self.fail(timed_out(seconds)))
        self.when_done(timer.cancel)

    @property
    def owner(self) -> str:
        """Whose it is."""
        return self.of.owner

    @property
    def request(self) -> int:
        """The number of its request."""
        return self.of.number

    @property
    def done(self) -> bool:
        """Has it an answer, or does nobody wait for one?"""
        return self.answer.done()

    @property
    def rows(self) -> int:
        """About how many rows of a forward pass it fills."""
        return self.task.rows

    @property
    def overdue(self) -> float:
        """Seconds since its deadline, negative before it."""
        return time.monotonic() - self._deadline

    def when_done(self, call: Callable[[], object]) -> None:
        """Call this once it has its answer."""
        self.answer.add_done_callback(lambda _: call())

    def say(self, piece: str, fingerprint: str) -> None:
        """A piece more of the beginning of its texts."""
        self.pieces.append(piece)
        self.fingerprint = fingerprint
        for call in self._listeners:
            call()

    def when_said(self, call: Callable[[], None]) -> None:
        """Call this with each piece."""
        self._listeners.append(call)

    def message(self) -> dict[str, Any]:
        """What the worker is sent."""
        return {"id": self.number, "task": self.task.to_json()}

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


class Bundle:
    """The runs of one request: all of them have results, or the request has the first error."""

    def __init__(self, jobs: list[Job]) -> None:
        """Of at least one job."""
        self.jobs = jobs
        self._whole = asyncio.gather(*(job.answer for job in jobs))
        self._whole.add_done_callback(self._ended)
        self._news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for job in jobs:
            job.when_said(self._said)

    def _said(self) -> None:
        if not self._news.done():
            self._news.set_result(None)

    def news(self) -> asyncio.Future[None]:
        """Done with the next piece that a run tells, or the last one that nobody has asked about."""
        return self._news

    def told(self) -> None:
        """All that was said is known."""
        if self._news.done():
            self._news = asyncio.get_running_loop().create_future()

    def _ended(self, whole: asyncio.Future[Any]) -> None:
        """Where one has failed nobody waits for the others."""
        if self.cancelled or whole.exception() is not None:
            for job in self.jobs:
                job.leave()

    @property
    def done(self) -> bool:
        """Is there an answer, or does nobody wait for one?"""
        return self._whole.done()

    @property
    def cancelled(self) -> bool:
        """Has the client left?"""
        if not self.done or self._whole.cancelled():
            return self.done
        return isinstance(self._whole.exception(), asyncio.CancelledError)

    async def wait(self, seconds: float | None, *others: asyncio.Future[Any]) -> None:
        """Until there is an answer, one of the others is done, or so many seconds have passed."""
        await asyncio.wait({self._whole, *others}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    def plain(self) -> list[dict[str, Any]]:
        """What the worker sent for each.

        Raises:
            ApiError: one of them failed.
        """
        return list(self._whole.result())

    def results(self) -> list[Result]:
        """The same as records."""
        return [Result.from_json(one) for one in self.plain()]

    def leave(self) -> None:
        """The client has left."""
        for job in self.jobs:
            job.leave()
