"""Pictures of grids with the model's marginals, before and after conditioning (matplotlib, extra `plots`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from locore_lab import shared
from locore_lab.sudoku.puzzles import OPEN, Puzzle

GIVEN, RIGHT, WRONG = "#222222", "#0072b2", "#d55e00"
FAINTEST, ALONE = 0.01, 0.99  # less probable digits are not drawn; one that is more probable stands for the cell
CELL_INCHES = 0.42


@dataclass(frozen=True, eq=False)
class Panel:
    """Marginals of one puzzle: f64[cells, digits], each cell's sum at most 1 (the rest is for what is no digit)."""

    title: str
    puzzle: Puzzle
    marginals: Tensor


def draw_marginals(rows: Sequence[Sequence[Panel]], path: Path) -> Path:
    """One grid for each panel: given cells in black, in each open cell every digit as large as it is probable.

    A digit that some solution of the panel's last column has in that cell is blue, any other orange.

    Args:
        rows: of panels, all equally long; those of a row show one puzzle, the last one after conditioning.
        path: file to write, its ending says which kind.
    """
    pyplot = shared.pyplot()
    side = max(panel.puzzle.box for row in rows for panel in row) ** 2
    size = (len(rows[0]) * (side + 1) * CELL_INCHES, len(rows) * (side + 1.8) * CELL_INCHES)
    figure, axes = pyplot.subplots(len(rows), len(rows[0]), squeeze=False, figsize=size, layout="constrained")
    for row, line in zip(rows, axes, strict=True):
        possible = row[-1].marginals > 0
        for panel, axis in zip(row, line, strict=True):
            _draw(axis, panel, possible)
    figure.supxlabel("size: probability; blue: some solution has it, orange: none does", fontsize=8)
    figure.savefig(path, dpi=160)
    pyplot.close(figure)
    return path


def _draw(axis: Any, panel: Panel, possible: Tensor) -> None:
    box = panel.puzzle.box
    side = box * box
    axis.set(xlim=(0, side), ylim=(side, 0), aspect="equal", xticks=[], yticks=[])
    axis.set_title(panel.title, fontsize=9)
    for line in range(side + 1):
        width = 1.6 if line % box == 0 else 0.4
        axis.plot([line, line], [0, side], color=GIVEN, linewidth=width, clip_on=False)
        axis.plot([0, side], [line, line], color=GIVEN, linewidth=width, clip_on=False)
    for cell, given in enumerate(panel.puzzle.givens):
        row, column = divmod(cell, side)
        if given != OPEN:
            axis.text(column + 0.5, row + 0.53, given, ha="center", va="center", fontsize=11, color=GIVEN)
            continue
        axis.fill([column, column + 1, column + 1, column], [row, row, row + 1, row + 1], color="#f2f2f2", linewidth=0)
        for digit in range(side):
            probability = float(panel.marginals[cell, digit])
            if probability >= FAINTEST:
                x, y = _place(column, row, digit, box, probability)
                colour = RIGHT if possible[cell, digit] else WRONG
                axis.text(x, y, str(digit + 1), ha="center", va="center", fontsize=_size(probability), color=colour)


def _place(column: int, row: int, digit: int, box: int, probability: float) -> tuple[float, float]:
    """Each digit has a place of its own in the cell, as pencil marks do; one that is alone there stands in the middle."""
    if probability >= ALONE:
        return column + 0.5, row + 0.53
    down, right = divmod(digit, box)
    return column + 0.08 + 0.84 * (right + 0.5) / box, row + 0.11 + 0.84 * (down + 0.5) / box


def _size(probability: float) -> float:
    """In points; the area goes with the probability."""
    return 11.0 if probability >= ALONE else 2.5 + 7.5 * math.sqrt(probability)
