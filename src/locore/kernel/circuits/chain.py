"""What a circuit consists of, without its queries: blocks of nodes in levels of tensors, how they are built, and their chain.

A node is (a ∧ b) ∨ (c ∧ d): the decision of the paper's Section 3.3, made binary, so that a level of nodes is four gathers
and one log-add-exp, and sampling a node is one coin. Absent branches point at the FALSE slot, absent factors at TRUE. A block
is built node by node: hash-consed, binary, smooth by the caller's care, sorted into levels at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from locore.kernel.limits import check_nodes, check_progress

FALSE, TRUE, FIRST_LEAF = 0, 1, 2
NODES_BETWEEN_CHECKS = 256
MAX_NODES = 400  # of a drawing
REMEDY = "shorten the sequence, fix more of it, or choose another vtree"
Node = int  # FALSE, TRUE, or an index handed out by a Builder
Key = tuple[Node, Node, Node, Node]


@dataclass(frozen=True, eq=False)
class Block:
    """A stretch of a circuit that reads the class masses of some positions.

    Values live in numbered slots: FALSE, TRUE, the leaves, the inputs (values handed on by the next block of the chain),
    then the nodes, level by level; a node refers to earlier slots only.

    Attributes:
        leaves: Long[leaves, 2], rows (position within the block, heap index of a class range). In the heap, node 1 is
            the whole vocabulary and node h splits into 2h and 2h + 1.
        num_inputs: values that the next block hands on.
        levels: Long[4, nodes] each: the slots a, b, c, d.
        outputs: Long[outputs], the slots handed to the block before; output 0.. are its inputs.
    """

    leaves: Tensor
    num_inputs: int
    levels: tuple[Tensor, ...]
    outputs: Tensor

    @property
    def first_input(self) -> int:
        """Slot of input 0."""
        return FIRST_LEAF + len(self.leaves)

    @property
    def first_node(self) -> int:
        """Slot of the first node."""
        return self.first_input + self.num_inputs

    @cached_property
    def slots_and_levels(self) -> tuple[tuple[slice, Tensor], ...]:
        """Each level with the slots of its nodes, upwards."""
        pairs, start = [], self.first_node
        for level in self.levels:
            pairs.append((slice(start, start + level.shape[1]), level))
            start += level.shape[1]
        return tuple(pairs)

    @property
    def num_slots(self) -> int:
        """All slots."""
        return self.first_node + sum(level.shape[1] for level in self.levels)

    def to(self, device: torch.device | str) -> Block:
        """The same block on a device."""
        levels = tuple(level.to(device) for level in self.levels)
        return replace(self, leaves=self.leaves.to(device), levels=levels, outputs=self.outputs.to(device))


@dataclass(frozen=True, eq=False)
class Chain:
    """Blocks over `length` categorical positions, whose tokens fall into classes.

    Attributes:
        token_class: Long[vocab], the class of each token.
        num_classes: number of classes.
        blocks: blocks[0] gives the root as its output 0, blocks[k] gets its inputs from blocks[k + 1].
        positions: the positions that each block reads, in the order of its leaves.
        final: Bool[inputs of the last block], which of them are true.
    """

    token_class: Tensor
    num_classes: int
    blocks: tuple[Block, ...]
    positions: tuple[tuple[int, ...], ...]
    final: Tensor

    @classmethod
    def of(cls, block: Block, token_class: Tensor, num_classes: int, length: int) -> Chain:
        """Of one block that reads all positions in their order."""
        return cls(token_class, num_classes, (block,), (tuple(range(length)),), torch.zeros(0, dtype=torch.bool))

    @cached_property
    def length(self) -> int:
        """Number of positions."""
        return sum(map(len, self.positions))

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self.token_class)

    @property
    def width(self) -> int:
        """Number of classes, rounded up to a power of two: the leaves of the class heap."""
        return 1 << (self.num_classes - 1).bit_length()

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.token_class.device

    @cached_property
    def class_starts(self) -> Tensor:
        """Long[width + 1]: tokens in the classes before each class; the padding classes are empty."""
        sizes = torch.bincount(self.token_class, minlength=self.width)
        return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])

    @cached_property
    def tokens_by_class(self) -> Tensor:
        """Long[vocab]: the tokens, those of class 0 first; class c begins at `class_starts[c]`."""
        return self.token_class.argsort(stable=True)

    def to(self, device: torch.device | str) -> Chain:
        """The same nodes on a device. A block shared by many positions stays shared."""
        moved = {id(block): block.to(device) for block in self.blocks}
        blocks = tuple(moved[id(block)] for block in self.blocks)
        return replace(self, token_class=self.token_class.to(device), blocks=blocks, final=self.final.to(device))

    def upwards(self) -> Iterator[tuple[Block, tuple[int, ...]]]:
        """The blocks and their positions, from the last block to the root's."""
        return zip(reversed(self.blocks), reversed(self.positions), strict=True)


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
