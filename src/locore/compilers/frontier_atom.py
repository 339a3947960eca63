"""Simple paths beside other constraints: a state of the frontier method as an atom of residuals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.compilers.atom import Atom
from locore.compilers.frontier import Targets, path_layers, plan_of
from locore.compilers.partition import Partition
from locore.constraints import Constant, Constraint
from locore.constraints.paths import SimplePath

NEITHER = -1


@dataclass(frozen=True, eq=False)
class Layers:
    """The automaton of a simple path over the classes of a constraint.

    Attributes:
        targets: the layers of `path_layers`.
        symbol: Int64[classes]: 0 for "absent", 1 for "present", NEITHER.
    """

    targets: list[Targets]
    symbol: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PathState(Atom):
    """The atom "from this state of the present layer, the remaining edges complete the path"."""

    layers: Layers
    state: int

    def after(self, position: int, number: int) -> Constraint:
        """The state of the next layer; a constant where the path is complete or has failed."""
        symbol = int(self.layers.symbol[number])
        target = int(self.layers.targets[position][self.state, symbol]) if symbol != NEITHER else -1
        if target < 0:
            return Constant(False)
        return Constant(True) if position + 1 == len(self.layers.targets) else PathState(self.layers, target)

    def signature(self, position: int) -> NDArray[np.int64]:
        """Int64[classes]: by symbol, and by nothing where both symbols lead nowhere."""
        return self.layers.symbol - NEITHER


def with_paths(root: Constraint, classes: Partition) -> Constraint:
    """The constraint with a state of its own automaton in the place of every simple path.

    Raises:
        BudgetExceeded: see `path_layers`.
    """

    def change(leaf: Constraint) -> Constraint:
        if not isinstance(leaf, SimplePath):
            return leaf
        assert leaf.symbols is not None  # the leaf is bound to its vocabulary
        targets = path_layers(plan_of(leaf.edges, leaf.source, leaf.target))
        symbol = np.full(classes.num_classes, NEITHER, dtype=np.int64)
        for number, ids in enumerate(leaf.symbols):
            symbol[classes.token_class[list(ids)]] = number
        return PathState(Layers(targets, symbol), 0)

    return root.transform(change)
