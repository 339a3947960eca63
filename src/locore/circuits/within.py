"""From class ranges to tokens: within a range, a token comes in proportion to its own weight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from locore.circuits.downward import class_range
from locore.circuits.upward import Rows
from locore.numerics import CACHED, NEG_INF

if TYPE_CHECKING:
    from locore.circuits.circuit import Circuit

STRETCH = 512  # tokens that are added up before anything is searched


def choose_tokens(circuit: Circuit, rows: Rows, heap: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """A token for each class range of Long[batch, length]: drawn, or without a generator the one of largest weight.

    Returns:
        tokens Long[batch, length] and the sum of their log weights, f64[batch].
    """
    low, high = class_range(circuit, heap)
    first, last = circuit.class_starts[low], circuit.class_starts[high]  # places in `tokens_by_class`
    tokens = torch.empty_like(heap)
    total = torch.zeros(len(heap), dtype=torch.float64, device=heap.device)
    for position in range(circuit.length):
        weights = rows(position)
        for part in _parts(last[:, position] - first[:, position]):
            members, logs = _inside(circuit, weights, part, first[part, position], last[part, position])
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


def _inside(circuit: Circuit, weights: Tensor, part: Tensor, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens of the ranges of some rows, Long[some, size], and their log weights; −inf beyond the end of a range."""
    if len(part) == 1:  # a long range: nothing to mask
        members = circuit.tokens_by_class[int(first) : int(last)]
        return members[None], weights[int(part)].index_select(0, members)[None]
    place = first[:, None] + torch.arange(int((last - first).max()), device=weights.device)
    beyond = place >= last[:, None]
    members = circuit.tokens_by_class[place.masked_fill_(beyond, 0)]
    return members, weights.take(part[:, None] * circuit.vocab_size + members).masked_fill_(beyond, NEG_INF)


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
