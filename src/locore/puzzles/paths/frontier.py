"""Simple paths by the frontier method: one decision for each edge, states that remember only what the rest can still see.

Knuth's Simpath (The Art of Computer Programming 4A, exercise 7.1.4-225). The edges are decided in order. The frontier holds
the vertices that have edges on both sides of the cut, and a state says of each what the chosen edges make of it: untouched,
used up, or the end of a piece of path, and then which vertex is the other end (its mate). States that agree on this have the
same future. Source and target are joined by an imagined edge before the first decision: a path from one to the other is then
a cycle through that edge, and no vertex is an exception.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.kernel.errors import BudgetExceeded
from locore.kernel.limits import check_nodes, check_progress, check_table

Mates = NDArray[np.uint8]  # [slots, states]: the slot of the other end; its own slot if untouched; USED
Flags = NDArray[np.bool_]
Targets = NDArray[np.int32]  # [states, 2]: the state after an absent and after a present edge
USED = 255  # inner vertex of a piece, or one that cannot be used any more; also a slot without a vertex
DEAD, DONE = -1, -2
REMEDY = (
    "a smaller graph, fewer neighbours, edges in an order that keeps the frontier small (as those of locore.grid), or, on a "
    "grid, simple_moves with a bound on the number of moves"
)


@dataclass(frozen=True)
class EdgeStep:
    """What one edge does to the frontier.

    Attributes:
        ends: the slots of its two vertices.
        enter: slots of vertices that have this edge as their first one.
        leave: slots of vertices that have this edge as their last one.
        closing: slots of vertices with one edge left; where it is untouched, no path can go through.
    """

    ends: tuple[int, int]
    enter: tuple[int, ...]
    leave: tuple[int, ...]
    closing: tuple[int, ...]


@dataclass(frozen=True)
class Frontier:
    """How the frontier of a graph changes, edge by edge. Source and target have slots 0 and 1 from the beginning.

    Attributes:
        steps: one for each edge.
        width: number of slots.
    """

    steps: tuple[EdgeStep, ...]
    width: int

    @classmethod
    def of(cls, edges: Sequence[tuple[Hashable, Hashable]], source: Hashable, target: Hashable) -> Frontier:
        """Give each vertex a slot from its first edge to its last; slots are used again.

        Raises:
            BudgetExceeded: the frontier is wider than any that could be worked through.
        """
        left = Counter(vertex for edge in edges for vertex in edge)
        slot: dict[Hashable, int] = {source: 0, target: 1}
        free: list[int] = []
        width, steps = 2, []
        for edge in edges:
            enter = []
            for vertex in edge:
                if vertex not in slot:
                    if not free:
                        free.append(width)
                        width += 1
                    slot[vertex] = free.pop()
                    enter.append(slot[vertex])
                left[vertex] -= 1
            leave = tuple(slot[vertex] for vertex in edge if not left[vertex])
            closing = tuple(slot[vertex] for vertex in edge if left[vertex] == 1)
            free += leave
            steps.append(EdgeStep((slot[edge[0]], slot[edge[1]]), tuple(enter), leave, closing))
        if width >= USED:
            raise BudgetExceeded(
                f"the frontier of this graph has {width} vertices, at most {USED - 1} are possible; use {REMEDY}."
            )
        return cls(tuple(steps), width)


def path_layers(frontier: Frontier, allowed: Flags | None = None) -> list[Targets]:
    """The minimal layered automaton of the simple paths from source to target.

    Args:
        allowed: Bool[edges, 2], whether an edge may be absent, and present; None: both.

    Returns:
        for each edge Int32[states, 2], the state of the next layer or DEAD. State 0 of the first layer is the start, the
        last layer has the one state 0. Without a path the first layer has no state.

    Raises:
        BudgetExceeded: nodes, seconds or memory; the message names the edge that was reached.
    """
    if allowed is None:
        allowed = np.ones((len(frontier.steps), 2), dtype=np.bool_)
    return _minimal(_explored(frontier, allowed))


def _explored(frontier: Frontier, allowed: Flags) -> list[Targets]:
    """All states that can be reached, layer by layer; of the last layer only DONE is kept."""
    mates = np.full((frontier.width, 1), USED, dtype=np.uint8)
    mates[:2, 0] = 1, 0  # source and target are the ends of the imagined edge
    layers: list[Targets] = []
    total, has_done = 1, False
    for number, step in enumerate(frontier.steps):
        where = (
            f"compiling simple paths, after {number} of {len(frontier.steps)} edges with {mates.shape[1]:,} states in reach,"
        )
        check_nodes(total, where, REMEDY)
        check_table(8 * mates.nbytes, where, REMEDY)
        check_progress(where, REMEDY)
        mates, targets = _after_edge(mates, step, allowed[number])
        if number + 1 == len(frontier.steps):
            targets[targets >= 0] = DEAD
            mates = mates[:, :0]
        if has_done:
            finished = [[DONE if allowed[number, 0] else DEAD, DEAD]]
            targets = np.concatenate([targets, np.array(finished, dtype=np.int32)])
        has_done = bool((targets == DONE).any())
        targets[targets == DONE] = mates.shape[1]
        total += mates.shape[1] + has_done
        layers.append(targets)
    return layers


def _after_edge(mates: Mates, step: EdgeStep, allowed: Flags) -> tuple[Mates, Targets]:
    """The distinct states after an edge, and Int32[states, 2], where each state goes: their numbers, DEAD or DONE.

    Args:
        allowed: Bool[2], whether the edge may be absent, and present.
    """
    entering = list(step.enter)
    mates = mates.copy()
    mates[entering] = np.array(entering, dtype=np.uint8)[:, None]
    joins, done = (flags & allowed[1] for flags in _possible(mates, step))
    stays = np.full(mates.shape[1], allowed[0])
    targets = np.full((mates.shape[1], 2), DEAD, dtype=np.int32)
    survivors, states = [], []
    for after, flags in ((mates[:, stays], stays), (_joined(mates[:, joins], step), joins)):
        after, alive = _settled(after, step)
        survivors.append(after)
        states.append(np.nonzero(flags)[0][alive])
    distinct, which = _distinct(np.concatenate(survivors, axis=1))
    first = len(states[0])
    targets[states[0], 0] = which[:first]
    targets[states[1], 1] = which[first:]
    targets[done, 1] = DONE
    return distinct, targets


def _possible(mates: Mates, step: EdgeStep) -> tuple[Flags, Flags]:
    """Bool[states], twice: where the edge joins two pieces, and where it completes the path."""
    u, v = step.ends
    usable = (mates[u] != USED) & (mates[v] != USED)
    closes = usable & (mates[u] == v)
    done = closes.copy()
    # The piece that is closed holds the imagined edge if it is the only one: that edge's piece is there until the end.
    candidates = mates[:, closes]
    idle = (candidates == USED) | (candidates == np.arange(len(mates), dtype=np.uint8)[:, None])
    done[closes] = idle.sum(0) == len(mates) - 2
    return usable & ~closes, done


def _joined(mates: Mates, step: EdgeStep) -> Mates:
    """The states with the edge: its vertices are used up, unless they were untouched and become ends."""
    u, v = step.ends
    state = np.arange(mates.shape[1])
    first, second = mates[u].copy(), mates[v].copy()
    mates[u] = mates[v] = USED
    mates[first, state] = second
    mates[second, state] = first
    return mates


def _settled(mates: Mates, step: EdgeStep) -> tuple[Mates, Flags]:
    """States without the vertices that leave, and which are alive: a piece cannot end at a vertex that has left."""
    alive = np.ones(mates.shape[1], dtype=np.bool_)
    for slot in step.leave:
        alive &= (mates[slot] == USED) | (mates[slot] == slot)
    mates = mates[:, alive]
    mates[list(step.leave)] = USED
    for slot in step.closing:
        mates[slot, mates[slot] == slot] = USED
    return mates, alive


def _distinct(mates: Mates) -> tuple[Mates, NDArray[np.int64]]:
    """The distinct columns, and for each column which of them it is."""
    bits = len(mates).bit_length()  # so that no slot has the number that USED is cut to
    in_word = 64 // bits
    codes = np.bitwise_and(mates, (1 << bits) - 1)
    words = []
    for start in range(0, len(codes), in_word):
        word = np.zeros(codes.shape[1], dtype=np.uint64)
        for code in codes[start : start + in_word]:
            word = (word << np.uint64(bits)) | code
        words.append(word)
    keys = words[0] if len(words) == 1 else np.ascontiguousarray(np.stack(words, 1)).view(f"V{8 * len(words)}").ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return mates[:, first], inverse.ravel()


def _minimal(layers: list[Targets]) -> list[Targets]:
    """Merge states with equal futures from the end, and drop those that cannot finish; the last layer has the state 0 alone."""
    result: list[Targets] = []
    number = np.zeros(1, dtype=np.int64)  # of each state of the next layer; DEAD if it cannot finish
    for targets in reversed(layers):
        futures = np.append(number, DEAD)[targets]  # DEAD is −1 and reads the last entry
        alive = (futures != DEAD).any(1)
        span = int(number.max(initial=DEAD)) + 2
        code = (futures[alive, 0] + 1) * span + futures[alive, 1] + 1
        distinct, inverse = np.unique(code, return_inverse=True)
        result.append((np.stack(np.divmod(distinct, span), 1) - 1).astype(np.int32))
        number = np.full(len(targets), DEAD, dtype=np.int64)
        number[alive] = inverse.ravel()
    return result[::-1]
