"""From runs to numbers: the evidence, the law of one draw, and whether the verdicts were right."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

import torch

from locore_lab.fidelity.tables import NEGLIGIBLE, Point, at, mean_ratio
from locore_lab.tasks.problem import NOTHING, Law, Problem, averaged, mean_distance
from locore_lab.tasks.runs import REFUSED, ZERO, Run
from locore_lab.tasks.truth import Truth

Row = dict[str, Any]
OFF = 0.3  # relative error of the evidence from which "trust" is wrong, and below which "do not trust" is
MARGIN = 2.0  # standard errors of the truth that a run is granted
# Those that are measured in as many rounds as the best; of one run the error is small by luck too often.
PEERS = ("genlm-smc", "genlm-awrs", "transformers-masking", "rejection", "smc", "masked-is")
KNOWN = 0.15  # error of the laws of a truth, up to which a total variation is counted


def gap(run: Run, truth: Truth) -> float:
    """log Ẑ − log Z in nats; a run that returned nothing knows as much as Ẑ = 1 says."""
    return -truth.log_z if run.log_z is None else run.log_z - truth.log_z


def is_off(run: Run, truth: Truth) -> bool:
    """Is Ẑ wrong by more than `OFF`, beyond the error of the truth?"""
    beyond = max(0.0, abs(gap(run, truth)) - MARGIN * truth.log_z_error)
    return math.expm1(beyond) > OFF


def is_covered(run: Run, truth: Truth) -> bool | None:
    """Does the run's 95 % interval hold the truth? None where it claims none."""
    if run.low is None or run.high is None:
        return None
    slack = MARGIN * truth.log_z_error + 1e-4
    return run.low - slack <= truth.log_z <= run.high + slack


def one_draw(runs: list[Run]) -> dict[str, Law]:
    """The laws of the features of one draw: those of the runs, averaged."""
    names = {name for run in runs for name in run.laws}
    return {name: averaged([run.laws.get(name, {NOTHING: 1.0}) for run in runs]) for name in names}


def noise(runs: list[Run], truth: Truth) -> float | None:
    """How far the laws of two halves of the runs lie apart, halved; None of a single run."""
    if len(runs) < 2:
        return None
    first, second = one_draw(runs[::2]), one_draw(runs[1::2])
    known = {name: {v: second.get(name, {}).get(v, 0.0) for v in law} for name, law in truth.laws.items()}
    return mean_distance(first, known) / 2


def cell(problem: Problem, sampler: str, budget: int, runs: list[Run], truth: Truth) -> Row | None:
    """All columns of one sampler on one problem at one budget; None where it does not apply."""
    runs = [run for run in runs if run.outcome != REFUSED]
    if not runs:
        return None
    weighted = [run for run in runs if run.log_z is not None or run.outcome == ZERO]
    timed = [run for run in runs if run.timed] or runs
    passes = [run.passes for run in runs if run.passes is not None]
    return {
        "problem": problem.name,
        "family": problem.family,
        "sampler": sampler,
        "budget": budget,
        "runs": len(runs),
        "failed": sum(run.outcome == ZERO for run in runs),
        **_evidence(weighted, truth),
        "tv": mean_distance(one_draw(runs), truth.laws),
        "known": truth.laws_error <= KNOWN,
        "noise": noise(runs, truth),
        "verdicts": _verdicts(runs, truth),
        "chosen": dict(Counter(run.chosen for run in runs if run.chosen)),
        "lm_tokens": _mean([run.lm_tokens for run in runs]),
        "lm_contexts": _mean([run.lm_contexts for run in runs]),
        "passes": _mean(passes) if passes else None,
        "model_seconds": _mean([run.model_seconds for run in timed]) if timed[0].timed else None,
        "other_seconds": _mean([run.seconds - run.model_seconds for run in timed]) if timed[0].timed else None,
        "cpu_seconds": _mean([run.cpu_seconds for run in timed]) if timed[0].timed else None,
    }


def _evidence(runs: list[Run], truth: Truth) -> Row:
    """RMSE of log Ẑ with its standard error, and the mean error; None for samplers without weights."""
    if not runs:
        return {"rmse": None, "rmse_error": None, "mean_error": None}
    gaps = torch.tensor([gap(run, truth) for run in runs], dtype=torch.float64)
    squares = gaps.square()
    rmse = float(squares.mean().sqrt())
    error = float(squares.std()) / math.sqrt(len(runs)) / (2 * rmse) if len(runs) > 1 and rmse else None
    return {"rmse": rmse, "rmse_error": error, "mean_error": float(gaps.mean())}


def _verdicts(runs: list[Run], truth: Truth) -> dict[str, dict[str, int]]:
    """Level -> runs, those whose evidence was off, those with an interval, and those whose interval holds the truth."""
    found: dict[str, dict[str, int]] = {}
    for run in runs:
        if run.log_z is None:
            continue
        one = found.setdefault(run.verdict, {"runs": 0, "off": 0, "intervals": 0, "covered": 0})
        covered = is_covered(run, truth)
        one["runs"] += 1
        one["off"] += is_off(run, truth)
        one["intervals"] += covered is not None
        one["covered"] += bool(covered)
    return found


def totals(rows: list[Row]) -> dict[str, dict[str, dict[str, int]]]:
    """Sampler -> verdict -> the counts of all its cells."""
    result: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in rows:
        for level, counts in row["verdicts"].items():
            result[row["sampler"]][level].update(counts)
    return {name: {level: dict(counts) for level, counts in levels.items()} for name, levels in result.items()}


def is_counted(row: Row, measure: str) -> bool:
    """Does a cell say something of this measure? Not of total variation where the laws themselves are hardly known."""
    return row[measure] is not None and (measure != "tv" or row["known"])


def geometric_mean(rows: list[Row], measure: str) -> float | None:
    """Over the cells that have it; tiny values are all alike."""
    return mean_ratio([max(row[measure], NEGLIGIBLE) for row in rows if is_counted(row, measure)])


def ratio_to_peer(rows: list[Row], sampler: str, budget: int, measure: str) -> tuple[float, int] | None:
    """Geometric mean, over problems, of a sampler's value over that of the best peer there; and over how many."""
    found = []
    for problem in {row["problem"] for row in rows}:
        here = [row for row in rows if row["problem"] == problem and row["budget"] == budget]
        found.append({row["sampler"]: max(row[measure], NEGLIGIBLE) for row in here if is_counted(row, measure)})
    return _to_best_peer(found, sampler)


def at_cost(rows: list[Row], axis: str, cost: float, measure: str = "rmse") -> float | None:
    """A sampler's value on one problem at some cost, from the rows of its budgets; None where there are none.

    Between two measurements by a straight line on logarithmic scales; beyond them as one over the root of the cost. Where
    several cost the same, as passes mostly do, the last counts, that of the largest budget.
    """
    there = (row for row in rows if row[axis] and row[measure] is not None)
    known = [(row[axis], max(row[measure], NEGLIGIBLE)) for row in sorted(there, key=lambda row: row[axis])]
    curve = [Point(spent, value, 0.0) for spent, value in dict(known).items()]
    if not curve:
        return None
    between = at(curve, cost)
    if between is not None:
        return between.value
    nearest = curve[0] if cost < curve[0].cost else curve[-1]
    return max(nearest.value * math.sqrt(nearest.cost / cost), NEGLIGIBLE)


def ratio_at_cost(rows: list[Row], sampler: str, axis: str, of: str, budget: int) -> tuple[float, int] | None:
    """As `ratio_to_peer`, where all spend what the sampler `of` spends at a budget of LM tokens: seconds, or passes."""
    found = []
    for problem in {row["problem"] for row in rows}:
        here = [row for row in rows if row["problem"] == problem]
        costs = [row[axis] for row in here if row["sampler"] == of and row["budget"] == budget and row[axis]]
        own = {name: [row for row in here if row["sampler"] == name] for name in {row["sampler"] for row in here}}
        values = {name: at_cost(some, axis, costs[0]) for name, some in own.items()} if costs else {}
        found.append({name: value for name, value in values.items() if value is not None})
    return _to_best_peer(found, sampler)


def _to_best_peer(found: list[dict[str, float]], sampler: str) -> tuple[float, int] | None:
    """Geometric mean, over problems, of a sampler's value over that of the best peer; and over how many."""
    ratios = []
    for values in found:
        peers = [values[name] for name in PEERS if name != sampler and name in values]
        if sampler in values and peers:
            ratios.append(values[sampler] / min(peers))
    mean = mean_ratio(ratios)
    return None if mean is None else (mean, len(ratios))


def worse_than(rows: list[Row], sampler: str, others: tuple[str, ...], budget: int) -> list[tuple[str, str, float, float]]:
    """(problem, other, both RMSEs) where a sampler's RMSE exceeds another's by more than two standard errors."""
    found = []
    by_place = {(row["problem"], row["sampler"]): row for row in rows if row["budget"] == budget and row["rmse"] is not None}
    for (problem, name), row in by_place.items():
        if name != sampler:
            continue
        for other in others:
            rival = by_place.get((problem, other))
            if rival is None:
                continue
            slack = 2 * math.hypot(row["rmse_error"] or 0.0, rival["rmse_error"] or 0.0)
            if row["rmse"] - rival["rmse"] > max(slack, NEGLIGIBLE):
                found.append((problem, other, row["rmse"], rival["rmse"]))
    return found


def default_against(rows: list[Row], default: str, budget: int) -> list[tuple[str, float, float, float]]:
    """(problem, RMSE of the default call, that of `auto` with a smaller budget, two standard errors of their difference)."""
    known = {(row["problem"], row["sampler"], row["budget"]): row for row in rows if row["rmse"] is not None}
    found = []
    for (problem, name, _), row in known.items():
        other = known.get((problem, "auto", budget))
        if name == default and other is not None and other["lm_tokens"] <= row["lm_tokens"]:
            slack = 2 * math.hypot(row["rmse_error"] or 0.0, other["rmse_error"] or 0.0)
            found.append((problem, row["rmse"], other["rmse"], slack))
    return found


def _mean(values: list[float] | list[int]) -> float:
    return sum(values) / len(values)
