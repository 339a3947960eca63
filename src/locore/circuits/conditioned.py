"""A left-to-right reading of a circuit that was not compiled from left to right: what is left of it after each prefix.

Reading a token conditions the circuit on it: leaves of its position become true or false; what then simplifies is done away
with, and equal remainders are one node and one state. The circuit is decomposable, so what is not false can still be completed:
look-ahead is exact and free. States are made when they are first reached; a whole table exists only where somebody asks for it
and it is small.
"""

from __future__ import annotations

import numpy as np

from locore.circuits.builder import classes_of_range
from locore.circuits.levels import FALSE, TRUE, Block, LinkedBlocks
from locore.circuits.reached import Flags, Reached, Steering
from locore.kernel.circuits.reading import DEAD
from locore.kernel.plugins import cached_property

Key = tuple[int, int, int, int]


def conditioned(chain: LinkedBlocks) -> Reached:
    """The left-to-right reading of a chain of one block."""
    return Reached(Conditioning(chain), chain.token_class)


class Conditioning(Steering):
    """What is left of a chain of one block after each prefix. A state is a node, of those that are left."""

    def __init__(self, chain: LinkedBlocks) -> None:
        """Nothing has been read yet.

        Args:
            chain: its block reads all positions in their order; output 0 is the root.
        """
        self._chain = chain
        self.length, self.num_classes = chain.length, chain.num_classes
        self._allowed: dict[tuple[int, int], Flags] = {}
        self._after: dict[tuple[int, int, int], int] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return Conditioning, (self._chain,)

    @cached_property
    def _nodes(self) -> _Nodes:
        return _Nodes(self._chain.blocks[0], self.num_classes)

    @property
    def start(self) -> int:
        """The root."""
        return self._nodes.root

    @property
    def effort(self) -> int:
        """How many nodes were looked at."""
        return self._nodes.visits

    def allowed(self, position: int, state: int) -> Flags:
        """Bool[classes]: those that the token at a position can have."""
        key = position, state
        if key not in self._allowed:
            mask = self._nodes.possible(state, position)
            self._allowed[key] = np.array([bool(mask >> c & 1) for c in range(self.num_classes)])
        return self._allowed[key]

    def after(self, position: int, state: int, number: int) -> int:
        """What is left once the token at a position has this class."""
        key = position, state, number
        if key not in self._after:
            node = self._nodes.conditioned(state, position, number)
            self._after[key] = DEAD if node == FALSE else node
        return self._after[key]


class _Nodes:
    """Nodes (a ∧ b) ∨ (c ∧ d) and leaves, of the circuit and those that conditioning makes; children come before parents.

    Attributes:
        visits: how many nodes were looked at so far, and how often it was asked for some.
    """

    def __init__(self, block: Block, num_classes: int) -> None:
        self.visits = 0
        self._leaf: list[tuple[int, int] | None] = [None, None]  # position, and the classes as a mask
        self._key: list[Key | None] = [None, None]
        self._scope = [0, 0]
        self._index: dict[Key, int] = {}
        node_of = [FALSE, TRUE]  # by slot
        for position, heap in block.leaves.tolist():
            mask = sum(1 << c for c in classes_of_range(heap, num_classes))
            node_of.append(self._put((position, mask), None, 1 << position) if mask else FALSE)
        for level in block.levels:
            node_of += [self._node(node_of[a], node_of[b], node_of[c], node_of[d]) for a, b, c, d in level.T.tolist()]
        self.root = node_of[int(block.outputs[0])]

    def possible(self, root: int, position: int) -> int:
        """The classes, as a mask, that the token at a position can have."""
        masks: dict[int, int] = {}
        for node in self._touched(root, position):
            leaf, key = self._leaf[node], self._key[node]
            if leaf is not None:
                masks[node] = leaf[1]
            elif key is not None:
                masks[node] = 0
                for child in key:
                    masks[node] |= masks.get(child, 0)
        return masks.get(root, 0)

    def conditioned(self, root: int, position: int, number: int) -> int:
        """What is left of a node once the token at a position has this class."""
        after: dict[int, int] = {}
        for node in self._touched(root, position):
            leaf, key = self._leaf[node], self._key[node]
            if leaf is not None:
                after[node] = TRUE if leaf[1] >> number & 1 else FALSE
            elif key is not None:
                after[node] = self._node(*(after.get(child, child) for child in key))
        return after.get(root, root)

    def _touched(self, root: int, position: int) -> list[int]:
        """The nodes below a root that speak about a position, children first."""
        bit, scope = 1 << position, self._scope
        self.visits += 1
        if not scope[root] & bit:
            return []
        reached, pending = {root}, [root]
        while pending:
            for child in self._key[pending.pop()] or ():
                if scope[child] & bit and child not in reached:
                    reached.add(child)
                    pending.append(child)
        self.visits += len(reached)
        return sorted(reached)

    def _node(self, a: int, b: int, c: int, d: int) -> int:
        first = (FALSE, FALSE) if FALSE in (a, b) else (a, b) if a != TRUE else (b, TRUE)
        second = (FALSE, FALSE) if FALSE in (c, d) else (c, d) if c != TRUE else (d, TRUE)
        if first[0] == FALSE:
            first, second = second, first
        if second[0] == FALSE and first[1] in (TRUE, FALSE):
            return first[0]
        key = (*first, *second)
        if key not in self._index:
            scope = 0
            for child in key:
                scope |= self._scope[child]
            self._index[key] = self._put(None, key, scope)
        return self._index[key]

    def _put(self, leaf: tuple[int, int] | None, key: Key | None, scope: int) -> int:
        self._leaf.append(leaf)
        self._key.append(key)
        self._scope.append(scope)
        return len(self._scope) - 1
