"""The upward pass: products at And, sums (or maxima) at Or, all distributions of a batch together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from locore.circuits.block import FALSE, FIRST_LEAF, TRUE, Block
from locore.circuits.semiring import LINEAR, LOG, MAX, Semiring, smallest
from locore.numerics import CACHED, NEG_INF, segment_logsumexp

if TYPE_CHECKING:
    from locore.circuits.circuit import Circuit

Rows = Callable[[int], Tensor]  # log weights of a position, Float[batch, vocab]


@dataclass(frozen=True)
class Values:
    """What the upward pass found.

    Attributes:
        semiring: what the numbers mean.
        heap: f64[length, 2·width, batch], mass of each class range at each position (node 0 is unused); plain numbers are
            shares of the whole position.
        blocks: f64[slots, batch] for each block of the chain; empty if they were not kept.
        log_mass: f64[batch], the log of the root.
    """

    semiring: Semiring
    heap: Tensor
    blocks: tuple[Tensor, ...]
    log_mass: Tensor


def log_mass(circuit: Circuit, rows: Rows) -> Tensor:
    """f64[batch]: log mass of the constraint."""
    result, relative = _linear(circuit, rows, keep=False)
    small = (relative <= smallest(rows(0).dtype)).nonzero()[:, 0]
    if len(small):
        result.log_mass[small] = evaluate(circuit, lambda i: rows(i)[small], LOG, keep=False).log_mass
    return result.log_mass


def masses(circuit: Circuit, rows: Rows) -> Values:
    """Values of all nodes, in plain numbers if every mass allows it."""
    result, relative = _linear(circuit, rows, keep=True)
    return result if bool((relative > smallest(rows(0).dtype)).all()) else evaluate(circuit, rows, LOG)


def _linear(circuit: Circuit, rows: Rows, keep: bool) -> tuple[Values, Tensor]:
    """Values in plain numbers, and f64[batch], log mass relative to that of all sequences."""
    parts = [_class_shares(circuit, rows(i)) for i in range(circuit.length)]
    heap = _fill_heap(circuit, [shares for shares, _ in parts], LINEAR)
    root, blocks = _run(circuit, heap, LINEAR, keep)
    relative = root.log()
    total = torch.stack([total for _, total in parts]).sum(0)
    return Values(LINEAR, heap, blocks, relative + total), relative


def evaluate(circuit: Circuit, rows: Rows, semiring: Semiring, keep: bool = True) -> Values:
    """Values of all nodes in log space: masses (LOG) or maxima (MAX)."""
    classes = _class_maxima if semiring is MAX else _class_log_masses
    heap = _fill_heap(circuit, [classes(circuit, rows(i)) for i in range(circuit.length)], semiring)
    root, blocks = _run(circuit, heap, semiring, keep)
    return Values(semiring, heap, blocks, root)


def _class_shares(circuit: Circuit, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """f64[classes, batch], each class's share of the position, and f64[batch], the log weight of the position.

    Exponentials are of the precision of the weights, sums of them in f64. A few rows at a time stay near the processor.
    """
    step = max(1, CACHED // circuit.vocab_size)
    offsets = circuit.num_classes * torch.arange(step, device=circuit.device)
    place = (offsets[:, None] + circuit.token_class).flatten()
    masses, shifts = [], []
    for rows in torch.split(log_weights, step):
        top = rows.amax(1)
        shifts.append(torch.where(top == NEG_INF, 0.0, top))
        weights = (rows - shifts[-1][:, None]).exp_().flatten()
        sums = torch.bincount(place[: len(weights)], weights.double(), minlength=len(rows) * circuit.num_classes)
        masses.append(sums.view(len(rows), -1))
    mass = torch.cat(masses).T
    total = mass.sum(0)
    return mass / torch.where(total == 0, 1.0, total), total.log() + torch.cat(shifts)


def _class_log_masses(circuit: Circuit, log_weights: Tensor) -> Tensor:
    """f64[classes, batch]: log mass of each token class."""
    return segment_logsumexp(log_weights.double(), circuit.token_class, circuit.num_classes).T


def _class_maxima(circuit: Circuit, log_weights: Tensor) -> Tensor:
    """f64[classes, batch]: the largest log weight within each token class."""
    weights = log_weights.double()
    result = weights.new_full((len(weights), circuit.num_classes), NEG_INF)
    return result.scatter_reduce_(-1, circuit.token_class.expand(weights.shape), weights, "amax").T


def _fill_heap(circuit: Circuit, classes: list[Tensor], semiring: Semiring) -> Tensor:
    """f64[length, 2·width, batch]: every aligned range of classes, from f64[classes, batch] for each position."""
    width = circuit.width
    heap = classes[0].new_full((len(classes), 2 * width, classes[0].shape[1]), semiring.zero)
    for position, masses in enumerate(classes):
        heap[position, width : width + circuit.num_classes] = masses
    while width > 1:
        children = heap[:, width : 2 * width]
        width //= 2
        semiring.plus(children[:, 0::2], children[:, 1::2], out=heap[:, width : 2 * width])
    return heap


def _run(circuit: Circuit, heap: Tensor, semiring: Semiring, keep: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The chain from its last block to the root, given the heap of class ranges: the root and the values of the blocks."""
    batch = heap.shape[-1]
    handed = torch.where(circuit.final, semiring.one, semiring.zero).to(heap.dtype)[:, None].expand(-1, batch)
    blocks: list[Tensor] = []
    # Written to again and again: memory from the system for every level would cost more than the sums.
    widest = max((level.shape[1] for block in circuit.blocks for level in block.levels), default=0)
    room = heap.new_empty((4, widest, batch))
    shared = heap.new_empty((0 if keep else max(block.num_slots for block in circuit.blocks), batch))
    for block, positions in zip(reversed(circuit.blocks), reversed(circuit.positions), strict=True):
        values = heap.new_empty((block.num_slots, batch)) if keep else shared[: block.num_slots]
        _fill_block(values, block, heap[list(positions)], handed, semiring, room)
        if keep:
            blocks.append(values)
        handed = values.index_select(0, block.outputs)
    return handed[0], tuple(reversed(blocks))


def _fill_block(values: Tensor, block: Block, heap: Tensor, handed: Tensor, semiring: Semiring, room: Tensor) -> None:
    """Write f64[slots, batch] of one block, from the heaps of its positions and the values handed to it.

    Args:
        room: f64[4, nodes, batch], what is in it does not matter; at least as many nodes as the widest level has.
    """
    values[FALSE] = semiring.zero
    values[TRUE] = semiring.one
    values[FIRST_LEAF : block.first_input] = heap[block.leaves[:, 0], block.leaves[:, 1]]
    values[block.first_input : block.first_node] = handed
    for start, level in zip(block.level_starts, block.levels, strict=False):
        nodes = level.shape[1]
        for slots, part in zip(level, room, strict=True):
            torch.index_select(values, 0, slots, out=part[:nodes])
        a, b, c, d = room[:, :nodes]
        semiring.plus(semiring.times(a, b), semiring.times(c, d), out=values[start : start + nodes])
