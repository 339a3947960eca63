"""Exact answers by enumeration: every prefix that can still be completed is read once.

The evidence p(α) = Σ_y p(y) 1[y ⊨ α] is then exact. Particles are chosen without replacement by
`selection.select`, so E[w(y)] = p(y) 1[y ⊨ α] for every y, and their total is always p(α): one draw
in proportion to the weights is an exact draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from locore.kernel.circuits.circuit import Circuit
from locore.kernel.circuits.reading import LeftToRight
from locore.kernel.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.kernel.evidence.record import Draws, Record
from locore.kernel.models.language_model import LanguageModel
from locore.kernel.numerics import NEG_INF
from locore.kernel.samplers.sampler import Prefixes, left_to_right
from locore.kernel.samplers.selection import select

CHUNK_PREFIXES = 1024  # read together
CHUNK_NUMBERS = 2**24  # next-token probabilities held together
KEPT = 2**16  # sequences held before they are thinned to the number asked for


def enumerated(
    model: LanguageModel, circuit: Circuit, num_particles: int, limit: int, generator: torch.Generator, keep_all: bool = False
) -> Draws:
    """All sequences that satisfy the constraint, with w = p(y), if they are at most `num_particles`; otherwise the most
    probable, and some of the others with equal weights in their stead.

    Args:
        model, circuit, num_particles, generator: as of a `Sampler`.
        limit: LM tokens that may be spent.
        keep_all: up to 65,536 are returned.

    Raises:
        BudgetExceeded: it would cost more; its message names the price.
    """
    if num_particles < 1:
        raise InvalidArgument(f"num_particles must be at least 1, got {num_particles}.")
    reader = left_to_right(circuit)
    price = price_of_enumeration(reader, model.tokenizer.eos_ids)
    if model.full_support and price > limit:
        raise BudgetExceeded(
            f"enumeration needs {price:,.0f} LM tokens, the limit is {limit:,}; raise the budget (or "
            "max_contexts), ask for fewer tokens, or use another sampler."
        )
    walk = Walk(model, reader, limit)
    num = max(KEPT, num_particles) if keep_all else num_particles
    tokens, scores, log_weights = _selected(walk, num, generator)
    if not len(tokens):
        raise ZeroWeights("the model gives no probability to any sequence that satisfies the constraint.")
    record = Record(evidence="exact", sequences=walk.sequences)
    return Draws(tokens, log_weights + math.log(len(tokens)), scores, record)


def _selected(walk: Walk, num: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, token scores and log weights of at most `num` sequences."""
    # Thinning what was thinned before is unbiased too, and keeps the total; so the support need not fit into memory.
    nothing = torch.zeros(0, walk.reader.length, dtype=torch.long)
    parts = [(nothing, nothing.double(), torch.zeros(0, dtype=torch.float64))]

    def thinned(most: int) -> tuple[Tensor, Tensor, Tensor]:
        tokens, scores, weights = (torch.cat(each) for each in zip(*parts, strict=True))
        chosen, weights = select(weights, most, float(torch.rand((), generator=generator, dtype=torch.float64)))
        return tokens[chosen], scores[chosen], weights

    for tokens, scores in walk.leaves():
        parts.append((tokens, scores, scores.sum(-1)))
        if sum(len(part[0]) for part in parts) > 2 * max(KEPT, num):  # seldom: such a draw takes longer than many rows
            parts[:] = [thinned(max(KEPT, num))]
    return thinned(num)


def price_of_enumeration(
    reader: LeftToRight, eos_ids: tuple[int, ...] = (), free: tuple[Tensor, ...] | None = None, most: float = math.inf
) -> float:
    """How many prefixes can still be completed, have a token and have not ended: the LM tokens of a walk, by counting alone.

    Infinite where the states are too many to be counted. Where states are given that are free (Bool[states] for each position),
    prefixes count up to these. Beyond `most` it is some larger number.
    """
    if not reader.tabulated:
        return math.inf
    going = torch.ones_like(reader.token_class, dtype=torch.float64)
    going[list(eos_ids)] = 0.0
    classes = reader.rows[0].shape[1]
    sizes = going.new_zeros(classes).index_add_(0, reader.token_class, going)
    states, counts, total = torch.tensor([reader.start]), going.new_ones(1), 0.0
    for position in range(reader.length - 1):
        steps = torch.where(reader.allowed(position, states), counts[:, None] * sizes, 0.0)
        target = reader.rows[position][states].long().clamp_min(0)
        after = going.new_zeros(len(reader.live[position + 1])).index_add_(0, target.flatten(), steps.flatten())
        if free is not None:
            after[free[position + 1]] = 0.0
        total += float(after.sum())
        if total > most:
            break
        states = after.nonzero()[:, 0]
        counts = after[states]
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
        stack = [Prefixes.start(self.model, self.reader)]
        while stack:
            prefixes = stack.pop()
            if prefixes.are_complete:
                self.sequences += len(prefixes)
                yield prefixes.tokens, prefixes.token_scores
            else:
                stack += reversed(self.children(prefixes).split(self._chunk))

    def children(self, prefixes: Prefixes) -> Prefixes:
        """All that can still be completed, a token longer; one LM token is spent on each prefix."""
        return self.followed(prefixes, self.joint(prefixes))

    def joint(self, prefixes: Prefixes) -> Tensor:
        """f64[prefixes, vocab]: log p of each that can still be completed, a token longer; each costs an LM token."""
        self._pay(prefixes)
        return prefixes.log_mass[:, None] + prefixes.masked()

    def followed(self, prefixes: Prefixes, joint: Tensor) -> Prefixes:
        """Those that are not −inf."""
        keep = (joint > NEG_INF) & (joint >= self.floor)
        self.pruned += float(joint.exp().masked_fill(keep, 0.0).sum())
        row, token = keep.nonzero(as_tuple=True)
        return prefixes.extended(row, token)

    def _pay(self, prefixes: Prefixes) -> None:
        if not prefixes.position:
            return
        self.contexts += int(prefixes.going().sum())
        if self.contexts > self.max_contexts:
            raise BudgetExceeded(
                f"enumeration needs more than {self.max_contexts:,} next-token distributions; raise "
                "max_contexts (or the budget), shorten the sequence, or use another sampler."
            )
