"""Is what `audit` says true? Phrases of known probability, 1e-2 to 1e-10: estimates, intervals, bounds, verdicts, cost.

Beside each run: BEAVER's upper bound for the same LM tokens, and at the end the LM tokens that plain draws would take for an
error as large (p(1 − p)/variance draws of the whole text). A run is off if it is wrong by more than a factor 2; one that says
"not seen" is no estimate, and judged by its bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import locore
from locore.kernel.errors import LocoreError
from locore_lab.audits.beaver import bounds as beaver_bounds
from locore_lab.audits.problems import Known, drawn
from locore_lab.harness import Case, Row, measurement
from locore_lab.shared import SHARED, seed_of, timed

OFF, CLOSE = 2.0, 1.5
ROUNDING = 1e-5  # single precision, summed in another order


def audited_row(
    known: Known, sampler: str, budget: int, seed: int, limit: float | None = None, before: int = 0
) -> locore.AuditRow:
    """One audit of one problem: the last row, after so many others that teach it."""
    named, own, prompts = None if sampler == "default" else sampler, seed_of(seed, known.name), [[]] * (1 + before)
    found = locore.audit(known.model, prompts, known.phrases, known.length, limit, budget=budget, sampler=named, seed=own)
    return max(found.rows, key=lambda row: row.index)


def measured(known: Known, sampler: str, budget: int, seed: int, before: int) -> Row:
    """What one audit says, beside the truth."""
    row: Row = {"log10_p": known.log_p / math.log(10), "decade": known.decade, "length": known.length}
    try:
        audited, seconds = timed(lambda: audited_row(known, sampler, budget, seed, before=before))
    except LocoreError as error:
        return {**row, "failed": str(error)}
    low, high = math.exp(known.log_p) * (1 - ROUNDING), math.exp(known.log_p + known.missing) * (1 + ROUNDING)
    factor = None if audited.probability is None else audited.probability / math.exp(known.log_p)
    return {
        **row,
        "factor": factor,
        "covered": audited.interval[0] <= high and low <= audited.interval[1],
        "bounded": audited.bounds[0] <= high and low <= audited.bounds[1],
        "upper": audited.bounds[1],
        "wide": audited.interval[1] / math.exp(known.log_p),
        "verdict": audited.verdict,
        "lm_tokens": audited.lm_tokens,
        "cpu_seconds": seconds,
    }


def sides(known: Known, sampler: str, budget: int, seed: int, factor: float, before: int) -> Row:
    """Audits with a limit so many times above and below the truth, which may end early: how they are settled, at what cost."""
    row: Row = {"log10_p": known.log_p / math.log(10), "decade": known.decade, "right": 0, "wrong": 0, "lm_tokens": 0}
    for times, true in ((factor, "below"), (1 / factor, "above")):
        audited = audited_row(known, sampler, budget, seed, math.exp(known.log_p) * times, before)
        row["right"] += audited.settled == true
        row["wrong"] += audited.settled not in (true, "not settled")
        row["lm_tokens"] += audited.lm_tokens / 2
    return row


def told(rows: list[Row]) -> str:
    """For each sampler, and each two decades of it, what is true of its runs."""
    lines = []
    for sampler in dict.fromkeys(row["sampler"] for row in rows):
        here = [row for row in rows if row["sampler"] == sampler and ("covered" in row or "right" in row)]
        for top in range(-2, -10, -2):
            lines.append(
                f"{sampler:8} 1e{top:<3} to 1e{top - 2:<4} {_told([row for row in here if top - 2 <= row['decade'] < top])}"
            )
        lines.append(f"{sampler:8} all            {_told(here)}")
        for family in dict.fromkeys(row["family"] for row in here):
            lines.append(f"{sampler:8} {family:14} {_told([row for row in here if row['family'] == family])}")
    return "\n".join(lines)


def _told(rows: list[Row]) -> str:
    if not rows:
        return "  0 runs"
    if "right" in rows[0]:
        return _settled(rows)
    seen = [row for row in rows if row["factor"]]
    count, trusted = len(rows), [row for row in rows if row["verdict"] == "trust"]
    close = sum(1 / CLOSE <= row["factor"] <= CLOSE for row in seen)
    wrong = sum(not 1 / OFF <= row["factor"] <= OFF for row in trusted)
    # of the runs that saw something, and of those that did not: their estimate is 0
    error = sum(((row["factor"] or 0.0) - 1) ** 2 for row in rows) / count
    plain = [10 ** -row["log10_p"] * (row["length"] - 1) / max(1e-9, error) / max(1, row["lm_tokens"]) for row in rows]
    upper = _middle([math.log10(row["upper"]) for row in rows])
    beaver = _middle([math.log10(row["beaver"]) for row in rows if row.get("beaver")])
    return (
        f"{count:3} runs, {count - len(seen):2} not seen, within {CLOSE}: {close / count:4.0%}, covered "
        f"{_share(rows, 'covered')}, "
        f"bounds wrong {sum(not row['bounded'] for row in rows)}, trust {len(trusted):3}, {wrong} off, relative error "
        f"{math.sqrt(error):.2f}, plain draws × {_middle(plain):.2g}, upper bound 1e{upper:.1f}, BEAVER {_power(beaver)}, "
        f"{_middle([row['lm_tokens'] for row in rows]):.0f} LM tokens, "
        f"{_middle([row['cpu_seconds'] for row in rows]):.2f} CPU s"
    )


def _settled(rows: list[Row]) -> str:
    """Of audits with a limit, two for each problem."""
    right, wrong = (sum(row[side] for row in rows) / len(rows) / 2 for side in ("right", "wrong"))
    spent = sum(row["lm_tokens"] for row in rows) / len(rows)
    return f"{2 * len(rows):3} limits, {right:.1%} on the right side, {wrong:.1%} on the wrong one, {spent:.0f} LM tokens"


def _power(log10: float) -> str:
    return "–" if math.isnan(log10) else f"1e{log10:.1f}"


def _share(rows: list[Row], name: str) -> str:
    return f"{sum(row[name] for row in rows) / len(rows):4.0%}"


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2] if values else math.nan


@measurement(
    "family | problem | sampler | log₁₀ p | estimate / p | in interval | in bounds | upper bound | BEAVER | verdict "
    "| LM tokens | CPU s",
    "{family} | {problem} | {sampler} | {log10_p:.2f} | {factor:.2f} | {covered} | {bounded} | {upper:.1e} | {beaver:.1e} | "
    "{verdict} | {lm_tokens} | {cpu_seconds:.2f}",
    quick={"problems": 3, "budget": 400},
    after=told,
)
def run(
    models: Annotated[Path, "folder that holds stories260k; without it all problems are of tables"] = SHARED / "models",
    samplers: Annotated[list[str], "of `locore.audit`"] = ("default", "swor", "smc"),  # type: ignore[assignment]
    problems: Annotated[int, "of all families together"] = 60,
    budget: Annotated[int, "LM tokens"] = 4_000,
    beaver: Annotated[bool, "measure BEAVER's bound beside it"] = True,
    before: Annotated[int, "rows of the same kind before the one that is judged, which teach it"] = 0,
    limit: Annotated[float | None, "ask for sides of limits so many times above and below the truth, and no more"] = None,
    seed: int = 45,
) -> Iterator[Case]:
    families = ("chain", "hidden", *(("stories",) if (models / "stories260k").is_dir() else ()))
    for family in families:
        for known in drawn(family, seed, -(-problems // len(families)), models):
            for sampler in samplers:
                case = {"family": family, "problem": known.name, "sampler": sampler}
                if limit is None:
                    yield case, partial(beside, known, sampler, budget, beaver and sampler == samplers[0], seed, before)
                else:
                    yield case, partial(sides, known, sampler, budget, seed, limit, before)


def beside(known: Known, sampler: str, budget: int, beaver: bool, seed: int, before: int) -> Row:
    """One audit, and BEAVER's upper bound where it is asked for."""
    row = measured(known, sampler, budget, seed, before)
    return {**row, "beaver": beaver_bounds(known, budget)[1]} if beaver else row
