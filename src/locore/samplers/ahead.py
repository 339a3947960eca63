"""What is still to come behind a prefix, whoever says it: the one thing that a sampler can be steered by.

A table of the model, the texts that were finished so far, the `prefix` of a potential: each estimates, for a prefix x, how much
of what begins with x satisfies the constraint or is worth something, E[1[y ⊨ α] φ(y) | x]. A sampler keeps, resamples or
selects prefixes by it and takes it out of the weights again, so a wrong estimate costs accuracy and no expectation changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from locore.kernel.numerics import NEG_INF
from locore.kernel.samplers.sampler import Ahead, Prefixes

# Share of a step's selection that defends, to that which goes by foresight: at most, and at least.
DEFENCE, LEAST_DEFENCE = 0.2, 1e-3


@runtime_checkable
class AheadByToken(Ahead, Protocol):
    """Foresight that knows more of a prefix with its next token than of the prefix, and says so without reading the model."""

    def after(self, prefixes: Prefixes, weights: Tensor, share: float) -> Children | None:
        """Of each possible next token; None where nothing is known beyond the prefix.

        Args:
            prefixes: distinct ones.
            weights: f64[prefixes], their log weights.
            share: of what is foreseen in the mean, by which every child is raised, in case the foresight is wrong about it.
        """


@dataclass(frozen=True, eq=False)
class Children:
    """Log of the mass to go behind prefixes with one more token: the sum of what is known of both.

    Attributes:
        by_prefix: f64[prefixes], of the prefix alone; None where that is no part of it.
        by_state: f32[states, vocab] on the model's device, of the distinct states of the prefixes in increasing order; tokens
            that cannot be completed have no meaning here. None where states say nothing.
        pairs: Long[pairs] rows of prefixes, Long[pairs] next tokens and f32[pairs]: what is known better than `by_state`.
    """

    by_prefix: Tensor | None = None
    by_state: Tensor | None = None
    pairs: tuple[Tensor, Tensor, Tensor] | None = None

    def times(self, more: Children | None) -> Children:
        """With what else is known of the prefixes, by states of one of the two."""
        if more is None:
            return self
        of_both = [part.by_prefix for part in (self, more) if part.by_prefix is not None]
        with_states = self if self.by_state is not None else more
        return replace(with_states, by_prefix=torch.stack(of_both).sum(0) if of_both else None)


def children_of(ahead: Ahead | None, prefixes: Prefixes, weights: Tensor, share: float) -> Children | None:
    """What is foreseen behind each next token of prefixes with these log weights, raised in case it is wrong.

    By default a child is worth what its prefix is. Nothing is asked of the empty one, which has no rivals.
    """
    if ahead is None:
        return None
    if isinstance(ahead, AheadByToken):
        return ahead.after(prefixes, weights, share)
    if not prefixes.position:
        return None
    worth = ahead.of(prefixes)
    floor = torch.logaddexp(worth, log_floor(worth, weights, DEFENCE))
    return Children(by_prefix=torch.where(worth > NEG_INF, floor, NEG_INF))


@dataclass(frozen=True, eq=False)
class Product:
    """Two that know of different things, such as the constraint and what a text is worth.

    Attributes:
        first, second: at most one of them knows of states.
    """

    first: Ahead
    second: Ahead

    def of(self, prefixes: Prefixes) -> Tensor:
        """f64[num], as `Ahead.of`."""
        return self.first.of(prefixes) + self.second.of(prefixes)

    def after(self, prefixes: Prefixes, weights: Tensor, share: float) -> Children | None:
        """As `AheadByToken.after`."""
        own, more = (children_of(part, prefixes, weights, share) for part in (self.first, self.second))
        return more if own is None else own.times(more)


def product(first: Ahead | None, second: Ahead | None) -> Ahead | None:
    """Of those that there are."""
    if first is None or second is None:
        return first or second
    return Product(first, second)


def last_tokens(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Long[num] each: the last but one and the last of Long[num, time], −1 where there is none."""
    padded = torch.nn.functional.pad(tokens, (2, 0), value=-1)
    return padded[:, -2], padded[:, -1]


def log_floor(worth: Tensor, weights: Tensor, share: float) -> Tensor:
    """f64[]: log of this share of the mean of what prefixes with f64[prefixes] log weights are worth, f64[prefixes] in logs."""
    return torch.logsumexp(weights + worth, 0) - torch.logsumexp(weights, 0) + math.log(share)
