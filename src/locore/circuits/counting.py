"""Exact model counts with Python's integers, which do not overflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from locore.circuits.block import FALSE, FIRST_LEAF, TRUE

if TYPE_CHECKING:
    from locore.circuits.circuit import Circuit


def count(circuit: Circuit) -> int:
    """Number of models: the upward pass with class sizes at the leaves. The circuit is deterministic, so it is exact."""
    starts = circuit.class_starts.tolist()
    width = circuit.width
    heap = np.zeros(2 * width, dtype=object)
    heap[width:] = [starts[c + 1] - starts[c] for c in range(width)]
    while width > 1:
        width //= 2
        heap[width : 2 * width] = heap[2 * width : 4 * width : 2] + heap[2 * width + 1 : 4 * width : 2]
    handed = np.array([int(flag) for flag in circuit.final.tolist()], dtype=object)
    for block in reversed(circuit.blocks):
        values = np.zeros(block.num_slots, dtype=object)
        values[FALSE], values[TRUE] = 0, 1
        values[FIRST_LEAF : block.first_input] = heap[block.leaves[:, 1].numpy(force=True)]
        values[block.first_input : block.first_node] = handed
        for start, level in zip(block.level_starts, block.levels, strict=False):
            a, b, c, d = level.numpy(force=True)
            values[start : start + level.shape[1]] = values[a] * values[b] + values[c] * values[d]
        handed = values[block.outputs.numpy(force=True)]
    return int(handed[0])
