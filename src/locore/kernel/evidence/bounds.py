"""Bounds of log p(α) that are certain, or hold with a stated probability whatever the law of the weights.

**Certain.** The texts found satisfy α and are distinct sequences, so Σ p(y) over them is at most p(α). Samplers that read
prefixes know more, from above too: see `locore.kernel.samplers.sampler`.

**Binomial.** Draws from the model satisfy α or not: Clopper and Pearson, Biometrika 1934.

**Betting.** Let w_1, w_2, … be non-negative, each of mean Z = p(α) given those before it. Who doubts that Z is as small as z
can bet on it: of a capital of 1 a share λ is staked in every round, which multiplies the capital by 1 − λ + λ·w_i/z. If z = Z
nobody gains in the mean, so with probability 1 − δ the capital never reaches 1/δ (Markov's inequality, at all times at once:
Ville's). Hence with probability 1 − δ, Z is above every z for which the capital did reach 1/δ (Waudby-Smith and Ramdas,
"Estimating means of bounded random variables by betting", JRSS B 2024). One weight and λ = 1 give Markov's Z ≥ δ·w. Where
w_i ≤ c_i, c_i known before w_i, the same bets on c_i − w_i, of mean c_i − Z, bound Z from above.

**Interval.** What is said first is neither: how far log p(α) may lie from the estimate by all that the particles say of their
error. It is exact where draws of the model were counted; elsewhere it is an approximation with three terms: the standard error;
more above where a run was surprised, as the weights are then skewed and the error itself is underestimated; and what was never
drawn. `locore.kernel.evidence.blocks` says what is made of surprise, docs/lab/verdicts.md how often the interval holds.

**Three in n.** What happens with a probability above 3/n shows among n draws, but for one case in twenty: (1 − 3/n)^n < e^−3.
So weights that all agree are no proof that all others would: a share 3/n of the draws may have other weights, none at all or
more. Where particles are kept for certain and only a share of the weight is drawn among, it is that share of 3/n. Where nothing
differs, the other weights may be anything that certain bounds allow; where weights do differ their spread says what is to be
expected, and the share counts once more, as if it weighed as much as the mean.

**Potentials.** The texts that were asked about say nothing of the others, which hold a share u of the weight: what was drawn
among and not found, by the rule of three, and no more than what certainly was not found. Each may be worth as much as φ can be.
That is its bound; a potential without one is taken to exceed what was seen by no more than twice the spread of its answers, and
by anything where they are all the same, for then nothing was learned about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from locore.kernel.evidence.blocks import LEAST
from locore.kernel.evidence.record import UNKNOWN, Bounds, Draws, Factors, log_total
from locore.kernel.numerics import NEG_INF, effective_sample_size
from locore.kernel.plugins import cached_property

OF_THREE = 3.0
UNSEEN = 1.5  # standard errors by what was not drawn
SAME = 1e-9  # nats by which equal weights may differ
CONFIDENCE = 0.95
# Few weights call for bold stakes, many for small ones, so the capital is divided beforehand among gamblers with these shares.
SHARES = 0.5 ** torch.arange(16, dtype=torch.float64)
CAPITAL = torch.tensor([1 / ((k + 1) * (k + 2)) for k in range(len(SHARES))], dtype=torch.float64)
HALVINGS, WIDEST = 50, 2000.0  # bisection over so many nats
# In standard errors; the others were fitted once. What a sampler misses makes its estimate too low, never too high.
SIGNIFICANT, SKEW = 2.0, 1.0  # and UNSEEN
BEYOND = 1.5  # times the surprise: how much higher what is out of sight may be
EXPECTED_DRAWS = 10.0  # that would satisfy the constraint, had the particles been unconstrained draws
SMALL_REACH = 0.5  # nats by which p(α) may be larger than the estimate without harm: a draw's error is less than half of it
ENCLOSED = 0.01  # nats between certain bounds, within which nothing is left to doubt
CLOSED = 0.1  # bounds that leave less than this share open leave nothing out of sight
QUANTILE_HALVINGS = 60  # of an angle: down to rounding


def number_drawn(draws: Draws) -> tuple[float, float]:
    """How many draws there were, and the share of the weight that was drawn among."""
    blocks = draws.blocks
    if blocks is None:
        return float(draws.drawn), 1.0
    if not blocks.members:
        return float(max(len(blocks), draws.drawn)), 1.0
    widths = [block.surprise.width if block.surprise else len(block.row) for block in blocks.members]
    shares = [block.surprise.share_drawn if block.surprise else 1.0 for block in blocks.members]
    return float(sum(widths)), max(shares)


def missed_share(draws: Draws) -> float:
    """The share of the weight that n draws may have missed, at most 1."""
    number, drawn_among = number_drawn(draws)
    return drawn_among * min(1.0, OF_THREE / max(1.0, number))


def nothing_differs(draws: Draws) -> bool:
    """Are all weights the same, so that their spread says nothing?"""
    if draws.blocks is not None:
        logs = draws.blocks.log_evidence
        return draws.blocks.surprise <= SAME and max(logs) - min(logs) <= SAME
    return draws.drawn == len(draws) and float(draws.log_weights.max() - draws.log_weights.min()) <= SAME


def unasked_share(draws: Draws) -> float:
    """The share of p(α), in units of its estimate, on texts that are not among these: what potentials were not asked about."""
    number, drawn_among = number_drawn(draws)
    if draws.blocks is None:
        number = effective_sample_size(draws.log_weights)
    share = drawn_among * min(1.0, OF_THREE / max(1.0, number))
    if draws.token_scores is not None:
        log_share = log_total(draws.tokens, draws.token_scores.sum(-1)) - draws.log_mean_weight
        share = min(share, max(0.0, -math.expm1(log_share)))
    return share + (0.0 if draws.blocks is None else UNSEEN * draws.blocks.unseen)


def log_reach_of_others(draws: Draws) -> float:
    """Log of how many times Z the texts may be worth that no potential was asked about; −inf where there are none."""
    factors = draws.record.factors
    if factors is None or factors.unasked <= 0.0 or draws.record.exact_draws or draws.record.enumerated:
        return -math.inf
    mean = draws.log_mean_weight - factors.log_before
    return math.log(factors.unasked) + factors.log_beyond - mean


@dataclass(frozen=True, eq=False, repr=False)
class Estimate(Draws):
    """Draws with what follows of log p(α), each thing found out once."""

    @cached_property
    def log_evidence_interval(self) -> Bounds:
        """95 % interval of log p(α); nan if unknown.

        Exact (Clopper and Pearson) where draws of the model were counted; elsewhere an approximation that reaches further up
        than down, see the head of this file.
        """
        return interval(self)

    @cached_property
    def log_evidence_bounds_95(self) -> Bounds:
        """Numbers that log p(α) lies between with probability 95 %, whatever the law of the weights, see `evidence.bounds`."""
        return confidence_bounds(self)


def interval(draws: Draws) -> Bounds:
    """95 % interval of log p(α), exact where draws of the model were counted and approximate elsewhere; nan if unknown."""
    if draws.record.interval is not None:
        return draws.record.interval
    estimate, error = draws.log_evidence, draws.log_evidence_error
    if math.isnan(error):
        return math.nan, math.nan
    sure = draws.log_evidence_bounds
    if draws.record.evidence == "enclosed" and sure[1] - sure[0] <= ENCLOSED:
        return sure  # narrow enough, and a few draws from the rest say less
    # Weights that make p(α) more than 1 are wrong by at least what is too much.
    excess = draws.log_mean_weight - estimate
    low = estimate - max(_significant(draws) * error, -_log1m(missed_share(draws)), excess)
    high = estimate + max(reach(draws), excess)
    if nothing_differs(draws):
        high = max(high, sure[1])
    return within(low, high, sure)


def within(low: float, high: float, sure: Bounds) -> Bounds:
    """What is possible of an interval; where nothing is, what made it is known to be wrong, and only what is certain counts."""
    return sure if low > sure[1] or high < sure[0] else (max(low, sure[0]), min(high, sure[1]))


def _log1m(share: float) -> float:
    """log (1 − share)."""
    return NEG_INF if share >= 1 else math.log1p(-share)


def reach(draws: Draws) -> float:
    """How far above the estimate log p(α) may lie, nats; nan if unknown."""
    seen, others = reach_in_sight(draws), log_reach_of_others(draws)
    if is_out_of_sight(draws):
        seen = _possible(draws, seen + BEYOND * _surprise(draws)[0])
    if math.isinf(others):
        return max(seen, others)
    return max(seen, others) + math.log1p(math.exp(-abs(seen - others)))  # e^seen times the estimate, and e^others times it


def reach_in_sight(draws: Draws) -> float:
    """The same, but for what is out of sight. See `locore.kernel.evidence.blocks` for what is made of surprise."""
    error = draws.log_evidence_error
    if draws.record.enumerated or math.isnan(error):
        return error
    surprise, unseen = _surprise(draws)
    seen = error * (_significant(draws) + SKEW * surprise) + UNSEEN * unseen + math.log1p(missed_share(draws))
    return _possible(draws, seen)


def _possible(draws: Draws, nats: float) -> float:
    """No more than certain bounds leave above the estimate; that it may be too high by its own error stays."""
    room = max(0.0, draws.log_evidence_bounds[1] - draws.log_evidence)
    return max(min(nats, room), SIGNIFICANT * draws.log_evidence_error)


def _significant(draws: Draws) -> float:
    """Standard errors; Student's quantile where nothing but the spread of a few blocks gives the error."""
    blocks = draws.blocks
    if blocks is None or len(blocks) < LEAST or not math.isnan(blocks.thinning):
        return SIGNIFICANT
    return quantile(len(blocks) - 1, CONFIDENCE)


def _surprise(draws: Draws) -> tuple[float, float]:
    """What blocks say; of independent weights the standard deviation of their logs, as of one position."""
    if draws.blocks is not None:
        return draws.blocks.surprise, draws.blocks.unseen
    if len(draws) < 2:
        return 0.0, 0.0
    nats = float(draws.log_weights.std())
    return nats, nats / math.sqrt(draws.drawn)


def is_out_of_sight(draws: Draws) -> bool:
    """Could texts that nobody drew hold more than those that were found?

    Particles that nothing steers towards the constraint go where prefixes are likely, so N prefixes see nothing of a set of
    them with less mass than about 1/N. If p(α) is not well above that, what they agree on may be the wrong mode. A look-ahead
    that was learned from these prefixes does not help: it foretells what was seen, and blocks that share it share what it
    misses. Unless every prefix was read, or certain bounds say that next to nothing is left, or no more than may be missed.
    """
    factors, blocks = draws.record.factors, draws.blocks
    seen = math.log(max(draws.drawn, blocks.width if blocks else 0))
    if factors is not None:
        expected = _share_in_sight(draws, factors) + seen
        return not draws.record.exact_draws and not draws.record.enumerated and expected < math.log(EXPECTED_DRAWS)
    if draws.record.guided or draws.record.exact_draws or not draws.record.weighted:
        return False
    if blocks is not None:
        if blocks.are_complete:
            return False
        seen = max(seen, blocks.log_seen)  # in this order: it may be nan
    low, high = draws.log_evidence_bounds
    if low > math.log1p(-CLOSED) + high or draws.log_evidence > high - SMALL_REACH:
        return False
    return draws.log_evidence + seen < math.log(EXPECTED_DRAWS)


def _share_in_sight(draws: Draws, factors: Factors) -> float:
    """Log of the share that α and the factors leave, as far as nothing steers towards them: of the largest φ that was seen."""
    of_alpha = 0.0 if draws.record.guided or factors.tilted else factors.log_before
    return of_alpha + (0.0 if factors.steered else draws.log_mean_weight - factors.log_before - factors.log_seen)


@lru_cache
def quantile(degrees: int, confidence: float) -> float:
    """The bound that |T| does not exceed with probability `confidence`."""
    low, high = 0.0, math.pi / 2  # the angle whose tangent is the bound over √degrees
    for _ in range(QUANTILE_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < confidence else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    """P(|T| ≤ √degrees · tan(angle)) for Student's t, by its finite sum (Abramowitz, Stegun 26.7.3-4)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    return (angle + sine * total) * 2 / math.pi if odd else sine * total


def confidence_bounds(draws: Draws) -> Bounds:
    """Numbers that log p(α) lies between with probability 95 %, as a theorem and not by approximation."""
    likely = (None if draws.record.joined else draws.record.interval) or draws.record.likely or _bounds_of_weights(draws)
    if draws.record.factors is not None and likely[1] == 0.0:  # what bounds a probability bounds nothing else
        likely = likely[0], draws.record.log_most
    return within(*likely, draws.log_evidence_bounds)


def _bounds_of_weights(draws: Draws) -> Bounds:
    """By betting on what is independent: blocks, or the weights themselves, zeros included."""
    record = draws.record
    if record.guarantee != "proper":
        return UNKNOWN
    if record.blocks is not None and record.resampled_from is None:
        return betting_bounds(torch.tensor(record.blocks.log_evidence))
    if not record.independent:
        return UNKNOWN
    weights = draws.log_weights + math.log(draws.drawn / len(draws))
    zeros = weights.new_full((draws.drawn - len(weights),), NEG_INF)
    cap = record.weight_cap
    return betting_bounds(torch.cat([weights, zeros]), None if cap is None else torch.tensor(cap))


def betting_bounds(log_weights: Tensor, log_caps: Tensor | None = None) -> Bounds:
    """Logs of two numbers that Z lies between with probability 95 %; finite samples, nothing assumed of tails.

    Args:
        log_weights: f64[num], natural logs, in the order in which they were drawn; the weights have the mean Z ≤ 1 given those
            before them. It may depend on the weights when drawing stopped.
        log_caps: what each weight cannot exceed, known before it was drawn: f64[num], or one number for all. Without them there
            is no bound from above, and the other takes all of the 5 %.
    """
    weights = log_weights.double()
    if log_caps is None:
        return _lower_bound(weights, 1 - CONFIDENCE), 0.0
    tail = (1 - CONFIDENCE) / 2
    return _lower_bound(weights, tail), _upper_bound(weights, log_caps.double(), tail)


def _lower_bound(log_weights: Tensor, tail: float) -> float:
    top = float(log_weights.max())
    if top == NEG_INF:
        return NEG_INF
    # At z = max w nobody has gained; the smaller z, the larger the capital.
    ruined, _ = _bisected(lambda z: _log_capital(log_weights - z) >= -math.log(tail), top - WIDEST, top)
    return ruined


def _upper_bound(log_weights: Tensor, log_caps: Tensor, tail: float) -> float:
    most = float(log_caps.min())  # E w ≤ c
    gap = (log_weights - log_caps).clamp_max(0.0).exp()
    left = log_caps + torch.log1p(-gap)  # log(c − w)

    def plausible(z: float) -> bool:
        return _log_capital(left - log_caps - torch.log1p(-(z - log_caps).exp())) < -math.log(tail)

    return min(0.0, _bisected(plausible, most - WIDEST, most)[1])


def _log_capital(log_ratios: Tensor) -> float:
    """Log of what a capital of 1 has become, given f64[num], log of weight over its supposed mean."""
    reserve, staked = torch.log1p(-SHARES)[:, None], SHARES.log()[:, None]
    growth = torch.logaddexp(reserve, staked + log_ratios).sum(1)
    return float(torch.logsumexp(CAPITAL.log() + growth, 0))


def binomial_bounds(accepted: int, drawn: int, stopped: bool) -> Bounds:
    """Logs of the 95 % interval of Clopper and Pearson for a probability of acceptance.

    Args:
        accepted: of the draws, at least 1.
        drawn: how many draws.
        stopped: did drawing end with the last of the acceptances that were wanted? It is then known that one fewer of one fewer
            draws were accepted, and the interval is exact for this stop too, also if it could have ended at a fixed number.
    """
    tail = (1 - CONFIDENCE) / 2
    low, _ = _log_probability_where(accepted - 1, drawn, 1 - tail)
    _, high = _log_probability_where(accepted - stopped, drawn - stopped, tail)
    return low, high


def _log_probability_where(most: int, drawn: int, target: float) -> Bounds:
    """Neighbours of the log p at which P(Binomial(drawn, p) ≤ most) = target."""
    if most >= drawn:
        return 0.0, 0.0
    counts = torch.arange(most + 1, dtype=torch.float64)
    choices = torch.nn.functional.pad(((drawn - counts[:-1]) / counts[1:]).log().cumsum(0), (1, 0))  # log C(drawn, count)

    def is_above(log_p: float) -> bool:
        terms = choices + counts * log_p + (drawn - counts) * math.log1p(-math.exp(log_p))
        return float(terms.logsumexp(0).exp()) > target

    return _bisected(is_above, -WIDEST, 0.0)


def _bisected(holds: Callable[[float], bool], low: float, high: float) -> Bounds:
    """Neighbours between which a property that holds below and fails above ends."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high
