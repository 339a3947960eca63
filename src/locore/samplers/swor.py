"""Sequential Monte Carlo without replacement: expand every child of every prefix, keep the best, thin the rest without bias.

A language model is peaked, so SMC with replacement spends most of its budget on copies. Here no prefix is ever evaluated twice
(Fearnhead and Clifford 2003 for discrete spaces). Their optimal resampling keeps what is large and thins the rest. Items come
in millions (prefixes × vocabulary), and few are kept. So the weights are read once, in stretches of which only the sum and the
maximum are remembered; large items are looked for in stretches with a large maximum, and a sampled point is located by its
stretch first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from locore.circuits import Circuit, LeftToRight
from locore.errors import InvalidArgument, ZeroWeights
from locore.evidence import Block, Blocks, Draws, Lineage, Record, Surprise
from locore.models import LanguageModel
from locore.numerics import CACHED, NEG_INF, distinct, segment_logsumexp
from locore.samplers.base import Prefixes, affordable, left_to_right
from locore.samplers.twist.lookahead import LookAhead

STRETCH = 512  # items
CANCELLED = 1e-9  # of the total: a threshold below it was lost in differences
JUDGED_BLOCKS, JUDGED_WIDTH = 4, 24  # blocks that judge each other, and prefixes in each from which that says something
DEFENCE = 0.1  # share of a step's selection that goes by p(prefix) alone where the twist rests on nothing
STRETCHED = 2  # times the width: what a position may keep if earlier ones kept less
LOG_DEFENCE = math.log(DEFENCE)
Recorder = Callable[[Tensor, Tensor, Tensor], None]  # (first, second) last tokens and the distributions after them


@dataclass(frozen=True, eq=False)
class Selection:
    """What was chosen of a matrix of weights.

    Attributes:
        chosen: Long[chosen], indices of the flattened matrix in increasing order.
        log_raise: f64[chosen], −log of the probability of being chosen.
        log_total: log of the sum of all weights.
        drawn: share of that sum that was drawn among; the rest was kept for certain.
    """

    chosen: Tensor
    log_raise: Tensor
    log_total: float
    drawn: float


def padded_rows(rows: int, items: int) -> Tensor:
    """f32[rows, items and some −inf]: a matrix of the shape that `select_in_place` reads without a copy."""
    return torch.full((rows, -(-items // STRETCH) * STRETCH), NEG_INF)


def select(log_weights: Tensor, num: int, uniform: float) -> tuple[Tensor, Tensor]:
    """Choose at most `num` items so that each keeps its weight in the mean.

    The threshold c solves Σ min(w/c, 1) = num. Items of weight at least c stay as they are; the others are chosen by systematic
    sampling with probability w/c and then weigh c. The total weight is kept exactly, and nothing is chosen twice.

    Args:
        log_weights: Float[items], natural logs; −inf is never chosen.
        num: how many to choose; fewer positive items are all kept.
        uniform: a number in [0, 1), the only randomness.

    Returns:
        Long[chosen] in increasing order, and f64[chosen], their new log weights.
    """
    padded = torch.nn.functional.pad(log_weights, (0, -len(log_weights) % STRETCH), value=NEG_INF)
    found = select_in_place(padded[None].clone(), num, uniform)
    return found.chosen, log_weights[found.chosen].double() + found.log_raise


def select_in_place(log_weights: Tensor, num: int, uniform: float) -> Selection:
    """As `select`, for a matrix that is used up.

    Args:
        log_weights: Float[rows, columns], columns a multiple of `STRETCH`. In f32, what is below e^−87 of the largest is never
            chosen unless there are too few others.
    """
    width = log_weights.shape[1]
    maxima = log_weights.view(-1, STRETCH).amax(1)
    if int((maxima > NEG_INF).sum()) <= num:
        possible = (log_weights.view(-1) > NEG_INF).nonzero()[:, 0]
        if len(possible) <= num:
            log_total = float(torch.logsumexp(log_weights.view(-1)[possible].double(), 0))
            return Selection(possible, torch.zeros(len(possible), dtype=torch.float64), log_total, 0.0)
    top = maxima.max()
    step = max(1, CACHED // width)
    parts = [rows.sub_(top).exp_().view(-1, STRETCH).sum(1, dtype=torch.float64) for rows in torch.split(log_weights, step)]
    sums, weights = torch.cat(parts), log_weights.view(-1, STRETCH)
    total = float(sums.sum())
    large = _large(weights, sums, (maxima - top).exp(), num)
    large, threshold = _set_apart(weights, sums, large, num)
    flat = weights.view(-1)
    small = _systematic(weights, sums, num - len(large), uniform)
    log_raise = (threshold / flat[small].double()).log()
    chosen, order = torch.cat([large, small]).sort()
    raised = torch.cat([torch.zeros(len(large), dtype=torch.float64), log_raise])[order]
    return Selection(chosen, raised, float(top) + math.log(total), float(threshold) * (num - len(large)) / total)


def _set_apart(weights: Tensor, sums: Tensor, large: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """Take the large items out of the draw; Long: all of them, and f64[]: the threshold c of the others.

    c is summed anew: the difference between the total and the large is nothing but rounding where the others weigh 1e-16 of it,
    and a twist can be as wrong as that about them.
    """
    flat, total = weights.view(-1), sums.sum()
    while True:
        flat[large] = 0
        touched = torch.unique(large // STRETCH)
        sums[touched] = weights[touched].sum(1, dtype=torch.float64)
        threshold = sums.sum() / (num - len(large))
        if threshold > CANCELLED * total:
            return large, threshold
        missed = (flat > threshold).nonzero()[:, 0]  # fewer than there are places: more could not exceed their mean share
        if not len(missed):
            return large, threshold.clamp_min(torch.finfo(torch.float64).tiny)
        large = torch.cat([large, missed])


def _large(weights: Tensor, sums: Tensor, maxima: Tensor, num: int) -> Tensor:
    """Long: the items that weigh at least the threshold c, up to rounding of the total."""
    total = sums.sum()
    # Only what exceeds the mean share can be large at first; as large items leave, the share of the rest falls.
    share = total / num
    while True:
        stretches = (maxima >= share).nonzero()[:, 0]
        near = weights[stretches]
        row, column = ((near >= share) & (near > 0)).nonzero(as_tuple=True)  # the share is 0 once all that weighs is large
        items = stretches[row] * STRETCH + column
        ordered, order = weights.view(-1)[items].double().sort(descending=True)
        ordered = ordered[: num - 1]
        before = torch.cat([ordered.new_zeros(1), ordered.cumsum(0)])
        rank = torch.arange(len(before), device=weights.device)
        thresholds = (total - before).clamp_min(0) / (num - rank)  # c if exactly the items before this rank are large
        stays = ordered < thresholds[: len(ordered)]
        count = int(stays.to(torch.uint8).argmax()) if bool(stays.any()) else len(ordered)
        threshold = thresholds[count]
        # With all candidates large, an item below the share may exceed the threshold as well.
        if count < len(ordered) or count == num - 1 or threshold >= share:
            return items[order[:count]]
        share = threshold


def _systematic(weights: Tensor, sums: Tensor, num: int, uniform: float) -> Tensor:
    """Long[num]: the items hit by `num` equidistant points on the line of cumulated weights; none where all weights are 0."""
    ends = sums.cumsum(0)
    if ends[-1] <= 0:
        return torch.zeros(0, dtype=torch.long, device=sums.device)
    points = (torch.arange(num, dtype=torch.float64, device=sums.device) + uniform) / num * ends[-1]
    stretch = torch.searchsorted(ends, points, right=True).clamp_max(int(sums.nonzero()[-1]))
    within = weights[stretch].double().cumsum(1)
    # The sums of a stretch and of its items may differ in the last digit: the point is moved inside.
    offset = (points - (ends[stretch] - sums[stretch])) / sums[stretch] * within[:, -1]
    place = torch.searchsorted(within, offset[:, None].clamp_min(0), right=True)[:, 0]
    last = (within < within[:, -1:]).sum(1)  # the last item with weight
    hit: Tensor = torch.unique_consecutive(stretch * STRETCH + torch.minimum(place, last))
    return hit


@dataclass(frozen=True)
class WithoutReplacement:
    """SMC without replacement with exact look-ahead to the length.

    Attributes:
        blocks: independent repetitions that share the particles. Their spread is the error of the evidence; one block is more
            accurate, but nothing then tells how accurate. None: four if each gets 24 prefixes or more, otherwise one.
    """

    blocks: int | None = None
    name: str = "swor"

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """Up to `num_particles` distinct prefixes at every position; see `Sampler`."""
        reader = left_to_right(circuit)
        blocks = blocks_for(self.blocks, num_particles, circuit.length, budget)
        width = width_of(num_particles, circuit.length, budget, blocks, self.name)
        tokens = None if budget is None else budget // blocks
        wanted = math.ceil(num_particles / blocks)
        rounds = [one_round(model, reader, width, generator, wanted=wanted, lm_tokens=tokens) for _ in range(blocks)]
        return pooled(rounds, num_particles, generator)


@dataclass(frozen=True, eq=False)
class Round:
    """Distinct sequences whose weights sum to an unbiased estimate of p(α).

    Attributes:
        tokens: Long[num, length].
        log_weights: f64[num], log of p(y) over its probability of being kept.
        token_scores: f64[num, length].
        surprise, lineage: what they say of their error, see `locore.evidence.blocks`; None where nothing does.
        lm_tokens: what it cost, where that is counted.
        trial: what it says of a twist that was put to the test.
    """

    tokens: Tensor
    log_weights: Tensor
    token_scores: Tensor
    surprise: Surprise | None = None
    lineage: Lineage | None = None
    lm_tokens: int = 0
    trial: Trial | None = None


@dataclass(frozen=True)
class Trial:
    """How well a twist β would have foretold a round that it did not steer.

    Were β right, the sum of w · β over the prefixes that are kept would be p(α) at every position; were all prefixes as good as
    each other, so would the sum of w be.

    Attributes:
        untwisted, twisted: root of the sum of the squares of the steps that these sums take, nats.
    """

    untwisted: float
    twisted: float


class _History:
    """What a round remembers of its selections."""

    def __init__(self) -> None:
        self._selections: list[Selection] = []
        self._parents: list[Tensor] = []

    def add(self, selection: Selection, row: Tensor) -> None:
        """A selection of children of Long[chosen] rows."""
        self._selections.append(selection)
        self._parents.append(row)

    def surprise(self) -> Surprise:
        """By the forecasts; the first is left out, as it knows no token yet."""
        before = self._selections[:-1] or self._selections
        drawn = max(one.drawn for one in self._selections)
        width = sum(len(one.chosen) for one in before) / len(before)
        return Surprise(_steps(self._totals[1:]), drawn, width)

    def trial(self, foretold: list[float]) -> Trial:
        """Of a twist that foretold these sums of w · β; at the end nothing is left to foretell."""
        return Trial(_steps(self._totals), _steps([*foretold, self._totals[-1]]))

    def lineage(self) -> Lineage:
        return Lineage(tuple(self._parents), tuple(one.log_raise for one in self._selections))

    @property
    def _totals(self) -> list[float]:
        """Log of the weight before each selection, which keeps it."""
        return [one.log_total for one in self._selections]


def _steps(sums: list[float]) -> float:
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


def one_round(
    model: LanguageModel,
    reader: LeftToRight,
    width: int,
    generator: torch.Generator,
    twist: LookAhead | None = None,
    record: Recorder | None = None,
    wanted: int = 0,
    lm_tokens: int | None = None,
    tried: LookAhead | None = None,
) -> Round:
    """One pass over the positions, keeping `width` prefixes at each.

    Where few prefixes can be completed, or texts have ended, fewer LM tokens are spent; later positions keep more prefixes for
    them, up to `STRETCHED` times `width`. `lm_tokens` are those that may be spent, by default `width` at each position.

    Complete sequences need no further evaluation, so the last position keeps as many as are `wanted` (0: `width`). Prefixes are
    selected by p(prefix) · (β(prefix) + κ · doubt); the twist β never enters the weight, and κ limits what a wrong one can do.
    A twist that is `tried` steers nothing.
    """
    prefixes, weights = Prefixes.start(model, reader), torch.zeros(1, dtype=torch.float64)
    allowed = left = width * (reader.length - 1) if lm_tokens is None else lm_tokens
    history, foretold = _History(), []
    while not prefixes.are_complete:
        remaining = reader.length - 1 - prefixes.position
        before, last = last_tokens(prefixes.tokens)
        if tried is not None and prefixes.position:
            beta = tried.of(prefixes.position, prefixes.states, before, last)
            foretold.append(float(torch.logsumexp(weights + beta, 0)))
        if record is not None:
            record(before, last, prefixes.log_probs)
        steered = Steered.at(twist, prefixes, before, last, weights) if twist is not None and remaining else None
        merit = _merit(prefixes, weights, steered)
        uniform = float(torch.rand((), generator=generator, dtype=torch.float64))
        columns = merit.shape[1]
        kept = min(left // remaining, STRETCHED * width) if remaining else (wanted or width)
        chosen = select_in_place(merit, kept, uniform)
        if not len(chosen.chosen):
            raise ZeroWeights("no sequence that satisfies the constraint has positive probability under the model.")
        row, token = chosen.chosen // columns, chosen.chosen % columns
        history.add(chosen, row)
        prefixes = prefixes.extended(row, token)
        weights = weights[row] + prefixes.token_scores[:, -1] + chosen.log_raise
        if remaining:
            left -= int(prefixes.going().sum())
    trial = None if tried is None else history.trial(foretold)
    return Round(prefixes.tokens, weights, prefixes.token_scores, history.surprise(), history.lineage(), allowed - left, trial)


def last_tokens(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Long[num] each: the last but one and the last of Long[num, time], −1 where there is none."""
    padded = torch.nn.functional.pad(tokens, (2, 0), value=-1)
    return padded[:, -2], padded[:, -1]


@dataclass(frozen=True, eq=False)
class Steered:
    """The twist at one position.

    Attributes:
        twist: β.
        position: of the next token.
        states: Long[prefixes], before it.
        last: Long[prefixes], the token before it.
        log_floor: f32[], log κ, κ being `DEFENCE` of the mean β of the prefixes. κ · doubt is added to every β, so that about
            this share of the selection goes by p alone where the table has seen nothing, and less where it has.
    """

    twist: LookAhead
    position: int
    states: Tensor
    last: Tensor
    log_floor: Tensor

    @classmethod
    def at(cls, twist: LookAhead, prefixes: Prefixes, before: Tensor, last: Tensor, weights: Tensor) -> Steered:
        """For prefixes with f64[prefixes] log weights and these last two tokens (−1: none)."""
        beta = twist.of(prefixes.position, prefixes.states, before, last).double()
        floor = torch.logsumexp(weights + beta, 0) - torch.logsumexp(weights, 0) + LOG_DEFENCE
        return cls(twist, prefixes.position, prefixes.states, last, floor.float())

    def by_state(self, states: Tensor) -> Tensor:
        """As `LookAhead.by_state`, with κ."""
        return self.twist.by_state(self.position, states, self.log_floor)

    def known_pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """As `LookAhead.known_pairs`, with κ."""
        return self.twist.known_pairs(self.position, self.states, self.last, self.log_floor)


def _merit(prefixes: Prefixes, weights: Tensor, steered: Steered | None) -> Tensor:
    """f32[prefixes, vocab and some −inf]: log of p(child) · (β(child) + κ · doubt); −inf where nothing can be completed.

    Any merit keeps the weights proper, so single precision is enough; only what is chosen is weighed in double. The rows are
    filled a few at a time, so that they stay near the processor.
    """
    log_probs = prefixes.log_probs
    distinct, which = torch.unique(prefixes.states, return_inverse=True)
    closed = ~prefixes.reader.allowed_tokens(prefixes.position, distinct)
    ahead = torch.zeros(closed.shape) if steered is None else steered.by_state(distinct)
    ahead.masked_fill_(closed, NEG_INF)
    batch, vocab = log_probs.shape
    merit = padded_rows(batch, vocab)
    step = max(1, CACHED // vocab)
    for first in range(0, batch, step):
        part = slice(first, first + step)
        rows = merit[part, :vocab]
        rows.copy_(log_probs[part]).add_(weights[part, None].to(rows.dtype)).add_(ahead[which[part]])
    if steered is not None:
        row, token, value = steered.known_pairs()
        value += weights[row] + log_probs[row, token]
        merit[row, token] = torch.where(closed[which[row], token], NEG_INF, value)
    return merit


def pooled(rounds: list[Round], most: int | None, generator: torch.Generator, **known: Any) -> Draws:
    """Average independent rounds; a sequence found by several is one particle with the sum of its weights.

    More than `most` are thinned without bias; their total weight stays as it is, and so does what the rounds say of each other.
    `known` are fields of the record.
    """
    tokens = torch.cat([one.tokens for one in rounds])
    weights = torch.cat([one.log_weights for one in rounds]) - math.log(len(rounds))
    scores = torch.cat([one.token_scores for one in rounds])
    first, which = distinct(tokens)
    tokens, merged = tokens[first], segment_logsumexp(weights, which, len(first))
    rows = torch.split(which, [len(one.tokens) for one in rounds])
    members = [Block(row, one.log_weights, one.surprise, one.lineage) for row, one in zip(rows, rounds, strict=True)]
    blocks = Blocks.of(members, tokens)
    if most is not None and len(tokens) > most:
        chosen, merged = select(merged, most, float(torch.rand((), generator=generator, dtype=torch.float64)))
        tokens, first = tokens[chosen], first[chosen]
    return Draws(tokens, merged + math.log(len(tokens)), scores[first], Record(blocks=blocks, **known))
