"""`results.json`, `table.md` and `texts.md`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from locore.io import machine, write_whole
from locore_lab.harness import write_rows
from locore_lab.tasks.measures import KNOWN, OFF, PEERS, Row, geometric_mean, ratio_at_cost, ratio_to_peer, totals, worse_than
from locore_lab.tasks.problem import Problem
from locore_lab.tasks.runs import PLAIN_WEIGHTS, Entrant, Run
from locore_lab.tasks.truth import Truth

RIVALS = (*PLAIN_WEIGHTS, "smc", "genlm-smc")
JUDGED_AT = 1_000  # LM tokens
SHORT = 110  # characters of a text in texts.md

INTRODUCTION = f"""\
What users ask of a real language model (`locore bench tasks`; the model and the problems are in docs/tasks.md).

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
    write_whole(output / "table.md", markdown(rows, problems, truths))


def markdown(rows: list[Row], problems: list[Problem], truths: dict[str, Truth]) -> str:
    """The conclusions, then all rows by problem."""
    budgets = sorted({row["budget"] for row in rows})
    names = list(dict.fromkeys(row["sampler"] for row in rows))
    lines = ["# Tasks", "", INTRODUCTION, "", *_summary(rows, names, budgets), *_worse(rows), *_calibration(rows)]
    lines += _price(rows, names, budgets) + _at_equal_cost(rows, names, budgets)
    for problem in problems:
        here = [row for row in rows if row["problem"] == problem.name]
        if here:
            lines += _problem(problem, truths[problem.name], here)
    missing = [p.name for p in problems if p.name not in truths]
    if missing:
        lines += ["## Without a truth", "", f"None was made, or two unbiased samplers did not agree: {', '.join(missing)}.", ""]
    return "\n".join(lines)


def _summary(rows: list[Row], names: list[str], budgets: list[int]) -> list[str]:
    """Geometric means over problems, and the ratio to the best peer."""
    lines = [
        "## All problems",
        "",
        "Geometric means over the problems that a sampler was measured on; in brackets its ratio to",
    ]
    lines += [f"the best of {', '.join(PEERS)} on the same problem.", ""]
    head = "".join(f" RMSE at {b:,} | TV at {b:,} |" for b in budgets)
    lines += [f"| sampler | problems |{head}", "|---|---|" + "---|" * (2 * len(budgets))]
    for name in names:
        own = [row for row in rows if row["sampler"] == name]
        cells = [name, str(len({row["problem"] for row in own}))]
        for budget in budgets:
            at = [row for row in own if row["budget"] == budget]
            cells += [_with_ratio(rows, at, name, budget, measure) for measure in ("rmse", "tv")]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _with_ratio(rows: list[Row], at: list[Row], name: str, budget: int, measure: str) -> str:
    mean = geometric_mean(at, measure)
    ratio = ratio_to_peer(rows, name, budget, measure)
    if mean is None:
        return "–"
    return f"{mean:.3f}" + (f" ({ratio[0]:.2f})" if ratio else "")


def _worse(rows: list[Row]) -> list[str]:
    """Where the default is worse than what others do."""
    lines = [f"## Where `auto` is worse at {JUDGED_AT:,} LM tokens", ""]
    found = worse_than(rows, "auto", RIVALS, JUDGED_AT)
    if not found:
        return [*lines, f"Nowhere beyond two standard errors: {', '.join(RIVALS)} were compared.", ""]
    lines += ["| problem | than | RMSE of auto | of the other |", "|---|---|---|---|"]
    lines += [f"| {problem} | {other} | {own:.3f} | {theirs:.3f} |" for problem, other, own, theirs in found]
    return [*lines, ""]


def _calibration(rows: list[Row]) -> list[str]:
    """How often each verdict was given, and how often it was right."""
    lines = ["## Were the verdicts right?", ""]
    lines += [
        f"Off: Ẑ is wrong by more than {OFF:.0%}, beyond twice the error of the truth. Covered: the 95 % interval holds the"
    ]
    lines += ["truth, of the runs that claim one.", "", "| sampler | verdict | runs | off | covered |", "|---|---|---|---|---|"]
    for name, levels in totals(rows).items():
        for level, counts in levels.items():
            covered = f"{counts['covered']} of {counts['intervals']}" if counts["intervals"] else "–"
            lines.append(f"| {name} | {level} | {counts['runs']} | {_share(counts['off'], counts['runs'])} | {covered} |")
    return [*lines, ""]


def _price(rows: list[Row], names: list[str], budgets: list[int]) -> list[str]:
    """What a task costs."""
    lines = [
        "## CPU seconds and passes a task",
        "",
        "Of one thread, mean over the problems; in brackets the share of the time that is spent outside of the model; and how",
    ]
    lines += [
        "often the model is read, one time after the other.",
        "",
        f"| sampler |{''.join(f' {b:,} LM tokens |' for b in budgets)}",
        "|---|" + "---|" * len(budgets),
    ]
    for name in names:
        cells = [name]
        for budget in budgets:
            at = [row for row in rows if row["sampler"] == name and row["budget"] == budget and row["cpu_seconds"] is not None]
            outside, whole = (
                sum(row["other_seconds"] for row in at),
                sum(row["other_seconds"] + row["model_seconds"] for row in at),
            )
            mean = sum(row["cpu_seconds"] for row in at) / len(at) if at else None
            passes = [row["passes"] for row in at if row["passes"] is not None]
            often = f", {sum(passes) / len(passes):.0f} passes" if passes else ""
            cells.append("–" if mean is None else f"{mean:.1f} ({outside / whole:.0%}){often}")
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _at_equal_cost(rows: list[Row], names: list[str], budgets: list[int]) -> list[str]:
    """Accuracy where all take as long as plain SMC does."""
    lines = [
        "## At equal seconds, and at equal passes",
        "",
        f"RMSE as a multiple of the best of {', '.join(PEERS)} on the same problem,",
        "where all spend what smc spends at so many LM tokens: geometric means. Between budgets that were measured by straight",
        "lines on logarithmic scales, beyond them as one over the root.",
        "",
        "| sampler |" + "".join(f" seconds of smc at {b:,} | passes at {b:,} |" for b in budgets),
        "|---|" + "---|---|" * len(budgets),
    ]
    for name in names:
        found = [ratio_at_cost(rows, name, axis, "smc", b) for b in budgets for axis in ("cpu_seconds", "passes")]
        lines.append(f"| {name} | " + " | ".join("–" if cell is None else f"{cell[0]:.2f}" for cell in found) + " |")
    return [*lines, ""]


def _problem(problem: Problem, truth: Truth, rows: list[Row]) -> list[str]:
    where = "in a chat" if problem.chat else "plain"
    lines = [f"## {problem.name}", "", f"{problem.prompt!r} ({where}), n = {problem.length}: "]
    lines += [f"`{json.dumps(problem.constraint.to_json(), ensure_ascii=False)}`", ""]
    lines += [
        f"log p(α) = {truth.log_z:.3f} ± {truth.log_z_error:.3f} nats, the laws to {truth.laws_error:.2f}; {truth.source}.",
        "",
        HEAD,
    ]
    lines += ["|" + "---|" * (HEAD.count("|") - 1), *map(_line, rows)]
    return [*lines, ""]


HEAD = (
    "| sampler | budget | runs | failed | RMSE | mean error | TV | noise | verdicts | LM tokens | passes | s in the model | "
    "s outside |"
)


def _line(row: Row) -> str:
    verdicts = ", ".join(f"{level} {counts['runs']}" for level, counts in row["verdicts"].items())
    if row["chosen"]:
        verdicts += f" ({', '.join(row['chosen'])})"
    error = "" if row["rmse_error"] is None else f" ± {row['rmse_error']:.3f}"
    cells = [
        row["sampler"],
        f"{row['budget']:,}",
        str(row["runs"]),
        str(row["failed"] or ""),
        _number(row["rmse"]) + error,
        _number(row["mean_error"]),
        _number(row["tv"]),
        _number(row["noise"]),
        verdicts,
        f"{row['lm_tokens']:,.0f}",
        _number(row["passes"], 0),
        _number(row["model_seconds"], 1),
        _number(row["other_seconds"], 1),
    ]
    return "| " + " | ".join(cells) + " |"


def write_texts(output: Path, problems: list[Problem], entrants: list[Entrant], runs: dict[tuple[str, str], list[Run]]) -> None:
    """`texts.md`: what each sampler wrote, for readers; draws of its first run, likeliest first."""
    lines = [
        "# Texts",
        "",
        "Five draws of one run in proportion to its weights, the likeliest first and the unlikeliest last; log p(y)",
    ]
    lines += ["in nats. Spaces at the start are the model's.", ""]
    for problem in problems:
        lines += [
            f"## {problem.name}",
            "",
            f"{problem.prompt!r}, `{json.dumps(problem.constraint.to_json(), ensure_ascii=False)}`",
            "",
        ]
        for entrant in entrants:
            found = [run for run in runs.get((problem.name, entrant.name), []) if run.texts]
            if found:
                lines += [f"- **{entrant.name}**", *(f"    - {score:.1f} `{_quoted(text)}`" for text, score in found[0].texts)]
        lines.append("")
    write_whole(output / "texts.md", "\n".join(lines))


def _quoted(text: str) -> str:
    """On one line, without what ends a code span."""
    shown = repr(text)[1:-1].replace("`", "ˋ")
    return shown if len(shown) <= SHORT else f"{shown[:SHORT]}…"


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.0%})" if whole else "–"


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
