"""The one node type of a constraint circuit, in levels of tensors.

A node is (a ∧ b) ∨ (c ∧ d): the decision of the paper's Section 3.3, made binary, so that a level of nodes is four gathers
and one log-add-exp, and sampling a node is one coin. Absent branches point at the FALSE slot, absent factors at TRUE.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

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
    def num_leaves(self) -> int:
        """Distinct leaf events."""
        return len(self.leaves)

    @property
    def first_input(self) -> int:
        """Slot of input 0."""
        return FIRST_LEAF + self.num_leaves

    @property
    def first_node(self) -> int:
        """Slot of the first node."""
        return self.first_input + self.num_inputs

    @cached_property
    def level_starts(self) -> tuple[int, ...]:
        """First slot of each level, and one past the last."""
        sizes = [level.shape[1] for level in self.levels]
        return tuple(int(s) for s in np.cumsum([self.first_node, *sizes]))

    @property
    def num_slots(self) -> int:
        """All slots."""
        return self.level_starts[-1]

    def to(self, device: torch.device | str) -> Block:
        """The same block on a device."""
        levels = tuple(level.to(device) for level in self.levels)
        return Block(self.leaves.to(device), self.num_inputs, levels, self.outputs.to(device))
