"""The upward pass: products at And, sums (or maxima) at Or, all distributions of a batch together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from locore.circuits.block import FALSE, FIRST_LEAF, TRUE, Block
from locore.numerics import NEG_INF, segment_logsumexp

if TYPE_CHECKING:
    from locore.circuits.circuit import Circuit

Combine = Callable[..., Tensor]


@dataclass(frozen=True)
class Values:
    """What the upward pass found.

    Attributes:
        heap: f64[length, 2·width, batch], log mass of each class range at each position (node 0 is unused).
        blocks: f64[slots, batch] for each block of the chain.
        log_mass: f64[batch], the value of the root.
    """

    heap: Tensor
    blocks: tuple[Tensor, ...]
    log_mass: Tensor


def evaluate(circuit: Circuit, log_probs: Tensor, maximise: bool = False) -> Values:
    """Values of all nodes for f64[batch, length, vocab] distributions."""
    combine = torch.maximum if maximise else torch.logaddexp
    classes = class_maxima if maximise else class_masses
    heap = fill_heap(circuit, classes(circuit, log_probs), combine)
    return run(circuit, heap, combine)


def class_masses(circuit: Circuit, log_probs: Tensor) -> Tensor:
    """f64[batch, length, classes]: log mass of each token class."""
    return segment_logsumexp(log_probs, circuit.token_class, circuit.num_classes)


def class_maxima(circuit: Circuit, log_probs: Tensor) -> Tensor:
    """f64[batch, length, classes]: the largest log weight within each token class."""
    shape = (*log_probs.shape[:-1], circuit.num_classes)
    index = circuit.token_class.expand(log_probs.shape)
    return log_probs.new_full(shape, NEG_INF).scatter_reduce_(-1, index, log_probs, "amax")


def fill_heap(circuit: Circuit, classes: Tensor, combine: Combine) -> Tensor:
    """f64[length, 2·width, batch]: every aligned range of classes, from f64[batch, length, classes]."""
    width = circuit.width
    batch, length, num_classes = classes.shape
    heap = classes.new_full((length, 2 * width, batch), NEG_INF)
    heap[:, width : width + num_classes] = classes.permute(1, 2, 0)
    while width > 1:
        children = heap[:, width : 2 * width]
        width //= 2
        combine(children[:, 0::2], children[:, 1::2], out=heap[:, width : 2 * width])
    return heap


def run(circuit: Circuit, heap: Tensor, combine: Combine) -> Values:
    """The chain from its last block to the root, given the heap of class ranges."""
    batch = heap.shape[-1]
    handed = torch.where(circuit.final, 0.0, NEG_INF).to(heap.dtype)[:, None].expand(-1, batch)
    blocks: list[Tensor] = []
    for block, positions in zip(reversed(circuit.blocks), reversed(circuit.positions), strict=True):
        values = block_values(block, heap[list(positions)], handed, combine)
        blocks.append(values)
        handed = values.index_select(0, block.outputs)
    return Values(heap, tuple(reversed(blocks)), handed[0])


def block_values(block: Block, heap: Tensor, handed: Tensor, combine: Combine) -> Tensor:
    """f64[slots, batch] of one block, from the heaps of its positions and the values handed to it."""
    values = heap.new_empty((block.num_slots, heap.shape[-1]))
    values[FALSE] = NEG_INF
    values[TRUE] = 0.0
    values[FIRST_LEAF : block.first_input] = heap[block.leaves[:, 0], block.leaves[:, 1]]
    values[block.first_input : block.first_node] = handed
    for start, level in zip(block.level_starts, block.levels, strict=False):
        a, b, c, d = level
        first = values.index_select(0, a).add_(values.index_select(0, b))
        second = values.index_select(0, c).add_(values.index_select(0, d))
        combine(first, second, out=values[start : start + level.shape[1]])
    return values
