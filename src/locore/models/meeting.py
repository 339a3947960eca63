"""Requests that run beside each other meet for one forward pass.

Each request runs in a thread of its own, written as if it were alone: it knows nothing of the others, keeps its own random
numbers, and gets the same log-probabilities up to rounding. Where it needs the model it waits until all others do or have left,
and the last one to come makes one pass for everybody. Rows of requests that have ended leave, those of new ones enter.

Where requests are of strangers, nobody waits long for one that computes something else: patience is a share of what a pass
takes. And a pass has so many rows at most; those who have had the fewest rows come first, so that a large request holds up no
small one.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeGuard, TypeVar

from torch import Tensor

from locore.kernel.errors import CannotScore, Interrupted
from locore.kernel.limits import may_stop, watched
from locore.kernel.models.base import LanguageModel
from locore.models.attention import KeyValues, Step, Tails
from locore.models.causal import CausalLM
from locore.models.huggingface import HuggingFaceModel
from locore.models.joined import Part

Answer = tuple[Tensor, Step]
T = TypeVar("T")
AHEAD = 2  # times the number that runs together: how many may have begun before the first of them is done


@dataclass(eq=False)
class _Ticket:
    """One thread's wish."""

    part: Part
    owner: int
    since: float
    answer: Answer | None = None
    error: BaseException | None = field(default=None)

    @property
    def is_open(self) -> bool:
        return self.answer is None and self.error is None

    def result(self) -> Answer:
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer


class Meeting:
    """Where threads that read one model wait for each other.

    Attributes:
        passes, rows: how many forward passes were made, and of how many rows in all.
    """

    def __init__(self, model: HuggingFaceModel, patience: float = math.inf, most_rows: int = 2**31) -> None:
        """Of a model that can read several prompts in one pass.

        Args:
            model: as it was loaded.
            patience: how long to wait for those who compute, in terms of the last pass; by default until they come.
            most_rows: of one pass; what has more by itself is read beside the others.

        Raises:
            CannotScore: it cannot.
        """
        if not model.causal.joins:
            raise CannotScore("this model cannot read several prompts in one pass: its attention is not plain.")
        self._causal = model.causal
        self.model = model.stepping(self.next_step)
        self.passes = self.rows = 0
        self._changed = threading.Condition()
        self._patience, self._most_rows = patience, most_rows
        self._last = 0.0  # seconds of the last pass
        self._read: dict[int, int] = {}  # rows that each thread has had
        self._waiting: list[_Ticket] = []
        self._busy = self._closed = False

    @contextmanager
    def attended(self) -> Iterator[None]:
        """This thread takes part, and others wait for it."""
        me = threading.get_ident()
        with self._changed:
            self._read[me] = min(self._read.values(), default=0)
        try:
            yield
        finally:
            with self._changed:
                del self._read[me]
                self._changed.notify_all()

    def close(self) -> None:
        """Whoever waits, or comes later, is sent away."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def next_step(self, prompt: KeyValues, tails: Tails, tokens: Tensor) -> Answer:
        """As `CausalLM.next_step`.

        Raises:
            Interrupted: the meeting was closed.
        """
        may_stop()
        if len(tokens) > self._most_rows:  # read in this thread, beside the others, who need not wait for so many rows
            return self._causal.next_step(prompt, tails, tokens)
        ticket = _Ticket(Part(prompt, tails, tokens), threading.get_ident(), time.monotonic())
        with self._changed:
            self._waiting.append(ticket)  # nobody else need wake: if this was the last to come, it makes the pass itself
        while ticket.is_open:
            with self._changed:
                tickets = self._taken(ticket)
            if tickets:
                self._pass(tickets)
        return ticket.result()

    def _taken(self, mine: _Ticket) -> list[_Ticket]:
        """Wait; then those for whom this thread is to make a pass, or nobody if its own ticket has its answer."""
        while mine.is_open:
            if self._closed:
                raise Interrupted("the other requests were stopped, and this one with them.")
            seconds = self._seconds_left()
            if seconds <= 0:
                self._busy = True
                return self._next_rows()
            self._changed.wait(None if seconds == math.inf else seconds)
        return []

    def _seconds_left(self) -> float:
        """How long to wait yet; infinitely where nobody knows."""
        if self._busy or not self._waiting:
            return math.inf
        if len(self._waiting) >= len(self._read):
            return 0.0
        oldest = min(ticket.since for ticket in self._waiting)
        return self._patience * self._last + oldest - time.monotonic() if self._patience < math.inf else math.inf

    def _next_rows(self) -> list[_Ticket]:
        """Tickets of one pass: those of the threads that have had the fewest rows, as many as may be."""
        taken, rows = list[_Ticket](), 0
        for ticket in sorted(self._waiting, key=lambda ticket: self._read.get(ticket.owner, 0)):
            if taken and rows + len(ticket.part) > self._most_rows:
                break
            taken.append(ticket)
            rows += len(ticket.part)
        self._waiting = [ticket for ticket in self._waiting if ticket not in taken]
        return taken

    def _pass(self, tickets: list[_Ticket]) -> None:
        """Answer these, and let the next ones go ahead."""
        start = time.monotonic()
        try:
            with watched(None):  # who stops this thread does not stop the others
                self._serve(tickets)
        finally:
            with self._changed:
                self._busy, self._last = False, time.monotonic() - start
                for ticket in tickets:
                    if ticket.owner in self._read:
                        self._read[ticket.owner] += len(ticket.part)
                self._changed.notify_all()

    def _serve(self, tickets: list[_Ticket]) -> None:
        """Answer all of them, in as few passes as fit into memory."""
        try:
            for group in _groups(tickets, self._causal):
                answers = self._causal.next_steps([ticket.part for ticket in group])
                self.passes, self.rows = self.passes + 1, self.rows + sum(len(ticket.part) for ticket in group)
                for ticket, answer in zip(group, answers, strict=True):
                    ticket.answer = answer
        except BaseException as error:
            for ticket in tickets:
                if ticket.is_open:
                    ticket.error = error


def _groups(tickets: list[_Ticket], causal: CausalLM) -> Iterator[list[_Ticket]]:
    """Tickets whose rows fit into memory together, in the order in which they came."""
    group: list[_Ticket] = []
    for ticket in tickets:
        longest = max(one.part.tails.length for one in (*group, ticket))
        rows = sum(len(one.part) for one in (*group, ticket))
        # One layer's tails are gathered at a time.
        if group and rows > causal.batch_size(longest // len(ticket.part.prompt.layers), 1):
            yield group
            group = []
        group.append(ticket)
    if group:
        yield group


def can_meet(model: LanguageModel) -> TypeGuard[HuggingFaceModel]:
    """Can this model read several prompts in one pass?"""
    return isinstance(model, HuggingFaceModel) and model.causal.joins


def together(model: LanguageModel, calls: Iterable[Callable[[LanguageModel], T]], number: int) -> Iterator[T]:
    """What each call makes of the model, in their order; `number` of them run beside each other and share forward passes.

    Where the model cannot read several prompts in one pass they run one after the other. Calls are taken as they are needed,
    so there may be any number of them. If one fails, or nobody wants more, the others are stopped.
    """
    if number < 2 or not can_meet(model):
        for call in calls:
            yield call(model)
        return
    meeting = Meeting(model)

    def attended(call: Callable[[LanguageModel], T]) -> T:
        with meeting.attended():
            return call(meeting.model)

    waiting, begun = iter(calls), deque[Future[T]]()
    pool = ThreadPoolExecutor(number, "locore")
    try:
        begun.extend(pool.submit(attended, call) for call in islice(waiting, AHEAD * number))
        while begun:
            done = begun.popleft().result()
            begun.extend(pool.submit(attended, call) for call in islice(waiting, 1))
            yield done
    finally:
        meeting.close()
        pool.shutdown(cancel_futures=True)
