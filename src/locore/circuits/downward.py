"""Downward passes: the class ranges of one model, marginals, and conditioning on a prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from locore.circuits.block import FIRST_LEAF
from locore.circuits.semiring import LINEAR, LOG, Semiring
from locore.circuits.upward import Values, evaluate
from locore.numerics import NEG_INF, scatter_logaddexp_

if TYPE_CHECKING:
    from locore.circuits.circuit import Circuit


def trace(circuit: Circuit, values: Values, generator: torch.Generator | None = None) -> Tensor:
    """Long[batch, length]: the class range (heap index) at each position of one model, top-down.

    One branch at each Or and both factors at each And are followed, from the root to one leaf a position: branches are drawn
    in proportion to masses, or the better one is taken if the values are maxima.
    """
    batch = len(values.log_mass)
    heap = torch.zeros(batch, circuit.length, dtype=torch.long, device=circuit.device)
    rows = torch.arange(batch, device=circuit.device)
    handed = torch.zeros_like(rows)
    times, prefers_first = values.semiring.times, values.semiring.prefers_first
    for block, positions, x in zip(circuit.blocks, circuit.positions, values.blocks, strict=True):
        active = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
        active[block.outputs[handed], rows] = True
        for start, level in zip(reversed(block.level_starts[:-1]), reversed(block.levels), strict=True):
            node, row = active[start : start + level.shape[1]].nonzero(as_tuple=True)
            a, b, c, d = level[:, node]
            uniform = torch.rand(len(node), generator=generator, dtype=torch.float64, device=x.device)
            first = prefers_first(uniform, times(x[a, row], x[b, row]), times(x[c, row], x[d, row]))
            active[torch.where(first, a, c), row] = True
            active[torch.where(first, b, d), row] = True
        leaf, row = active[FIRST_LEAF : block.first_input].nonzero(as_tuple=True)
        where = torch.tensor(positions, device=x.device)[block.leaves[leaf, 0]]
        heap[row, where] = block.leaves[leaf, 1]
        handed, rows = active[block.first_input : block.first_node].nonzero(as_tuple=True)
    return heap


def class_range(circuit: Circuit, heap: Tensor) -> tuple[Tensor, Tensor]:
    """The classes of a heap node, from the first to one past the last: Long like `heap`."""
    height = (circuit.width.bit_length() - 1) - torch.log2(heap.double()).floor().long()
    low = (heap << height) - circuit.width
    return low, low + (1 << height)


def class_factors(circuit: Circuit, values: Values) -> Tensor:
    """f64[batch, length, classes]: log of p̃(y_i = v | α) / p̃(y_i = v), which is the same for all v of a class."""
    semiring = values.semiring
    factors = semiring.over(_flows(circuit, values), values.heap)
    width = 1
    while width < circuit.width:  # what holds for a range holds for its halves
        parents = factors[:, width : 2 * width].repeat_interleave(2, 1)
        width *= 2
        children = factors[:, width : 2 * width]
        semiring.plus(children, parents, out=children)
    leaves = factors[:, circuit.width : circuit.width + circuit.num_classes]
    return ((leaves.log() if semiring is LINEAR else leaves) - values.totals[:, None]).permute(2, 0, 1)


def _flows(circuit: Circuit, values: Values) -> Tensor:
    """f64[length, 2·width, batch]: probability (or its log) that a leaf is used by the y drawn from p̃(· | α)."""
    semiring = values.semiring
    result = torch.full_like(values.heap, semiring.zero)
    handed = torch.full_like(values.log_mass, semiring.one)[None]
    for block, positions, x in zip(circuit.blocks, circuit.positions, values.blocks, strict=True):
        flow = torch.full_like(x, semiring.zero)
        _add(flow, block.outputs[: len(handed)], handed, semiring)
        for start, level in zip(reversed(block.level_starts[:-1]), reversed(block.levels), strict=True):
            stop = start + level.shape[1]
            base = semiring.over(flow[start:stop].clone(), x[start:stop])
            for left, right in (level[:2], level[2:]):
                below = semiring.times(semiring.times(x[left], x[right]), base)
                _add(flow, left, below, semiring)
                _add(flow, right, below, semiring)
        where = torch.tensor(positions, device=x.device)[block.leaves[:, 0]]
        result[where, block.leaves[:, 1]] = flow[FIRST_LEAF : block.first_input]
        handed = flow[block.first_input : block.first_node]
    return result


def _add(flow: Tensor, slots: Tensor, values: Tensor, semiring: Semiring) -> None:
    """Add to slots, which may repeat."""
    if semiring is LINEAR:
        flow.index_add_(0, slots, values)
        return
    distinct, which = torch.unique(slots, return_inverse=True)
    flow[distinct] = scatter_logaddexp_(flow[distinct], which, values)


def allowed_by_conditioning(circuit: Circuit, prefix: Tensor) -> Tensor:
    """Bool[batch, vocab]: tokens possible after Long[batch, time] prefixes, by one upward and one downward pass."""
    time = prefix.shape[1]
    evidence = torch.zeros(len(prefix), circuit.length, circuit.vocab_size, dtype=torch.float64, device=circuit.device)
    evidence[:, :time] = NEG_INF
    evidence[:, :time].scatter_(-1, prefix[..., None].to(circuit.device), 0.0)
    values = evaluate(circuit, lambda i: evidence[:, i], LOG)
    possible = class_factors(circuit, values)[:, time].index_select(-1, circuit.token_class) > NEG_INF
    return possible & (values.log_mass > NEG_INF)[:, None]
