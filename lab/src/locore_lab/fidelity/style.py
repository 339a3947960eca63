"""How samplers look in plots: ours in colours that the colour-blind can tell apart (Okabe and Ito), peers grey and dashed."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from locore_lab.fidelity.summary import SMC, is_peer

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
