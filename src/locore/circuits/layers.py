"""The nodes of a left-to-right reading: rows over token classes → a block for each position, a decision tree of all states.

A row of a state is cut into halves again and again; equal halves at the same place are one node, whatever states they belong
to. On ban lists this is about ten times smaller than one edge for each state and target, and far faster to evaluate.

Rows come as one default row and the entries in which states differ from it, so that only those are cut: at 128k tokens a row
has thousands of classes, and a state differs from the default in a few dozen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from locore.circuits.chain import Chain
from locore.circuits.levels import FALSE, FIRST_LEAF, TRUE, Block
from locore.kernel.circuits.circuit import Circuit
from locore.kernel.circuits.reading import Ints, LeftToRight, SparseRows
from locore.kernel.limits import check_nodes, check_progress

REMEDY = "a shorter sequence or a simpler constraint"


def written_down(reader: LeftToRight) -> Chain:
    """The nodes of a reading. Positions that share rows share a block.

    Raises:
        BudgetExceeded: the reading has too many states for a table, or they have more nodes than the limits allow.
    """
    sizes = [len(live) for live in reader.live]
    blocks: dict[tuple[int, int], Block] = {}
    keys = [(id(rows), size) for rows, size in zip(reader.rows, sizes[1:], strict=True)]
    total = 0
    for key, rows in zip(keys, reader.rows, strict=True):
        if key not in blocks:
            blocks[key] = block_from_rows(SparseRows.from_dense(rows.numpy(force=True)), key[1])
            total += blocks[key].num_slots
            check_nodes(total, "the circuit", REMEDY)
    positions = tuple((position,) for position in range(reader.length))
    chain = Chain(reader.token_class, reader.num_classes, tuple(blocks[key] for key in keys), positions, reader.live[-1])
    return chain.to(reader.token_class.device)


@dataclass(frozen=True)
class _Cut:
    """The nodes of one level of the tree: left and right references at a column of this level.

    A reference below `num_inputs` is a target state that the whole range leads to (or -1), others are nodes.
    """

    column: Ints
    left: Ints
    right: Ints


def block_from_rows(rows: SparseRows, num_inputs: int) -> Block:
    """A block with an output for each row and an input for each target state.

    Args:
        num_inputs: number of states at the next position.
    """
    cuts, tops = _cut(rows, num_inputs)
    return _assemble(cuts, tops, num_inputs)


def _cut(rows: SparseRows, num_inputs: int) -> tuple[list[_Cut], Ints]:
    """Halve the rows bottom-up. Returns the nodes of each level and the reference of each whole row."""
    default, state, column, target = rows.default, rows.state, rows.column, rows.target
    cuts: list[_Cut] = []
    following = num_inputs
    while len(default) > 1:
        check_progress("writing the circuit", REMEDY)
        if len(default) % 2:  # there are no such classes: repeating the last column keeps ranges constant
            again = 1 + (column == len(default) - 1)
            state, column, target = state.repeat(again), column.repeat(again), target.repeat(again)
            column[again.cumsum()[again == 2] - 1] += 1
            default = np.append(default, default[-1])
        # An entry's range is the half of a wider one; where only one half differs, the other is the default's.
        parent = column >> 1
        leads = np.append(True, (parent[1:] != parent[:-1]) | (state[1:] != state[:-1]))[: len(column)]
        group = leads.cumsum() - 1
        state, column, half = state[leads], parent[leads], column & 1
        sides = np.stack([default[2 * column], default[2 * column + 1]])
        sides[half, group] = target
        left = np.append(default[0::2], sides[0])
        right = np.append(default[1::2], sides[1])
        refs = left.copy()
        differ = np.nonzero(left != right)[0]
        place = np.append(np.arange(len(default) // 2), column)[differ]
        unique, inverse = _unique_columns(np.stack([place, left[differ], right[differ]]), following)
        cuts.append(_Cut(*unique))
        refs[differ] = following + inverse
        following += len(unique[0])
        default, target = refs[: len(default) // 2], refs[len(default) // 2 :]
    tops = np.full(rows.num_states, default[0])
    tops[state] = target
    return cuts, tops


def _unique_columns(keys: Ints, bound: int) -> tuple[Ints, Ints]:
    """Distinct columns of Int[3, items] with entries in -1..bound-1, and where each item went."""
    code = (keys[0] * (bound + 1) + keys[1] + 1) * (bound + 1) + keys[2] + 1  # below 2^63 for any table that fits memory
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


Circuit.write = staticmethod(written_down)
