"""The edges of a grid, in an order that keeps the frontier of a path compiler small."""

from __future__ import annotations

from typing import Any

from locore.constraints.tokens import as_integer
from locore.errors import InvalidConstraint

Cell = tuple[int, int]  # row and column
Direction = tuple[int, int]

# By row offset, then by column offset; the number of a direction is its token id.
DIRECTIONS: dict[int, tuple[Direction, ...]] = {
    4: ((-1, 0), (0, -1), (0, 1), (1, 0)),
    8: ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)),
}


def grid(rows: int, columns: int, neighbours: int = 4) -> list[tuple[Cell, Cell]]:
    """The edges between neighbouring cells of a grid; cells are pairs (row, column), counted from 0.

    Cells come one after the other along the shorter side, each with its edges to cells that come later; so a cut through the
    list meets hardly more cells than the shorter side has. Position i of a `simple_path` speaks about edge i of this list.

    Args:
        neighbours: 4, or 8 with diagonals.

    Raises:
        InvalidConstraint: a size below 1, or another number of neighbours.
    """
    size = grid_size(rows, columns, "grid")
    directions = directions_of(neighbours, "grid")
    by_rows = size[1] <= size[0]
    cells = [(row, column) for row in range(size[0]) for column in range(size[1])]
    if not by_rows:
        cells.sort(key=lambda cell: cell[::-1])
    place = {cell: number for number, cell in enumerate(cells)}
    edges = []
    for row, column in cells:
        later = [(row + down, column + right) for down, right in directions]
        later = [cell for cell in later if place.get(cell, -1) > place[row, column]]
        edges += [((row, column), cell) for cell in sorted(later, key=place.__getitem__)]
    return edges


def grid_size(rows: Any, columns: Any, where: str) -> tuple[int, int]:
    """Numbers of rows and columns, at least 1 each."""
    size = as_integer(rows, f"rows of {where}"), as_integer(columns, f"columns of {where}")
    if min(size) < 1:
        raise InvalidConstraint(f"{where} got {size[0]} rows and {size[1]} columns; a grid has at least one of each")
    return size


def directions_of(neighbours: Any, where: str) -> tuple[Direction, ...]:
    """The steps to the neighbours of a cell, as (rows down, columns right)."""
    number = as_integer(neighbours, f"neighbours of {where}")
    if number not in DIRECTIONS:
        raise InvalidConstraint(f"neighbours of {where} must be 4 or 8, got {number}")
    return DIRECTIONS[number]
