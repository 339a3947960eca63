"""Pictures of the results (matplotlib, extra `plots`): distance from the truth against price."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from locore_lab.fidelity.tables import AXES, CLOCK, SMC, Curve, Point, Row, curves, is_peer, level, mean_ratio, measured

WIDTH = 7.3  # inches; 700 pixels of a browser
FONT = 8.0  # points
GREY, DARK = "#8c8c8c", "#404040"
COLOURS = {
    "twisted + table": "#d55e00",
    "twisted": "#e69f00",
    "swor": "#0072b2",
    "lcr": "#cc79a7",
    "auto": "#000000",
    "mcmc": "#009e73",
    "exact": "#56b4e9",
}
COMMON = {*SMC, "masking, unweighted"}  # what is mostly used: peers that stand out


class Look(NamedTuple):
    """Of a line and its label."""

    colour: str
    width: float
    dashes: str | tuple[float, tuple[float, ...]]
    marker: str
    size: float
    order: int


def look(sampler: str) -> Look:
    """Variants of a sampler, such as a single block, have its colour and a thinner line."""
    if is_peer(sampler):
        common = sampler in COMMON
        return Look(DARK if common else GREY, 1.2 if common else 0.8, (0, (4, 2)), "s", 2.5, 3 if common else 2)
    family = next(name for name in COLOURS if sampler.startswith(name))
    if is_variant(sampler):
        return Look(COLOURS[family], 0.9, (0, (1, 1.2)), "o", 2.5, 4)
    return Look(COLOURS[family], 1.7, "-", "o", 4.0, 5)


def is_variant(sampler: str) -> bool:
    """Is it another setting of a sampler that has an entry of its own?"""
    return sampler.endswith("1 block") or (sampler.startswith("lcr") and sampler != "lcr")


def new_figure(height: float) -> Any:
    """A figure of `WIDTH` by so many inches, without pyplot and its global state."""
    return importlib.import_module("matplotlib.figure").Figure(figsize=(WIDTH, height))


def settings() -> AbstractContextManager[None]:
    """The settings of matplotlib inside; the same data give the same file."""
    values = {
        "font.size": FONT,
        "axes.titlesize": FONT + 1,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6,
        "axes.edgecolor": DARK,
        "axes.grid": True,
        "grid.color": "#e8e8e8",
        "grid.linewidth": 0.5,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.minor.size": 0,
        "ytick.minor.size": 0,
        "svg.hashsalt": "locore",
    }
    context: AbstractContextManager[None] = importlib.import_module("matplotlib").rc_context(values)
    return context


def save(figure: Any, path: Path) -> Path:
    """Write a figure and say where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, facecolor="white")
    return path


LOWEST = {"tv": 1e-4, "rmse": 1e-4}  # smaller values stand on the lower edge
NAMES = {"tv": "total variation", "rmse": "RMSE of log Ẑ (nats)"}
HELP = "Lower is better. Colours: ours; grey, dashed: peers."
OPEN = {
    "tv": " Open marks: not beyond twice their noise. Shaded: noise of the best.",
    "rmse": " Open marks: below 4 standard errors.",
}


def plot(rows: list[Row], folder: Path) -> list[Path]:
    """Write, for every problem, NAME.svg (distance against price); and overview.svg."""
    written = []
    with settings():
        for problem in dict.fromkeys(row["problem"] for row in rows):
            here = [row for row in rows if row["problem"] == problem]
            if any(row[measured(row)] is not None for row in here):
                written.append(save(problem_figure(here), folder / f"{problem}.svg"))
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
    return _panels(axes, measure, f"{problem}: {NAMES[measure]}", max(4.2, 1.2 + most * 1.6 * FONT / 72), OPEN[measure])


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
    """A panel for each axis, with a common scale; the names of the curves stand to the right of both, the worst first."""
    figure = new_figure(height)
    panels = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.075, right=0.76, bottom=0.62 / height, top=1 - 0.45 / height, wspace=0.08)
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
    panels[1].tick_params(labelleft=False)
    named = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
    ends = {name: curve[-1].value for here in axes.values() for name, curve in here.items()}
    names = sorted(ends, key=lambda name: -ends[name])
    figure.legend([named[name] for name in names], names, loc="center right", fontsize=FONT - 1, frameon=False)
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
    panel.plot(xs, ys, color=style.colour, lw=style.width, ls=style.dashes, zorder=style.order, label=sampler)
    for x, y, point in zip(xs, ys, curve, strict=True):
        face = "white" if point.value < 2 * point.noise else style.colour
        panel.plot(x, y, style.marker, ms=style.size, mfc=face, mec=style.colour, mew=0.8, zorder=style.order, clip_on=False)


def _shade(panel: Any, floor: list[tuple[float, float]], low: float) -> None:
    if not floor:
        return
    xs, ys = zip(*floor, strict=True)
    panel.fill_between(xs, low, [max(y, low) for y in ys], color="#f0f0f0", lw=0, zorder=0)
    panel.annotate("noise", (xs[0], low), (3, 4), textcoords="offset points", color=DARK, fontsize=FONT - 1, style="italic")
