"""The upward pass: products at And, sums (or maxima) at Or, all distributions of a batch together."""

from __future__ import annotations

import math
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
        totals: f64[length, batch], the log weight of a position, of which plain numbers are shares; zero in log space.
    """

    semiring: Semiring
    heap: Tensor
    blocks: tuple[Tensor, ...]
    log_mass: Tensor
    totals: Tensor


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


def exact_masses(circuit: Circuit, rows: Rows) -> Values:
    """Values of all nodes, above zero wherever something is possible: in plain numbers if no product of weights can vanish."""
    product = 0.0
    for position in range(circuit.length):
        weights = rows(position)
        top = weights.amax(1, keepdim=True)
        lowest = float((torch.where(weights == NEG_INF, top, weights) - top).nan_to_num(0.0).min())
        product += lowest - math.log(circuit.vocab_size)
        if product <= smallest(torch.float64) or lowest <= math.log(torch.finfo(weights.dtype).tiny):
            return evaluate(circuit, rows, LOG)
    return _linear(circuit, rows, keep=True)[0]


def _linear(circuit: Circuit, rows: Rows, keep: bool) -> tuple[Values, Tensor]:
    """Values in plain numbers, and f64[batch], log mass relative to that of all sequences."""
    totals: list[Tensor] = []

    def shares(log_weights: Tensor) -> Tensor:
        masses, total = _class_shares(circuit, log_weights)
        totals.append(total)
        return masses

    heap = _filled_heap(circuit, rows, LINEAR, shares)
    root, blocks = _run(circuit, heap, LINEAR, keep)
    relative = root.log()
    total = torch.cat(totals).view(circuit.length, -1)
    return Values(LINEAR, heap, blocks, relative + total.sum(0), total), relative


def evaluate(circuit: Circuit, rows: Rows, semiring: Semiring, keep: bool = True) -> Values:
    """Values of all nodes in log space: masses (LOG) or maxima (MAX)."""
    classes = _class_maxima if semiring is MAX else _class_log_masses
    heap = _filled_heap(circuit, rows, semiring, lambda log_weights: classes(circuit, log_weights))
    root, blocks = _run(circuit, heap, semiring, keep)
    return Values(semiring, heap, blocks, root, root.new_zeros(circuit.length, len(root)))


def _class_shares(circuit: Circuit, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """f64[classes, rows], each class's share of a row's position, and f64[rows], the log weight of the position.

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
    """f64[classes, rows]: log mass of each token class."""
    return segment_logsumexp(log_weights.double(), circuit.token_class, circuit.num_classes).T


def _class_maxima(circuit: Circuit, log_weights: Tensor) -> Tensor:
    """f64[classes, rows]: the largest log weight within each token class."""
    weights = log_weights.double()
    result = weights.new_full((len(weights), circuit.num_classes), NEG_INF)
    return result.scatter_reduce_(-1, circuit.token_class.expand(weights.shape), weights, "amax").T


def _filled_heap(circuit: Circuit, rows: Rows, semiring: Semiring, classes: Callable[[Tensor], Tensor]) -> Tensor:
    """f64[length, 2·width, batch]: the value of every aligned range of classes, at each position.

    Args:
        classes: from Float[rows, vocab] to f64[classes, rows]. Positions with a small vocabulary go through it together, since
            each call costs more than a few thousand numbers.
    """
    batch, vocab = rows(0).shape
    width, length = circuit.width, circuit.length
    together = max(1, CACHED // max(1, batch * vocab))
    heap = torch.full((length, 2 * width, batch), semiring.zero, dtype=torch.float64, device=circuit.device)
    for start in range(0, length, together):
        positions = range(start, min(start + together, length))
        weights = torch.cat([rows(i) for i in positions]) if len(positions) > 1 else rows(start)
        masses = classes(weights).reshape(circuit.num_classes, len(positions), batch)
        heap[start : positions.stop, width : width + circuit.num_classes] = masses.transpose(0, 1)
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
