"""What texts that are finished were worth, as a forecast for prefixes: by their tokens, and by their beginnings.

The value of a prefix x is V(x) = E[φ(y) | y begins with x, y ⊨ α], up to a constant. Two things are learned of it from the
texts of earlier rounds.

**By tokens.** log φ as a linear function of how often a text has each token (ridge regression): what is known of x is the part
of the sum that is written already. How well each text is foretold by the others (leave one out, in closed form) says how much
of this to believe: the share of the variance that it explains, and nothing below zero.

**By beginnings.** What the linear forecast leaves, or all of it where texts are excluded: a tree over beginnings, whose nodes
lean on their parents as if those had seen one text of mean weight,

    R̂(x) = (Σ_{y begins with x} w φ/φ̂ + κ R̂(parent)) / (Σ_{y begins with x} w + κ).

It steers the next rounds of a run, never a weight, so it may be as wrong as it likes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from locore.kernel.numerics import NEG_INF

LEAN = 1.0  # texts of mean weight that a parent counts for
RIDGE = 1.0  # squared counts: a token that one text has once is believed by half
SMALLEST = 1e-300
LEAST = 4  # texts of which something can be learned


class HasTokens(Protocol):
    """Prefixes, as far as texts go: `locore.kernel.samplers.sampler.Prefixes`."""

    @property
    def tokens(self) -> Tensor:
        """Long[num, time]."""


class Outcomes:
    """A `locore.kernel.samplers.sampler.Lessons`: all rounds so far, on top of what is known of beginnings by itself."""

    def __init__(self, of_texts: Callable[[Tensor], Tensor], of_beginnings: Callable[[Tensor], Tensor]) -> None:
        """Nothing has been finished yet.

        Args:
            of_texts: f64[num], log of what finished sequences Long[num, length] are worth.
            of_beginnings: likewise of what is known of beginnings by itself.
        """
        self._of_texts, self._of_beginnings = of_texts, of_beginnings
        self._tokens = torch.zeros(0, 0, dtype=torch.long)
        self._weights = torch.zeros(0, dtype=torch.float64)
        self._foreseen = torch.zeros(0, dtype=torch.float64)  # of the finished texts, as beginnings
        self._linear: _Linear | None = None
        self._tree: _Tree | None = None

    def of(self, prefixes: HasTokens) -> Tensor:
        """f64[num]: log of what prefixes are worth."""
        worth = self._of_beginnings(prefixes.tokens)
        for learned in (self._linear, self._tree):
            worth = worth if learned is None else worth + learned.of(prefixes.tokens)
        return worth

    def add(self, tokens: Tensor, log_weights: Tensor) -> None:
        """Finished sequences Long[num, length] with log weights of p(y | α), f64[num]."""
        self._tokens = torch.cat([self._tokens, tokens]) if len(self._tokens) else tokens
        self._weights = torch.cat([self._weights, log_weights])
        self._foreseen = torch.cat([self._foreseen, self._of_beginnings(tokens).nan_to_num(neginf=0.0)])
        factors = self._of_texts(self._tokens)
        finite = factors > NEG_INF
        if int(finite.sum()) < LEAST:
            return
        left = factors - self._foreseen
        self._linear = _Linear.fitted(self._tokens[finite], left[finite])
        if self._linear is not None:
            left = left - self._linear.of(self._tokens)
        self._tree = _Tree.of_texts(self._tokens, self._weights, left)


@dataclass(frozen=True, eq=False)
class _Linear:
    """A sum over tokens.

    Attributes:
        ids: Long[known], increasing.
        worth: f64[known], nats for each time that a token stands there; others are worth nothing.
    """

    ids: Tensor
    worth: Tensor

    @classmethod
    def fitted(cls, tokens: Tensor, values: Tensor) -> _Linear | None:
        """From the f64[num] of Long[num, length]; None where texts do not foretell each other."""
        ids = torch.unique(tokens)
        counts = _counts(tokens, ids)
        counts = counts - counts.mean(0)
        apart = values - values.mean()
        kernel, size = counts @ counts.T, len(values)
        inverse = torch.linalg.inv(kernel + RIDGE * torch.eye(size, dtype=torch.float64))
        own = (kernel @ inverse).diagonal() + 1 / size  # how far a text foretells itself
        errors = (apart - kernel @ inverse @ apart) / (1 - own).clamp_min(1e-9)
        spread = float((apart * size / (size - 1)).square().sum())
        explained = 1 - float(errors.square().sum()) / spread if spread else 0.0
        return cls(ids, explained * (counts.T @ (inverse @ apart))) if explained > 0 else None

    def of(self, tokens: Tensor) -> Tensor:
        """f64[num] of Long[num, time]."""
        return _counts(tokens, self.ids) @ self.worth


def _counts(tokens: Tensor, ids: Tensor) -> Tensor:
    """f64[num, known]: how often each of these ids stands in each row."""
    place = torch.searchsorted(ids, tokens).clamp_max(len(ids) - 1)
    hits = (ids[place] == tokens).double()
    return torch.zeros(len(tokens), len(ids), dtype=torch.float64).scatter_add_(1, place, hits)


class _Tree:
    """Sums of weights, and of weights times what is left of the factors, over all beginnings of texts."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, ...], tuple[float, float]] = {}
        self._lean = 0.0

    @classmethod
    def of_texts(cls, tokens: Tensor, log_weights: Tensor, log_left: Tensor) -> _Tree:
        """From Long[num, length] and two f64[num]; at least one of the second is above −∞."""
        tree = cls()
        weights = (log_weights - log_weights.max()).exp()
        worths = weights * (log_left - log_left.max()).exp()
        tree._lean = LEAN * float(weights.mean())
        for row, weight, worth in zip(tokens.tolist(), weights.tolist(), worths.tolist(), strict=True):
            for end in range(len(row)):
                seen = tree._sums.get(tuple(row[:end]), (0.0, 0.0))
                tree._sums[tuple(row[:end])] = seen[0] + weight, seen[1] + worth
        return tree

    def of(self, tokens: Tensor) -> Tensor:
        """f64[num]: log R̂ of Long[num, time], over that of the empty beginning."""
        return torch.tensor([self._value(tuple(row)) for row in tokens.tolist()], dtype=torch.float64)

    def _value(self, prefix: tuple[int, ...]) -> float:
        weight, worth = self._sums[()]
        mean = value = worth / weight
        for end in range(1, len(prefix) + 1):
            seen = self._sums.get(prefix[:end])
            if seen is None:
                break
            value = (seen[1] + self._lean * value) / (seen[0] + self._lean)
        return math.log(max(value / mean, SMALLEST))
