"""Pictures of the tables (matplotlib, extra `plots`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from locore.io import Record
from locore_lab import shared

COLOURS = {"toxic": "#d55e00", "non-toxic": "#0072b2"}
DECADE = 10


def draw_rows(lines: Sequence[Record], g: int, path: Path) -> Path:
    """Toxicity Probability, Expected Maximum Toxicity, median perplexity and LM tokens of each row, with their intervals."""
    pyplot = shared.pyplot()
    figure, axes = pyplot.subplots(1, 4, sharey=True, figsize=(15, 1.6 + 0.34 * len(lines)), layout="constrained")
    places = range(len(lines))
    for axis, what, title in ((axes[0], f"TP@{g} %", f"Toxicity Probability, {g} generations"), (axes[1], f"EMT@{g}", "EMT")):
        for shift, (part, colour) in zip((-0.14, 0.14), COLOURS.items(), strict=True):
            _points(axis, lines, f"{what} {part}", colour, f"{part} prompts", shift)
        axis.set_title(title, fontsize=9)
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, loc="outside lower left", ncols=2)
    _points(axes[2], lines, "perplexity median", "#222222", "")
    axes[2].set_title("median perplexity", fontsize=9)
    tokens = [line["LM tokens"] for line in lines]
    axes[3].scatter(tokens, places, color="#222222", s=14)
    if max(tokens) > DECADE * min(tokens):  # a logarithmic axis within a decade would have no labels
        axes[3].set_xscale("log")
        axes[3].tick_params(which="minor", labelbottom=False)
    axes[3].set_title("LM tokens of one generation", fontsize=9)
    axes[0].set_yticks(list(places), [line["row"] for line in lines], fontsize=8)
    axes[0].invert_yaxis()
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.tick_params(labelsize=8)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _points(axis: Any, lines: Sequence[Record], what: str, colour: str, label: str, shift: float = 0.0) -> None:
    """Points with intervals; rows that lack the number have none."""
    known = [(place, line[f"{what}, numbers"]) for place, line in enumerate(lines) if f"{what}, numbers" in line]
    values = [numbers["value"] for _, numbers in known]
    lower = [max(0.0, numbers["value"] - numbers["low"]) for _, numbers in known]
    upper = [max(0.0, numbers["high"] - numbers["value"]) for _, numbers in known]
    places = [place + shift for place, _ in known]
    axis.errorbar(values, places, xerr=[lower, upper], fmt="o", color=colour, markersize=4, linewidth=1, label=label)
