"""Pictures of the results (matplotlib, extra `plots`): distance from the truth against price, and weights."""

from __future__ import annotations

import importlib
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

from locore_lab.fidelity.style import DARK, FONT, is_variant, look, new_figure, save, settings, spread
from locore_lab.fidelity.summary import AXES, CLOCK, Curve, Point, Row, curves, level, mean_ratio, measured

LOWEST = {"tv": 1e-4, "rmse": 1e-4}  # smaller values stand on the lower edge
NAMES = {"tv": "total variation", "rmse": "RMSE of log Ẑ (nats)"}
LABEL_GAP = 1.1 * FONT  # points between two labels
HELP = "Lower is better. Colours: ours; grey, dashed: peers."
OPEN = {
    "tv": " Open marks: not beyond twice their noise. Shaded: noise of the best.",
    "rmse": " Open marks: below 4 standard errors.",
}


def plot(rows: list[Row], folder: Path) -> list[Path]:
    """Write, for every problem, NAME.svg (distance against price) and NAME-weights.svg; and overview.svg.

    Returns:
        The files.
    """
    from locore_lab.fidelity.histograms import weights_figure

    written = []
    with settings():
        for problem in dict.fromkeys(row["problem"] for row in rows):
            here = [row for row in rows if row["problem"] == problem]
            if any(row[measured(row)] is not None for row in here):
                written.append(save(problem_figure(here), folder / f"{problem}.svg"))
            if any(row["log_weights"] for row in here):
                written.append(save(weights_figure(here), folder / f"{problem}-weights.svg"))
        if any(row["tv"] is not None for row in rows):
            written.append(save(overview_figure(rows), folder / "overview.svg"))
        timed = [row for row in rows if row["rmse"] is not None and all(row.get(axis) for axis in CLOCK)]
        if timed:
            written.append(save(clock_figure(timed), folder / "seconds.svg"))
    return written


def problem_figure(rows: list[Row]) -> Any:
    """All samplers on one problem, on both axes."""
    problem, measure = rows[0]["problem"], measured(rows[0])
    axes = {axis: curves(rows, measure, axis).get(problem, {}) for axis in AXES}
    most = max(len(here) for here in axes.values())
    title = f"{problem}: {NAMES[measure]}"
    return _panels(axes, measure, title, max(4.2, 1.2 + most * LABEL_GAP / 72), OPEN[measure])


def overview_figure(rows: list[Row]) -> Any:
    """Geometric means over all problems with a TV, of samplers that were measured on all of them; no variants."""
    problems = {row["problem"] for row in rows if row["tv"] is not None}
    title = f"Total variation, geometric mean over {len(problems)} problems with a known truth"
    return _panels(_means(rows, "tv", AXES, len(problems)), "tv", title, 4.2, "")


def clock_figure(rows: list[Row]) -> Any:
    """The evidence against seconds and against passes, of samplers that were measured on all problems."""
    problems = {row["problem"] for row in rows}
    title = f"RMSE of log Ẑ (nats), geometric mean over {len(problems)} problems"
    return _panels(_means(rows, "rmse", CLOCK, len(problems)), "rmse", title, 4.2, "")


def _means(rows: list[Row], measure: str, along: Collection[str], problems: int) -> dict[str, dict[str, Curve]]:
    """Axis -> sampler -> geometric means of all problems."""
    cells: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        if row[measure] is not None and not is_variant(row["sampler"]):
            cells.setdefault((row["sampler"], row["budget"]), []).append(row)
    axes: dict[str, dict[str, Curve]] = {axis: {} for axis in along}
    for (sampler, _), here in sorted(cells.items()):
        if len(here) < problems:
            continue
        value = mean_ratio([level(Point(1, row[measure], row["noise"] or 0.0), measure) for row in here]) or 0.0
        for axis in along:
            least = 0.01 if axis == "cpu_seconds" else 1.0
            cost = mean_ratio([max(row[axis], least) for row in here]) or 1.0
            axes[axis].setdefault(sampler, []).append(Point(cost, value, 0.0))
    return axes


def _noise_floor(here: dict[str, Curve]) -> list[tuple[float, float]]:
    """At each cost where the best of all samplers was measured, its noise: below it nothing can be told from perfect."""
    points = [point for curve in here.values() for point in curve]
    return [(p.cost, p.noise) for p in sorted(points) if p.value <= min(q.value for q in points if q.cost <= p.cost)]


def _panels(axes: dict[str, dict[str, Curve]], measure: str, title: str, height: float, note: str) -> Any:
    """A panel for each axis, with a common scale; the names of the curves stand to the right of both."""
    figure = new_figure(height)
    panels = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.075, right=0.81, bottom=0.62 / height, top=1 - 0.45 / height, wspace=0.7)
    values = [point.value for curve in next(iter(axes.values())).values() for point in curve]
    low = max(min([v for v in values if v > 0], default=LOWEST[measure]) / 1.5, LOWEST[measure])
    high = 1.15 if measure == "tv" else 1.5 * max(values, default=1.0)
    for panel, axis in zip(panels, axes, strict=True):
        panel.set(xscale="log", yscale="log", xlabel=f"{(AXES | CLOCK)[axis]} of one run", ylim=(low, high))
        if note and measure == "tv":
            _shade(panel, _noise_floor(axes[axis]), low)
        for sampler, curve in axes[axis].items():
            _draw(panel, sampler, curve, low)
        _ticks(panel)
        _label(figure, panel, axes[axis], low)
    panels[1].tick_params(labelleft=False)
    figure.text(0.008, 1 - 0.3 / height, title, fontsize=FONT + 2, fontweight="bold")
    figure.text(0.008, 0.1 / height, HELP + note, fontsize=FONT - 1, color=DARK)
    return figure


def _ticks(panel: Any) -> None:
    """Plain numbers, also between the powers of ten where there are few of these."""
    ticker = importlib.import_module("matplotlib.ticker")
    for axis, (low, high) in ((panel.xaxis, panel.get_xlim()), (panel.yaxis, panel.get_ylim())):
        # With fewer than two labels the locator would put them at equal distances, one over the other.
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high / low < 20 else (1, 3) if high / low < 400 else (1,)))
        axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:,.7g}"))
        axis.set_minor_formatter(ticker.NullFormatter())


def _draw(panel: Any, sampler: str, curve: Curve, low: float) -> None:
    style = look(sampler)
    xs, ys = [p.cost for p in curve], [max(p.value, low) for p in curve]
    panel.plot(xs, ys, color=style.colour, lw=style.width, ls=style.dashes, zorder=style.order)
    for x, y, point in zip(xs, ys, curve, strict=True):
        face = "white" if point.value < 2 * point.noise else style.colour
        panel.plot(x, y, style.marker, ms=style.size, mfc=face, mec=style.colour, mew=0.8, zorder=style.order, clip_on=False)


def _shade(panel: Any, floor: list[tuple[float, float]], low: float) -> None:
    if not floor:
        return
    xs, ys = zip(*floor, strict=True)
    panel.fill_between(xs, low, [max(y, low) for y in ys], color="#f0f0f0", lw=0, zorder=0)
    panel.annotate("noise", (xs[0], low), (3, 4), textcoords="offset points", color=DARK, fontsize=FONT - 1, style="italic")


def _label(figure: Any, panel: Any, here: dict[str, Curve], low: float) -> None:
    """The names of the curves, at their right ends, moved apart where they would overlap."""
    ends = {name: max(curve[-1].value, low) for name, curve in here.items()}
    height = panel.get_position().height * figure.get_figheight() * 72  # points
    low_log, high_log = (math.log(y) for y in panel.get_ylim())

    def share(y: float) -> float:
        return (math.log(y) - low_log) / (high_log - low_log)

    places = spread([share(y) * height for y in ends.values()], LABEL_GAP, 0.0, height)
    for (name, y), place in zip(ends.items(), places, strict=True):
        style = look(name)
        panel.annotate(
            name,
            (here[name][-1].cost, y),
            (1.06, place / height),
            textcoords="axes fraction",
            color=style.colour,
            fontsize=FONT - (1.3 if is_variant(name) else 0.5),
            fontweight="bold" if style.order == 5 else "normal",
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": style.colour, "lw": 0.4, "shrinkA": 0, "shrinkB": 3, "relpos": (0, 0.5)},
        )
