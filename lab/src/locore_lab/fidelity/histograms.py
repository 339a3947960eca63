"""Weight histograms: one run of each sampler on one problem."""

from __future__ import annotations

import math
from typing import Any

from locore_lab.fidelity.runs import WEIGHTS
from locore_lab.fidelity.style import DARK, FONT, look, new_figure
from locore_lab.fidelity.summary import Row

COLUMNS = 4
HELP = "log weight − log p(α), nats. Independent draws are perfect at 0; sets of distinct sequences weigh them by probability."
FURTHEST = 20.0  # nats below log p(α): what is lighter is a number at the edge


def weights_figure(rows: list[Row]) -> Any:
    """A panel for each sampler, at the largest budget; rows of one problem.

    Independent draws are perfect if all their weights are p(α): one bar at 0. What stands far to the right makes an average
    unreliable. Samplers that return distinct sequences weigh them by their probability, and have no such bar.
    """
    budget = max(row["budget"] for row in rows if row["log_weights"])
    here = [row for row in rows if row["budget"] == budget and row["log_weights"]]
    lines = math.ceil(len(here) / COLUMNS)
    height = 0.85 + 0.75 * lines
    figure = new_figure(height)
    panels = list(figure.subplots(lines, COLUMNS, sharex=True, squeeze=False).flat)
    edges = {"left": 0.02, "right": 0.985, "bottom": 0.55 / height, "top": 1 - 0.5 / height}
    figure.subplots_adjust(**edges, hspace=0.5, wspace=0.12)
    lows, highs = zip(*(_range(row["log_weights"]) for row in here), strict=True)
    limits = max(min(lows), -FURTHEST) - 0.5, max(*highs, 0.0) + 0.5
    for panel, row in zip(panels[: len(here)], here, strict=True):
        _bars(panel, row, limits)
    for panel in panels[len(here) :]:
        panel.axis("off")
    title = f"{here[0]['problem']}: log-weights of one run, {budget:,} LM tokens"
    figure.text(0.008, 1 - 0.22 / height, title, fontsize=FONT + 2, fontweight="bold")
    figure.text(0.008, 0.1 / height, HELP, fontsize=FONT - 1, color=DARK)
    return figure


def _range(found: dict[str, Any]) -> tuple[float, float]:
    start, step = found["start"], found["step"]
    return start, start + step * len(found["counts"])


def _bars(panel: Any, row: Row, limits: tuple[float, float]) -> None:
    found, colour = row["log_weights"], look(row["sampler"]).colour
    lefts = [found["start"] + k * found["step"] for k in range(len(found["counts"]))]
    panel.axvline(0, color=DARK, lw=0.6, ls=":")
    panel.bar(lefts, found["counts"], width=max(found["step"], (limits[1] - limits[0]) / 60), align="edge", color=colour)
    panel.set(xlim=limits, yticks=[])
    panel.tick_params(labelsize=FONT - 1.5, labelbottom=True, pad=1)
    panel.grid(visible=False)
    panel.spines["left"].set_visible(False)
    panel.set_title(row["sampler"], fontsize=FONT - 0.5, color=colour, loc="left", pad=1)
    total = sum(found["counts"])
    outside = sum(count for left, count in zip(lefts, found["counts"], strict=True) if left < limits[0])
    notes = [f"{total} weights" if total > 1 else "1 weight"] if total < WEIGHTS else []  # of more, `WEIGHTS` are kept
    notes += [f"◂ {outside / total:.0%}"] if outside else []
    panel.text(0.01, 0.95, "\n".join(notes), transform=panel.transAxes, va="top", fontsize=FONT - 2, color=DARK)
