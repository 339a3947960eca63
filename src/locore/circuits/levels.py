"""What the nodes of a circuit consist of, without their queries: blocks in levels of tensors, and their chain.

A node is (a ∧ b) ∨ (c ∧ d): the decision of the paper's Section 3.3, made binary, so that a level of nodes is four gathers
and one log-add-exp, and sampling a node is one coin. Absent branches point at the FALSE slot, absent factors at TRUE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from locore.kernel.plugins import cached_property

FALSE, TRUE, FIRST_LEAF = 0, 1, 2


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
class LinkedBlocks:
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
    def of(cls, block: Block, token_class: Tensor, num_classes: int, length: int) -> Self:
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

    def to(self, device: torch.device | str) -> Self:
        """The same nodes on a device. A block shared by many positions stays shared."""
        moved = {id(block): block.to(device) for block in self.blocks}
        blocks = tuple(moved[id(block)] for block in self.blocks)
        return replace(self, token_class=self.token_class.to(device), blocks=blocks, final=self.final.to(device))

    @property
    def num_bytes(self) -> int:
        """Of the tensors of the blocks, each counted once."""
        tensors = (tensor for block in self.blocks for tensor in (block.leaves, block.outputs, *block.levels))
        return sum({id(tensor): tensor.nbytes for tensor in tensors}.values())

    def upwards(self) -> Iterator[tuple[Block, tuple[int, ...]]]:
        """The blocks and their positions, from the last block to the root's."""
        return zip(reversed(self.blocks), reversed(self.positions), strict=True)
