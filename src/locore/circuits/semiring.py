"""What a sum and a product are: one upward pass, three readings (Goodman, "Semiring parsing", 1999).

Plain numbers are two to four times faster than logarithms, and exact enough: each weight of a position is a probability there,
so what underflows in a circuit of fewer than 10^9 nodes is below 1e-290 (1e-30 if the weights come in single precision), and a
mass above `smallest` does not feel it. Below that, masses are calculated again in log space.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from locore.numerics import NEG_INF


def smallest(dtype: torch.dtype) -> float:
    """The log mass, relative to the weight of all sequences, down to which plain numbers are trusted."""
    return -600.0 if dtype == torch.float64 else -40.0


@dataclass(frozen=True)
class Semiring:
    """Attributes:
    zero, one: the values of FALSE and TRUE.
    times: product, written into its first argument.
    plus: sum or maximum; takes `out`.
    over: quotient; whatever is divided by zero is zero. Written into its first argument.
    prefers_first: Bool, for uniform numbers in [0, 1) and the values of two branches: is the first one drawn?
    """

    zero: float
    one: float
    times: Callable[[Tensor, Tensor], Tensor]
    plus: Callable[..., Tensor]
    over: Callable[[Tensor, Tensor], Tensor]
    prefers_first: Callable[[Tensor, Tensor, Tensor], Tensor]


def _log_quotient(a: Tensor, b: Tensor) -> Tensor:
    return a.sub_(b).masked_fill_(b == NEG_INF, NEG_INF)


def _quotient(a: Tensor, b: Tensor) -> Tensor:
    return a.div_(b).masked_fill_(b == 0, 0.0)


# u < 1, so a branch of weight zero is never drawn: the other one has probability exactly 1.
LINEAR = Semiring(0.0, 1.0, lambda a, b: a.mul_(b), torch.add, _quotient, lambda u, a, b: u * (a + b) < a)
LOG = Semiring(
    NEG_INF,
    0.0,
    lambda a, b: a.add_(b),
    torch.logaddexp,
    _log_quotient,
    lambda u, a, b: u < torch.exp(a - torch.logaddexp(a, b)),
)
MAX = Semiring(NEG_INF, 0.0, lambda a, b: a.add_(b), torch.maximum, _log_quotient, lambda u, a, b: a >= b)
