"""The upward pass: products at And, sums (or maxima) at Or, all distributions of a batch together; and counts of models.

One pass, four readings (Goodman, "Semiring parsing", 1999). Plain numbers are two to four times faster than logarithms, and
exact enough: each weight of a position is a probability there, so what underflows in a circuit of fewer than 10^9 nodes is
below 1e-290 (1e-30 if the weights come in single precision), and a mass above `smallest` does not feel it. Below that, masses
are calculated again in log space.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from locore.circuits.levels import FALSE, FIRST_LEAF, TRUE, Block, LinkedBlocks
from locore.kernel.circuits.nodes import Weights
from locore.kernel.numerics import CACHED, NEG_INF, segment_logsumexp


@dataclass(frozen=True)
class Semiring:
    """Attributes:
    zero, unit: the values of FALSE and TRUE.
    times: product, written into its first argument.
    plus: sum or maximum; takes `out`.
    over: quotient; whatever is divided by zero is zero. Written into its first argument.
    prefers_first: Bool, for uniform numbers in [0, 1) and the values of two branches: is the first one drawn?
    """

    zero: float
    unit: float
    times: Callable[[Tensor, Tensor], Tensor]
    plus: Callable[..., Tensor]
    over: Callable[[Tensor, Tensor], Tensor]
    prefers_first: Callable[[Tensor, Tensor, Tensor], Tensor]


def _log_quotient(a: Tensor, b: Tensor) -> Tensor:
    return a.sub_(b).masked_fill_(b == NEG_INF, NEG_INF)


def _quotient(a: Tensor, b: Tensor) -> Tensor:
    return a.div_(b).masked_fill_(b == 0, 0.0)


# u < 1, so a branch of weight zero is never drawn: the other one has probability exactly 1.
LINEAR = Semiring(0.0, 1.0, lambda a, b: a.mul_(b), torch.add, _quotient, lambda u, a, b: u * (a + b) < a)
LOG = Semiring(
    NEG_INF,
    0.0,
    lambda a, b: a.add_(b),
    torch.logaddexp,
    _log_quotient,
    lambda u, a, b: u < torch.exp(a - torch.logaddexp(a, b)),
)
MAX = Semiring(NEG_INF, 0.0, lambda a, b: a.add_(b), torch.maximum, _log_quotient, lambda u, a, b: a >= b)


def smallest(dtype: torch.dtype) -> float:
    """The log mass, relative to the weight of all sequences, down to which plain numbers are trusted."""
    return -600.0 if dtype == torch.float64 else -40.0


@dataclass(frozen=True)
class Values:
    """What the upward pass gives.

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


def log_mass(chain: LinkedBlocks, weights: Weights) -> Tensor:
    """f64[batch]: log mass of the constraint."""
    result, relative = _linear(chain, weights, keep=False)
    small = (relative <= smallest(weights(0).dtype)).nonzero()[:, 0]
    if len(small):
        result.log_mass[small] = evaluate(chain, lambda i: weights(i)[small], LOG, keep=False).log_mass
    return result.log_mass


def masses(chain: LinkedBlocks, weights: Weights) -> Values:
    """Values of all nodes, in plain numbers if every mass allows it."""
    result, relative = _linear(chain, weights, keep=True)
    return result if bool((relative > smallest(weights(0).dtype)).all()) else evaluate(chain, weights, LOG)


def exact_masses(chain: LinkedBlocks, weights: Weights) -> Values:
    """Values of all nodes, above zero wherever something is possible: in plain numbers if no product of weights can vanish."""
    product = 0.0
    for position in range(chain.length):
        rows = weights(position)
        top = rows.amax(1, keepdim=True)
        lowest = float((torch.where(rows == NEG_INF, top, rows) - top).nan_to_num(0.0).min())
        product += lowest - math.log(chain.vocab_size)
        if product <= smallest(torch.float64) or lowest <= math.log(torch.finfo(rows.dtype).tiny):
            return evaluate(chain, weights, LOG)
    return _linear(chain, weights, keep=True)[0]


def evaluate(chain: LinkedBlocks, weights: Weights, semiring: Semiring, keep: bool = True) -> Values:
    """Values of all nodes in log space: masses (LOG) or maxima (MAX)."""
    classes = _class_maxima if semiring is MAX else _class_log_masses
    heap = _filled_heap(chain, weights, semiring, lambda rows: classes(chain, rows))
    root, blocks = _run(chain, heap, semiring, keep)
    return Values(semiring, heap, blocks, root, root.new_zeros(chain.length, len(root)))


def satisfiable(chain: LinkedBlocks) -> tuple[Tensor, ...]:
    """Bool[slots] for each block of the chain: which slots have a model at all."""
    filled = chain.class_starts[1:] > chain.class_starts[:-1]
    leaves = torch.where(filled, 0.0, NEG_INF).double()
    heap = torch.cat([leaves, leaves])[None, :, None]  # its upper half is written over
    _join_ranges(heap, chain.width, MAX)
    _, blocks = _run(chain, heap.expand(chain.length, -1, -1), MAX, keep=True)
    return tuple(values[:, 0] == 0.0 for values in blocks)


def _linear(chain: LinkedBlocks, weights: Weights, keep: bool) -> tuple[Values, Tensor]:
    """Values in plain numbers, and f64[batch], log mass relative to that of all sequences."""
    totals: list[Tensor] = []

    def shares(rows: Tensor) -> Tensor:
        masses, total = _class_shares(chain, rows)
        totals.append(total)
        return masses

    heap = _filled_heap(chain, weights, LINEAR, shares)
    root, blocks = _run(chain, heap, LINEAR, keep)
    relative = root.log()
    total = torch.cat(totals).view(chain.length, -1)
    return Values(LINEAR, heap, blocks, relative + total.sum(0), total), relative


def _class_shares(chain: LinkedBlocks, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """f64[classes, rows], each class's share of a row's position, and f64[rows], the log weight of the position.

    Exponentials are of the precision of the weights, sums of them in f64. A few rows at a time stay near the processor.
    """
    step = max(1, CACHED // chain.vocab_size)
    offsets = chain.num_classes * torch.arange(step, device=chain.device)
    place = (offsets[:, None] + chain.token_class).flatten()
    masses, shifts = [], []
    for rows in torch.split(log_weights, step):
        top = rows.amax(1)
        shifts.append(torch.where(top == NEG_INF, 0.0, top))
        weights = (rows - shifts[-1][:, None]).exp_().flatten()
        sums = torch.bincount(place[: len(weights)], weights.double(), minlength=len(rows) * chain.num_classes)
        masses.append(sums.view(len(rows), -1))
    mass = torch.cat(masses).T
    total = mass.sum(0)
    return mass / torch.where(total == 0, 1.0, total), total.log() + torch.cat(shifts)


def _class_log_masses(chain: LinkedBlocks, log_weights: Tensor) -> Tensor:
    """f64[classes, rows]: log mass of each token class."""
    return segment_logsumexp(log_weights.double(), chain.token_class, chain.num_classes).T


def _class_maxima(chain: LinkedBlocks, log_weights: Tensor) -> Tensor:
    """f64[classes, rows]: the largest log weight within each token class."""
    weights = log_weights.double()
    result = weights.new_full((len(weights), chain.num_classes), NEG_INF)
    return result.scatter_reduce_(-1, chain.token_class.expand(weights.shape), weights, "amax").T


def _filled_heap(chain: LinkedBlocks, weights: Weights, semiring: Semiring, classes: Callable[[Tensor], Tensor]) -> Tensor:
    """f64[length, 2·width, batch]: the value of every aligned range of classes, at each position.

    Args:
        classes: from Float[rows, vocab] to f64[classes, rows]. Positions with a small vocabulary go through it together, since
            each call costs more than a few thousand numbers.
    """
    batch, vocab = weights(0).shape
    width, length = chain.width, chain.length
    together = max(1, CACHED // max(1, batch * vocab))
    heap = torch.full((length, 2 * width, batch), semiring.zero, dtype=torch.float64, device=chain.device)
    for start in range(0, length, together):
        positions = range(start, min(start + together, length))
        rows = torch.cat([weights(i) for i in positions]) if len(positions) > 1 else weights(start)
        masses = classes(rows).reshape(chain.num_classes, len(positions), batch)
        heap[start : positions.stop, width : width + chain.num_classes] = masses.transpose(0, 1)
    _join_ranges(heap, width, semiring)
    return heap


def _join_ranges(heap: Tensor, width: int, semiring: Semiring) -> None:
    """The values of ranges of classes from those of single classes, in place."""
    while width > 1:
        children = heap[:, width : 2 * width]
        width //= 2
        semiring.plus(children[:, 0::2], children[:, 1::2], out=heap[:, width : 2 * width])


def _run(chain: LinkedBlocks, heap: Tensor, semiring: Semiring, keep: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The chain from its last block to the root, given the heap of class ranges: the root and the values of the blocks."""
    batch = heap.shape[-1]
    handed = torch.where(chain.final, semiring.unit, semiring.zero).to(heap.dtype)[:, None].expand(-1, batch)
    blocks: list[Tensor] = []
    # Written to again and again: memory from the system for every level would cost more than the sums.
    widest = max((level.shape[1] for block in chain.blocks for level in block.levels), default=0)
    scratch = heap.new_empty((4, widest, batch))
    shared = heap.new_empty((0 if keep else max(block.num_slots for block in chain.blocks), batch))
    for block, positions in chain.upwards():
        values = heap.new_empty((block.num_slots, batch)) if keep else shared[: block.num_slots]
        _fill_block(values, block, heap[list(positions)], handed, semiring, scratch)
        if keep:
            blocks.append(values)
        handed = values.index_select(0, block.outputs)
    return handed[0], tuple(reversed(blocks))


def _fill_block(values: Tensor, block: Block, heap: Tensor, handed: Tensor, semiring: Semiring, scratch: Tensor) -> None:
    """Write f64[slots, batch] of one block, from the heaps of its positions and the values handed to it.

    Args:
        scratch: f64[4, nodes, batch], of any content; at least as many nodes as the widest level has.
    """
    values[FALSE] = semiring.zero
    values[TRUE] = semiring.unit
    values[FIRST_LEAF : block.first_input] = heap[block.leaves[:, 0], block.leaves[:, 1]]
    values[block.first_input : block.first_node] = handed
    for here, level in block.slots_and_levels:
        nodes = level.shape[1]
        for slots, part in zip(level, scratch, strict=True):
            torch.index_select(values, 0, slots, out=part[:nodes])
        a, b, c, d = scratch[:, :nodes]
        semiring.plus(semiring.times(a, b), semiring.times(c, d), out=values[here])


def count(chain: LinkedBlocks) -> int:
    """Number of models: the upward pass with class sizes at the leaves, in Python's integers, which do not overflow.

    The circuit is deterministic, so it is exact.
    """
    starts = np.array(chain.class_starts.tolist(), dtype=object)
    heap = np.concatenate([np.zeros_like(starts[1:]), np.diff(starts)])
    width = chain.width
    while width > 1:
        width //= 2
        heap[width : 2 * width] = heap[2 * width : 4 * width : 2] + heap[2 * width + 1 : 4 * width : 2]
    handed = np.array([int(flag) for flag in chain.final.tolist()], dtype=object)
    for block in reversed(chain.blocks):
        values = np.zeros(block.num_slots, dtype=object)
        values[FALSE], values[TRUE] = 0, 1
        values[FIRST_LEAF : block.first_input] = heap[block.leaves[:, 1].numpy(force=True)]
        values[block.first_input : block.first_node] = handed
        for here, level in block.slots_and_levels:
            a, b, c, d = level.numpy(force=True)
            values[here] = values[a] * values[b] + values[c] * values[d]
        handed = values[block.outputs.numpy(force=True)]
    return int(handed[0])


def size(chain: LinkedBlocks) -> tuple[int, int]:
    """(nodes, edges), unrolled over positions: Or nodes and leaves, and arcs into Or nodes.

    Only what can be reached and can be satisfied counts.
    """
    nodes = edges = 0
    wanted = torch.zeros(len(chain.blocks[0].outputs), dtype=torch.bool, device=chain.device)
    wanted[0] = True
    for block, live in zip(chain.blocks, satisfiable(chain), strict=True):
        reached, arcs = _reached(block, live, wanted)
        nodes += int(reached[block.first_node :].sum()) + int(reached[FIRST_LEAF : block.first_input].sum())
        edges += arcs
        wanted = reached[block.first_input : block.first_node]
    return nodes, edges


def _reached(block: Block, live: Tensor, wanted: Tensor) -> tuple[Tensor, int]:
    """Bool[slots]: live slots that some wanted output uses, and how many live branches they have."""
    reached = torch.zeros_like(live)
    reached[block.outputs[wanted]] = True
    arcs = 0
    for here, (a, b, c, d) in reversed(block.slots_and_levels):
        for prime, sub in ((a, b), (c, d)):
            used = reached[here] & live[prime] & live[sub]
            reached[prime[used]] = reached[sub[used]] = True
            arcs += int(used.sum())
    return reached & live, arcs
