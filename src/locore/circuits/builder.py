"""Blocks of a circuit, built node by node: hash-consed, binary, smooth by the caller's care, sorted into levels at the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from locore.circuits.levels import FALSE, FIRST_LEAF, TRUE, Block
from locore.kernel.limits import check_nodes, check_progress

NODES_BETWEEN_CHECKS = 256
REMEDY = "shorten the sequence, fix more of it, or choose another vtree"
Node = int  # FALSE, TRUE, or an index handed out by a Builder
Key = tuple[Node, Node, Node, Node]


def classes_of_range(heap: int, num_classes: int) -> range:
    """The classes of a heap index: node 1 is all of them, and node h splits into 2h and 2h + 1."""
    height = (num_classes - 1).bit_length() - (heap.bit_length() - 1)
    first = (heap << height) - (1 << (num_classes - 1).bit_length())
    return range(min(first, num_classes), min(first + (1 << height), num_classes))


class Builder:
    """Makes one block out of leaves, And and Or; equal nodes are made once.

    Args:
        num_positions: positions that the block reads.
        num_classes: token classes; a leaf is a set of classes at a position.

    Raises:
        BudgetExceeded: a node more than the limits allow.
    """

    def __init__(self, num_positions: int, num_classes: int) -> None:
        self.num_positions = num_positions
        self.width = 1 << (num_classes - 1).bit_length()
        self.num_classes = num_classes
        self._leaves: dict[tuple[int, int], Node] = {}
        self._nodes: dict[Key, Node] = {}
        self._next = FIRST_LEAF

    def leaf(self, position: int, classes: Iterable[int]) -> Node:
        """The event "y_position in classes", as a disjunction of aligned ranges."""
        ranges = self._aligned(frozenset(classes))
        return self.either([(self._range(position, heap), TRUE) for heap in ranges])

    def anything(self, position: int) -> Node:
        """The event that says nothing about a position; it makes circuits smooth."""
        return self._range(position, 1)

    def both(self, first: Node, second: Node) -> Node:
        """first ∧ second; they must speak about different positions."""
        if FALSE in (first, second):
            return FALSE
        if first == TRUE:
            return second
        if second == TRUE:
            return first
        return self._node((first, second, FALSE, FALSE))

    def either(self, elements: Sequence[tuple[Node, Node]]) -> Node:
        """∨ (prime ∧ sub): mutually exclusive elements over the same positions, as a balanced tree."""
        elements = [(prime, sub) for prime, sub in elements if FALSE not in (prime, sub)]
        if not elements:
            return FALSE
        if len(elements) == 1:
            return self.both(*elements[0])
        while len(elements) > 2:
            pairs = [elements[i : i + 2] for i in range(0, len(elements), 2)]
            elements = [p[0] if len(p) == 1 else (self._node((*p[0], *p[1])), TRUE) for p in pairs]
        return self._node((*elements[0], *elements[1]))

    def finish(self, root: Node) -> Block:
        """The block whose only output is `root`; nodes that it does not use are dropped."""
        by_level = self._levels(root)
        slot = {FALSE: FALSE, TRUE: TRUE}
        leaves = [(key, node) for key, node in self._leaves.items() if node in self._used]
        for number, (_, node) in enumerate(leaves):
            slot[node] = FIRST_LEAF + number
        following = FIRST_LEAF + len(leaves)
        levels = []
        for level in by_level:
            levels.append(torch.from_numpy(np.array([[slot[x] for x in key] for key, _ in level]).T.copy()))
            for key_node in level:
                slot[key_node[1]] = following
                following += 1
        table = torch.tensor([key for key, _ in leaves], dtype=torch.long).reshape(-1, 2)
        check_nodes(following, "the circuit", REMEDY)
        return Block(table, 0, tuple(levels), torch.tensor([slot[root]]))

    def _levels(self, root: Node) -> list[list[tuple[Key, Node]]]:
        """Nodes that the root uses, by depth above the leaves. Keys refer to earlier nodes, so one sweep each way does."""
        self._used = {root}
        items = list(self._nodes.items())
        for key, node in reversed(items):
            if node in self._used:
                self._used.update(key)
        depth: dict[Node, int] = {}
        levels: list[list[tuple[Key, Node]]] = []
        for key, node in items:
            if node in self._used:
                depth[node] = 1 + max(depth.get(child, 0) for child in key)
                if depth[node] > len(levels):
                    levels.append([])
                levels[depth[node] - 1].append((key, node))
        return levels

    def _range(self, position: int, heap: int) -> Node:
        key = (position, heap)
        if key not in self._leaves:
            self._leaves[key] = self._number()
        return self._leaves[key]

    def _node(self, key: Key) -> Node:
        if key not in self._nodes:
            self._nodes[key] = self._number()
        return self._nodes[key]

    def _number(self) -> Node:
        self._next += 1
        if self._next % NODES_BETWEEN_CHECKS == 0:
            check_nodes(self._next, "the circuit", REMEDY)
            check_progress("writing the circuit", REMEDY)
        return self._next - 1

    def _aligned(self, classes: frozenset[int]) -> list[int]:
        """Heap indices of the fewest aligned ranges that make up a set of classes (padding may be covered freely)."""
        level = {self.width + c for c in classes}
        if len(classes) == self.num_classes:
            return [1]
        ranges: list[int] = []
        while level:
            pairs = {h for h in level if h ^ 1 in level}
            ranges.extend(sorted(level - pairs))
            level = {h >> 1 for h in pairs}
        return ranges
