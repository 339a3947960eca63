"""Exact answers by enumeration: every prefix that can still be completed is read once.

The evidence p(α) = Σ_y p(y) 1[y ⊨ α] is then exact. Particles are chosen without replacement by
`selection.select`, so E[w(y)] = p(y) 1[y ⊨ α] for every y, and their total is always p(α): one draw
in proportion to the weights is an exact draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from locore.circuits import Circuit, LeftToRight
from locore.ending import is_end
from locore.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.models import Cursor, LanguageModel
from locore.numerics import NEG_INF
from locore.samplers.base import Draws, left_to_right
from locore.samplers.selection import select

CHUNK_PREFIXES = 1024  # read together
CHUNK_NUMBERS = 2**24  # next-token probabilities held together
KEPT = 2**16  # sequences held before they are thinned to the number asked for


@dataclass(frozen=True)
class Enumeration:
    """Exact, where few enough prefixes can be completed.

    All sequences that satisfy the constraint are returned if there are at most `num_particles`,
    with w = p(y); otherwise the most probable, and some of the others with equal weights in their
    stead.

    Attributes:
        max_contexts: LM tokens that may be spent where the caller sets no budget.
    """

    max_contexts: int = 100_000
    name: str = "exact"

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """See `Sampler`; BudgetExceeded names the price where it is too high."""
        if num_particles < 1:
            raise InvalidArgument(f"num_particles must be at least 1, got {num_particles}.")
        reader = left_to_right(circuit)
        limit = self.max_contexts if budget is None else budget
        price = price_of_enumeration(reader, model.tokenizer.eos_ids)
        if model.full_support and price > limit:
            raise BudgetExceeded(
                f"enumeration needs {price:,.0f} LM tokens, the limit is {limit:,}; raise the budget (or "
                "max_contexts), ask for fewer tokens, or use another sampler."
            )
        walk = Walk(model, reader, limit)
        tokens, scores, log_weights = _selected(walk, num_particles, generator)
        if not len(tokens):
            raise ZeroWeights("the model gives no probability to any sequence that satisfies the constraint.")
        info = {"sequences": walk.sequences, "evidence": "exact"}
        return Draws(tokens, log_weights + math.log(len(tokens)), len(tokens), token_scores=scores, info=info)


def _selected(walk: Walk, num: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, token scores and log weights of at most `num` sequences."""
    # Thinning what was thinned before is unbiased too, and keeps the total; so the support need not fit into memory.
    tokens = torch.zeros(0, walk.reader.length, dtype=torch.long)
    scores, weights = torch.zeros(tokens.shape, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)

    def thinned(most: int) -> tuple[Tensor, Tensor, Tensor]:
        uniform = float(torch.rand((), generator=generator, dtype=torch.float64))
        chosen, kept = select(weights, most, uniform)
        return tokens[chosen], scores[chosen], kept

    for more_tokens, more_scores in walk.leaves():
        tokens, scores = torch.cat([tokens, more_tokens]), torch.cat([scores, more_scores])
        weights = torch.cat([weights, more_scores.sum(-1)])
        if len(tokens) > max(KEPT, num):
            tokens, scores, weights = thinned(max(KEPT, num))
    return thinned(num)


def price_of_enumeration(reader: LeftToRight, eos_ids: tuple[int, ...] = ()) -> float:
    """How many prefixes can still be completed, have a token and have not ended: the LM tokens of a walk, by counting alone.

    Infinite where the states are too many to be counted.
    """
    if not reader.tabulated:
        return math.inf
    going = torch.ones_like(reader.token_class, dtype=torch.float64)
    going[list(eos_ids)] = 0.0
    classes = reader.rows[0].shape[1]
    sizes = going.new_zeros(classes).index_add_(0, reader.token_class, going)
    counts = going.new_zeros(len(reader.live[0]))
    counts[reader.start] = 1.0
    total = 0.0
    for position in range(reader.length - 1):
        states = torch.arange(len(counts), device=counts.device)
        steps = torch.where(reader.allowed(position, states), counts[:, None] * sizes, 0.0)
        target = reader.rows[position][: len(counts)].long().clamp_min(0)
        counts = going.new_zeros(len(reader.live[position + 1])).index_add_(0, target.flatten(), steps.flatten())
        total += float(counts.sum())
    return total


class Walk:
    """Every prefix that can still be completed, depth first in chunks, so that few caches are held.

    Attributes:
        contexts: LM tokens so far.
        sequences: complete sequences of positive probability so far.
        pruned: probability of the prefixes that were not followed.
    """

    def __init__(self, model: LanguageModel, reader: LeftToRight, max_contexts: int, min_prob: float = 0.0) -> None:
        """A walk that raises BudgetExceeded beyond `max_contexts`; prefixes less probable than `min_prob` are not followed."""
        self.model = model
        self.reader = reader
        self.max_contexts = max_contexts
        self.floor = math.log(min_prob) if min_prob else NEG_INF
        self.contexts = self.sequences = 0
        self.pruned = 0.0
        self._chunk = max(1, min(CHUNK_PREFIXES, CHUNK_NUMBERS // model.vocab_size))

    def leaves(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Complete sequences Long[some, length] and their token scores f64[some, length], in lexicographic order."""
        stack = [Prefixes.root(self.reader)]
        while stack:
            prefixes = stack.pop()
            if prefixes.position == self.reader.length:
                self.sequences += len(prefixes.tokens)
                yield prefixes.tokens, prefixes.scores
            else:
                stack += reversed(self.children(prefixes).split(self._chunk))

    def children(self, prefixes: Prefixes) -> Prefixes:
        """All that can still be completed, a token longer; one LM token is spent on each prefix."""
        cursor, position = self._read(prefixes), prefixes.position
        log_probs = cursor.log_probs.double()
        allowed = self.reader.allowed(position, prefixes.states)[:, self.reader.token_class]
        joint = (prefixes.scores.sum(-1)[:, None] + log_probs).masked_fill_(~allowed, NEG_INF)
        keep = (joint > NEG_INF) & (joint >= self.floor)
        self.pruned += float(joint.exp().masked_fill(keep, 0.0).sum())
        row, token = keep.nonzero(as_tuple=True)
        return Prefixes(
            torch.cat([prefixes.tokens[row], token[:, None]], 1),
            torch.cat([prefixes.scores[row], log_probs[row, token][:, None]], 1),
            self.reader.step(position, prefixes.states[row], token),
            cursor,
            row,
        )

    def _read(self, prefixes: Prefixes) -> Cursor:
        if prefixes.before is None:
            return self.model.begin(1)
        self.contexts += int((~is_end(prefixes.tokens, self.model.tokenizer.eos_ids).any(-1)).sum())
        if self.contexts > self.max_contexts:
            raise BudgetExceeded(
                f"enumeration needs more than {self.max_contexts:,} next-token distributions; raise "
                "max_contexts (or the budget), shorten the sequence, or use another sampler."
            )
        return prefixes.before.advance(prefixes.tokens[:, -1], prefixes.rows)


@dataclass(frozen=True, eq=False)
class Prefixes:
    """Prefixes that were reached but not read: Long[num, time], f64[num, time], Long[num], and rows of a cursor before them."""

    tokens: Tensor
    scores: Tensor
    states: Tensor
    before: Cursor | None = None
    rows: Tensor | None = None

    @classmethod
    def root(cls, reader: LeftToRight) -> Prefixes:
        """The empty prefix."""
        return cls(torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, 0, dtype=torch.float64), reader.initial(1))

    @property
    def position(self) -> int:
        """Tokens in each."""
        return self.tokens.shape[1]

    @property
    def log_mass(self) -> Tensor:
        """f64[num]: log p(prefix)."""
        return self.scores.sum(-1)

    def at(self, which: Tensor) -> Prefixes:
        """Those of Bool[num]."""
        rows = None if self.rows is None else self.rows[which]
        return Prefixes(self.tokens[which], self.scores[which], self.states[which], self.before, rows)

    def padded(self, length: int, token: int = 0) -> Prefixes:
        """As sequences of this length, with a token of probability 1; they can be read no more."""
        missing = length - self.position
        return Prefixes(
            torch.nn.functional.pad(self.tokens, (0, missing), value=token),
            torch.nn.functional.pad(self.scores, (0, missing)),
            self.states,
        )

    def split(self, size: int) -> list[Prefixes]:
        """In parts of at most this size; none of no prefixes."""
        assert self.rows is not None
        columns = (self.tokens, self.scores, self.states, self.rows)
        parts = zip(*(torch.split(column, size) for column in columns), strict=True)
        return [Prefixes(tokens, scores, states, self.before, rows) for tokens, scores, states, rows in parts if len(tokens)]
