"""`results.json`, `table.md` and `texts.md`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from locore.io import machine, write_whole
from locore_lab.fidelity.tables import NEGLIGIBLE, mean_ratio
from locore_lab.harness import Fields, markdown, table, write_rows
from locore_lab.tasks.measures import (
    KNOWN,
    OFF,
    PEERS,
    Row,
    default_against,
    geometric_mean,
    ratio_at_cost,
    ratio_to_peer,
    totals,
    worse_than,
)
from locore_lab.tasks.problem import Problem
from locore_lab.tasks.runs import DEFAULT, PLAIN_WEIGHTS, Entrant, Run
from locore_lab.tasks.truth import Truth

RIVALS = (*PLAIN_WEIGHTS, "smc", "genlm-smc")
JUDGED_AT = 1_000  # LM tokens
SHORT = 110  # characters of a text in texts.md

INTRODUCTION = f"""\
What users ask of a real language model (`locore bench tasks`; the model and the problems are in docs/lab/tasks.md).

- RMSE of log Ẑ in nats; a run that returns nothing counts like Ẑ = 1. ± one standard error.
- TV: total variation between the truth and the law of one draw, averaged over the features of the problem (the first word, the
  values of JSON fields, …); a run that returns nothing counts as wrong. Noise: what chance alone gives. Means leave out the
  problems whose laws are themselves known to no better than {KNOWN:g}.
- Every sampler gets the same budget of LM tokens (next-token distributions); `auto` is asked for 32 particles, as a newcomer
  does, the others for as many as the budget buys.
- Seconds are of runs that share nothing with other runs, on one thread."""


def write_results(
    output: Path, rows: list[Row], problems: list[Problem], truths: dict[str, Truth], settings: dict[str, Any]
) -> None:
    """`results.json` and `table.md`."""
    known = {
        p.name: {**p.to_json(), "log_z": truths[p.name].log_z, "log_z_error": truths[p.name].log_z_error}
        for p in problems
        if p.name in truths
    }
    record = {"settings": settings, "machine": machine(), "problems": known, "verdicts": totals(rows)}
    write_rows(output / "results.json", record, rows)
    write_whole(output / "table.md", report(rows, problems, truths))


COLUMNS = (
    "sampler | budget | runs | failed | RMSE | mean error | TV | noise | verdicts | LM tokens | passes | s in the model "
    "| s outside",
    "{sampler} | {budget:,} | {runs} | {fails} | {rmse:.3f}{error} | {mean_error:.3f} | {tv:.3f} | {noise:.3f} | {said} "
    "| {lm_tokens:,.0f} | {passes:.0f} | {model_seconds:.1f} | {other_seconds:.1f}",
)


def report(rows: list[Row], problems: list[Problem], truths: dict[str, Truth]) -> str:
    """The conclusions, then all rows by problem."""
    budgets = sorted({row["budget"] for row in rows})
    names = list(dict.fromkeys(row["sampler"] for row in rows if row["sampler"] != DEFAULT))
    parts = ["# Tasks", INTRODUCTION, *_summary(rows, names, budgets), *_worse(rows), *_calibration(rows)]
    parts += _price(rows, names, budgets) + _at_equal_cost(rows, names, budgets)
    parts += ["\n".join(_default(rows, budgets))] if any(row["sampler"] == DEFAULT for row in rows) else []
    for problem in problems:
        here = [row for row in rows if row["problem"] == problem.name]
        if here:
            parts += _problem(problem, truths[problem.name], here)
    missing = [p.name for p in problems if p.name not in truths]
    if missing:
        parts += ["## Without a truth", f"None was made, or two unbiased samplers did not agree: {', '.join(missing)}."]
    return "\n\n".join(parts) + "\n"


def _summary(rows: list[Row], names: list[str], budgets: list[int]) -> list[str]:
    """Geometric means over problems, and the ratio to the best peer."""
    text = (
        "Geometric means over the problems that a sampler was measured on; in brackets its ratio to the best of "
        f"{', '.join(PEERS)} on the same problem."
    )
    heads = ["sampler", "problems", *(f"{what} at {b:,}" for b in budgets for what in ("RMSE", "TV"))]
    lines = []
    for name in names:
        own = [row for row in rows if row["sampler"] == name]
        lines.append([name, str(len({row["problem"] for row in own}))])
        for budget in budgets:
            at = [row for row in own if row["budget"] == budget]
            lines[-1] += [_with_ratio(rows, at, name, budget, measure) for measure in ("rmse", "tv")]
    return ["## All problems", text, markdown(heads, lines)]


def _with_ratio(rows: list[Row], at: list[Row], name: str, budget: int, measure: str) -> str:
    mean = geometric_mean(at, measure)
    ratio = ratio_to_peer(rows, name, budget, measure)
    if mean is None:
        return "–"
    return f"{mean:.3f}" + (f" ({ratio[0]:.2f})" if ratio else "")


def _worse(rows: list[Row]) -> list[str]:
    """Where the default is worse than what others do."""
    found = worse_than(rows, "auto", RIVALS, JUDGED_AT)
    said = f"Nowhere beyond two standard errors: {', '.join(RIVALS)} were compared."
    lines = [[problem, other, f"{own:.3f}", f"{theirs:.3f}"] for problem, other, own, theirs in found]
    shown = markdown(["problem", "than", "RMSE of auto", "of the other"], lines) if found else said
    return [f"## Where `auto` is worse at {JUDGED_AT:,} LM tokens", shown]


def _calibration(rows: list[Row]) -> list[str]:
    """How often each verdict was given, and how often it was right."""
    text = (
        f"Off: Ẑ is wrong by more than {OFF:.0%}, beyond twice the error of the truth. Covered: the 95 % interval holds the "
        "truth, of the runs that claim one."
    )
    lines = []
    for name, levels in totals(rows).items():
        for level, counts in levels.items():
            covered = f"{counts['covered']} of {counts['intervals']}" if counts["intervals"] else "–"
            off = f"{counts['off']} ({counts['off'] / counts['runs']:.0%})"
            lines.append([name, level, str(counts["runs"]), off, covered])
    return ["## Were the verdicts right?", text, markdown(["sampler", "verdict", "runs", "off", "covered"], lines)]


def _price(rows: list[Row], names: list[str], budgets: list[int]) -> list[str]:
    """What a task costs."""
    text = (
        "Of one thread, mean over the problems; in brackets the share of the time that is spent outside of the model; and how "
        "often the model is read, one time after the other."
    )
    lines = []
    for name in names:
        own = [row for row in rows if row["sampler"] == name and row["cpu_seconds"] is not None]
        lines.append([name, *(_spent([row for row in own if row["budget"] == budget]) for budget in budgets)])
    heads = ["sampler", *(f"{b:,} LM tokens" for b in budgets)]
    return ["## CPU seconds and passes a task", text, markdown(heads, lines)]


def _spent(rows: list[Row]) -> str:
    if not rows:
        return "–"
    outside, inside = (sum(row[f"{where}_seconds"] for row in rows) for where in ("other", "model"))
    passes = [row["passes"] for row in rows if row["passes"] is not None]
    often = f", {sum(passes) / len(passes):.0f} passes" if passes else ""
    return f"{sum(row['cpu_seconds'] for row in rows) / len(rows):.1f} ({outside / (outside + inside):.0%}){often}"


def _default(rows: list[Row], budgets: list[int]) -> list[str]:
    """Is the default call as accurate as calls that spend less?"""
    lines = ["## Is the default call the best use of its time?", ""]
    lines += [
        "RMSE of the default call against `auto` with a budget that is no larger than what the default call spends, geometric",
        "mean; and where it is worse by more than two standard errors of the two.",
        "",
    ]
    lines += ["| budget | problems | ratio | worse on |", "|---|---|---|---|"]
    for budget in budgets:
        found = default_against(rows, DEFAULT, budget)
        if found:
            ratio = mean_ratio([max(own, NEGLIGIBLE) / max(other, NEGLIGIBLE) for _, own, other, _ in found])
            worse = [name for name, own, other, slack in found if own - other > max(slack, NEGLIGIBLE)]
            lines.append(f"| {budget:,} | {len(found)} | {ratio:.2f} | {', '.join(worse) or 'none'} |")
    return [*lines, ""]


def _at_equal_cost(rows: list[Row], names: list[str], budgets: list[int]) -> list[str]:
    """Accuracy where all take as long as plain SMC does."""
    text = (
        f"RMSE as a multiple of the best of {', '.join(PEERS)} on the same problem, where all spend what smc spends at so many "
        "LM tokens: geometric means. Between budgets that were measured by straight lines on logarithmic scales, beyond them "
        "as one over the root."
    )
    lines = []
    for name in names:
        found = [ratio_at_cost(rows, name, axis, "smc", b) for b in budgets for axis in ("cpu_seconds", "passes")]
        lines.append([name, *("–" if cell is None else f"{cell[0]:.2f}" for cell in found)])
    heads = ["sampler", *(head for b in budgets for head in (f"seconds of smc at {b:,}", f"passes at {b:,}"))]
    return ["## At equal seconds, and at equal passes", text, markdown(heads, lines)]


def _problem(problem: Problem, truth: Truth, rows: list[Row]) -> list[str]:
    where = "in a chat" if problem.chat else "plain"
    asked = f"{problem.prompt!r} ({where}), n = {problem.length}:\n`{_alpha(problem)}`"
    known = f"log p(α) = {truth.log_z:.3f} ± {truth.log_z_error:.3f} nats, the laws to {truth.laws_error:.2f}; {truth.source}."
    return [f"## {problem.name}", asked, known, table(rows, COLUMNS, FIELDS)]


def _alpha(problem: Problem) -> str:
    return json.dumps(problem.constraint.to_json(), ensure_ascii=False)


def _said(row: Row) -> str:
    verdicts = ", ".join(f"{level} {counts['runs']}" for level, counts in row["verdicts"].items())
    return verdicts + (f" ({', '.join(row['chosen'])})" if row["chosen"] else "")


FIELDS: Fields = {
    "fails": lambda row: row["failed"] or "",
    "error": lambda row: "" if row["rmse_error"] is None else f" ± {row['rmse_error']:.3f}",
    "said": _said,
}


def write_texts(output: Path, problems: list[Problem], entrants: list[Entrant], runs: dict[tuple[str, str], list[Run]]) -> None:
    """`texts.md`: what each sampler wrote, for readers; draws of its first run, likeliest first."""
    text = (
        "Five draws of one run in proportion to its weights, the likeliest first and the unlikeliest last; log p(y) in nats. "
        "Spaces at the start are the model's."
    )
    parts = ["# Texts", text]
    for problem in problems:
        parts += [f"## {problem.name}", f"{problem.prompt!r}, `{_alpha(problem)}`"]
        lines = []
        for entrant in entrants:
            found = [run for run in runs.get((problem.name, entrant.name), []) if run.texts]
            if found:
                lines += [f"- **{entrant.name}**", *(f"    - {score:.1f} `{_quoted(text)}`" for text, score in found[0].texts)]
        parts.append("\n".join(lines))
    write_whole(output / "texts.md", "\n\n".join(parts) + "\n")


def _quoted(text: str) -> str:
    """On one line, without what ends a code span."""
    shown = repr(text)[1:-1].replace("`", "ˋ")
    return shown if len(shown) <= SHORT else f"{shown[:SHORT]}…"
