"""Requests that run beside each other meet for one forward pass.

Each request runs in a thread of its own, written as if it were alone: it knows nothing of the others, keeps its own random
numbers, and gets the same log-probabilities up to rounding. Where it needs the model it waits until all others do or have left,
and the last one to come makes one pass for everybody. Rows of requests that have ended leave, those of new ones enter.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from torch import Tensor

from locore.errors import CannotScore, Interrupted
from locore.models.attention import KeyValues, Step, Tails
from locore.models.base import LanguageModel
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

    def __init__(self, model: HuggingFaceModel) -> None:
        """Of a model that can read several prompts in one pass.

        Raises:
            CannotScore: it cannot.
        """
        if not model.causal.joins:
            raise CannotScore("this model cannot read several prompts in one pass: its attention is not plain.")
        self._causal = model.causal
        self.model = model.stepping(self.next_step)
        self.passes = self.rows = 0
        self._changed = threading.Condition()
        self._members = 0
        self._waiting: list[_Ticket] = []
        self._busy = self._closed = False

    @contextmanager
    def attended(self) -> Iterator[None]:
        """This thread takes part, and others wait for it."""
        with self._changed:
            self._members += 1
        try:
            yield
        finally:
            with self._changed:
                self._members -= 1
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
        ticket = _Ticket(Part(prompt, tails, tokens))
        with self._changed:
            self._waiting.append(ticket)
            self._changed.notify_all()
            while ticket.is_open and not self._is_complete():
                if self._closed:
                    raise Interrupted("the other requests were stopped, and this one with them.")
                self._changed.wait()
            if not ticket.is_open:
                return ticket.result()
            tickets, self._waiting, self._busy = self._waiting, [], True
        try:
            self._serve(tickets)
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
        return ticket.result()

    def _is_complete(self) -> bool:
        """Do all wait, so that one of them may go ahead for everybody?"""
        return not self._busy and len(self._waiting) >= self._members

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


def together(model: LanguageModel, calls: Iterable[Callable[[LanguageModel], T]], number: int) -> Iterator[T]:
    """What each call makes of the model, in their order; `number` of them run beside each other and share forward passes.

    Where the model cannot read several prompts in one pass they run one after the other. Calls are taken as they are needed,
    so there may be any number of them. If one fails, or nobody wants more, the others are stopped.
    """
    if number < 2 or not isinstance(model, HuggingFaceModel) or not model.causal.joins:
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
