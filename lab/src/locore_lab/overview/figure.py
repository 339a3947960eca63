"""Figure 1: the model's law and a draft, the local law around it, and that law given the constraint, reweighted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from locore_lab.fidelity.plots import DARK, new_figure, save, settings
from locore_lab.overview.local_law import Texts

ALLOWED, DRAFT, ANSWER = "#bcd9ee", "#d55e00", "#009e73"
LOWEST = 1e-5


def draw(path: Path, texts: Texts, conditioned: Tensor, answer: int, spelt: dict[int, str], log_weight: float) -> Path:
    """Write the three panels."""
    with settings():
        figure = new_figure(2.9)
        figure.set_dpi(200)
        panels = figure.subplots(1, 3, sharey=True)
        for panel, title in zip(
            panels, ("the model, and a draft ỹ", "the local law around ỹ", "given α, reweighted"), strict=True
        ):
            panel.set_yscale("log")
            panel.set_ylim(LOWEST, 1.5)
            panel.set_title(title)
            _distances(panel, texts)
            _bars(panel, texts.log_model, texts.allowed, ALLOWED, "p, satisfies α")
            _bars(panel, texts.log_model, ~texts.allowed, "#e4e4e4", "p, does not")
        panels[0].set_ylabel("probability")
        _bar(panels[0], texts, texts.log_model, texts.draft, DRAFT, f"ỹ = {spelt[texts.draft]!r}")
        _line(panels[1], texts.log_local, "p̃_ỹ")
        _bar(panels[1], texts, texts.log_model, texts.draft, DRAFT, None)
        _line(panels[2], conditioned, "p̃_ỹ( · | α)")
        _bar(panels[2], texts, conditioned, answer, ANSWER, f"y = {spelt[answer]!r}\nlog w = {log_weight:.2f}")
        for panel in panels:
            panel.legend(loc="upper right", fontsize=6.5, frameon=False)
        figure.tight_layout()
        return save(figure, path)


def _distances(panel: Any, texts: Texts) -> None:
    """Marks where texts begin that differ from ỹ by one token more."""
    sizes = torch.bincount(texts.distance)
    ends = sizes.cumsum(0)
    panel.set_xticks([float(end - size / 2) - 0.5 for end, size in zip(ends, sizes, strict=True) if size])
    panel.set_xticklabels([str(number) for number, size in enumerate(sizes) if size])
    panel.set_xlabel("tokens unlike ỹ")
    panel.grid(visible=False)
    for number, (end, size) in enumerate(zip(ends.tolist(), sizes.tolist(), strict=True)):
        if number % 2:
            panel.axvspan(end - size - 0.5, end - 0.5, color="#f4f4f4", linewidth=0, zorder=0)


def _bars(panel: Any, logs: Tensor, which: Tensor, colour: str, label: str) -> None:
    values = torch.where(which, logs.exp(), 0.0).clamp_min(LOWEST)
    panel.fill_between(range(len(values)), LOWEST, values.tolist(), step="mid", color=colour, linewidth=0, label=label)


def _bar(panel: Any, texts: Texts, logs: Tensor, number: int, colour: str, label: str | None) -> None:
    width = max(1.0, len(texts.tokens) / 60)
    panel.bar([number], [max(LOWEST, float(logs[number].exp()))], width=width, color=colour, label=label, zorder=3)


def _line(panel: Any, logs: Tensor, label: str) -> None:
    values = logs.exp().clamp_min(LOWEST / 10).tolist()
    panel.fill_between(
        range(len(values)), LOWEST, values, step="mid", color=DARK, alpha=0.45, linewidth=0, label=label, zorder=2
    )
