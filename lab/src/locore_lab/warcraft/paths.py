"""Minimum-cost paths on a grid with weights on its vertices, and paths as sequences of moves.

A path goes from the upper left to the lower right cell, to one of 8 neighbours (or 4) at a time; its cost is the sum of the
weights of its cells, both ends included. A move is one of 8 directions; the token `STOP` after the last move is the end of
sequence.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from locore.kernel.errors import InvalidArgument

Cell = tuple[int, int]

# Row and column offsets of the moves, ordered by row, then by column.
MOVES: tuple[Cell, ...] = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))
MOVE_NAMES = ("NW", "N", "NE", "W", "E", "SW", "S", "SE")
STRAIGHT = tuple(step for step in MOVES if 0 in step)  # to the 4 neighbours that share a side
STOP = len(MOVES)
VOCAB_SIZE = STOP + 1

# Costs are added as integers, hundredths, so that equal costs are equal and not equal up to rounding: three cells of grass
# cost what two of earth cost, also in a file of float16, which holds 0.8 as 0.7998 and 9.2 as 9.2031.
_PER_UNIT = 100


def integer_weights(weights: NDArray[np.floating]) -> NDArray[np.int64]:
    """Weights in hundredths, to which they are rounded, checked.

    Args:
        weights: Float[height, width].
    """
    grid = np.asarray(weights, dtype=np.float64)
    if grid.ndim != 2 or min(grid.shape) < 2:
        raise InvalidArgument(f"Vertex weights have the shape {grid.shape}; give a grid of at least 2 × 2.")
    bad = np.argwhere(~np.isfinite(grid) | (grid < 0))
    if len(bad):
        row, column = bad[0]
        raise InvalidArgument(
            f"The weight of cell ({row}, {column}) is {grid[row, column]}; costs are finite and not negative."
        )
    return np.rint(grid * _PER_UNIT).astype(np.int64)


def shortest_path(weights: NDArray[np.floating], steps: Sequence[Cell] = MOVES) -> tuple[Cell, ...]:
    """One path of minimum cost, chosen among equals as the original labels are (Vlastelica et al. 2020).

    Dijkstra's algorithm with a heap on (cost, (row, column)); neighbours in order of row, then column; a predecessor is
    replaced only by a strictly cheaper one.

    Args:
        weights: Float[height, width].
        steps: offsets of a cell's neighbours, `MOVES` or `STRAIGHT`.

    Returns:
        The cells from the upper left to the lower right one.
    """
    grid = integer_weights(weights)
    height, width = grid.shape
    cost = grid.tolist()
    start, goal = (0, 0), (height - 1, width - 1)
    best: dict[Cell, int] = {start: cost[0][0]}
    came_from: dict[Cell, Cell] = {}
    heap = [(best[start], start)]
    done: set[Cell] = set()
    while heap:
        reached, cell = heapq.heappop(heap)
        if cell in done:
            continue
        if cell == goal:
            break
        done.add(cell)
        for row_step, column_step in steps:
            row, column = cell[0] + row_step, cell[1] + column_step
            if 0 <= row < height and 0 <= column < width and (row, column) not in done:
                total = reached + cost[row][column]
                if total < best.get((row, column), total + 1):
                    best[row, column] = total
                    came_from[row, column] = cell
                    heapq.heappush(heap, (total, (row, column)))
    path = [goal]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return tuple(reversed(path))


def path_cost(weights: NDArray[np.floating], cells: Iterable[Cell]) -> float:
    """Sum of the weights of these cells, each rounded to hundredths."""
    grid = integer_weights(weights)
    return sum(int(grid[cell]) for cell in cells) / _PER_UNIT


def is_minimum_cost(weights: NDArray[np.floating], cells: Sequence[Cell], steps: Sequence[Cell] = MOVES) -> bool:
    """Whether a valid path (see `is_valid_path`) costs no more than any other that goes by these steps."""
    grid = integer_weights(weights)
    if not is_valid_path(cells, *grid.shape):
        return False
    least = sum(int(grid[cell]) for cell in shortest_path(weights, steps))
    return sum(int(grid[cell]) for cell in cells) == least


def is_valid_path(cells: Sequence[Cell], height: int, width: int) -> bool:
    """Whether these cells are a simple path from the upper left to the lower right cell of a grid."""
    if not cells or cells[0] != (0, 0) or cells[-1] != (height - 1, width - 1) or len(set(cells)) < len(cells):
        return False
    inside = all(0 <= row < height and 0 <= column < width for row, column in cells)
    return inside and all((b[0] - a[0], b[1] - a[1]) in MOVES for a, b in pairwise(cells))


def cells_of(tokens: Iterable[int]) -> tuple[Cell, ...]:
    """Cells that moves visit from the upper left one; they may leave any grid.

    Args:
        tokens: moves up to the first `STOP` or up to the end; what follows is not read.
    """
    cells = [(0, 0)]
    for token in tokens:
        if token == STOP:
            break
        row, column = MOVES[token]
        cells.append((cells[-1][0] + row, cells[-1][1] + column))
    return tuple(cells)


def moves_of(cells: Sequence[Cell], length: int | None = None) -> list[int]:
    """Tokens of a path: its moves and `STOP`, padded with `STOP` to `length` if that is given."""
    tokens = []
    for a, b in pairwise(cells):
        step = (b[0] - a[0], b[1] - a[1])
        if step not in MOVES:
            raise InvalidArgument(f"The cells {a} and {b} follow each other in a path but are no neighbours.")
        tokens.append(MOVES.index(step))
    tokens.append(STOP)
    if length is not None and len(tokens) > length:
        raise InvalidArgument(f"A path of {len(tokens) - 1} moves and its end need {len(tokens)} tokens, not {length}.")
    return tokens + [STOP] * (0 if length is None else length - len(tokens))


def mask_of(cells: Iterable[Cell], height: int, width: int) -> NDArray[np.uint8]:
    """uint8[height, width]: 1 on the path, as labels are stored."""
    mask = np.zeros((height, width), dtype=np.uint8)
    for cell in cells:
        mask[cell] = 1
    return mask


def cells_of_mask(mask: NDArray[np.generic], steps: Sequence[Cell] = MOVES) -> tuple[Cell, ...]:
    """The one path whose cells are those of a 0/1 matrix.

    A path of minimum cost with positive weights has no short cuts, so each of its cells touches its predecessor and its
    successor only, and the order follows from the set.

    Args:
        mask: [height, width] of 0 and 1.
        steps: offsets of a cell's neighbours, `MOVES` or `STRAIGHT`.
    """
    grid = np.asarray(mask)
    if grid.ndim != 2 or not np.isin(grid, (0, 1)).all():
        raise InvalidArgument(f"A path is a matrix of 0 and 1, not {grid.dtype} of the shape {grid.shape} with other numbers.")
    on_path = {(int(row), int(column)) for row, column in np.argwhere(grid)}
    height, width = grid.shape
    path: list[Cell] = [(0, 0)]
    while True:
        row, column = path[-1]
        around = {(row + down, column + right) for down, right in steps} & on_path
        onward = around - set(path[-2:])
        if len(onward) != 1:
            break
        path.append(onward.pop())
        if len(path) > len(on_path):
            break
    if set(path) != on_path or not is_valid_path(path, height, width):
        raise InvalidArgument("The matrix is no single path without short cuts from the upper left to the lower right cell.")
    return tuple(path)
