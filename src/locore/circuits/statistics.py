"""Sizes of a circuit, unrolled over its positions: only what can be reached and can be satisfied counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from locore.circuits.block import FALSE, FIRST_LEAF, TRUE, Block

if TYPE_CHECKING:
    from locore.circuits.circuit import Circuit


def size(circuit: Circuit) -> tuple[int, int]:
    """(nodes, edges): Or nodes and leaves, and arcs into Or nodes."""
    nodes = edges = 0
    wanted = torch.zeros(len(circuit.blocks[0].outputs), dtype=torch.bool, device=circuit.device)
    wanted[0] = True
    for block, live in zip(circuit.blocks, satisfiable(circuit), strict=True):
        reached = _reached(block, live, wanted)
        nodes += int(reached[block.first_node :].sum()) + int(reached[FIRST_LEAF : block.first_input].sum())
        for start, level in zip(block.level_starts, block.levels, strict=False):
            here = reached[start : start + level.shape[1]]
            a, b, c, d = level
            edges += int((here & live[a] & live[b]).sum()) + int((here & live[c] & live[d]).sum())
        wanted = reached[block.first_input : block.first_node]
    return nodes, edges


def satisfiable(circuit: Circuit) -> list[Tensor]:
    """Bool[slots] for each block of the chain: which slots have a model at all."""
    filled = circuit.class_starts[1:] > circuit.class_starts[:-1]
    heap = torch.cat([torch.zeros_like(filled), filled])
    width = circuit.width
    while width > 1:
        width //= 2
        heap[width : 2 * width] = heap[2 * width : 4 * width : 2] | heap[2 * width + 1 : 4 * width : 2]
    handed, result = circuit.final, []
    for block in reversed(circuit.blocks):
        live = torch.zeros(block.num_slots, dtype=torch.bool, device=circuit.device)
        live[TRUE] = True
        live[FIRST_LEAF : block.first_input] = heap[block.leaves[:, 1]]
        live[block.first_input : block.first_node] = handed
        for start, level in zip(block.level_starts, block.levels, strict=False):
            a, b, c, d = level
            live[start : start + level.shape[1]] = (live[a] & live[b]) | (live[c] & live[d])
        handed = live[block.outputs]
        result.append(live)
    return result[::-1]


def _reached(block: Block, live: Tensor, wanted: Tensor) -> Tensor:
    """Bool[slots]: live slots that some wanted output uses."""
    reached = torch.zeros_like(live)
    reached[block.outputs[wanted]] = True
    for start, level in zip(reversed(block.level_starts[:-1]), reversed(block.levels), strict=True):
        here = reached[start : start + level.shape[1]]
        a, b, c, d = level
        first = here & live[a] & live[b]
        second = here & live[c] & live[d]
        for slots, used in ((a, first), (b, first), (c, second), (d, second)):
            reached[slots[used]] = True
    reached[FALSE] = reached[TRUE] = False
    return reached & live
