"""Rounds: walks over the positions that go abreast, and the mean of what they found.

A pass of the model takes nearly as long for few rows as for many: on a processor the weights are read once for all of them, on
a GPU rows hardly count. So a call should make few passes after each other, and wide ones. A walk is a generator: it yields the
prefixes that it wants to have read, is told what its share of the rows was, and goes on; what all want is one pass, what two
of them want is read once. Each decides by what was read before, whoever wanted it, and by random numbers of its own; so, given
the past, what one does next says nothing of what another does, and the errors of unbiased walks are uncorrelated.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from locore.kernel.certain import can_only_return
from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.kernel.evidence.blocks import Block, Blocks, Lineage, Surprise
from locore.kernel.evidence.record import UNKNOWN, Bounds, Draws, Record
from locore.kernel.numerics import NEG_INF, distinct, segment_logsumexp
from locore.kernel.samplers.sampler import PlainPrefixes, Prefixes, affordable, read_together
from locore.kernel.samplers.selection import select

T = TypeVar("T")
Walk: TypeAlias = Generator[PlainPrefixes, float, T]  # yields what it wants to have read, is told the LM tokens it answers for


def abreast(walks: Sequence[Walk[T]]) -> list[T]:
    """What each returns; all begin with the empty text of one prompted model, and go on by a token at a time."""
    done: dict[int, T] = {}
    is_over = False  # has a round found its texts, of which those that go on know nothing?
    wanted = {number: next(walk) for number, walk in enumerate(walks)}
    while wanted:
        for number, share in zip(list(wanted), read_together(list(wanted.values())), strict=True):
            try:
                wanted[number] = walks[number].send(share)
            except StopIteration as end:
                done[number] = end.value
                is_over |= isinstance(wanted.pop(number), Prefixes)
        if not is_over:
            _settle(list(wanted.values()))
    return [done[number] for number in range(len(walks))]


def _settle(parts: list[PlainPrefixes]) -> None:
    """Say that what is returned begins with one of them, to whoever listens; drafts of the model are not returned."""
    prefixes = [part for part in parts if isinstance(part, Prefixes)]
    if prefixes:
        tokens, states = torch.cat([part.tokens for part in prefixes]), torch.cat([part.states for part in prefixes])
        can_only_return(tokens, prefixes[0].reader, states)


@dataclass(frozen=True, eq=False)
class Round:
    """Distinct sequences whose weights sum to an unbiased estimate of p(α).

    Attributes:
        tokens: Long[num, length].
        log_weights: f64[num], log of p(y) over its probability of being kept.
        token_scores: f64[num, length].
        surprise, lineage: what they say of their error, see `locore.kernel.evidence.blocks`; None where nothing does.
        lm_tokens: what it cost; of what others read as well its share.
        bounds: certain ones of log p(α).
        totals: log of the weight before each selection, which keeps it.
    """

    tokens: Tensor
    log_weights: Tensor
    token_scores: Tensor
    surprise: Surprise | None = None
    lineage: Lineage | None = None
    lm_tokens: float = 0.0
    bounds: Bounds = UNKNOWN
    totals: tuple[float, ...] = ()

    @classmethod
    def nothing(cls, length: int, lm_tokens: float, bounds: Bounds) -> Round:
        """An estimate of zero: nothing that was kept led anywhere."""
        scores = torch.zeros(0, length, dtype=torch.float64)
        return cls(scores.long(), scores.sum(1), scores, lm_tokens=lm_tokens, bounds=bounds)


def width_of(num_particles: int, length: int, budget: int | None, blocks: int, what: str) -> int:
    """Prefixes kept in each block."""
    if blocks < 1 or num_particles < 1:
        raise InvalidArgument(f"blocks and num_particles must be at least 1, got {blocks} and {num_particles}.")
    price = max(1, length - 1) * blocks
    if budget is None:
        return affordable(max(1, num_particles // blocks), price, None, what)
    affordable(1, price, budget, what)
    return budget // price


def pooled(rounds: list[Round], most: int | None, generator: torch.Generator, **fields: Any) -> Draws:
    """Average independent rounds; a sequence found by several is one particle with the sum of its weights.

    More than `most` are thinned without bias; their total weight stays as it is, and so does what the rounds say of each other.
    `fields` are those of the record.

    Raises:
        ZeroWeights: no round found anything.
    """
    low, high = max(batch.bounds[0] for batch in rounds), min(batch.bounds[1] for batch in rounds)
    if not any(len(batch.tokens) for batch in rounds):
        error = ZeroWeights(nothing_found(high))
        error.log_most = high
        raise error
    fields.setdefault("bounds", (min(low, high), high))  # rounding may put the sum of everything above its bound
    tokens = torch.cat([batch.tokens for batch in rounds])
    weights = torch.cat([batch.log_weights for batch in rounds]) - math.log(len(rounds))
    scores = torch.cat([batch.token_scores for batch in rounds])
    first, which = distinct(tokens)
    tokens, merged = tokens[first], segment_logsumexp(weights, which, len(first))
    rows = torch.split(which, [len(batch.tokens) for batch in rounds])
    members = [Block(row, batch.log_weights, batch.surprise, batch.lineage) for row, batch in zip(rows, rounds, strict=True)]
    blocks = Blocks.of(members, tokens, scores[first])
    if most is not None and len(tokens) > most:
        chosen, merged = select(merged, most, float(torch.rand((), generator=generator, dtype=torch.float64)))
        tokens, first = tokens[chosen], first[chosen]
    return Draws(tokens, merged + math.log(len(tokens)), scores[first], Record(blocks=blocks, **fields))


def nothing_found(log_most: float) -> str:
    """What rounds that found nothing know: with all prefixes read, that there is nothing; otherwise only what they left."""
    cut = "A model that is cut by top-p or top-k allows more if it is cut less."
    if log_most == NEG_INF:
        return (
            "every prefix that the constraint allows was read, and the model gives no probability to any sequence that "
            f"satisfies it; ask for more tokens, or weaken the constraint. {cut}"
        )
    left = f"; p(α) is at most {math.exp(log_most):.2g}" if log_most < 0 else ""
    return (
        "none of the prefixes that were kept led to a sequence that satisfies the constraint with positive probability, but "
        f"not all prefixes were read{left}. Use a larger budget or more particles. {cut}"
    )
