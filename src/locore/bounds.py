"""Bounds of log p(α) that are certain, or hold with a stated probability whatever the law of the weights.

**Certain.** The texts found satisfy α and are distinct sequences, so Σ p(y) over them is at most p(α). Samplers that read
prefixes know more, from above too: see `locore.samplers.frontier`.

**Binomial.** Draws from the model satisfy α or not: Clopper and Pearson, Biometrika 1934.

**Betting.** Let w_1, w_2, … be non-negative, each of mean Z = p(α) given those before it. Who doubts that Z is as small as z
can bet on it: of a capital of 1 a share λ is staked in every round, which multiplies the capital by 1 − λ + λ·w_i/z. If z = Z
nobody gains in the mean, so with probability 1 − δ the capital never reaches 1/δ (Markov's inequality, at all times at once:
Ville's). Hence with probability 1 − δ, Z is above every z for which the capital did reach 1/δ (Waudby-Smith and Ramdas,
"Estimating means of bounded random variables by betting", JRSS B 2024). One weight and λ = 1 give Markov's Z ≥ δ·w. Where
w_i ≤ c_i, c_i known before w_i, the same bets on c_i − w_i, of mean c_i − Z, bound Z from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from locore.numerics import NEG_INF

if TYPE_CHECKING:
    from locore.particles import Particles

Bounds = tuple[float, float]
UNKNOWN: Bounds = (NEG_INF, 0.0)
CONFIDENCE = 0.95
# Few weights call for bold stakes, many for small ones, so the capital is divided beforehand among gamblers with these shares.
SHARES = 0.5 ** torch.arange(16, dtype=torch.float64)
CAPITAL = torch.tensor([1 / ((k + 1) * (k + 2)) for k in range(len(SHARES))], dtype=torch.float64)
HALVINGS, WIDEST = 50, 2000.0  # bisection over so many nats


def certain_bounds(particles: Particles) -> Bounds:
    """Numbers that log p(α) lies between in every run; −inf and 0 where nothing is known."""
    info = particles.info
    if info.get("evidence") == "exact":
        return particles.log_evidence, particles.log_evidence
    known = info.get("log_evidence_lower")
    low, high = NEG_INF if known is None else known, min(0.0, info.get("log_evidence_upper", 0.0))
    if particles.token_scores is not None:
        low = max(low, log_total(particles.tokens, particles.token_scores.sum(-1)))
    return min(low, high), high  # rounding may put the sum of everything above its bound


def confidence_bounds(particles: Particles) -> Bounds:
    """Numbers that log p(α) lies between with probability 95 %, as a theorem and not by approximation."""
    low, high = certain_bounds(particles)
    known = particles.info.get("log_evidence_interval") or particles.info.get("log_evidence_bounds_95", ())
    likely = known or (UNKNOWN if known is None else _bounds_of_weights(particles))
    return min(max(low, likely[0]), high), max(min(high, likely[1]), low)


def log_total(tokens: Tensor, log_probs: Tensor) -> float:
    """Log of the total probability of the distinct sequences among Long[num, time], f64[num] their log p."""
    distinct, which = torch.unique(tokens, dim=0, return_inverse=True)
    once = log_probs.new_full((len(distinct),), NEG_INF).scatter_(0, which, log_probs)
    return float(torch.logsumexp(once, 0))


def _bounds_of_weights(particles: Particles) -> Bounds:
    """By betting on what is independent: blocks, or the weights themselves, zeros included."""
    info = particles.info
    if info.get("guarantee") != "proper":
        return UNKNOWN
    if particles.blocks is not None and "resampled_from" not in info:
        return betting_bounds(torch.tensor(particles.blocks.log_evidence))
    if info.get("dependent"):
        return UNKNOWN
    drawn = int(info.get("drawn", len(particles)))
    weights = particles.log_weights + math.log(drawn / len(particles))
    zeros = weights.new_full((drawn - len(weights),), NEG_INF)
    cap = info.get("log_weight_cap")
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
    kept, staked = torch.log1p(-SHARES)[:, None], SHARES.log()[:, None]
    growth = torch.logaddexp(kept, staked + log_ratios).sum(1)
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
    low = _probability_where(accepted - 1, drawn, 1 - tail)
    high = _probability_where(accepted - stopped, drawn - stopped, tail)
    return math.log(low), math.log(high)


def _probability_where(most: int, drawn: int, target: float) -> float:
    """The p at which P(Binomial(drawn, p) ≤ most) = target."""
    if most >= drawn:
        return 1.0
    counts = torch.arange(most + 1, dtype=torch.float64)
    choices = math.lgamma(drawn + 1) - torch.lgamma(counts + 1) - torch.lgamma(drawn - counts + 1)

    def is_above(p: float) -> bool:
        terms = choices + counts * math.log(p) + (drawn - counts) * math.log1p(-p)
        return float(terms.logsumexp(0).exp()) > target

    return _bisected(is_above, 0.0, 1.0)[1]


def _bisected(holds: Callable[[float], bool], low: float, high: float) -> Bounds:
    """Neighbours between which a property that holds below and fails above ends."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high
