"""Requests of a vLLM in this process that wait for their next token: all that was read stays read, a step reads a token a row.

A sampler asks for next-token distributions, chooses tokens, and asks again. Were each of these a request of its own, it would
find in the prefix cache only whole blocks of what was read, and read up to a block again for each row. Here vLLM is stopped
within its step, between the logits and the draw: a processor hands out the distributions, and the step goes on once it is known
with which tokens the requests go on. What has several continuations goes on with the first, the others are new requests that
find its blocks; what has none is given up. So `masked`, which masks and weighs row by row, reads what vLLM itself would read
for as many texts.

vLLM runs in a thread of its own, which stands still while nobody asks.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from locore.kernel.errors import EngineError
from locore.kernel.limits import may_stop
from locore.kernel.numerics import NEG_INF
from locore.models.engines.model import Ids
from locore.models.engines.processors import RowProcessor

LIVE = "locore_live"  # under which a request says who waits for its distributions, and its number there
POLL = 0.2  # seconds after which a waiting call looks whether it may go on


class LiveRows(RowProcessor):
    """Hands out the distributions of live requests, and draws what it is told to."""

    @classmethod
    def wanted(cls, params: Any) -> list[int] | None:
        """Who waits, and the number of the request there."""
        return (params.extra_args or {}).get(LIVE)

    def change(self, logits: Tensor, rows: list[tuple[int, list[int], list[int]]]) -> None:
        """All mass on what each request is told to go on with."""
        for waiting in {asked[0] for _, asked, _ in rows}:
            live = Live.waiting.get(waiting)
            if live is None:  # in another process, or given up
                continue
            own = [(row, asked[1]) for row, asked, _ in rows if asked[0] == waiting]
            at = torch.tensor([row for row, _ in own], device=logits.device)
            tokens = live.offer([number for _, number in own], logits[at].float().log_softmax(-1))
            logits[at] = NEG_INF
            logits[at, torch.tensor(tokens, device=logits.device)] = 0.0


@dataclass(frozen=True)
class Order:
    """What to compute next: requests that go on, and with which token; new ones, and their prefixes. Others are given up."""

    tokens: Mapping[int, int] = field(default_factory=dict)
    begun: Mapping[int, Ids] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Answer:
    """Where the distribution of each request is: a row of Float[rows, vocab]; and which requests wait for a token."""

    rows: dict[int, tuple[Tensor, int]] = field(default_factory=dict)
    live: frozenset[int] = frozenset()


class Live:
    """The live requests of one vLLM, for one caller at a time.

    A thread steps vLLM while distributions are missing. When the last one is there, the step stands still in `offer` until the
    next order; each order has one answer.

    Attributes:
        waiting: those of this process, by number.
        is_here: has a distribution been handed out to nobody? Then vLLM computes in this process.
    """

    waiting: ClassVar[WeakValueDictionary[int, Live]] = WeakValueDictionary()
    _numbers: ClassVar[count[int]] = count()

    def __init__(self, engine: Any, params: Callable[[Ids, dict[str, Any]], Any]) -> None:
        """Nothing is asked yet.

        Args:
            engine: a `vllm.v1.engine.llm_engine.LLMEngine`.
            params: sampling parameters of a request that goes on after a prefix, by its extra arguments.
        """
        self._engine, self._params = engine, params
        self.number, self.is_here = next(Live._numbers), False
        Live.waiting[self.number] = self
        self._fresh: count[int] = count()
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()  # None: the last one
        self._answers: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_owed = False  # an answer that nobody has taken yet
        self._live: dict[Ids, int] = {}  # by prefix
        self._places: dict[Ids, tuple[Tensor, int]] = {}
        # Of the thread:
        self._missing: set[int] = set()
        self._collected: dict[int, tuple[Tensor, int]] = {}
        self._spent: set[int] = set()
        self._next: Order | None = None

    def rows(self, prefixes: Sequence[Ids]) -> Tensor:
        """Float[prefixes, vocab], log p(· | prefix). Those whose continuations are asked for next go on.

        Raises:
            EngineError: vLLM failed.
        """
        asked = [tuple(prefix) for prefix in prefixes]
        new = [prefix for prefix in dict.fromkeys(asked) if prefix not in self._places]
        if new:
            if self._is_owed:
                self.release()
            first = {prefix[:-1]: prefix for prefix in reversed(new) if prefix[:-1] in self._live}
            going = {prefix: self._live[before] for before, prefix in first.items()}
            begun = {next(self._fresh): prefix for prefix in new if prefix not in going}
            numbers = {number: prefix for prefix, number in going.items()} | begun
            earlier = {prefix: self._places[prefix] for prefix in asked if prefix in self._places}
            answer = self._answered(Order({number: prefix[-1] for prefix, number in going.items()}, begun))
            self._places = {numbers[number]: place for number, place in answer.rows.items()}
            self._live = {numbers[number]: number for number in answer.live}
        places = [self._places[prefix] if prefix in self._places else earlier[prefix] for prefix in asked]
        if all(table is places[0][0] for table, _ in places):
            return places[0][0][torch.tensor([row for _, row in places], device=places[0][0].device)]
        return torch.stack([table[row] for table, row in places])

    def release(self) -> None:
        """Give up all that is live, so that vLLM can be asked for something else."""
        if self._is_owed:  # a call was stopped before it had its answer
            self._answers.get()
            self._is_owed = False
        elif not self._live:
            return
        self._live, self._places = {}, {}
        self._answered(Order())

    def close(self) -> None:
        """Let the thread end, which keeps vLLM in memory; nothing is asked any more."""
        self._orders.put(None)

    def _answered(self, order: Order) -> Answer:
        """What the thread answers; whoever waits can be stopped."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="vLLM", daemon=True)
            self._thread.start()
        self._is_owed = True
        self._orders.put(order)
        while True:
            try:
                answer = self._answers.get(timeout=POLL)
            except queue.Empty:
                may_stop()
                continue
            self._is_owed = False
            if isinstance(answer, Exception):
                self._live, self._places = {}, {}
                raise EngineError(f"vLLM failed while it computed distributions: {answer}") from answer
            return answer

    def _serve(self) -> None:
        """The thread."""
        while (order := self._orders.get()) is not None:
            try:
                while order is not None:
                    order = self._served(order)
            except Exception as error:  # whatever vLLM raises
                with suppress(Exception):
                    self._abort({*self._collected, *self._missing})
                self._missing, self._spent, self._next = set(), set(), None
                self._answers.put(error)

    def _served(self, order: Order) -> Order | None:
        """Step until all is there that an order asks for, and another one has come; None where nothing is left to do."""
        self._collected, self._missing, self._next = {}, {*order.tokens, *order.begun}, None
        for number, prefix in order.begun.items():
            params = self._params(prefix, {LIVE: [self.number, number]})
            self._engine.add_request(self._name(number), {"prompt_token_ids": list(prefix)}, params)
        if not self._missing:
            self._answers.put(Answer())
            return None
        while self._next is None:
            if not self._engine.has_unfinished_requests():
                raise EngineError("requests ended without a distribution")
            self._engine.step()
            self._abort(self._spent)
            self._spent = set()
        return self._next

    def offer(self, numbers: list[int], rows: Tensor) -> list[int]:
        """Within a step: hand out Float[requests, vocab], and wait for the tokens that they go on with.

        Where others are still missing, these cannot wait for them: their distributions are kept, and they are given up.
        """
        if not self._missing:
            self.is_here = True
            return [0] * len(numbers)
        self._collected |= {number: (rows, row) for row, number in enumerate(numbers)}
        self._missing -= set(numbers)
        order = Order()
        if not self._missing:
            self._answers.put(Answer(self._collected, frozenset(numbers)))
            order = self._next = self._ordered()
        self._spent |= set(numbers) - order.tokens.keys()
        return [order.tokens.get(number, 0) for number in numbers]

    def _ordered(self) -> Order:
        order = self._orders.get()
        if order is None:  # what goes on is given up before the thread ends
            self._orders.put(None)
        return order or Order()

    def _abort(self, numbers: set[int]) -> None:
        if numbers:
            self._engine.abort_request([self._name(number) for number in numbers])

    def _name(self, number: int) -> str:
        return f"locore-{self.number}-{number}"
