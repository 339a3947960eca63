"""`results.json` and `table.md`."""

from __future__ import annotations

import json
import math
import os
import platform
from pathlib import Path
from typing import Any

import torch

from locore.bench.fidelity.problems import Problem

REFERENCE = "greedy"  # others are compared with it on the cells that both could afford
LARGE_TV = 0.1  # a "trust" verdict above it was wrong
Row = dict[str, Any]


def machine() -> dict[str, Any]:
    """What it ran on; no paths, no host."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def calibration(rows: list[Row]) -> dict[str, Any]:
    """How often a run said "trust" where the law of one draw is wrong."""
    rows = [row for row in rows if row["tv"] is not None]
    trusted = sum(row["verdicts"].get("trust", 0) for row in rows)
    wrong = sum(row["verdicts"].get("trust", 0) for row in rows if row["tv"] - row["noise"] > LARGE_TV)
    return {"trust": trusted, "trust_but_wrong": wrong, "share": wrong / trusted if trusted else None}


def geometric_means(rows: list[Row]) -> dict[str, dict[str, float | None]]:
    """Sampler -> geometric mean of max(TV, noise) over the cells that it could afford, and its ratio to the reference there."""
    cells: dict[tuple[str, int], dict[str, float]] = {}
    rows = [row for row in rows if row["tv"] is not None]
    for row in rows:
        cells.setdefault((row["problem"], row["budget"]), {})[row["sampler"]] = max(row["tv"], row["noise"], 1e-6)
    result: dict[str, dict[str, float | None]] = {}
    for sampler in sorted({row["sampler"] for row in rows}):
        here = [cell for cell in cells.values() if sampler in cell]
        shared = [math.log(cell[sampler] / cell[REFERENCE]) for cell in here if REFERENCE in cell]
        result[sampler] = {
            "cells": len(here),
            "tv": math.exp(sum(math.log(cell[sampler]) for cell in here) / len(here)),
            "ratio": math.exp(sum(shared) / len(shared)) if shared else None,
        }
    return result


def write_results(
    output: Path, rows: list[Row], problems: list[Problem], prepared: dict[str, dict[str, float]], settings: dict[str, Any]
) -> None:
    """Write both files."""
    record = {
        "settings": settings,
        "machine": machine(),
        "problems": {p.name: p.to_json() for p in problems},
        "tables": prepared,
        "calibration": calibration(rows),
        "geometric_mean_tv": geometric_means(rows),
        "rows": rows,
    }
    (output / "results.json").write_text(json.dumps(record, indent=1, allow_nan=True) + "\n")
    (output / "table.md").write_text(markdown(rows, record))


def markdown(rows: list[Row], record: dict[str, Any]) -> str:
    """All rows by problem, then the summaries."""
    lines = ["# Fidelity", "", INTRODUCTION, ""]
    for problem in dict.fromkeys(row["problem"] for row in rows):
        lines += [f"## {problem}", "", HEAD, "|" + "---|" * HEAD.count(" | ") + "---|"]
        lines += [_line(row) for row in rows if row["problem"] == problem]
        lines.append("")
    lines += ["## Geometric mean of TV over the cells that a sampler could afford", ""]
    lines += [f"| sampler | cells | TV | TV / TV of {REFERENCE}, same cells |", "|---|---|---|---|"]
    for name, mean in sorted(record["geometric_mean_tv"].items(), key=lambda item: item[1]["tv"]):
        ratio = "–" if mean["ratio"] is None else f"{mean['ratio']:.3f}"
        lines.append(f"| {name} | {mean['cells']} | {mean['tv']:.4f} | {ratio} |")
    found = record["calibration"]
    share = "–" if found["share"] is None else f"{found['share']:.1%}"
    lines += ["", f'"Trust" was said {found["trust"]} times; in {share} of them the TV of one draw exceeds {LARGE_TV}.']
    for model, cost in record["tables"].items():
        price = f"{cost['lm_tokens']:,.0f} LM tokens and {cost['cpu_seconds']:.1f} CPU seconds"
        lines.append(f"The table of {model} cost {price}, once.")
    return "\n".join(lines) + "\n"


INTRODUCTION = (
    'TV: total variation between the law of one returned draw and the truth, on the 100 top sequences of both and "other"; a '
    "run that returns nothing counts as wrong; – where the 100 top sequences hold too little of the truth. Noise: TV that "
    "chance alone would give; † where it is above a third of the goal. "
    "Unbiased: is |log mean Ẑ − log Z| within 3 standard errors, which a few runs of a heavy-tailed estimate understate? "
    "LM tokens and contexts are counted at the model."
)
HEAD = (
    "| sampler | budget | TV | noise | TV of token 1 | RMSE log Ẑ | unbiased | failed | trust | LM tokens | contexts | "
    "ms in model | ms outside | runs |"
)


def _line(row: Row) -> str:
    mark = "†" if row["noise"] > row["goal"] / 3 else ""
    tv = "–" if row["tv"] is None else f"{row['tv']:.4f}"
    rmse = "–" if row["rmse"] is None else f"{row['rmse']:.3f}"
    unbiased = {None: "–", True: "yes", False: "**no**"}[row["unbiased"]]
    trust = row["verdicts"].get("trust", 0) / row["runs"]
    cells = [
        row["sampler"], str(row["budget"]), tv, f"{row['noise']:.4f}{mark}", f"{row['tv_first']:.4f}", rmse,
        unbiased, f"{row['failed']:.1%}", f"{trust:.0%}", f"{row['lm_tokens']:,.0f}", f"{row['lm_contexts']:,.0f}",
        f"{1e3 * row['model_seconds']:.1f}", f"{1e3 * (row['seconds'] - row['model_seconds']):.1f}", str(row["runs"]),
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"
