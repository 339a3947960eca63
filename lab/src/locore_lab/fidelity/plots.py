"""Pictures of the results (matplotlib, extra `plots`): distance from the truth against price, and weights."""

from __future__ import annotations

import importlib
import math
from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from locore_lab.fidelity.runs import WEIGHTS
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


def spread(wanted: list[float], gap: float, low: float, high: float) -> list[float]:
    """Places near those that are wanted, in the same order, at least a gap apart, between two bounds.

    If they do not fit, they stand at equal distances that are as large as possible.
    """
    if len(wanted) < 2:
        return [min(max(place, low), high) for place in wanted]
    gap = min(gap, (high - low) / (len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    places = [0.0] * len(wanted)
    floor = low
    for k in order:
        places[k] = max(wanted[k], floor)
        floor = places[k] + gap
    ceiling = high
    for k in reversed(order):
        places[k] = min(places[k], ceiling)
        ceiling = places[k] - gap
    return places


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


COLUMNS = 4
WEIGHTS_HELP = (
    "log weight − log p(α), nats. Independent draws are perfect at 0; sets of distinct sequences weigh them by probability."
)
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
    figure.text(0.008, 0.1 / height, WEIGHTS_HELP, fontsize=FONT - 1, color=DARK)
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


LOWEST = {"tv": 1e-4, "rmse": 1e-4}  # smaller values stand on the lower edge
NAMES = {"tv": "total variation", "rmse": "RMSE of log Ẑ (nats)"}
LABEL_GAP = 1.1 * FONT  # points between two labels
HELP = "Lower is better. Colours: ours; grey, dashed: peers."
OPEN = {
    "tv": " Open marks: not beyond twice their noise. Shaded: noise of the best.",
    "rmse": " Open marks: below 4 standard errors.",
}


def plot(rows: list[Row], folder: Path) -> list[Path]:
    """Write, for every problem, NAME.svg (distance against price) and NAME-weights.svg; and overview.svg."""
    from locore_lab.fidelity.plots import weights_figure

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
