"""Total variation against budget, a picture for each problem (matplotlib, extra `plots`)."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any


def plot(rows: list[dict[str, Any]], folder: Path) -> list[Path]:
    """Write NAME.svg for every problem with a TV; nothing if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return []
    figures = importlib.import_module("matplotlib.figure")
    written = []
    for problem in dict.fromkeys(row["problem"] for row in rows if row["tv"] is not None):
        figure = figures.Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        here = [row for row in rows if row["problem"] == problem and row["tv"] is not None]
        for sampler in dict.fromkeys(row["sampler"] for row in here):
            points = sorted((row["lm_tokens"], row["tv"]) for row in here if row["sampler"] == sampler)
            axes.plot(*zip(*points, strict=True), marker="o", label=sampler)
        axes.set(xscale="log", yscale="log", xlabel="LM tokens for one draw", ylabel="total variation", title=problem)
        axes.legend(fontsize="x-small")
        folder.mkdir(parents=True, exist_ok=True)
        written.append(folder / f"{problem}.svg")
        figure.savefig(written[-1])
    return written
