"""Runs that somebody waits for. Each ends exactly once, with a result or an error; those of one request belong together.

Who comes next: the owner who has had the least of the workers' time, then the requests of each in turn, so that none waits for
all runs of another.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from locore.server.api_errors import ApiError, timed_out, worker_died
from locore.server.task import BEGUN, Result, Task

_numbers = itertools.count(1)
REMEMBERED = 4096  # owners


@dataclass(frozen=True)
class Request:
    """What the runs of one request share.

    Attributes:
        owner: whose it is, by key, or by address where there are no keys; owners share the workers equally.
        key: the name of its key; "" where there are none.
        constrained_by: the field that the constraint came by, for errors.
        charge: is told of the LM tokens that a run has cost, whatever became of it.
        number: its own among all of this process.
    """

    owner: str = ""
    key: str = ""
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
        deaths: processes that have ended while they computed it.
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
        self.deaths = 0
        self.progress = BEGUN
        self.pieces: list[str] = []
        self.fingerprint = ""
        self._again = ""  # what it has told already, and is to tell again
        self._listeners: list[Callable[[], None]] = []
        self.answer: asyncio.Future[dict[str, Any]] = loop.create_future()
        # Nobody may be left to fetch it.
        self.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        self._came, self._seconds = time.monotonic(), seconds
        self._waited: float | None = None  # seconds, until a process began
        timer = loop.call_later(seconds, self.time_out)
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
        return time.monotonic() - self._came - self._seconds

    def when_done(self, call: Callable[[], object]) -> None:
        """Call this once it has its answer."""
        self.answer.add_done_callback(lambda _: call())

    def say(self, piece: str, fingerprint: str) -> None:
        """A piece more of the beginning of its texts; what a run that is done again says again is known."""
        repeated, self._again = self._again[: len(piece)], self._again[len(piece) :]
        if not piece.startswith(repeated):
            return self.fail(worker_died())
        self.fingerprint = fingerprint
        if piece != repeated:
            self.pieces.append(piece.removeprefix(repeated))
            for call in self._listeners:
                call()
        return None

    def begin(self) -> None:
        """A process computes it."""
        self.progress = BEGUN
        if self._waited is None:
            self._waited = time.monotonic() - self._came

    def begin_again(self) -> None:
        """The process that computed it has ended: from its seed it comes to the same."""
        self.deaths += 1
        self._again = "".join(self.pieces)

    def when_said(self, call: Callable[[], None]) -> None:
        """Call this with each piece."""
        self._listeners.append(call)

    def succeed(self, result: dict[str, Any]) -> None:
        """The result, if somebody still waits."""
        if not self.answer.done():
            self.answer.set_result(result)

    def fail(self, error: ApiError) -> None:
        """An error instead."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def time_out(self) -> None:
        """Its deadline has come."""
        self.fail(timed_out(self._seconds, self._waited, self.progress["lm_tokens"]))

    def leave(self) -> None:
        """The client has left."""
        self.answer.cancel()


class Bundle:
    """The runs of one request: all of them have results, or the request has the first error."""

    def __init__(self, jobs: list[Job]) -> None:
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

    def acknowledge(self) -> None:
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
        return [Result.from_json(record) for record in self.plain()]

    def leave(self) -> None:
        """The client has left."""
        for job in self.jobs:
            job.leave()


class Turns:
    """Runs that wait, by owner and request. Owners who have had the least come first; requests of one take turns.

    What an owner has had is in seconds of a worker, and charged while it is used. Who comes anew begins with as much as the one
    who has had the least of those who are there: nobody saves up, or pays for what nobody else wanted.
    """

    def __init__(self) -> None:
        self._owners: OrderedDict[str, OrderedDict[int, deque[Job]]] = OrderedDict()
        self._had: dict[str, float] = {}

    def charge(self, owner: str, seconds: float) -> None:
        """They were used for this owner."""
        self._had[owner] = self._had.get(owner, 0.0) + seconds

    def enter(self, owner: str, others: Collection[str]) -> None:
        """An owner of whom nothing waits or runs comes beside these others; those who are gone are forgotten."""
        least = min((self._had.get(other, 0.0) for other in others), default=0.0)
        mine = max(self._had.pop(owner, 0.0), least)
        if len(self._had) >= REMEMBERED:
            self._had = {other: had for other, had in self._had.items() if other in others}
        self._had[owner] = mine

    def _ordered(self) -> list[str]:
        """Owners, equal ones in turn."""
        return sorted(self._owners, key=lambda owner: self._had.get(owner, 0.0))

    @property
    def owners(self) -> Collection[str]:
        """Those of whom something waits."""
        return self._owners.keys()

    def __len__(self) -> int:
        return sum(len(jobs) for requests in self._owners.values() for jobs in requests.values())

    def __iter__(self) -> Iterator[Job]:
        """In the order in which they have their turns, if nobody leaves or comes, and none costs more than another."""
        owners = deque(deque(map(deque, self._owners[owner].values())) for owner in self._ordered())
        while owners:
            requests = owners.popleft()
            jobs = requests.popleft()
            yield jobs.popleft()
            if jobs:
                requests.append(jobs)
            if requests:
                owners.append(requests)

    def __contains__(self, job: Job) -> bool:
        requests = self._owners.get(job.owner)
        return requests is not None and job in requests.get(job.request, ())

    def add(self, job: Job, again: bool = False) -> None:
        """It waits too: behind the others of its request, or before everybody if it was taken once and has to be again."""
        requests = self._owners.setdefault(job.owner, OrderedDict())
        jobs = requests.setdefault(job.request, deque())
        if again:
            jobs.appendleft(job)
            requests.move_to_end(job.request, last=False)
            self._owners.move_to_end(job.owner, last=False)
        else:
            jobs.append(job)

    def first(self, owners: Collection[str] | None = None) -> Job | None:
        """Whose turn it is, of these owners or of all."""
        for owner in self._ordered():
            if owners is None or owner in owners:
                return next(iter(self._owners[owner].values()))[0]
        return None

    def take(self, job: Job) -> None:
        """It has its turn: its request and its owner go to the end."""
        requests = self._owners[job.owner]
        requests[job.request].remove(job)
        requests.move_to_end(job.request)
        self._owners.move_to_end(job.owner)
        self._tidy(job)

    def remove(self, job: Job) -> None:
        """It waits no longer."""
        self._owners[job.owner][job.request].remove(job)
        self._tidy(job)

    def requests_of(self, owner: str) -> set[int]:
        """Numbers of the requests of one owner."""
        return set(self._owners.get(owner, ()))

    def _tidy(self, job: Job) -> None:
        if not self._owners[job.owner][job.request]:
            del self._owners[job.owner][job.request]
        if not self._owners[job.owner]:
            del self._owners[job.owner]
