"""Transition rows over token classes → a block whose decision tree is shared by all states.

A row of a state is cut into halves again and again; equal halves at the same place are one node, whatever states they belong
to. On ban lists this is about ten times smaller than one edge for each state and target, and far faster to evaluate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from locore.circuits.block import FALSE, FIRST_LEAF, TRUE, Block

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Cut:
    """The nodes of one level of the tree: left and right references at a column of this level.

    A reference below `num_inputs` is a target state that the whole range leads to (or -1), others are nodes.
    """

    column: Ints
    left: Ints
    right: Ints


def block_from_rows(rows: NDArray[np.int32], num_inputs: int) -> Block:
    """A block with an output for each row and an input for each target state.

    Args:
        rows: Int32[states, classes], the state at the next position, -1 where none.
        num_inputs: number of states at the next position.
    """
    cuts, tops = _cut(rows, num_inputs)
    return _assemble(cuts, tops, num_inputs)


def _cut(rows: NDArray[np.int32], num_inputs: int) -> tuple[list[_Cut], Ints]:
    """Halve the rows bottom-up. Returns the nodes of each level and the reference of each whole row."""
    width = 1 << (rows.shape[1] - 1).bit_length()
    # Padding classes are empty: repeating the last column keeps ranges constant.
    padding = np.repeat(rows[:, -1:], width - rows.shape[1], axis=1)
    refs: Ints = np.concatenate([rows, padding], axis=1).astype(np.int64)
    cuts: list[_Cut] = []
    following = num_inputs
    while refs.shape[1] > 1:
        left, right = refs[:, 0::2], refs[:, 1::2]
        refs = left.copy()
        differ = np.nonzero(left != right)
        column = differ[1]
        keys = np.stack([column, left[differ], right[differ]])
        unique, inverse = _unique_columns(keys, following)
        cuts.append(_Cut(*unique))
        refs[differ] = following + inverse
        following += len(unique[0])
    return cuts, refs[:, 0]


def _unique_columns(keys: Ints, bound: int) -> tuple[Ints, Ints]:
    """Distinct columns of Int[3, items] with entries in -1..bound-1, and where each item went."""
    code = (keys[0] * (bound + 1) + keys[1] + 1) * (bound + 1) + keys[2] + 1
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return keys[:, first], inverse.ravel()


def _assemble(cuts: list[_Cut], tops: Ints, num_inputs: int) -> Block:
    """Slots for leaves, inputs and nodes; constant ranges become (range ∧ target state)."""
    height = len(cuts)
    leaf_of: dict[int, int] = {}
    for level, cut in enumerate(cuts):
        child = (1 << (height - level)) + 2 * cut.column
        for heap, refs in ((child, cut.left), (child + 1, cut.right)):
            constant = (refs >= 0) & (refs < num_inputs)
            for h in np.unique(heap[constant]):
                leaf_of.setdefault(int(h), len(leaf_of))
    whole = np.unique(tops[(tops >= 0) & (tops < num_inputs)])
    if len(whole):
        leaf_of.setdefault(1, len(leaf_of))

    leaf_slot = np.full(2 << height, FALSE, dtype=np.int64)
    for h, number in leaf_of.items():
        leaf_slot[h] = FIRST_LEAF + number
    first_input = FIRST_LEAF + len(leaf_of)

    def factors(heap: Ints, refs: Ints) -> tuple[Ints, Ints]:
        """The pair of slots (prime, sub) that a reference under a heap node stands for."""
        constant = (refs >= 0) & (refs < num_inputs)
        prime = np.where(constant, leaf_slot[heap], first_input + refs)
        sub = np.where(constant, first_input + refs, TRUE)
        return np.where(refs < 0, FALSE, prime), np.where(refs < 0, FALSE, sub)

    levels = []
    for level, cut in enumerate(cuts):
        child = (1 << (height - level)) + 2 * cut.column
        levels.append(np.stack([*factors(child, cut.left), *factors(child + 1, cut.right)]))
    outputs = np.where(tops < 0, FALSE, first_input + tops)
    if len(whole):  # states that go to one target whatever comes: (anything ∧ target)
        prime, sub = factors(np.ones_like(whole), whole)
        first_whole = first_input + num_inputs + sum(level.shape[1] for level in levels)
        levels.append(np.stack([prime, sub, np.full_like(prime, FALSE), np.full_like(prime, FALSE)]))
        constant = (tops >= 0) & (tops < num_inputs)
        outputs[constant] = first_whole + np.searchsorted(whole, tops[constant])

    leaves = torch.tensor([[0, h] for h in leaf_of], dtype=torch.long).reshape(-1, 2)
    tensors = tuple(torch.from_numpy(level.copy()) for level in levels if level.shape[1])
    return Block(leaves, num_inputs, tensors, torch.from_numpy(outputs.copy()))
