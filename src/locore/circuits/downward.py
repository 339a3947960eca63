"""Downward passes: exact sampling, the most probable model, marginals, and conditioning on a prefix."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from locore.circuits.block import FIRST_LEAF
from locore.circuits.upward import Values, evaluate
from locore.numerics import NEG_INF, make_generator, scatter_logaddexp_

if TYPE_CHECKING:
    from locore.circuits.circuit import Circuit

Choose = Callable[[Tensor, Tensor], Tensor]
TOKEN_CHUNK = 1 << 24  # weights looked at together when tokens are drawn within class ranges


def sample_leaves(circuit: Circuit, values: Values, seed: int | torch.Generator | None) -> Tensor:
    """Long[batch, length]: the class range (heap index) drawn at each position, top-down."""
    generator = make_generator(seed, circuit.device)

    def coin(first: Tensor, second: Tensor) -> Tensor:
        u = torch.rand(first.shape, generator=generator, dtype=torch.float64, device=first.device)
        # u < 1, so a branch of weight zero is never taken: the other one has probability exactly 1.
        return u < torch.exp(first - torch.logaddexp(first, second))

    return _trace(circuit, values, coin)


def best_leaves(circuit: Circuit, values: Values) -> Tensor:
    """Long[batch, length]: the class range of the most probable model at each position (maximising values)."""
    return _trace(circuit, values, lambda first, second: first >= second)


def _trace(circuit: Circuit, values: Values, choose: Choose) -> Tensor:
    """Follow one branch at each Or and both factors at each And, from the root to one leaf a position."""
    batch = len(values.log_mass)
    heap = torch.zeros(batch, circuit.length, dtype=torch.long, device=circuit.device)
    rows = torch.arange(batch, device=circuit.device)
    handed = torch.zeros_like(rows)
    for block, positions, x in zip(circuit.blocks, circuit.positions, values.blocks, strict=True):
        active = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
        active[block.outputs[handed], rows] = True
        for start, level in zip(reversed(block.level_starts[:-1]), reversed(block.levels), strict=True):
            node, row = active[start : start + level.shape[1]].nonzero(as_tuple=True)
            a, b, c, d = level[:, node]
            first = choose(x[a, row] + x[b, row], x[c, row] + x[d, row])
            active[torch.where(first, a, c), row] = True
            active[torch.where(first, b, d), row] = True
        leaf, row = active[FIRST_LEAF : block.first_input].nonzero(as_tuple=True)
        where = torch.tensor(positions, device=x.device)[block.leaves[leaf, 0]]
        heap[row, where] = block.leaves[leaf, 1]
        handed, rows = active[block.first_input : block.first_node].nonzero(as_tuple=True)
    return heap


def sample_tokens(circuit: Circuit, log_probs: Tensor, heap: Tensor, seed: int | torch.Generator | None) -> Tensor:
    """Long[batch, length]: a token within each class range, in proportion to its weight."""
    # A seed given as an integer must not replay the coins of the leaves.
    stream = seed + 0x9E3779B9 if isinstance(seed, int) else seed
    generator = make_generator(stream, circuit.device)

    def draw(weights: Tensor) -> Tensor:
        total = weights.cumsum(-1)
        u = torch.rand(len(weights), 1, generator=generator, dtype=torch.float64, device=weights.device)
        # The first strict increase beyond u·total has a positive weight.
        return (total > u * total[:, -1:]).to(torch.uint8).argmax(-1)

    return _choose_tokens(circuit, log_probs, heap, lambda logs: draw((logs - logs.amax(-1, keepdim=True)).exp()))


def best_tokens(circuit: Circuit, log_probs: Tensor, heap: Tensor) -> Tensor:
    """Long[batch, length]: the token of largest weight within each class range."""
    return _choose_tokens(circuit, log_probs, heap, lambda logs: logs.argmax(-1))


def _choose_tokens(circuit: Circuit, log_probs: Tensor, heap: Tensor, choose: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply `choose` to the weights of each class range: f64[chunk, vocab] in class order, −inf outside the range."""
    start, stop = class_range(circuit, heap.flatten())
    rows = log_probs.flatten(0, 1)
    column = torch.arange(circuit.vocab_size, device=circuit.device)
    chosen = []
    step = max(1, TOKEN_CHUNK // circuit.vocab_size)
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        inside = (column >= start[part, None]) & (column < stop[part, None])
        logs = rows[part].index_select(-1, circuit.token_order).masked_fill_(~inside, NEG_INF)
        chosen.append(choose(logs))
    return circuit.token_order[torch.cat(chosen)].view(heap.shape)


def class_range(circuit: Circuit, heap: Tensor) -> tuple[Tensor, Tensor]:
    """Where the tokens of a heap node lie in `circuit.token_order`: start and stop, Long like `heap`."""
    height = (circuit.width.bit_length() - 1) - torch.log2(heap.double()).floor().long()
    low = (heap << height) - circuit.width
    high = low + (1 << height)
    return circuit.class_starts[low], circuit.class_starts[high]


def class_factors(circuit: Circuit, values: Values) -> Tensor:
    """f64[batch, length, classes]: log of p̃(y_i = v | α) / p̃(y_i = v), which is the same for all v of a class."""
    flows = _flows(circuit, values)
    dead = values.heap == NEG_INF
    factors = (flows - torch.where(dead, 0.0, values.heap)).masked_fill_(dead, NEG_INF)
    width = 1
    while width < circuit.width:  # what holds for a range holds for its halves
        parents = factors[:, width : 2 * width].repeat_interleave(2, 1)
        width *= 2
        children = factors[:, width : 2 * width]
        torch.logaddexp(children, parents, out=children)
    leaves = factors[:, circuit.width : circuit.width + circuit.num_classes]
    return leaves.permute(2, 0, 1)


def _flows(circuit: Circuit, values: Values) -> Tensor:
    """f64[length, 2·width, batch]: log probability that a leaf is used by the y drawn from p̃(· | α)."""
    result = torch.full_like(values.heap, NEG_INF)
    handed = torch.zeros_like(values.log_mass)[None]
    for block, positions, x in zip(circuit.blocks, circuit.positions, values.blocks, strict=True):
        flow = torch.full_like(x, NEG_INF)
        scatter_logaddexp_(flow, block.outputs[: len(handed)], handed)
        levels = zip(block.level_starts[:-1], block.levels, block.level_children, strict=True)
        for start, level, (slots, which) in reversed(list(levels)):
            stop = start + level.shape[1]
            base = flow[start:stop] - torch.where(x[start:stop] == NEG_INF, 0.0, x[start:stop])
            a, b, c, d = level
            first = base + x[a] + x[b]
            second = base + x[c] + x[d]
            below = torch.cat([first, first, second, second])
            flow[slots] = scatter_logaddexp_(flow[slots], which, below)
        where = torch.tensor(positions, device=x.device)[block.leaves[:, 0]]
        result[where, block.leaves[:, 1]] = flow[FIRST_LEAF : block.first_input]
        handed = flow[block.first_input : block.first_node]
    return result


def allowed_by_conditioning(circuit: Circuit, prefix: Tensor) -> Tensor:
    """Bool[batch, vocab]: tokens possible after Long[batch, time] prefixes, by one upward and one downward pass."""
    time = prefix.shape[1]
    evidence = torch.zeros(len(prefix), circuit.length, circuit.vocab_size, dtype=torch.float64, device=circuit.device)
    evidence[:, :time] = NEG_INF
    evidence[:, :time].scatter_(-1, prefix[..., None].to(circuit.device), 0.0)
    values = evaluate(circuit, evidence)
    possible = class_factors(circuit, values)[:, time].index_select(-1, circuit.token_class) > NEG_INF
    return possible & (values.log_mass > NEG_INF)[:, None]
