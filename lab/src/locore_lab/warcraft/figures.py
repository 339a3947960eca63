"""Pictures of maps with paths on them (matplotlib, extra `plots`)."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from locore_lab import shared
from locore_lab.warcraft.dataset import Maps
from locore_lab.warcraft.grading import grade
from locore_lab.warcraft.paths import Cell, path_cost
from locore_lab.warcraft.terrain import TILE

COLOUR = {"exact": "#ffffff", "consistent": "#f0e442", "neither": "#ff5fa2"}
CELL_INCHES, MAP_INCHES = 0.17, 2.2  # a cell of a large map; a small one, below which its words would not fit


def draw_paths(maps: Maps, rows: Mapping[str, Tensor], path: Path) -> Path:
    """Maps side by side: the label in the first row, and one sequence for each map in every other row.

    A path is white if no other is cheaper, yellow if it is valid but dear, and pink if it is not valid; it stops at the edge
    of the map. Below it stand its cost, or what is wrong with it.

    Args:
        maps: a few.
        rows: name of a row to tokens Long[num, length], such as {"model alone": ..., "constrained": ...}.
        path: file to write, its ending says which kind.
    """
    pyplot = shared.pyplot()
    labels = [("cheapest path (label)", maps.paths, ["exact"] * len(maps))]
    every = labels + [(name, *_graded(maps, tokens)) for name, tokens in rows.items()]
    cell = max(CELL_INCHES, MAP_INCHES / (maps.width + 1))
    size = (len(maps) * (maps.width + 1) * cell, len(every) * (maps.height + 2.5) * cell)
    figure, axes = pyplot.subplots(len(every), len(maps), squeeze=False, figsize=size, layout="constrained")
    for (name, paths, marks), row in zip(every, axes, strict=True):
        row[0].set_ylabel(textwrap.fill(name, 20), fontsize=8)
        for index, axis in enumerate(row):
            _draw(axis, maps, index, paths[index], marks[index])
    figure.savefig(path, dpi=160)
    pyplot.close(figure)
    return path


def _graded(maps: Maps, tokens: Tensor) -> tuple[Sequence[tuple[Cell, ...]], list[str]]:
    """Cells of sequences, and which mark each deserves."""
    grades = grade(tokens, maps)
    paths = [maps.encoding.trace(sequence, maps.height, maps.width) for sequence in tokens.tolist()]
    pairs = zip(grades.exact.tolist(), grades.consistent.tolist(), strict=True)
    return paths, ["exact" if exact else "consistent" if consistent else "neither" for exact, consistent in pairs]


def _draw(axis: Any, maps: Maps, index: int, cells: Sequence[Cell], mark: str) -> None:
    """One map with one path and what is to be said of it."""
    axis.imshow(maps.images[index], interpolation="nearest")
    inside = [cell for cell in cells if 0 <= cell[0] < maps.height and 0 <= cell[1] < maps.width]
    left_at = next((number for number, cell in enumerate(cells) if cell not in set(inside)), len(cells))
    shown = cells[:left_at]
    rows, columns = zip(*[(TILE * (row + 0.5) - 0.5, TILE * (column + 0.5) - 0.5) for row, column in shown], strict=True)
    axis.plot(columns, rows, color="black", linewidth=3.4, solid_capstyle="round")
    axis.plot(columns, rows, color=COLOUR[mark], linewidth=1.8, solid_capstyle="round")
    axis.plot(columns[-1:], rows[-1:], "o", color=COLOUR[mark], markeredgecolor="black", markersize=4)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_xlabel(_verdict(maps, index, cells, left_at, mark), fontsize=7)


def _verdict(maps: Maps, index: int, cells: Sequence[Cell], left_at: int, mark: str) -> str:
    """Cost of a valid path, or the first thing that is wrong."""
    if mark != "neither":
        least = path_cost(maps.weights[index], maps.paths[index])
        cost = path_cost(maps.weights[index], cells)
        return f"cost {cost:.1f}" if mark == "exact" else f"cost {cost:.1f}, not {least:.1f}"
    if left_at < len(cells):
        return "leaves the map"
    if len(set(cells)) < len(cells):
        return "crosses itself"
    return "does not arrive"
