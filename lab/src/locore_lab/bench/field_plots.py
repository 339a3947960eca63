"""The picture of docs/extraction.md: are fields as often right as they are said to be, and what does leaving some out buy?

Drawn from what `locore bench records` and `locore bench letters` wrote; a panel of letters is there where their results are.
Calibration is of the fields that Locore knows, in bins that hold equally many; of what is kept all fields count, and those that
Locore calls unknown go first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from locore_lab.bench.greedy_exact import LOOKS as THEMES
from locore_lab.bench.greedy_exact import Look
from locore_lab.bench.records import is_right, known_fields, probability
from locore_lab.harness import Row
from locore_lab.shared import REPOSITORY, RESULTS

FIGURE = "docs/figures/fields_{theme}.svg"
DRAWN = {  # what is drawn: its name, line and marker, and colours on light and on dark
    "locore": ("Locore", "o-", {"light": "#0969da", "dark": "#4493f8"}),
    "tokens": ("product of token probabilities", "s--", {"light": "#d4570a", "dark": "#f0883e"}),
    "agreement": ("share of eight masked texts", "^:", {"light": "#59636e", "dark": "#9198a1"}),
    "asked": ("asking the model", "D-.", {"light": "#8250df", "dark": "#ab7df8"}),
}
SETS = {"records": "Orders, a model of 2.3 million parameters", "letters": "Letters, SmolLM2"}
IN_A_BIN, MOST_BINS, FEWEST_KEPT = 25, 8, 10

Pairs = Sequence[tuple[float, float]]


def bins(pairs: Pairs) -> list[tuple[float, float]]:
    """Mean of what is said and mean of what is true, in bins of about equally many; equal values go together."""
    least = len(pairs) / max(1, min(MOST_BINS, len(pairs) // IN_A_BIN))
    found: list[list[tuple[float, float]]] = [[]]
    for _, group in groupby(sorted(pairs), key=lambda pair: pair[0]):
        if len(found[-1]) >= least:
            found.append([])
        found[-1] += group
    if len(found) > 1 and len(found[-1]) < least / 2:
        found[-2:] = [found[-2] + found[-1]]
    return [(fmean(said for said, _ in part), fmean(true for _, true in part)) for part in found if part]


def kept(pairs: Pairs, fewest: int = FEWEST_KEPT) -> list[tuple[float, float]]:
    """The share that is kept and how much of it is right, at each level that keeps so many; equal values go together."""
    found, number, right = [], 0, 0.0
    for _, group in groupby(sorted(pairs, reverse=True), key=lambda pair: pair[0]):
        trues = [true for _, true in group]
        number, right = number + len(trues), right + sum(trues)
        if number >= min(fewest, len(pairs)):
            found.append((number / len(pairs), right / number))
    return found


def curves(rows: Sequence[Row]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """By panel and method; against the model's posterior only where it is known, of values that Locore gives too."""
    said, known = known_fields(rows)
    methods = [name for name in DRAWN if name in said[0]]

    def pairs(fields: Sequence[Row], name: str) -> list[tuple[float, float]]:
        return [(probability(field, name), float(is_right(field, name))) for field in fields]

    def beside(name: str) -> list[tuple[float, float]]:
        return [(field[name][1], field["model"]) for field in known if field[name][0] == field["locore"][0]]

    return {
        **({"posterior": {name: bins(beside(name)) for name in methods}} if "model" in said[0] else {}),
        "outcomes": {name: bins(pairs(known, name)) for name in methods},
        "kept": {name: kept(pairs(said, name)) for name in methods},
    }


LABELS = {
    "posterior": ("said", "the model's posterior"),
    "outcomes": ("said", "share that is right"),
    "kept": ("share of the fields kept", "share of these that is right"),
}


def panel(axes: Axes, what: str, lines: dict[str, list[tuple[float, float]]], theme: str) -> None:
    """One of the three."""
    look = THEMES[theme]
    if what != "kept":
        axes.plot([0, 1], [0, 1], color=look.faint, linewidth=1)
    for name, points in lines.items():
        label, style, colours = DRAWN[name]
        drawn = style if what != "kept" else style[1:]
        axes.plot(*zip(*points, strict=True), drawn, color=colours[theme], label=label, linewidth=1.5, markersize=4)
    axes.set_xlabel(LABELS[what][0], color=look.text)
    axes.set_ylabel(LABELS[what][1], color=look.text)
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0 if what != "kept" else None, 1.02)
    look.dress(axes)


def draw(found: dict[str, dict[str, Any]], theme: str) -> Path:
    """A row of panels for each set of texts."""
    look: Look = THEMES[theme]
    with look.drawing(9):
        figure = Figure(figsize=(9, 0.5 + 3.3 * len(found)), layout="constrained")
        grid: Any = figure.subfigures(len(found) + 1, 1, squeeze=False, height_ratios=[0.35, *[3.3] * len(found)])[:, 0]
        every: dict[str, Any] = {}
        for part, (name, results) in zip(grid[1:], found.items(), strict=True):
            lines = curves(results["rows"])
            number = sum(len(row["said"]) for row in results["rows"])
            part.set_facecolor("none")
            part.suptitle(f"{SETS[name]}: {number} fields", fontsize=10, weight="bold", x=0.01, ha="left")
            for axes, (what, panels) in zip(part.subplots(1, len(lines)), lines.items(), strict=True):
                axes.set_facecolor("none")
                panel(axes, what, panels, theme)
                every |= {label: line for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        grid[0].set_facecolor("none")
        grid[0].legend(every.values(), every, loc="center left", ncols=len(every), frameon=False, labelcolor=look.text)
        path = REPOSITORY / FIGURE.format(theme=theme)
        figure.savefig(path, metadata={"Date": None}, transparent=True)
    return path


def run() -> None:
    """Draw the picture of docs/extraction.md from the results of `bench records`, and of `bench letters` if there are any."""
    files = {name: RESULTS / f"{name}.json" for name in SETS}
    found = {name: json.loads(path.read_text()) for name, path in files.items() if path.is_file()}
    for theme in THEMES:
        print(draw(found, theme))
