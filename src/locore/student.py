"""Quantiles of Student's t, for the mean of few independent estimates."""

from __future__ import annotations

import math
from functools import lru_cache

HALVINGS = 60  # of an angle: down to rounding


def probability_within(bound: float, degrees: int) -> float:
    """P(|T| ≤ bound) for Student's t with so many degrees of freedom, by its finite sum (Abramowitz, Stegun 26.7.3-4)."""
    return _within(math.atan(bound / math.sqrt(degrees)), degrees)


@lru_cache
def quantile(degrees: int, confidence: float) -> float:
    """The bound that |T| does not exceed with probability `confidence`."""
    low, high = 0.0, math.pi / 2  # the angle whose tangent is the bound over √degrees
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < confidence else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    return (angle + sine * total) * 2 / math.pi if odd else sine * total
