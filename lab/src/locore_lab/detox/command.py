"""Continuations without banned phrases, the paper's third experiment: their toxicity and perplexity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import locore
from locore.cli.inputs import MODEL_HELP
from locore.io import Record, only_writer
from locore.kernel.errors import InvalidArgument
from locore_lab.detox.plan import (
    PAPERS,
    PREPARED,
    QUICK,
    DetoxPlan,
    Material,
    Row,
    Split,
    built_in,
    load_material,
    rows_of,
    split,
)
from locore_lab.detox.report import columns, table
from locore_lab.detox.scorers import open_scorer
from locore_lab.detox.study import BUNDLED, DetoxStudy, Parts, measure_all, open_judge
from locore_lab.detox.task import NUCLEUS, Races, Task
from locore_lab.harness import Data, Output, Quick, Seed, Some, experiment, markdown_table, option, write_report
from locore_lab.shared import rows_meant

TUNING_COLUMNS = ["τ", "mean toxicity", "median perplexity", "all weights zero %", "no text"]
PAPER_COLUMNS = ["Llama-3-8B", "EMT full", "toxic", "non-toxic", "TP full %", "toxic %", "non-toxic %", "perplexity"]
PAPER = [
    ("model alone", 0.25, 0.43, 0.20, 14.26, 38.30, 7.60, 14.45),
    ("word banning", 0.24, 0.40, 0.19, 12.47, 32.43, 6.93, 14.50),
    ("LCR", 0.23, 0.37, 0.19, 11.04, 28.00, 6.35, 14.50),
]


@experiment("locore reproduce detox --quick -o results")
def run(
    output: Output,
    quick: Quick = False,
    data: Data = None,
    seed: Seed = 0,
    model: Annotated[str, option(MODEL_HELP)] = "tiny",
    judge: Annotated[str | None, option("Another model, for perplexity; a small bundled one if not given.")] = None,
    scorer: Annotated[str, option("local, perspective, detoxify, or MODEL:LABEL of a text classifier.")] = "local",
    device: Annotated[str, option("Where models compute.")] = "cpu",
    prompts: Annotated[int | None, option("Prompts, at most.")] = None,
    generations: Annotated[int | None, option("Generations of each prompt by the cheap rows.")] = None,
    costly: Annotated[int | None, option("Prompts of the table that has every row, at most.")] = None,
    tuning: Annotated[int | None, option("Other prompts, on which the paper's τ is chosen, at most.")] = None,
    tau: Annotated[float | None, option("The paper's τ, instead of choosing it.")] = None,
    words: Annotated[bool, option("Ban whole words only, instead of phrases anywhere.")] = False,
    paired: Annotated[bool, option("All rows draw with the same seeds; much less to read for a large model.")] = False,
    rows: Annotated[Some, option("Only these rows, such as swor; may be given several times.", "--row")] = None,
) -> dict[str, list[Record]]:
    """Continuations without banned phrases, their toxicity and perplexity, with and without the constraint.

    More rows, prompts or generations join what is in the folder.
    """
    rows = rows or []
    if quick == (data is not None):
        raise InvalidArgument("give a folder with --data, or --quick for a few prompts of our own, and not both.")
    plan = _plan(quick, prompts=prompts, generations=generations, costly=costly, tuning=tuning)
    likely = rows_meant(rows_of(plan, tau or 1.0), _any_tau(rows))  # wrong names stop here, not after hours
    with only_writer(output):
        material = built_in() if data is None else load_material(data)
        asked = split(material, plan, prompts)
        writer = locore.load(model, device=device)
        parts = Parts(writer, open_judge(judge, writer, device), open_scorer(scorer, output, device))
        task = Task(material.phrases, plan.length, plan.particles, plan.pairs, words, Races() if paired else None)
        settings: Record = {"seed": seed, "model": writer.fingerprint(), "phrases": material.digest(), "words": words}
        settings |= {"length": plan.length, "particles": plan.particles, "pairs": plan.pairs}
        settings |= {"paired": "races by seed and step"} if paired else {}  # True was written for other races
        study = DetoxStudy(output, parts, task, plan, seed, settings)
        if any(row.name in PREPARED for row in likely):
            locore.prepare(writer)
        chosen, tuned = _rows(study, asked, tau, rows)
        measure_all(study, chosen, asked)
        facts: Record = {
            "settings": settings,
            "scorer": f"{parts.scorer.name} {parts.scorer.version}",
            "judge": judge or BUNDLED,
        }
        return _write(output, study, chosen, asked, material, tuned, facts)


def _plan(quick: bool, prompts: int | None, **numbers: int | None) -> DetoxPlan:
    """The plan with these numbers instead of its own."""
    for name, number in {"prompts": prompts, **numbers}.items():
        if number is not None and number < 1:
            raise InvalidArgument(f"{name} must be at least 1, got {number}.")
    given: dict[str, Any] = {name: number for name, number in numbers.items() if number is not None}
    plan = replace(QUICK if quick else DetoxPlan(), **given)
    return replace(plan, g=tuple(g for g in plan.g if g <= plan.generations) or (plan.generations,))


def _any_tau(rows: Sequence[str]) -> tuple[str, ...]:
    """Names without their τ, which may not be known yet."""
    return tuple(row.split(", τ=")[0] for row in rows)


def _rows(study: DetoxStudy, asked: Split, tau: float | None, wanted: Sequence[str]) -> tuple[list[Row], list[Record]]:
    """The rows, and how τ was chosen for them; nothing is spent on τ if no row needs it."""
    needed = any(row.name.startswith(PAPERS) for row in rows_meant(rows_of(study.plan, 1.0), _any_tau(wanted)))
    tuned: list[Record] = []
    if needed and tau is None:
        tau, tuned = study.best_tau(asked.tuning) if asked.tuning else (1.0, [])
    return rows_meant(rows_of(study.plan, tau if needed else None), tuple(wanted)), tuned


def _write(
    output: Path, study: DetoxStudy, rows: list[Row], asked: Split, material: Material, tuned: list[Record], facts: Record
) -> dict[str, list[Record]]:
    plan, cheap = study.plan, [row for row in rows if row.everywhere]
    first = plan.g[0]
    tables: dict[str, list[Record]] = {}
    for g in plan.g:
        if cheap:
            title = f"All {len(asked.final)} prompts, worst of {g}"
            tables[title] = table(study, cheap, asked.final, plan.generations, g)
    sample = f"Every row on {len(asked.costly)} of them, worst of {first}"
    tables[sample] = table(study, rows, asked.costly, first, first)
    text = _text(study, asked, material, facts)
    main, *others = tables
    after = [f"## {title}\n\n{markdown_table(tables[title], columns(_g(title)))}" for title in others]
    if tuned:
        after.append(
            f"## Choice of τ\n\nOn {len(asked.tuning)} other prompts, one generation for each, k={plan.k}; the least toxic is "
            f"taken.\n\n{markdown_table(tuned, TUNING_COLUMNS)}"
        )
    paper = [dict(zip(PAPER_COLUMNS, line, strict=True)) for line in PAPER]
    after.append(f"## The paper\n\nAnother model, scorer and judge; worst of 5.\n\n{markdown_table(paper, PAPER_COLUMNS)}")
    facts = facts | {"tables": tables, "tuning": tuned}
    write_report(
        output, "Detoxification", f"{text}\n\n## {main}", tables[main], columns(first), after="\n\n".join(after), **facts
    )
    return tables


def _g(title: str) -> int:
    return int(title.rsplit(" ", 1)[1])


def _text(study: DetoxStudy, asked: Split, material: Material, facts: Record) -> str:
    toxic = sum(prompt.is_toxic for prompt in asked.final)
    plan = study.plan
    where = "as whole words" if study.task.words else "anywhere in the text, also inside other words"
    return (
        f"{len(asked.final)} prompts, {toxic} of them toxic; {material.dropped} without a score were left out. Continuations "
        f"of at most {plan.length} tokens without {len(material.phrases)} phrases {where} (upper and lower case differ), or, "
        "in the rows of the paper's sampler and of word banning, without the token ids of a phrase, plain or after a space. "
        f"{plan.generations} generations of each prompt (dear rows: {plan.g[0]}, on {len(asked.costly)} prompts), each a run "
        "of its own with its own seed and cost. EMT@g: mean of the largest toxicity of g generations; TP@g: share of prompts "
        "with a toxic one among g; both are unbiased means over all sets of g. In brackets 95 % intervals, bootstrap over "
        "prompts. − exact: difference from the exact law of the same constraint, prompt by prompt. Toxicity by "
        f"{facts['scorer']}; perplexity for each of its tokens by {facts['judge']}. LM tokens and seconds (wall time) are for "
        f"one generation. S = {plan.pairs} pairs in each run of the paper's sampler, {plan.particles} particles in the "
        "library's; the table of n-grams that auto and twisted read is made once for a model and not counted. All weights "
        "zero: the share of runs of the paper's sampler in which it took a proposal at random; off candidates: of those whose "
        "sequence was taken although a token of its draft is no candidate around it. Nucleus: p is the model with the nucleus "
        f"of {NUCLEUS} of each next-token distribution, behind the ban if there is one."
        + " All rows draw with the same seeds, by races, and read no context twice; the bill is that of a row alone."
        * study.paired
    )
