"""Sudoku puzzles: the rules, a plain solver, and a generator of puzzles with exactly one solution.

The solver shares nothing with the circuits of Locore, so that each can check the other. A grid is a text: its cells row by row,
digits and `.` for an open cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from locore.kernel.errors import InvalidArgument, LocoreError

OPEN = "."
ATTEMPTS = 1000  # puzzles that are drawn for one with a single solution


@dataclass(frozen=True)
class Puzzle:
    """A puzzle and a solution of it."""

    givens: str  # the cells row by row, `.` where one is open
    solution: str  # the same cells, all filled
    solutions: int | None = None  # how many there are, if that is known

    @property
    def open(self) -> int:
        """How many cells are open."""
        return self.givens.count(OPEN)

    @property
    def box(self) -> int:
        """3 for the usual grid of 9 × 9, 2 for one of 4 × 4."""
        return box_of(len(self.givens))


def box_of(cells: int) -> int:
    """The box size of a grid of so many cells; `InvalidArgument` if there is no such grid."""
    box = {16: 2, 81: 3}.get(cells)
    if box is None:
        raise InvalidArgument(f"a grid has 81 cells (9 × 9) or 16 (4 × 4), not {cells}.")
    return box


@cache
def units(box: int) -> tuple[tuple[int, ...], ...]:
    """Rows, columns and boxes, as cells."""
    side = box * box
    cells = range(side * side)
    groups = [[c // side for c in cells], [c % side for c in cells], [_box_number(c, box) for c in cells]]
    return tuple(tuple(c for c in cells if group[c] == k) for group in groups for k in range(side))


@cache
def _peers(box: int) -> tuple[tuple[int, ...], ...]:
    """For each cell the cells that share a unit with it."""
    return tuple(tuple(sorted({c for unit in units(box) if cell in unit for c in unit} - {cell})) for cell in range(box**4))


def _box_number(cell: int, box: int) -> int:
    row, column = divmod(cell, box * box)
    return row // box * box + column // box


def is_solved(grid: str, box: int) -> bool:
    """Is this a filled grid in which every row, column and box holds each digit once?"""
    digits = {str(d) for d in range(1, box * box + 1)}
    return len(grid) == box**4 and all({grid[c] for c in unit} == digits for unit in units(box))


def keeps_givens(grid: str, givens: str) -> bool:
    """Does a filled grid agree with the givens?"""
    return len(grid) == len(givens) and all(g in (OPEN, c) for g, c in zip(givens, grid, strict=True))


def contradiction(givens: str, box: int) -> str | None:
    """The first digit that stands twice in a row, column or box, in words; None if there is none."""
    names = ("row", "column", "box")
    for number, unit in enumerate(units(box)):
        seen = [givens[c] for c in unit if givens[c] != OPEN]
        twice = next((d for d in seen if seen.count(d) > 1), None)
        if twice:
            return f"two {twice}s in {names[number // box**2]} {number % box**2 + 1}"
    return None


def solutions(givens: str, rng: np.random.Generator | None = None) -> Iterator[str]:
    """All solutions, by search on a cell with the fewest digits left; with `rng`, in random order.

    Made for grids with few open cells; the hardest puzzles of 9 × 9 take seconds.
    """
    box = box_of(len(givens))
    if contradiction(givens, box):
        return
    everything = (1 << box * box) - 1
    cells = [0 if c == OPEN else 1 << int(c) - 1 for c in givens]
    left = {c: everything & ~_used(cells, c, box) for c, bit in enumerate(cells) if not bit}
    yield from _search(cells, left, box, rng)


def _used(cells: list[int], cell: int, box: int) -> int:
    used = 0
    for peer in _peers(box)[cell]:
        used |= cells[peer]
    return used


def _search(cells: list[int], left: dict[int, int], box: int, rng: np.random.Generator | None) -> Iterator[str]:
    """`cells`: a bit for each digit, 0 if open; `left`: digits that may still stand in each open cell."""
    if not left:
        yield "".join(str(bit.bit_length()) for bit in cells)
        return
    cell = min(left, key=lambda c: left[c].bit_count())
    bits = [1 << d for d in range(box * box) if left[cell] >> d & 1]
    if rng is not None:
        rng.shuffle(bits)
    for bit in bits:
        rest = {c: digits & ~bit if c in _peer_set(box)[cell] else digits for c, digits in left.items() if c != cell}
        if all(rest.values()):
            cells[cell] = bit
            yield from _search(cells, rest, box, rng)
    cells[cell] = 0


@cache
def _peer_set(box: int) -> tuple[frozenset[int], ...]:
    return tuple(frozenset(peers) for peers in _peers(box))


def count_solutions(givens: str, at_most: int) -> int:
    """How many solutions there are, counted up to `at_most`."""
    return sum(1 for _, _ in zip(range(at_most), solutions(givens), strict=False))


def random_grid(rng: np.random.Generator, box: int = 3) -> str:
    """A filled grid by randomised search from an empty one, whose first row is a random permutation.

    Every grid can come out; not all are equally probable.
    """
    first = "".join(str(d) for d in 1 + rng.permutation(box * box))
    return next(solutions(first + OPEN * (box**4 - box * box), rng))


def generate_puzzles(
    num: int, blanks: int, rng: np.random.Generator, box: int = 3, unlike: frozenset[str] = frozenset(), distinct: bool = True
) -> list[Puzzle]:
    """Puzzles with so many open cells, drawn uniformly, and exactly one solution; every one from a grid of its own."""
    if not 1 <= blanks <= box**4:
        raise InvalidArgument(f"a grid of {box**4} cells cannot have {blanks} open ones.")
    found: list[Puzzle] = []
    taken = set(unlike)
    for _ in range(ATTEMPTS * num):
        grid = random_grid(rng, box)
        shape = pattern(grid) if distinct or unlike else ""
        if shape in taken:
            continue
        puzzle = opened(grid, blanks, rng)
        if count_solutions(puzzle.givens, 2) == 1:
            found.append(replace(puzzle, solutions=1))
            taken |= {shape} if distinct else set()
        if len(found) == num:
            return found
    raise LocoreError(f"only {len(found)} of {num} puzzles with {blanks} open cells were found; ask for fewer, or fewer cells.")


def opened(grid: str, blanks: int, rng: np.random.Generator) -> Puzzle:
    """The puzzle that a grid becomes when so many cells, drawn uniformly, are opened; it may have several solutions."""
    chosen = set(rng.choice(len(grid), blanks, replace=False).tolist())
    return Puzzle("".join(OPEN if c in chosen else digit for c, digit in enumerate(grid)), grid)


def turned(cells: str, symmetry: int) -> str:
    """A grid turned and mirrored, in one of 8 ways."""
    side = box_of(len(cells)) ** 2
    order = np.arange(len(cells)).reshape(side, side)
    order = np.rot90(order.T if symmetry >= 4 else order, symmetry % 4)
    return "".join(cells[c] for c in order.ravel())


def relabelled(cells: str, digits: str) -> str:
    """With digit k replaced by `digits[k − 1]`."""
    return cells.translate(str.maketrans("123456789"[: len(digits)], digits))


def pattern(grid: str) -> str:
    """What a grid shares with all that differ from it by renaming digits, turning and mirroring only."""
    return min(_named_in_order(turned(grid, symmetry)) for symmetry in range(8))


def _named_in_order(grid: str) -> str:
    names: dict[str, str] = {}
    return "".join(names.setdefault(digit, str(len(names) + 1)) for digit in grid)
