"""Sequential Monte Carlo without replacement: expand every child of every prefix, keep the best, thin the rest without bias.

A language model is peaked, so SMC with replacement spends most of its budget on copies. Here no prefix is ever evaluated twice
(Fearnhead and Clifford 2003 for discrete spaces). Their optimal resampling keeps what is large and thins the rest: see
`locore.samplers.selection`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from locore.circuits import Circuit, LeftToRight
from locore.errors import InvalidArgument, ZeroWeights
from locore.evidence import Block, Blocks, Draws, Lineage, Record, Surprise
from locore.evidence.record import UNKNOWN, Bounds
from locore.models import LanguageModel
from locore.numerics import NEG_INF, distinct, row_slices, segment_logsumexp
from locore.samplers.base import Critic, Prefixes, affordable, left_to_right
from locore.samplers.selection import Selection, padded_rows, select, select_in_place
from locore.samplers.twist.base import Twist
from locore.samplers.twist.outcomes import Outcomes

JUDGED_BLOCKS, JUDGED_WIDTH = 4, 24  # blocks that judge each other, and prefixes in each from which that says something
# Share of a step's selection that goes by p(prefix) alone, to that which goes by the twist: at most, and at least.
DEFENCE, LEAST_DEFENCE = 0.2, 1e-3
STRETCHED = 2  # times the width: what a position may keep if earlier ones kept less
LESSONS = 2  # rounds of which the later learn from the earlier, where there is not enough for blocks that judge each other
WORTH_LESSONS = 16  # prefixes at a position from which the first half of them can teach the second
ROUNDED = 1e-4  # nats: more than single precision loses in what is left unread
UNLIMITED = math.inf  # log of what is left unread, where that is not known
# Times the steps that forecasts take without a twist. Where foresight is missing it shows less in a lucky round than in others,
# and going without then costs far more than a twist that is not needed: so it takes plain evidence to leave it out.
MISLEADS = 3.0
Worth = Callable[[Tensor], Tensor]  # of prefixes Long[num, time], f64[num], log of about what is to be multiplied with them
Recorder = Callable[[Tensor, Tensor, Tensor], None]  # (first, second) last tokens and the distributions after them


@dataclass(frozen=True)
class WithoutReplacement:
    """SMC without replacement with exact look-ahead to the length.

    Attributes:
        blocks: independent repetitions that share the particles. Their spread is the error of the evidence; one block is more
            accurate, but nothing then tells how accurate. None: four if each gets 24 prefixes or more, otherwise one.
        critic: it says what beginnings and texts are worth beyond α. Selection goes by the first, and by what is learned from
            the texts of earlier blocks.
    """

    blocks: int | None = None
    name: str = "swor"
    critic: Critic | None = field(default=None, compare=False, repr=False)

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
        prefixes = num_particles if budget is None else budget // max(1, circuit.length - 1)
        if self.critic is not None and self.blocks is None and prefixes >= WORTH_LESSONS:
            blocks = max(blocks, LESSONS)
        width = width_of(num_particles, circuit.length, budget, blocks, self.name)
        tokens = None if budget is None else budget // blocks
        wanted = math.ceil(num_particles / blocks)
        outcomes = None if self.critic is None else Outcomes(self.critic)
        rounds = []
        for left in range(blocks - 1, -1, -1):
            worth = None if outcomes is None else outcomes.worth
            rounds.append(one_round(model, reader, width, generator, wanted=wanted, lm_tokens=tokens, worth=worth))
            if outcomes is not None and left:
                outcomes.add(rounds[-1].tokens, rounds[-1].log_weights)
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
        bounds: certain ones of log p(α).
        trial: what it says of a twist that was put to the test.
    """

    tokens: Tensor
    log_weights: Tensor
    token_scores: Tensor
    surprise: Surprise | None = None
    lineage: Lineage | None = None
    lm_tokens: int = 0
    bounds: Bounds = UNKNOWN
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

    @property
    def misleads(self) -> bool:
        """Would the round have been foretold far worse with the twist than without?"""
        return self.twisted > MISLEADS * self.untwisted


class _History:
    """What a round remembers of its selections."""

    def __init__(self) -> None:
        self._selections: list[Selection] = []
        self._parents: list[Tensor] = []
        self._log_left: list[float] = []
        self._largest_step = 0.0  # of the totals, nats

    def add(self, selection: Selection, row: Tensor, over: Tensor | None) -> None:
        """A selection of children of Long[chosen] rows; where it went by weight alone f64[prefixes], log weight over p."""
        if self._selections:
            self._largest_step = max(self._largest_step, abs(selection.log_total - self._selections[-1].log_total))
        self._selections.append(selection)
        self._parents.append(row)
        self._log_left.append(UNLIMITED if over is None else float(torch.logsumexp(selection.log_left - over, 0)))

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
        raises = tuple(one.log_raise for one in self._selections)
        return Lineage(tuple(self._parents), raises, self._selections[-1].log_rows)

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
    twist: Twist | None = None,
    record: Recorder | None = None,
    wanted: int = 0,
    lm_tokens: int | None = None,
    tried: Twist | None = None,
    worth: Worth | None = None,
) -> Round:
    """One pass over the positions, keeping `width` prefixes at each.

    Where few prefixes can be completed, or texts have ended, fewer LM tokens are spent; later positions keep more prefixes for
    them, up to `STRETCHED` times `width`. `lm_tokens` are those that may be spent, by default `width` at each position.

    Complete sequences need no further evaluation, so the last position keeps as many as are `wanted` (0: `width`). Prefixes are
    selected by p(prefix) · (β(prefix) + κ); the twist β never enters the weight, and κ limits what a wrong one can do.
    A twist that is `tried` steers nothing. What a prefix is `worth` beyond α multiplies its children's merit, as a twist does.
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
        steered = None
        if twist is not None and remaining:
            steered = Steered.at(twist, prefixes, before, last, weights, history.defence())
        merit, over = _merit(prefixes, weights, steered), weights - prefixes.log_mass
        if worth is not None and prefixes.position:
            merit += _defended(worth(prefixes.tokens), weights)[:, None].to(merit)
        uniform = float(torch.rand((), generator=generator, dtype=torch.float64))
        columns = merit.shape[1]
        kept = min(left // remaining, STRETCHED * width) if remaining else (wanted or width)
        chosen = select_in_place(merit, kept, uniform)
        if not len(chosen.chosen):
            raise ZeroWeights("no sequence that satisfies the constraint has positive probability under the model.")
        row, token = chosen.chosen // columns, chosen.chosen % columns
        history.add(chosen, row, over if steered is None and worth is None else None)
        prefixes = prefixes.extended(row, token)
        weights = weights[row] + prefixes.token_scores[:, -1] + chosen.log_raise
        going = int(prefixes.going().sum()) if remaining else 1
        if remaining:
            left -= going
        if not going:  # only padding is to come
            prefixes = prefixes.padded()
            history.end()
    trial, bounds = None if tried is None else history.trial(foretold), history.bounds(prefixes.log_mass)
    known = (history.surprise(), history.lineage(), allowed - left, bounds, trial)
    return Round(prefixes.tokens, weights, prefixes.token_scores, *known)


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
        log_floor: f32[], log κ on the twist's device, κ being a share of the mean β of the prefixes: so much of the selection
            goes by p alone. β is as wrong as two tokens of context say too little, however often the table has seen them.
    """

    twist: Twist
    position: int
    states: Tensor
    last: Tensor
    log_floor: Tensor

    @classmethod
    def at(cls, twist: Twist, prefixes: Prefixes, before: Tensor, last: Tensor, weights: Tensor, share: float) -> Steered:
        """For prefixes with f64[prefixes] log weights and these last two tokens (−1: none); `share` of it goes by p alone."""
        beta = twist.of(prefixes.position, prefixes.states, before, last).double()
        floor = _log_floor(beta, weights, share).float()
        return cls(twist, prefixes.position, prefixes.states, last, floor.to(twist.device))

    def by_state(self, states: Tensor) -> Tensor:
        """As `Twist.by_state`, with κ."""
        return self.twist.by_state(self.position, states, self.log_floor)

    def known_pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """As `Twist.known_pairs`, with κ."""
        return self.twist.known_pairs(self.position, self.states, self.last, self.log_floor)


def _merit(prefixes: Prefixes, weights: Tensor, steered: Steered | None) -> Tensor:
    """f32[prefixes, vocab and some −inf]: log of p(child) · (β(child) + κ); −inf where nothing can be completed.

    It is on the model's device. Any merit keeps the weights proper, so single precision is enough; only what is chosen is
    weighed in double. The rows are filled a few at a time, so that they stay near the processor.
    """
    log_probs = prefixes.log_probs
    device = log_probs.device
    distinct, which = torch.unique(prefixes.states, return_inverse=True)
    ahead = prefixes.reader.log_allowed(prefixes.position, distinct, device)
    if steered is not None:
        ahead += steered.by_state(distinct)
    batch, vocab = log_probs.shape
    merit = padded_rows(batch, vocab, device)
    weights, which = weights.to(device), which.to(device)
    for part in row_slices(log_probs):
        rows = merit[part, :vocab]
        rows.copy_(log_probs[part]).add_(weights[part, None].to(rows.dtype)).add_(ahead[which[part]])
    if steered is not None:
        row, token, value = (part.to(device) for part in steered.known_pairs())
        value += weights[row] + log_probs[row, token]
        merit[row, token] = torch.where(ahead[which[row], token] == NEG_INF, NEG_INF, value)
    return merit


def _defended(worth: Tensor, weights: Tensor) -> Tensor:
    """f64[prefixes]: what they are worth and a share of the mean, as for a twist; what is worth nothing stays so."""
    return torch.where(worth > NEG_INF, torch.logaddexp(worth, _log_floor(worth, weights, DEFENCE)), NEG_INF)


def _log_floor(worth: Tensor, weights: Tensor, share: float) -> Tensor:
    """f64[]: log of this share of the mean of what prefixes with f64[prefixes] log weights are worth, f64[prefixes] in logs."""
    return torch.logsumexp(weights + worth, 0) - torch.logsumexp(weights, 0) + math.log(share)


def pooled(rounds: list[Round], most: int | None, generator: torch.Generator, **known: Any) -> Draws:
    """Average independent rounds; a sequence found by several is one particle with the sum of its weights.

    More than `most` are thinned without bias; their total weight stays as it is, and so does what the rounds say of each other.
    `known` are fields of the record.
    """
    low, high = max(one.bounds[0] for one in rounds), min(one.bounds[1] for one in rounds)
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
