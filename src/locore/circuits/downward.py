"""Downward passes: drawing a model, marginals, and conditioning on a prefix."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from locore.circuits.levels import FIRST_LEAF, LinkedBlocks
from locore.circuits.upward import LINEAR, LOG, Semiring, Values, evaluate
from locore.kernel.circuits.nodes import Weights
from locore.kernel.numerics import CACHED, NEG_INF

STRETCH = 512  # tokens that are added up before anything is searched

# Drawing a model, or tracing the best one.


def trace(chain: LinkedBlocks, values: Values, generator: torch.Generator | None = None) -> Tensor:
    """Long[batch, length]: the class range (heap index) at each position of one model, top-down.

    One branch at each Or and both factors at each And are followed, from the root to one leaf a position: branches are drawn
    in proportion to masses, or the better one is taken if the values are maxima.
    """
    batch = len(values.log_mass)
    heap = torch.zeros(batch, chain.length, dtype=torch.long, device=chain.device)
    rows = torch.arange(batch, device=chain.device)
    handed = torch.zeros_like(rows)
    times, prefers_first = values.semiring.times, values.semiring.prefers_first
    for block, positions, x in zip(chain.blocks, chain.positions, values.blocks, strict=True):
        active = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
        active[block.outputs[handed], rows] = True
        for here, level in reversed(block.slots_and_levels):
            node, row = active[here].nonzero(as_tuple=True)
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


def choose_tokens(
    chain: LinkedBlocks, weights: Weights, heap: Tensor, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """A token for each class range of Long[batch, length]: drawn, or without a generator the one of largest weight.

    Within a range, a token comes in proportion to its own weight.

    Returns:
        tokens Long[batch, length] and the sum of their log weights, f64[batch].
    """
    height = (chain.width.bit_length() - 1) - torch.log2(heap.double()).floor().long()
    low = (heap << height) - chain.width  # the first class of each range
    first, last = chain.class_starts[low], chain.class_starts[low + (1 << height)]  # places in `tokens_by_class`
    tokens = torch.empty_like(heap)
    total = torch.zeros(len(heap), dtype=torch.float64, device=heap.device)
    for position in range(chain.length):
        rows = weights(position)
        for part in _parts(last[:, position] - first[:, position]):
            members, logs = _inside(chain, rows, part, first[part, position], last[part, position])
            place = (logs.argmax(-1) if generator is None else _draw(logs, generator))[:, None]
            tokens[part, position] = members.gather(-1, place)[:, 0]
            total[part] += logs.gather(-1, place)[:, 0].double()
    return tokens, total


def _parts(sizes: Tensor) -> Iterator[Tensor]:
    """Long[some]: numbers of rows with ranges of like sizes, so few that their tokens stay near the processor."""
    ordered = sizes.argsort()
    largest = sizes[ordered].tolist()
    start = 0
    for stop in range(1, len(largest) + 1):
        if stop == len(largest) or (stop + 1 - start) * largest[stop] > CACHED:
            yield ordered[start:stop]
            start = stop


def _inside(chain: LinkedBlocks, weights: Tensor, part: Tensor, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens of the ranges of some rows, Long[some, size], and their log weights; −inf beyond the end of a range."""
    if len(part) == 1:  # a long range: nothing to mask
        members = chain.tokens_by_class[int(first) : int(last)]
        return members[None], weights[int(part)].index_select(0, members)[None]
    place = first[:, None] + torch.arange(int((last - first).max()), device=weights.device)
    beyond = place >= last[:, None]
    members = chain.tokens_by_class[place.masked_fill_(beyond, 0)]
    return members, weights.take(part[:, None] * chain.vocab_size + members).masked_fill_(beyond, NEG_INF)


def _draw(logs: Tensor, generator: torch.Generator) -> Tensor:
    """Long[batch]: one item of each row in proportion to exp(logs), f64 sums; an item of weight zero is never drawn."""
    batch, items = logs.shape
    weights = (logs - logs.amax(-1, keepdim=True)).exp_()
    weights = torch.nn.functional.pad(weights, (0, -items % STRETCH)).view(batch, -1, STRETCH)
    uniform = torch.rand(2, batch, generator=generator, dtype=torch.float64, device=logs.device)
    stretch = _search(weights.sum(-1, dtype=torch.float64), uniform[0])
    within = weights[torch.arange(batch, device=logs.device), stretch].double()
    return stretch * STRETCH + _search(within, uniform[1])


def _search(weights: Tensor, uniform: Tensor) -> Tensor:
    """Long[batch]: the first item at which the cumulated weight exceeds the uniform share of all."""
    total = weights.cumsum(-1)
    return torch.searchsorted(total, (uniform * total[:, -1])[:, None], right=True)[:, 0]


# Marginals, and conditioning.


def class_factors(chain: LinkedBlocks, values: Values) -> Tensor:
    """f64[batch, length, classes]: log of p̃(y_i = v | α) / p̃(y_i = v), which is the same for all v of a class."""
    semiring = values.semiring
    factors = semiring.over(_flows(chain, values), values.heap)
    width = 1
    while width < chain.width:  # what holds for a range holds for its halves
        parents = factors[:, width : 2 * width].repeat_interleave(2, 1)
        width *= 2
        children = factors[:, width : 2 * width]
        semiring.plus(children, parents, out=children)
    leaves = factors[:, chain.width : chain.width + chain.num_classes]
    return ((leaves.log() if semiring is LINEAR else leaves) - values.totals[:, None]).permute(2, 0, 1)


def _flows(chain: LinkedBlocks, values: Values) -> Tensor:
    """f64[length, 2·width, batch]: probability (or its log) that a leaf is used by the y drawn from p̃(· | α)."""
    semiring = values.semiring
    result = torch.full_like(values.heap, semiring.zero)
    handed = torch.full_like(values.log_mass, semiring.unit)[None]
    for block, positions, x in zip(chain.blocks, chain.positions, values.blocks, strict=True):
        flow = torch.full_like(x, semiring.zero)
        _add(flow, block.outputs[: len(handed)], handed, semiring)
        for here, level in reversed(block.slots_and_levels):
            base = semiring.over(flow[here].clone(), x[here])
            for left, right in (level[:2], level[2:]):
                below = semiring.times(semiring.times(x[left], x[right]), base)
                _add(flow, left, below, semiring)
                _add(flow, right, below, semiring)
        where = torch.tensor(positions, device=x.device)[block.leaves[:, 0]]
        result[where, block.leaves[:, 1]] = flow[FIRST_LEAF : block.first_input]
        handed = flow[block.first_input : block.first_node]
    return result


def _add(flow: Tensor, slots: Tensor, values: Tensor, semiring: Semiring) -> None:
    """Add to slots, which may repeat; of logs, −inf is an exact zero and never makes a NaN."""
    if semiring is LINEAR:
        flow.index_add_(0, slots, values)
        return
    distinct, which = torch.unique(slots, return_inverse=True)
    before, index = flow[distinct], which[:, None].expand(values.shape)
    top = before.scatter_reduce(0, index, values, "amax")
    shift = torch.where(top == NEG_INF, 0.0, top)
    mass = (before - shift).exp_().scatter_add_(0, index, (values - shift[which]).exp_())
    flow[distinct] = mass.log_().add_(shift)


def allowed_by_conditioning(chain: LinkedBlocks, prefix: Tensor) -> Tensor:
    """Bool[batch, vocab]: tokens possible after Long[batch, time] prefixes, by one upward and one downward pass."""
    time = prefix.shape[1]
    evidence = torch.zeros(len(prefix), chain.length, chain.vocab_size, dtype=torch.float64, device=chain.device)
    evidence[:, :time] = NEG_INF
    evidence[:, :time].scatter_(-1, prefix[..., None].to(chain.device), 0.0)
    values = evaluate(chain, lambda i: evidence[:, i], LOG)
    possible = class_factors(chain, values)[:, time].index_select(-1, chain.token_class) > NEG_INF
    return possible & (values.log_mass > NEG_INF)[:, None]
