"""What is left of combinatorial leaves after a prefix, as an atom of the left-to-right compiler."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.compilers.atom import Atom
from locore.compilers.partition import Partition
from locore.compilers.search_gather import Conjunct
from locore.compilers.search_network import Network
from locore.compilers.search_propagators import State
from locore.constraints import Constant, Constraint


@dataclass(frozen=True, eq=False)
class Store(Atom):
    """What is left of a conjunction after a prefix, propagated. It lives inside a compiler only.

    Attributes:
        network: the constraints.
        domains: for each position the classes that it can hold; 0 where it has been read, or nothing is said of it.
        states: of the network's propagators.
    """

    network: Network
    domains: tuple[int, ...]
    states: tuple[State, ...]

    @classmethod
    def of(cls, conjunct: Conjunct, classes: Partition, length: int) -> Constraint:
        """The store before anything is read; never true where propagation finds that nothing is possible."""
        network = Network(conjunct, classes, length)
        found = network.start()
        if found is None:
            return Constant(False)
        domains = tuple(d if p in network.scope else 0 for p, d in enumerate(found[0]))
        return cls(network, domains, tuple(found[1]))

    def after(self, position: int, number: int) -> Constraint:
        """What is left once a token of this class has been read."""
        if not self.domains[position]:
            return self
        if not self.domains[position] >> number & 1:
            return Constant(False)
        domains, states = list(self.domains), list(self.states)
        if domains[position] != 1 << number and not self.network.assign(domains, states, position, 1 << number):
            return Constant(False)
        domains[position] = 0
        if self.network.is_free(domains, states):
            return Constant(True)
        return Store(self.network, tuple(domains), tuple(states))

    def signature(self, position: int) -> NDArray[np.int64]:
        """Int64[classes]: classes with equal numbers have the same effect at a position."""
        domain = self.domains[position]
        numbers = [c + 1 if domain >> c & 1 else 0 for c in range(self.network.num_classes)]
        return np.array(numbers, dtype=np.int64)


def with_stores(root: Constraint, classes: Partition, length: int) -> Constraint:
    """The constraint with a store in the place of every conjunction of combinatorial leaves."""
    return root.transform(lambda leaf: Store.of(leaf, classes, length) if isinstance(leaf, Conjunct) else leaf)
