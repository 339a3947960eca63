"""Pareto k̂: how heavy the upper tail of independent weights is, read off from the largest of them.

Above a high threshold almost any law looks like a generalised Pareto law of shape k, which has moments up to order 1/k only.
Weights with k > 1/2 have no variance, so neither their effective sample size nor the error of their mean can be believed, and
from about k = 0.7 on their mean settles too slowly to be of use (Vehtari, Simpson, Gelman, Yao and Gabry, "Pareto smoothed
importance sampling", 2024). The fit is that of Zhang and Stephens, "A new and efficient estimation method for the generalized
Pareto distribution", Technometrics 2009.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from locore.kernel.numerics import NEG_INF

LEAST_PARTICLES = 25  # with fewer the tail has fewer than 5 points, and k̂ means nothing
LEAST_TAIL = 5
LARGE_K = 0.7  # above it the mean settles too slowly
ROUNDING = 1e-9  # of weights that differ by no more than this share
PRIOR_K, PRIOR_POINTS = 0.5, 10  # k̂ is drawn towards 0.5 as by ten more points (Vehtari et al. 2024, appendix G)


def pareto_k(log_weights: Tensor, num_zero: int = 0) -> float:
    """Shape k̂ of the upper tail of independent weights.

    The tail is the min(S/5, 3√S) largest of S weights, as in Pareto smoothed importance sampling.

    Args:
        log_weights: f64[num], natural logs; the scale does not matter.
        num_zero: weights that were zero and are not among them.

    Returns:
        k̂; nan for fewer than 25 weights, and where fewer than 5 of them stand out of the rest: equal weights have no tail.
    """
    positive = log_weights[log_weights > NEG_INF].double()
    total = len(log_weights) + num_zero
    if total < LEAST_PARTICLES or not len(positive):
        return math.nan
    scaled = (positive - positive.max()).exp().sort(descending=True).values
    tail = math.ceil(min(total / 5, 3 * math.sqrt(total)))
    threshold = float(scaled[tail]) if tail < len(scaled) else 0.0  # a zero weight
    excesses = scaled[:tail] - threshold
    excesses = excesses[excesses > 0]
    if len(excesses) < LEAST_TAIL or bool(excesses.max() - excesses.min() <= ROUNDING * excesses.max()):
        return math.nan
    return tail_shape(excesses)


def tail_shape(excesses: Tensor) -> float:
    """Shape of the generalised Pareto law that excesses over a threshold follow, f64[num] above 0, in any order.

    The empirical Bayes estimate of Zhang and Stephens, with the weak prior above. With θ = −shape/scale the likelihood, maximal
    in the shape, is a function of θ alone; θ is averaged over a grid and gives shape = mean log(1 − θx).
    """
    num = len(excesses)
    ordered = excesses.sort().values
    largest, quartile = ordered[-1], ordered[int(num / 4 + 0.5) - 1]
    points = 30 + int(math.sqrt(num))
    steps = torch.arange(1, points + 1, dtype=torch.float64) - 0.5
    grid = 1 / largest + (1 - (points / steps).sqrt()) / (3 * quartile)
    shapes = torch.log1p(-grid[:, None] * ordered).mean(1)
    log_likelihood = num * ((-grid / shapes).log() - shapes - 1)
    theta = (torch.softmax(log_likelihood, 0) * grid).sum()
    shape = float(torch.log1p(-theta * ordered).mean())
    return (num * shape + PRIOR_POINTS * PRIOR_K) / (num + PRIOR_POINTS)
