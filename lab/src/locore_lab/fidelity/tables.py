"""From rows to conclusions: who is closer to the truth at the same price; `results.json` and `table.md`."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from pathlib import Path
from typing import Any, NamedTuple

from locore.io import machine, write_whole
from locore_lab.fidelity.problems import Problem
from locore_lab.harness import Fields, markdown, table, write_rows

Row = dict[str, Any]
AXES = {"budget": "nominal LM tokens", "lm_contexts": "distinct contexts"}
CLOCK = {"cpu_seconds": "CPU seconds", "passes": "passes of the model"}
OURS = {"auto", "exact", "lcr", "mcmc", "swor", "twisted"}  # and what is named after them; all others are peers
SMC = ("smc", "smc, 1 block", "genlm-smc")
LARGE_TV = 0.1  # a "trust" verdict above it was wrong
NEGLIGIBLE = 1e-3  # smaller ones are all alike; else cells where a sampler enumerates would decide every geometric mean


class Point(NamedTuple):
    """One sampler on one problem at one price.

    Attributes:
        cost: on an axis.
        value: total variation, or RMSE of log Ẑ in nats.
        noise: how far it may be off by chance: of a TV its noise, of an RMSE two standard errors.
    """

    cost: float
    value: float
    noise: float


Curve = list[Point]


def is_peer(sampler: str) -> bool:
    """Is it a method that others use?"""
    family = re.match("[a-z]*", sampler)
    return family is None or family.group() not in OURS


def measured(row: Row) -> str:
    """What a problem is judged by: "tv", or "rmse" where the top sequences hold too little of the truth for a TV."""
    return "rmse" if row["tv"] is None else "tv"


def curves(rows: list[Row], measure: str, axis: str) -> dict[str, dict[str, Curve]]:
    """Problem -> sampler -> points by increasing cost; samplers without weights have no RMSE."""
    result: dict[str, dict[str, Curve]] = {}
    for row in sorted(rows, key=lambda row: (row[axis], row["budget"])):
        if measured(row) == measure and row[measure] is not None:
            noise = row["noise"] if measure == "tv" else 2 * row["rmse_error"]
            cost = max(float(row[axis]), 1.0)  # the first token's distribution costs nothing
            curve = result.setdefault(row["problem"], {}).setdefault(row["sampler"], [])
            if curve and curve[-1].cost == cost:
                curve.pop()  # no more was spent with a larger budget; the last run counts
            curve.append(Point(cost, row[measure], noise))
    return result


def at(curve: Curve, cost: float) -> Point | None:
    """A curve at some cost, between two measurements by a straight line on logarithmic scales; None outside of them."""
    place = bisect_left(curve, cost, key=lambda point: point.cost)
    if place < len(curve) and curve[place].cost == cost:
        return curve[place]
    if place in (0, len(curve)):
        return None
    low, high = curve[place - 1], curve[place]
    share = math.log(cost / low.cost) / math.log(high.cost / low.cost)

    def between(a: float, b: float) -> float:
        return math.exp((1 - share) * math.log(max(a, NEGLIGIBLE)) + share * math.log(max(b, NEGLIGIBLE)))

    return Point(cost, between(low.value, high.value), between(low.noise, high.noise))


def best(here: dict[str, Curve], names: list[str], cost: float) -> Point | None:
    """The smallest value of some samplers at some cost."""
    found = [point for name in names if name in here and (point := at(here[name], cost)) is not None]
    return min(found, key=lambda point: point.value, default=None)


def level(point: Point, measure: str) -> float:
    """What enters geometric means: a TV below its noise is not known to be any smaller."""
    return max(point.value, NEGLIGIBLE, point.noise if measure == "tv" else 0.0)


def mean_ratio(found: list[float]) -> float | None:
    """Geometric mean; None of nothing."""
    return math.exp(sum(map(math.log, found)) / len(found)) if found else None


def summary(rows: list[Row], measure: str) -> dict[str, dict[str, Any]]:
    """Sampler -> geometric mean over its cells, and its ratio to the best peer at the same price.

    Returns:
        For each sampler `peer`, `cells`, `mean`; and for each axis the geometric mean of the ratios to that peer that is the
        best in the same cell, and over how many cells. On the axis of contexts, a peer is known between its measurements only.
    """
    names = list(dict.fromkeys(row["sampler"] for row in rows if measured(row) == measure and row[measure] is not None))
    peers = [name for name in names if is_peer(name)]
    result: dict[str, dict[str, Any]] = {}
    for name in names:
        result[name] = {"peer": is_peer(name)}
        for axis in AXES:
            ratios, levels = [], []
            for here in curves(rows, measure, axis).values():
                for point in here.get(name, []):
                    levels.append(level(point, measure))
                    peer = best(here, peers, point.cost)
                    if peer is not None:
                        ratios.append(levels[-1] / level(peer, measure))
            if axis == "budget":
                result[name] |= {"cells": len(levels), "mean": mean_ratio(levels)}
            result[name][axis] = {"ratio": mean_ratio(ratios), "cells": len(ratios)}
    return result


def worse_than_smc(rows: list[Row], axis: str) -> dict[str, dict[str, Any]]:
    """Sampler -> how many of its cells SMC can be compared with at the same price, and those where it is worse beyond noise.

    SMC is the best of its variants. Beyond noise: what is measured less its noise exceeds SMC's value and SMC's noise. (By
    the triangle inequality a measured TV is off by at most the TV between the measured law and the true law of one draw,
    whose mean is the noise.)
    """
    result: dict[str, dict[str, Any]] = {}
    for measure in ("tv", "rmse"):
        for problem, here in curves(rows, measure, axis).items():
            for name in [name for name in here if name not in SMC]:
                found = result.setdefault(name, {"compared": 0, "worse": []})
                for point in here[name]:
                    smc = best(here, list(SMC), point.cost)
                    if smc is None:
                        continue
                    found["compared"] += 1
                    if point.value - point.noise > smc.value + smc.noise:
                        cell = {"problem": problem, "measure": measure, "cost": point.cost}
                        values = {"value": point.value, "noise": point.noise, "smc": smc.value, "smc_noise": smc.noise}
                        found["worse"].append(cell | values)
    return result


def calibration(rows: list[Row]) -> dict[str, Any]:
    """How often a run said "trust", how often so where the TV of one draw exceeds .1, and where it does so beyond noise.

    Of cells in which every run returned something.
    """
    # A run that returns nothing counts in the TV and has no verdict.
    rows = [row for row in rows if row["tv"] is not None and not row["failed"]]

    def trusted(chosen: list[Row]) -> int:
        return sum(row["verdicts"].get("trust", 0) for row in chosen)

    every = trusted(rows)
    wrong = trusted([row for row in rows if row["tv"] > LARGE_TV])
    beyond = trusted([row for row in rows if row["tv"] - row["noise"] > LARGE_TV])
    share = wrong / every if every else None
    return {"trust": every, "trust_but_wrong": wrong, "share": share, "wrong_beyond_noise": beyond}


LEVELS = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)  # distinct contexts, where samplers are compared at equal ones
NAMES = {"tv": "TV", "rmse": "RMSE of log Ẑ"}
CELLS_LISTED = 6  # in the table of those that are worse than SMC; results.json has all


INTRODUCTION = """\
- TV: total variation between the law of one returned draw and the truth, on the 100 top sequences of both and "other". A run
  that returns nothing counts as wrong, and so does a text that violates the constraint. – where the 100 top sequences hold too
  little of the truth.
- Noise: TV that chance alone would give; † where it is above a third of the goal.
- RMSE of log Ẑ in nats; a run that returns nothing counts like Ẑ = 1.
- log mean Ẑ − log Z ± 3 standard errors, bold where it is further off. A few runs of a heavy-tailed estimate understate the
  error.
- Nominal LM tokens are the budget that a sampler was given: each particle pays for each next-token distribution that it needs.
  Contexts are the distinct ones that the model was asked for, which is what a perfect cache would pay. LM tokens in the full
  tables are counted at the model: samplers that merge equal prefixes ask for fewer than their budget.
- Values at equal contexts are read between two measurements of a sampler, and not beyond them."""
SUMMARY = {
    "tv": f"A TV below its noise enters as its noise, one below {NEGLIGIBLE} as {NEGLIGIBLE}. Right: ratio to the TV of the "
    "best peer of each cell; below 1 is better than all peers. Means over different cells cannot be compared, ratios can.",
    "rmse": "Problems whose top sequences hold too little of the truth. Right: ratio to the RMSE of the best peer of a cell.",
}
WORSE = (
    "Cells where a sampler is worse than the best variant of SMC by more than the noise of both (of an RMSE: two standard "
    "errors of each), of those where SMC has a value at the same price."
)
COLUMNS = (
    "sampler | budget | TV | noise | TV of token 1 | RMSE log Ẑ | log mean Ẑ − log Z | failed | violating | trust | LM tokens "
    "| contexts | ms in model | ms outside | runs",
    "{sampler} | {budget:,} | {tv:.4f} | {noise:.4f}{mark} | {tv_first:.4f} | {rmse:.3f} | {bias} | {failed:.1%} "
    "| {violating:.1%} | {trust:.0%} | {lm_tokens:,.0f} | {lm_contexts:,.0f} | {inside:.1f} | {outside:.1f} | {runs:,}",
)


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
        "summary": {measure: summary(rows, measure) for measure in NAMES},
        "worse_than_smc": {axis: worse_than_smc(rows, axis) for axis in AXES},
    }
    write_rows(output / "results.json", record, rows)
    write_whole(output / "table.md", report(rows, record))


def report(rows: list[Row], record: dict[str, Any]) -> str:
    """The conclusions, then all rows by problem."""
    parts = ["# Fidelity", INTRODUCTION]
    for measure in NAMES:
        if record["summary"][measure]:
            parts += _summary(rows, record["summary"][measure], measure)
    parts += _worse(record["worse_than_smc"]) + _trust(record["calibration"])
    for model, cost in record["tables"].items():
        price = f"{cost['lm_tokens']:,.0f} LM tokens and {cost['cpu_seconds']:.1f} CPU seconds"
        parts.append(f"The table of {model} cost {price}, once; no row includes it.")
    for problem in dict.fromkeys(row["problem"] for row in rows):
        parts += _problem([row for row in rows if row["problem"] == problem])
    return "\n\n".join(parts) + "\n"


def _summary(rows: list[Row], found: dict[str, dict[str, Any]], measure: str) -> list[str]:
    """Samplers by their ratio to the best peer at equal budget."""
    every = {(row["problem"], row["budget"]) for row in rows if measured(row) == measure}
    problems = {problem for problem, _ in every}
    number = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    heads = ["sampler", "", f"cells of {len(every)}", f"{NAMES[measure]}, geometric mean"]
    heads += [head for axis in AXES for head in (f"at equal {AXES[axis]}", "cells")]

    def order(name: str) -> tuple[float, float]:
        ratio = found[name]["budget"]["ratio"]
        return (float("inf") if ratio is None else ratio, found[name]["mean"])

    lines = []
    for name in sorted(found, key=order):
        one = found[name]
        lines.append([name, "peer" if one["peer"] else "", str(one["cells"]), f"{one['mean']:.4f}"])
        lines[-1] += [text for axis in AXES for text in (_number(one[axis]["ratio"], 3), str(one[axis]["cells"]))]
    return [f"## {NAMES[measure]} on {number}", SUMMARY[measure], markdown(heads, lines)]


def _worse(found: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """Each sampler's cells where SMC is better."""
    names = sorted(found["budget"], key=lambda name: _share(found["budget"][name]))
    lines = []
    for name in names:
        both = [found[axis].get(name, {"compared": 0, "worse": []}) for axis in AXES]
        places = [
            f"{cell['problem']} at {cell['cost']:,.0f} {axis}: {cell['value']:.3f}, {cell['smc']:.3f}"
            for axis, one in zip(("tokens", "contexts"), both, strict=True)
            for cell in one["worse"]
        ]
        more = f"; and {len(places) - CELLS_LISTED} more" if len(places) > CELLS_LISTED else ""
        counts = [f"{len(one['worse'])} of {one['compared']}" for one in both]
        lines.append([name, *counts, "; ".join(places[:CELLS_LISTED]) + more])
    heads = ["sampler", *(f"worse at equal {AXES[axis]}" for axis in AXES), "where (TV or RMSE, against SMC's)"]
    return ["## Never worse than SMC?", WORSE, markdown(heads, lines)] if names else []


def _share(one: dict[str, Any]) -> float:
    return float(len(one["worse"]) / max(one["compared"], 1))


def _trust(found: dict[str, Any]) -> list[str]:
    share = "–" if found["share"] is None else f"{found['share']:.2%}"
    text = f'"Trust" was said {found["trust"]:,} times. In {found["trust_but_wrong"]:,} of them ({share}) the TV of one draw '
    text += f"exceeds {LARGE_TV}; in {found['wrong_beyond_noise']:,} it does so by more than the noise of the measurement."
    return ["## Calibration of the report", text]


def _problem(rows: list[Row]) -> list[str]:
    """Both axes, then all columns."""
    first, measure = rows[0], measured(rows[0])
    parts = [f"## {first['problem']}"]
    if measure == "rmse":
        share = f"{first['truth_covered']:.0%}"
        parts.append(f"The 100 most probable sequences hold {share} of the truth: judged by the RMSE of log Ẑ, in nats.")
    for axis, costs in (("budget", sorted({row["budget"] for row in rows})), ("lm_contexts", LEVELS)):
        parts += _grid(rows, measure, axis, list(costs))
    return [*parts, "All columns:", table(rows, COLUMNS, FIELDS)]


def _grid(rows: list[Row], measure: str, axis: str, costs: list[int]) -> list[str]:
    """Samplers by costs; the smallest value of a column is bold."""
    here = curves(rows, measure, axis).get(rows[0]["problem"], {})
    points = {name: [at(curve, cost) for cost in costs] for name, curve in here.items()}
    kept = [k for k in range(len(costs)) if any(row[k] is not None for row in points.values())]
    smallest = {k: min(p.value for row in points.values() if (p := row[k]) is not None) for k in kept}

    def shown(point: Point | None, k: int) -> str:
        text = _number(None if point is None else point.value, 4)
        return f"**{text}**" if point and point.value == smallest[k] else text

    lines = [[name, *(shown(row[k], k) for k in kept)] for name, row in points.items()]
    heads = ["sampler", *(f"{costs[k]:,}" for k in kept)]
    return [f"{NAMES[measure]} by {AXES[axis]}:", markdown(heads, lines)] if kept else []


def _bias(row: Row) -> str:
    if row["log_mean_error"] is None:
        return "–"
    margin = "?" if row["margin_3se"] is None else f"{row['margin_3se']:.3f}"
    text = f"{row['log_mean_error']:+.3f} ± {margin}"
    return f"**{text}**" if row["unbiased"] is False else text


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


FIELDS: Fields = {
    "mark": lambda row: "†" if row["noise"] > row["goal"] / 3 else "",
    "bias": _bias,
    "trust": lambda row: row["verdicts"].get("trust", 0) / row["runs"],
    "inside": lambda row: 1e3 * row["model_seconds"],
    "outside": lambda row: 1e3 * (row["seconds"] - row["model_seconds"]),
}
