"""The picture of docs/lab/tasks.md: how far estimates of p(α) are from the truth, by the CPU seconds that a call takes.

Drawn from what `locore bench tasks` wrote, of samplers that were measured at several budgets: geometric means.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from locore_lab.bench.greedy_exact import LOOKS as THEMES
from locore_lab.fidelity.tables import NEGLIGIBLE, Row, is_peer, mean_ratio
from locore_lab.shared import REPOSITORY, RESULTS

FIGURE = "docs/figures/task_seconds_{theme}.svg"
COLOURS = {  # on light and on dark; peers are grey
    "auto": {"light": "#0969da", "dark": "#4493f8"},
    "twisted, learned": {"light": "#8250df", "dark": "#ab7df8"},
    "swor": {"light": "#d4570a", "dark": "#f0883e"},
    "lcr": {"light": "#1a7f37", "dark": "#3fb950"},
}
PEERS = {"light": "#59636e", "dark": "#9198a1"}
WIDE = 0.95  # of the problems: samplers that were measured on so many are compared, on those that all of them have
APART = 0.055  # of the height of the picture: names that are nearer would stand in each other

Points = list[tuple[float, float]]


def curves(rows: Sequence[Row]) -> tuple[int, dict[str, Points]]:
    """How many problems all of these were measured on; by sampler, CPU seconds and RMSE of log Ẑ there, at each budget."""
    cells: dict[tuple[str, int], dict[str, Row]] = {}
    for row in rows:
        if row["rmse"] is not None and (row["sampler"] in COLOURS or is_peer(row["sampler"])):
            cells.setdefault((row["sampler"], row["budget"]), {})[row["problem"]] = row
    most = max(map(len, cells.values()))
    wide = {cell: here for cell, here in sorted(cells.items()) if len(here) >= WIDE * most}
    shared = set.intersection(*(set(here) for here in wide.values()))
    found: dict[str, Points] = {}
    for (sampler, _), here in wide.items():
        means = ([max(here[problem][what], NEGLIGIBLE) for problem in shared] for what in ("cpu_seconds", "rmse"))
        seconds, error = (mean_ratio(values) or 0.0 for values in means)
        found.setdefault(sampler, []).append((seconds, error))
    return len(shared), {sampler: points for sampler, points in found.items() if len(points) > 1}


def spread(heights: dict[str, float]) -> dict[str, float]:
    """The same with names so far apart that none stands in another, pushed downwards from the highest."""
    placed: dict[str, float] = {}
    for name, height in sorted(heights.items(), key=lambda item: -item[1]):
        placed[name] = min(height, *(other - APART for other in placed.values())) if placed else height
    return placed


def draw(problems: int, lines: dict[str, Points], theme: str) -> Path:
    """One panel, with the names at the right."""
    look = THEMES[theme]
    with look.drawing(9):
        figure = Figure(figsize=(8, 4.2))
        axes = figure.subplots()
        figure.subplots_adjust(left=0.08, right=0.74, bottom=0.12, top=0.9)
        axes.set(xscale="log", yscale="log", xlabel="CPU seconds of a call", ylabel="RMSE of log p(α), nats")
        for name, points in lines.items():
            colour = COLOURS.get(name, PEERS)[theme]
            axes.plot(*zip(*points, strict=True), "o-" if name in COLOURS else "s--", color=colour, linewidth=1.5, markersize=4)
        for axis, places in ((axes.xaxis, (2, 3, 5, 10, 20)), (axes.yaxis, (0.1, 0.2, 0.5, 1, 2))):
            axis.set_major_locator(FixedLocator(places))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.set_facecolor("none")
        axes.xaxis.label.set_color(look.text)
        axes.yaxis.label.set_color(look.text)
        look.dress(axes)
        figure.draw_without_rendering()  # now it is known which part of the plane is shown
        into = axes.transAxes.inverted()
        ends = {name: float(into.transform(axes.transData.transform(points[-1]))[1]) for name, points in lines.items()}
        for name, height in spread(ends).items():
            colour = COLOURS.get(name, PEERS)[theme]
            axes.annotate(
                name, lines[name][-1], (1.03, height), textcoords="axes fraction", color=colour, va="center",
                arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 2, "shrinkB": 3},
            )  # fmt: skip
        figure.text(0.01, 0.95, f"Error by time, geometric mean of {problems} problems; lower left is better", weight="bold")
        path = REPOSITORY / FIGURE.format(theme=theme)
        figure.savefig(path, metadata={"Date": None}, transparent=True)
    return path


def run() -> None:
    """Draw the picture of docs/lab/tasks.md from the committed results of `bench tasks`."""
    rows: list[Row] = json.loads((RESULTS / "tasks" / "results.json").read_text())["rows"]
    for theme in THEMES:
        print(draw(*curves(rows), theme))
