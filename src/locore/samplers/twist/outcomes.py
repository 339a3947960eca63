"""What texts that are finished were worth, as a forecast for prefixes: a tree that backs off to shorter ones.

The value of a prefix x is V(x) = E[φ(y) | y begins with x, y ⊨ α]. Finished texts with weights w estimate it where some of them
begin with x; elsewhere the value of the longest beginning of x that is known stands for it. In between a node leans on its
parent as if that had seen as much as one text of mean weight:

    V̂(x) = (Σ_{y begins with x} w φ + κ V̂(parent)) / (Σ_{y begins with x} w + κ),    V̂() = Σ w φ / Σ w.

It steers the next rounds of a run, never a weight, so it may be as wrong as it likes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from locore.numerics import NEG_INF
from locore.samplers.base import Critic

LEAN = 1.0  # texts of mean weight that a parent counts for


class Outcomes:
    """The tree of all rounds so far, on top of what a critic says of beginnings by itself."""

    def __init__(self, critic: Critic) -> None:
        """Nothing has been finished yet."""
        self._critic = critic
        self._mass: dict[tuple[int, ...], tuple[float, float]] = {}  # prefix -> Σ w, Σ w φ; both divided by e^shift
        self._shift: tuple[float, float] | None = None
        self._texts = 0

    def worth(self, tokens: Tensor) -> Tensor:
        """f64[num]: log of what prefixes Long[num, time] are worth."""
        known = self._critic.ahead(tokens) if self._critic.steers else torch.zeros(len(tokens), dtype=torch.float64)
        if self._shift is None:
            return known
        return known + torch.tensor([self._value(tuple(row)) for row in tokens.tolist()], dtype=torch.float64)

    def add(self, tokens: Tensor, log_weights: Tensor) -> None:
        """Finished sequences Long[num, length] with log weights of p(y | α), f64[num]."""
        factors = self._critic.of(tokens)
        if not bool((factors > NEG_INF).any()):
            return
        if self._shift is None:  # of the first round that was worth anything; it only keeps numbers near 1
            self._shift = float(log_weights.max()), float(factors.max())
        weights = (log_weights - self._shift[0]).exp().tolist()
        worths = (log_weights + factors - sum(self._shift)).exp().tolist()
        self._texts += len(weights)
        for row, weight, worth in zip(tokens.tolist(), weights, worths, strict=True):
            for end in range(len(row)):
                seen = self._mass.get(tuple(row[:end]), (0.0, 0.0))
                self._mass[tuple(row[:end])] = seen[0] + weight, seen[1] + worth

    def _value(self, prefix: tuple[int, ...]) -> float:
        """Log of V̂, over that of the empty prefix."""
        weight, worth = self._mass[()]
        mean = value = worth / weight
        lean = LEAN * weight / self._texts
        for end in range(1, len(prefix) + 1):
            seen = self._mass.get(prefix[:end])
            if seen is None:
                break
            value = (seen[1] + lean * value) / (seen[0] + lean)
        return math.log(value / mean) if value > 0 else math.log(torch.finfo(torch.float64).tiny)
