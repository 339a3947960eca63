"""What a circuit asks of its nodes. How they are written down, and the passes over them, stand outside the kernel.

Weights are a function from a position to checked log weights, Float[batch, vocab].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

import torch
from torch import Tensor

MAX_NODES = 400  # of a drawing
Weights = Callable[[int], Tensor]


class Nodes(Protocol):
    """Nodes over `length` categorical positions, whose tokens fall into classes.

    `locore.circuits.Chain` has them as blocks of tensors.
    """

    @property
    def token_class(self) -> Tensor:
        """Long[vocab], the class of each token."""

    @property
    def num_classes(self) -> int:
        """Number of classes."""

    @property
    def length(self) -> int:
        """Number of positions."""

    @property
    def num_bytes(self) -> int:
        """Of the tensors, each counted once."""

    def size(self) -> tuple[int, int]:
        """Nodes and edges, unrolled over positions; only what can be reached and can be satisfied counts."""

    def count(self) -> int:
        """Number of models."""

    def log_mass(self, weights: Weights) -> Tensor:
        """f64[batch]: of all models."""

    def draw(self, weights: Weights, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """One model for each distribution: Long[batch, length], its log weight and the log mass of all, f64[batch].

        Raises:
            ZeroWeights: a distribution gives no model any mass.
        """

    def best(self, weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
        """As `draw`, the models of the largest weight."""

    def log_factors(self, weights: Weights) -> Tensor:
        """f64[batch, length, vocab]: log of p̃(y_i = v | α) / p̃(y_i = v); raises as `draw` does."""

    def allowed(self, prefixes: Tensor) -> Tensor:
        """Bool[batch, vocab]: tokens that may come after Long[batch, time]."""

    def to(self, device: torch.device | str) -> Self:
        """The same nodes on a device."""
