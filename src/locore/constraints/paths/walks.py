"""Walks on a grid that remember the last few cells, as an automaton over moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.constraints.automaton import Automaton, minimise
from locore.constraints.paths.grid import Cell, Direction
from locore.limits import check_progress, check_states

Ints = NDArray[np.int32]
NOWHERE = -1
WHAT, REMEDY = "the automaton of simple_moves", "a smaller memory, a smaller grid or more blocked cells"


@dataclass(frozen=True)
class Board:
    """A grid whose cells are numbered row by row.

    Attributes:
        columns: how many.
        after: Int32[cells, directions], the cell after a step; NOWHERE off the grid and into blocked cells.
        apart: Int32[cells, cells], the least number of steps if nothing were blocked.
    """

    columns: int
    after: Ints
    apart: Ints

    @classmethod
    def of(cls, size: tuple[int, int], directions: Sequence[Direction], blocked: Iterable[Cell]) -> Board:
        """The board of a grid."""
        row, column = np.divmod(np.arange(size[0] * size[1]), size[1])
        closed = np.zeros(len(row), dtype=np.bool_)
        closed[[r * size[1] + c for r, c in blocked]] = True
        after = np.full((len(row), len(directions)), NOWHERE, dtype=np.int32)
        for number, (down, right) in enumerate(directions):
            r, c = row + down, column + right
            inside = (r >= 0) & (r < size[0]) & (c >= 0) & (c < size[1])
            cell = np.where(inside, r * size[1] + c, 0)
            after[:, number] = np.where(inside & ~closed[cell], cell, NOWHERE)
        vertical, horizontal = abs(row[:, None] - row), abs(column[:, None] - column)
        apart = np.maximum(vertical, horizontal) if len(directions) == 8 else vertical + horizontal
        return cls(size[1], after, apart.astype(np.int32))

    def number(self, cell: Cell) -> int:
        """The number of a cell."""
        return cell[0] * self.columns + cell[1]

    def distance(self, source: Cell, target: Cell) -> int | None:
        """Steps of a shortest way; None if there is none."""
        steps = {self.number(source): 0}
        queue = deque(steps)
        while queue:
            cell = queue.popleft()
            for following in self.after[cell].tolist():
                if following != NOWHERE and following not in steps:
                    steps[following] = steps[cell] + 1
                    queue.append(following)
        return steps.get(self.number(target))


def walks(board: Board, source: Cell, target: Cell, memory: int, tokens: Sequence[int], ends: Sequence[int]) -> Automaton:
    """Accepts the walks from source to target, ended there, that come back neither to the source nor to a remembered cell.

    A state is a cell and the `memory` cells before it, or the target, where only ends may follow.

    Raises:
        BudgetExceeded: more states than the limits allow.
    """
    moves, count = _explored(board, board.number(source), board.number(target), memory)
    goal, dead = count, count + 1
    moves = np.where(moves == GOAL, goal, np.where(moves == NOWHERE, dead, moves))
    table = np.full((count + 2, len(tokens) + 2), dead, dtype=np.int32)
    table[:count, : len(tokens)] = moves
    end, other = len(tokens), len(tokens) + 1
    table[goal, end] = goal
    accepting = np.zeros(count + 2, dtype=np.bool_)
    accepting[goal] = True
    column = {token: number for number, token in enumerate(tokens)} | dict.fromkeys(ends, end)
    return minimise(Automaton(table, accepting, column, other))


GOAL = -2


def _explored(board: Board, source: int, target: int, memory: int) -> tuple[Ints, int]:
    """Int32[states, directions], the next state, GOAL or NOWHERE, and how many states there are; state 0 is the start."""
    start = np.full((1, 1 + memory), NOWHERE, dtype=np.int32)
    start[0, 0] = source
    number = {start.tobytes(): 0}
    frontier, rows = start, []
    while len(frontier):
        check_progress(WHAT, REMEDY)
        cells = board.after[frontier[:, 0]]
        allowed = (cells != NOWHERE) & (cells != source)
        for lag in range(1, memory + 1):
            allowed &= cells != frontier[:, lag, None]
        moves = np.where(allowed & (cells == target), GOAL, NOWHERE).astype(np.int32)
        state, direction = np.nonzero(allowed & (cells != target))
        walk = np.column_stack([cells[state, direction], frontier[state, :memory]])
        walk = _forgetful(walk, board, source)
        known = len(number)
        numbers = [number.setdefault(row.tobytes(), len(number)) for row in walk]
        check_states(len(number), WHAT, REMEDY)
        moves[state, direction] = numbers
        rows.append(moves)
        _, first = np.unique(numbers, return_index=True)
        frontier = walk[first[np.array(numbers, dtype=np.int64)[first] >= known]]
    return np.concatenate(rows), len(number)


def _forgetful(walk: Ints, board: Board, source: int) -> Ints:
    """Walks without the remembered cells that they cannot come back to while they are remembered.

    A cell left j steps ago is remembered for the next memory + 1 − j steps, and a step covers a distance of 1.
    """
    memory = walk.shape[1] - 1
    for lag in range(1, memory + 1):
        far = board.apart[walk[:, 0], walk[:, lag]] > memory + 1 - lag  # NOWHERE reads the last cell, and stays NOWHERE
        walk[far | (walk[:, lag] == source), lag] = NOWHERE
    return walk
