"""What a circuit holds, whatever the weights: how many models, and how many nodes and edges."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from locore.circuits.chain import FALSE, FIRST_LEAF, TRUE, Block, Chain
from locore.circuits.upward import satisfiable


def count(chain: Chain) -> int:
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


def size(chain: Chain) -> tuple[int, int]:
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
