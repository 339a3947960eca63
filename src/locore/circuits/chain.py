"""The nodes of a circuit as a chain of blocks, with their queries."""

from __future__ import annotations

import torch
from torch import Tensor

from locore.circuits import downward, upward
from locore.circuits.levels import LinkedBlocks
from locore.kernel.circuits.circuit import Circuit
from locore.kernel.circuits.nodes import Weights
from locore.kernel.errors import ZeroWeights
from locore.kernel.numerics import NEG_INF


class Chain(LinkedBlocks):
    """Blocks of nodes, and what is asked of them (`locore.kernel.circuits.nodes.Nodes`)."""

    def size(self) -> tuple[int, int]:
        """Nodes and edges."""
        return upward.size(self)

    def count(self) -> int:
        """Number of models."""
        return upward.count(self)

    def log_mass(self, weights: Weights) -> Tensor:
        """f64[batch]."""
        return upward.log_mass(self, weights)

    def draw(self, weights: Weights, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """One model for each distribution, its log weight and the log mass of all; raises ZeroWeights."""
        values = upward.masses(self, weights)
        _require_mass(values.log_mass)
        heap = downward.trace(self, values, generator)
        return *downward.choose_tokens(self, weights, heap, generator), values.log_mass

    def best(self, weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
        """As `draw`, the models of the largest weight."""
        log_mass = upward.log_mass(self, weights)
        _require_mass(log_mass)
        values = upward.evaluate(self, weights, upward.MAX)
        return *downward.choose_tokens(self, weights, downward.trace(self, values), None), log_mass

    def log_factors(self, weights: Weights) -> Tensor:
        """f64[batch, length, vocab]; raises ZeroWeights."""
        values = upward.exact_masses(self, weights)
        _require_mass(values.log_mass)
        return downward.class_factors(self, values).index_select(-1, self.token_class)

    def allowed(self, prefixes: Tensor) -> Tensor:
        """Bool[batch, vocab], by conditioning."""
        return downward.allowed_by_conditioning(self, prefixes)


def chain_of(circuit: Circuit) -> Chain:
    """The nodes of a circuit, whose blocks can be looked at; raises as `Circuit.chain`."""
    assert isinstance(circuit.chain, Chain)
    return circuit.chain


def _require_mass(log_mass: Tensor) -> None:
    empty = (log_mass == NEG_INF).nonzero()
    if len(empty):
        raise ZeroWeights(
            f"distribution {int(empty[0])} of {len(log_mass)} gives the constraint no mass: nothing can be drawn "
            "from it. Give every token that the constraint needs a positive probability."
        )
