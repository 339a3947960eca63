"""From class ranges to tokens: within a range, a token comes in proportion to its own weight."""

from __future__ import annotations

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
    low, high = (bound.int() for bound in class_range(circuit, heap))
    classes = circuit.token_class.int()
    tokens = torch.empty_like(heap)
    total = torch.zeros(len(heap), dtype=torch.float64, device=heap.device)
    step = max(1, CACHED // circuit.vocab_size)
    for position in range(circuit.length):
        weights = rows(position)
        for start in range(0, len(heap), step):
            part = slice(start, start + step)
            logs = weights[part]
            outside = (classes < low[part, position, None]) | (classes >= high[part, position, None])
            inside = logs.masked_fill(outside, NEG_INF)
            chosen = inside.argmax(-1) if generator is None else _draw(inside, generator)
            tokens[part, position] = chosen
            total[part] += logs.gather(-1, chosen[:, None])[:, 0].double()
    return tokens, total


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
