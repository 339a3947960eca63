"""Sequential Monte Carlo without replacement: expand every child of every prefix, keep the best, thin the rest without bias.

A language model is peaked, so SMC with replacement spends most of its budget on copies. Here no prefix is ever evaluated twice
(Fearnhead and Clifford 2003 for discrete spaces). Their optimal resampling keeps what is large and thins the rest: see
`locore.kernel.samplers.selection`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from locore.kernel.circuits.left_to_right import LeftToRight
from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.kernel.evidence.blocks import Block, Blocks, Kept, Lineage, Surprise
from locore.kernel.evidence.record import UNKNOWN, Bounds, Draws, Record
from locore.kernel.models.base import LanguageModel
from locore.kernel.numerics import NEG_INF, distinct, segment_logsumexp
from locore.kernel.samplers.abreast import Walk
from locore.kernel.samplers.ahead import DEFENCE, LEAST_DEFENCE, children_of
from locore.kernel.samplers.base import Ahead, Prefixes, affordable
from locore.kernel.samplers.merit import UNLIMITED, Merit
from locore.kernel.samplers.selection import Selection, select

JUDGED_BLOCKS, JUDGED_WIDTH = 4, 24  # blocks that judge each other, and prefixes in each from which that says something
STRETCHED = 2  # times the width: what a position may keep if earlier ones kept less
ROUNDED = 1e-4  # nats: more than single precision loses in what is left unread
# Is told the prefixes of each position before they are read on, and f64[num], their log weights.
Watch = Callable[[Prefixes, Tensor], None]


@dataclass(frozen=True)
class Size:
    """What a round may keep.

    Where few prefixes can be completed fewer LM tokens are spent; later positions keep more for them, up to `STRETCHED` times
    the width. Complete sequences cost nothing, and once most of the weight has ended, what goes on adds little to the error: a
    share s of the weight gets √s of the prefixes.

    Attributes:
        width: prefixes at each position.
        wanted: complete sequences; 0: as many as the width.
        lm_tokens: that may be spent; None: as many as the width at each position.
    """

    width: int
    wanted: int = 0
    lm_tokens: int | None = None

    def kept(self, left: float, remaining: int, going: Tensor, weights: Tensor) -> int:
        """How many at the next position, with so many LM tokens and positions left."""
        share = float((torch.logsumexp(weights[going], 0) - torch.logsumexp(weights, 0)).exp())
        most = int((~going).sum()) + math.ceil(STRETCHED * self.width * math.sqrt(share))
        return min(int(left / remaining + ROUNDED), STRETCHED * self.width, most) if remaining else self.wanted or self.width


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


class _History:
    """What a round remembers of its selections."""

    def __init__(self) -> None:
        self._selections: list[Selection] = []
        self._parents: list[Tensor] = []
        self._log_left: list[float] = []
        self._kept: list[Kept] | None = []
        self._largest_step = 0.0  # of the totals, nats

    def add(self, selection: Selection, row: Tensor, log_unread: float) -> None:
        """A selection of children of Long[chosen] rows, and log of the probability of the children that were left."""
        if self._selections:
            self._largest_step = max(self._largest_step, abs(selection.log_total - self._selections[-1].log_total))
        self._selections.append(selection)
        self._parents.append(row)
        self._log_left.append(log_unread)

    def keep(self, tokens: Tensor, log_weights: Tensor, log_masses: Tensor | None) -> None:
        """What was selected; it is forgotten once masses are not known."""
        if log_masses is None:
            self._kept = None
        elif self._kept is not None:
            self._kept.append(Kept(tokens, log_weights, log_masses))

    def end(self) -> None:
        """All texts have ended: nothing more is selected, and nothing more is left."""
        self._log_left.append(NEG_INF)

    def defence(self) -> float:
        """Share of the next selection that should go by p alone: as much as forecasts have been wrong so far.

        Were the twist right, the totals would stay as they are. Where they do, as on a Markov chain whose table is the model
        itself, each prefix that is kept for its probability alone is one less of those that matter.
        """
        return min(DEFENCE, max(LEAST_DEFENCE, self._largest_step))

    def bounds(self, complete: Tensor) -> Bounds:
        """Certain ones of log p(α), from f64[num] log p of the distinct sequences that were kept.

        As in `UnreadMass`: what was left at the last position satisfies α, and what was left before it may.
        """
        left = complete.new_tensor(self._log_left)
        last = torch.where(left[-1:] == UNLIMITED, NEG_INF, left[-1:] - ROUNDED)
        low = torch.logsumexp(torch.cat([complete, last]), 0)
        high = torch.logsumexp(torch.cat([complete, left + ROUNDED]), 0)
        return float(low), min(0.0, float(high))

    def nothing(self) -> Bounds:
        """Certain ones of log p(α), where nothing that was kept can be completed: all that satisfies α was left."""
        return NEG_INF, min(0.0, float(torch.logsumexp(torch.tensor(self._log_left), 0)))

    def surprise(self) -> Surprise:
        """By the forecasts; the first is left out, as it knows no token yet."""
        before = self._selections[:-1] or self._selections
        drawn = max(one.drawn for one in self._selections)
        width = sum(len(one.chosen) for one in before) / len(before)
        return Surprise(size_of_steps(self.totals[1:]), drawn, width)

    def lineage(self) -> Lineage:
        raises = tuple(one.log_raise for one in self._selections)
        kept = None if self._kept is None else tuple(self._kept)
        return Lineage(tuple(self._parents), raises, self._selections[-1].log_rows, kept)

    @property
    def totals(self) -> tuple[float, ...]:
        """Log of the weight before each selection, which keeps it."""
        return tuple(one.log_total for one in self._selections)


def size_of_steps(sums: Sequence[float]) -> float:
    """Root of the sum of the squares of the steps between numbers."""
    return float(torch.tensor(sums, dtype=torch.float64).diff().square().sum().sqrt())


def blocks_for(blocks: int | None, num_particles: int, length: int, budget: int | None) -> int:
    """How many blocks: as asked, or as many as the particles are good for."""
    if blocks is not None:
        return blocks
    prefixes = num_particles if budget is None else budget // max(1, length - 1)
    return JUDGED_BLOCKS if prefixes >= JUDGED_BLOCKS * JUDGED_WIDTH else 1


def width_of(num_particles: int, length: int, budget: int | None, blocks: int, what: str) -> int:
    """Prefixes kept in each block."""
    if blocks < 1 or num_particles < 1:
        raise InvalidArgument(f"blocks and num_particles must be at least 1, got {blocks} and {num_particles}.")
    price = max(1, length - 1) * blocks
    if budget is None:
        return affordable(max(1, num_particles // blocks), price, None, what)
    affordable(1, price, budget, what)
    return budget // price


def walk(
    model: LanguageModel,
    reader: LeftToRight,
    size: Size,
    generator: torch.Generator,
    ahead: Ahead | None = None,
    watch: Sequence[Watch] = (),
) -> Walk[Round]:
    """One pass over the positions, keeping so many prefixes at each, beside others (`locore.kernel.samplers.abreast`).

    Prefixes are selected by p(prefix) · (β(prefix) + κ), β being what is foreseen, which never enters the weight, and κ what
    limits what a wrong β can do. What watches steers nothing. What others read as well costs less, and later positions keep
    more for it.
    """
    prefixes, weights = Prefixes.start(model, reader), torch.zeros(1, dtype=torch.float64)
    allowed = left = float(size.width * (reader.length - 1) if size.lm_tokens is None else size.lm_tokens)
    history = _History()
    while not prefixes.are_complete:
        left -= yield prefixes
        remaining = reader.length - 1 - prefixes.position
        for each in watch:
            each(prefixes, weights)
        merit = Merit(prefixes, weights, children_of(ahead, prefixes, weights, history.defence()), bool(remaining))
        uniform = float(torch.rand((), generator=generator, dtype=torch.float64))
        kept = size.kept(left, remaining, prefixes.going(), weights)
        selection, row, token = merit.select(kept, uniform)
        prefixes = prefixes.extended(row, token)
        weighed = weights[row] + prefixes.token_scores[:, -1]
        history.add(merit.forecast(selection, weighed), row, merit.log_unread(selection, row, weighed))
        if not len(row):  # nothing that was kept can be completed
            return Round.nothing(reader.length, allowed - left, history.nothing())
        before, weights = weights, weighed + selection.log_raise
        history.keep(token, weights, merit.log_masses(selection, before))
        if remaining and not bool(prefixes.going().any()):  # only padding is to come
            prefixes = prefixes.padded()
            history.end()
    known = (history.surprise(), history.lineage(), allowed - left, history.bounds(prefixes.log_mass), history.totals)
    return Round(prefixes.tokens, weights, prefixes.token_scores, *known)


def pooled(rounds: list[Round], most: int | None, generator: torch.Generator, **known: Any) -> Draws:
    """Average independent rounds; a sequence found by several is one particle with the sum of its weights.

    More than `most` are thinned without bias; their total weight stays as it is, and so does what the rounds say of each other.
    `known` are fields of the record.

    Raises:
        ZeroWeights: no round found anything.
    """
    low, high = max(one.bounds[0] for one in rounds), min(one.bounds[1] for one in rounds)
    if not any(len(one.tokens) for one in rounds):
        error = ZeroWeights(_nothing_found(high))
        error.log_most = high
        raise error
    known.setdefault("bounds", (min(low, high), high))  # rounding may put the sum of everything above its bound
    tokens = torch.cat([one.tokens for one in rounds])
    weights = torch.cat([one.log_weights for one in rounds]) - math.log(len(rounds))
    scores = torch.cat([one.token_scores for one in rounds])
    first, which = distinct(tokens)
    tokens, merged = tokens[first], segment_logsumexp(weights, which, len(first))
    rows = torch.split(which, [len(one.tokens) for one in rounds])
    members = [Block(row, one.log_weights, one.surprise, one.lineage) for row, one in zip(rows, rounds, strict=True)]
    blocks = Blocks.of(members, tokens, scores[first])
    if most is not None and len(tokens) > most:
        chosen, merged = select(merged, most, float(torch.rand((), generator=generator, dtype=torch.float64)))
        tokens, first = tokens[chosen], first[chosen]
    return Draws(tokens, merged + math.log(len(tokens)), scores[first], Record(blocks=blocks, **known))


def _nothing_found(log_most: float) -> str:
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
