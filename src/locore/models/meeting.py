"""Requests that run beside each other meet for one forward pass.

Each request runs in a thread of its own, written as if it were alone: it knows nothing of the others, keeps its own random
numbers, and gets the same log-probabilities up to rounding. Where it needs the model it waits until all others do or have left,
and the last one to come makes one pass for everybody. Rows of requests that have ended leave, those of new ones enter.

Those of one owner compute in turns between passes. Where they are of strangers, nobody waits long for one that computes
something else: patience is a share of what a pass takes. Those whose owner has had the fewest rows come first, and beside
others a request is read in pieces that take no longer than a few small passes, so nobody waits for all rows of a large one.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TypeGuard, TypeVar

import torch
from torch import Tensor

from locore.kernel.errors import CannotScore, Interrupted
from locore.kernel.limits import may_stop, watched
from locore.kernel.models.language_model import LanguageModel
from locore.models.attention import KeyValues, Step, Tails
from locore.models.causal import CausalLM
from locore.models.huggingface import HuggingFaceModel
from locore.models.joined import Part

Answer = tuple[Tensor, Step]
Use = Callable[[float], None]
T = TypeVar("T")
LONG = 6.0  # times the shortest pass: what a pass of several owners may take
FEWEST = 32  # rows that such a pass may have in any case
TURN = 0.02  # seconds that a thread computes alone
FRIENDS = 4.0  # times as long threads of one owner wait for each other, if there is no other
AHEAD = 2  # times the number that runs together: how many may have begun before the first of them is done


@dataclass(eq=False)
class _Ticket:
    """One thread's wish, which is read in one piece or in several."""

    causal: CausalLM  # who is to read it: the model, or its copy in 16 bits
    part: Part
    thread: int
    since: float
    begun: int = 0  # rows that have been taken
    answers: list[Answer] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def left(self) -> int:
        return len(self.part) - self.begun

    @property
    def is_open(self) -> bool:
        return self.error is None and sum(len(rows) for rows, _ in self.answers) < len(self.part)

    def cut(self, most: int) -> Part:
        """The next rows of it."""
        rows = slice(self.begun, self.begun + min(most, self.left))
        self.begun = rows.stop
        whole = rows == slice(0, len(self.part))
        return self.part if whole else Part(self.part.prompt, self.part.tails.part(rows), self.part.tokens[rows])

    def result(self) -> Answer:
        if self.error is not None:
            raise self.error
        if len(self.answers) == 1:
            return self.answers[0]
        return torch.cat([rows for rows, _ in self.answers]), Step.joined([step for _, step in self.answers])


_Piece = tuple[_Ticket, Part]


class _Turns:
    """One thread computes at a time: side by side they hand Python's lock to each other at every operation."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._whose, self._since = 0, 0.0

    def take(self) -> None:
        """Wait until nobody computes, or whoever does has done so for long; then it goes on beside others."""
        with self._changed:
            while self._whose and (left := self._since + TURN - time.monotonic()) > 0:
                self._changed.wait(left)
            self._whose, self._since = threading.get_ident(), time.monotonic()

    def give(self) -> None:
        """Let the next one compute."""
        with self._changed:
            if self._whose == threading.get_ident():
                self._whose = 0
                self._changed.notify()


class Meeting:
    """Where threads that read one model wait for each other.

    Attributes:
        passes, rows: how many forward passes were made, and of how many rows in all.
    """

    def __init__(
        self, model: HuggingFaceModel, patience: float = math.inf, most_rows: int = 2**31, exact: bool = False
    ) -> None:
        """Of a model that can read several prompts in one pass.

        Args:
            model: as it was loaded.
            patience: how long to wait for those who compute, in terms of the last pass; by default until they come.
            most_rows: of one pass; what has more by itself is read in several.
            exact: is each request read in passes of its own, as it is without others? Then it gets the same bits; in a pass
                for several the last ones may differ.

        Raises:
            CannotScore: it cannot.
        """
        if not model.causal.joins:
            raise CannotScore("this model cannot read several prompts in one pass: its attention is not plain.")
        self.model = model.stepping(lambda causal: partial(self.next_step, causal))
        self.passes = self.rows = 0
        self._changed = threading.Condition()
        self._patience, self._most_rows, self._exact = patience, most_rows, exact
        self._last, self._shortest = 0.0, math.inf  # seconds of a pass
        self._piece = most_rows  # rows of a pass of several owners
        self._owner: dict[int, Hashable] = {}  # of each thread that is there
        self._had: dict[Hashable, dict[int, int]] = {}  # rows by owner and thread
        self._sums: dict[Hashable, int] = {}  # of each owner
        self._use: dict[int, Use] = {}
        self._away = 0  # threads for which nobody waits
        self._turns = _Turns()
        self._waiting: list[_Ticket] = []
        self._busy = self._closed = False

    @contextmanager
    def attended(self, owner: Hashable = None, use: Use = lambda seconds: None) -> Iterator[None]:
        """This thread takes part, and others wait for it.

        Args:
            owner: threads of one owner share what one has by itself.
            use: is told of the seconds of its part of each pass, and, less than nothing, of the time of its thread that it
                gave to a pass for all.
        """
        me = threading.get_ident()
        self._use[me] = use
        with self._changed:
            self._sums.setdefault(owner, min(self._sums.values(), default=0))
            mine = self._had.setdefault(owner, {})
            mine[me], self._owner[me] = min(mine.values(), default=0), owner
        try:
            self._take_turn()
            yield
        finally:
            with self._changed:
                del self._owner[me], self._use[me], mine[me]
                if not mine:
                    del self._had[owner], self._sums[owner]
                self._changed.notify_all()
            self._turns.give()

    @contextmanager
    def missed(self) -> Iterator[None]:
        """Nobody waits for this thread meanwhile."""
        me = threading.get_ident()
        with self._changed:
            self._away += me in self._owner
        self._turns.give()
        try:
            yield
        finally:
            self._take_turn()
            with self._changed:
                self._away -= me in self._owner

    def _take_turn(self) -> None:
        """Compute after the others, if this thread takes part. Strangers wait for nobody's turn."""
        if threading.get_ident() in self._owner and not self._are_strangers:
            self._turns.take()

    @property
    def _are_strangers(self) -> bool:
        return len(self._had) > 1

    def close(self) -> None:
        """Whoever waits, or comes later, is sent away."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def next_step(self, causal: CausalLM, prompt: KeyValues, tails: Tails, tokens: Tensor) -> Answer:
        """As `CausalLM.next_step` of this model.

        Raises:
            Interrupted: the meeting was closed.
        """
        ticket = _Ticket(causal, Part(prompt, tails, tokens), threading.get_ident(), time.monotonic())
        self._turns.give()
        with self._changed:
            self._waiting.append(ticket)  # nobody else need wake: if this was the last to come, it makes the pass itself
        try:
            while ticket.is_open:
                may_stop()
                with self._changed:
                    pieces = self._taken(ticket)
                if pieces:
                    self._take_turn()
                    self._pass(pieces)
                    self._turns.give()
        finally:
            with self._changed:
                if ticket in self._waiting:  # it was stopped
                    self._waiting.remove(ticket)
            self._take_turn()
        return ticket.result()

    def _taken(self, mine: _Ticket) -> list[_Piece]:
        """Wait for the end of a pass, or for its time; then what this thread is to read for everybody, if it is to."""
        while mine.is_open:
            if self._closed:
                raise Interrupted("the other requests were stopped, and this one with them.")
            seconds = self._seconds_left()
            if seconds <= 0:
                self._busy = True
                return self._next_rows()
            if not self._changed.wait(None if seconds == math.inf else seconds):
                continue
            return []
        return []

    def _seconds_left(self) -> float:
        """How long to wait yet; infinitely where nobody knows."""
        if self._busy or not self._waiting:
            return math.inf
        if len(self._waiting) >= len(self._owner) - self._away:
            return 0.0
        oldest = min(ticket.since for ticket in self._waiting)
        patience = self._patience * (1 if self._are_strangers else FRIENDS)
        return patience * self._last + oldest - time.monotonic() if patience < math.inf else math.inf

    def _next_rows(self) -> list[_Piece]:
        """The pieces of one pass: of those owners first who have had the fewest rows, as many as may be."""
        pieces = list[_Piece]()
        room = self._piece if self._are_strangers and not self._exact else self._most_rows
        for ticket in sorted(self._waiting, key=self._rows_had):
            if room <= 0:
                break
            pieces.append((ticket, ticket.cut(self._most_rows if self._exact else room)))
            room -= len(pieces[-1][1])
        self._waiting = [ticket for ticket in self._waiting if ticket.left]
        return pieces

    def _rows_had(self, ticket: _Ticket) -> tuple[int, int]:
        """By its owner, and by itself."""
        owner = self._owner.get(ticket.thread)
        return self._sums.get(owner, 0), self._had.get(owner, {}).get(ticket.thread, 0)

    def _pass(self, pieces: list[_Piece]) -> None:
        """Read these, and let the next ones go ahead."""
        start, used = time.monotonic(), time.thread_time()
        try:
            with watched(None):  # who stops this thread does not stop the others
                self._serve(pieces)
        finally:
            with self._changed:
                self._busy, self._last = False, time.monotonic() - start
                rows = sum(len(part) for _, part in pieces)
                self._learn(rows)
                self._used(threading.get_ident(), used - time.thread_time())
                for ticket, part in pieces:
                    self._used(ticket.thread, self._last * len(part) / rows)
                    if ticket.thread in self._owner:
                        self._sums[self._owner[ticket.thread]] += len(part)
                        self._had[self._owner[ticket.thread]][ticket.thread] += len(part)
                self._waiting = [ticket for ticket in self._waiting if ticket.is_open]  # others have failed
                self._changed.notify_all()

    def _used(self, thread: int, seconds: float) -> None:
        if thread in self._use:
            self._use[thread](seconds)

    def _learn(self, rows: int) -> None:
        """How many rows may be read where several wait: half as many after a long pass, twice as many after a short one."""
        self._shortest = min(self._shortest, self._last)
        if self._last > LONG * self._shortest:
            self._piece = max(FEWEST, min(self._piece, rows) // 2)
        elif rows >= self._piece:
            self._piece = min(self._most_rows, 2 * self._piece)

    def _serve(self, pieces: list[_Piece]) -> None:
        """Answer all of them, in as few passes as fit into memory."""
        try:
            for group in _groups(pieces, self._exact):
                answers = group[0][0].causal.next_steps([part for _, part in group])
                self.passes, self.rows = self.passes + 1, self.rows + sum(len(part) for _, part in group)
                for (ticket, _), answer in zip(group, answers, strict=True):
                    ticket.answers.append(answer)
        except BaseException as error:
            for ticket, _ in pieces:
                if ticket.is_open:
                    ticket.error = error


def _groups(pieces: list[_Piece], exact: bool) -> Iterator[list[_Piece]]:
    """Pieces for one model whose rows fit into memory together, or each by itself, in the order in which they came."""
    group: list[_Piece] = []
    for piece in sorted(pieces, key=lambda piece: id(piece[0].causal)):
        causal, longest = piece[0].causal, max(part.tails.length for _, part in (*group, piece))
        rows = sum(len(part) for _, part in (*group, piece))
        # One layer's tails are gathered at a time.
        most = causal.batch_size(longest // len(piece[1].prompt.layers), 1)
        if group and (exact or group[0][0].causal is not causal or rows > most):
            yield group
            group = []
        group.append(piece)
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
