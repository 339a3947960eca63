"""Sudoku grids of any box size: what users write, the cells of each row, column and box, and what contradicts itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from locore.constraints.tokens import as_integer
from locore.errors import InvalidConstraint

SYMBOLS = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of the values 1, 2, …
BLANKS = ".0"


@dataclass(frozen=True)
class Shape:
    """Boxes of `rows` × `columns` cells in a grid whose side is their product."""

    rows: int
    columns: int

    @property
    def side(self) -> int:
        """Cells of a row, a column or a box, and the number of symbols."""
        return self.rows * self.columns

    @property
    def cells(self) -> int:
        """Cells of the grid."""
        return self.side**2

    @cached_property
    def units(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Rows, columns and boxes, each with its name; a cell is row · side + column."""
        n = self.side
        rows = [(f"row {r + 1}", tuple(r * n + c for c in range(n))) for r in range(n)]
        columns = [(f"column {c + 1}", tuple(r * n + c for r in range(n))) for c in range(n)]
        boxes = []
        for number in range(n):
            top, left = divmod(number, self.rows)
            inside = [(top * self.rows + i, left * self.columns + j) for i in range(self.rows) for j in range(self.columns)]
            boxes.append((f"box {number + 1}", tuple(r * n + c for r, c in inside)))
        return (*rows, *columns, *boxes)

    def place(self, cell: int) -> str:
        """A cell in words, counted from 1."""
        return f"row {cell // self.side + 1}, column {cell % self.side + 1}"


def shape_of(box: Any) -> Shape:
    """From a box size, 3 for boxes of 3 × 3, or (rows, columns)."""
    sizes = (box, box) if not isinstance(box, Sequence) or isinstance(box, str) else tuple(box)
    if len(sizes) != 2:
        raise InvalidConstraint(f"box of sudoku is a number, or (rows, columns) of a box, got {box!r}")
    rows, columns = (as_integer(size, "box of sudoku") for size in sizes)
    if rows < 1 or columns < 1 or rows * columns < 2:
        raise InvalidConstraint(f"box of sudoku must hold at least two cells, got {rows} × {columns}")
    return Shape(rows, columns)


def read_grid(givens: Any, shape: Shape) -> tuple[int, ...]:
    """The values of all cells, 0 for an open one.

    Args:
        givens: a string with a character for each cell, white space left out; a list of such rows; or a list of lists of
            numbers (0 or None: open).

    Raises:
        InvalidConstraint: another shape, an unknown symbol, or two equal symbols in a row, column or box.
    """
    if isinstance(givens, str):
        lines = givens.split()
        rows: list[Any] = lines if len(lines) > 1 else _cut("".join(lines), shape)
    elif isinstance(givens, Sequence):
        rows = list(givens)
        if rows and not any(isinstance(row, Sequence) for row in rows):
            rows = _cut(rows, shape)
    else:
        raise InvalidConstraint(f"sudoku needs its givens as a string or a list of rows, got {type(givens).__name__}")
    n = shape.side
    if len(rows) != n:
        raise InvalidConstraint(f"sudoku with boxes of {shape.rows} × {shape.columns} has {n} rows, got {len(rows)}")
    for number, row in enumerate(rows):
        if not isinstance(row, Sequence):
            raise InvalidConstraint(f"row {number + 1} of sudoku is no row: {row!r}")
        if len(row) != n:
            raise InvalidConstraint(f"row {number + 1} of sudoku has {len(row)} cells, not {n}: {row!r}")
    cells = tuple(
        _value(symbol, n, f"row {r + 1}, column {c + 1}") for r, row in enumerate(rows) for c, symbol in enumerate(row)
    )
    for clash in clashes(cells, shape):
        raise InvalidConstraint(f"the givens of sudoku contradict each other: {clash}; change one of them")
    return cells


def clashes(cells: Sequence[int], shape: Shape) -> Iterator[str]:
    """Every symbol that a row, column or box holds twice, in words."""
    for name, unit in shape.units:
        seen: dict[int, int] = {}
        for cell in unit:
            if cells[cell] and cells[cell] in seen:
                first = seen[cells[cell]]
                yield f"two {symbol_of(cells[cell])}s in {name} ({shape.place(first)} and {shape.place(cell)})"
            seen.setdefault(cells[cell], cell)


def symbol_of(value: int) -> str:
    """1–9, then letters; beyond them the number itself."""
    return SYMBOLS[value - 1] if value <= len(SYMBOLS) else str(value)


def written(cells: Sequence[int], shape: Shape) -> str | list[list[int]]:
    """The givens as `read_grid` reads them: a string where there are symbols enough."""
    if shape.side <= len(SYMBOLS):
        return "".join(symbol_of(value) if value else "." for value in cells)
    n = shape.side
    return [list(cells[r * n : (r + 1) * n]) for r in range(n)]


def _cut(cells: Any, shape: Shape) -> list[Any]:
    """One line of all cells as rows."""
    n = shape.side
    if len(cells) != shape.cells:
        raise InvalidConstraint(
            f"sudoku with boxes of {shape.rows} × {shape.columns} has {shape.cells} cells, got {len(cells)}; write every cell, "
            "`.` or 0 for an open one, or give box"
        )
    return [cells[r * n : (r + 1) * n] for r in range(n)]


def _value(symbol: Any, side: int, place: str) -> int:
    if symbol is None:
        return 0
    if isinstance(symbol, str):
        if len(symbol) == 1 and symbol in BLANKS:
            return 0
        value = SYMBOLS.find(symbol.upper()) + 1 if len(symbol) == 1 else 0
        if not value:
            raise InvalidConstraint(f"{place} of sudoku holds {symbol!r}; symbols are 1–9 and then letters, `.` or 0 is open")
    else:
        value = as_integer(symbol, f"{place} of sudoku")
    if not 0 <= value <= side:
        raise InvalidConstraint(f"{place} of sudoku holds {symbol!r}; this grid has the symbols 1 to {symbol_of(side)}")
    return value
