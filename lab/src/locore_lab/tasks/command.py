"""`locore bench tasks`: the problems, the rows, and the files that come of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import torch

import locore
from locore.errors import InvalidArgument
from locore.io import only_writer
from locore.models import HuggingFaceModel, LanguageModel, Remembered
from locore_lab.fidelity.command import cache_in
from locore_lab.fidelity.plots import plot
from locore_lab.progress import say
from locore_lab.tasks.drawn import drawn_problems
from locore_lab.tasks.entrants import entrants
from locore_lab.tasks.measures import Row
from locore_lab.tasks.problem import Problem
from locore_lab.tasks.report import JUDGED_AT, write_results, write_texts
from locore_lab.tasks.study import TasksPlan, TasksStudy
from locore_lab.tasks.written import at_temperature, written_problems

QUICK = TasksPlan(rounds={250: 2}, few={250: 1})
QUICK_PROBLEMS = ("keyword-dog", "ban-letter", "ending-happy", "choice-sentiment")
QUICK_SAMPLERS = ["auto", "masked-is", "smc", "swor", "twisted, learned", "rejection", "transformers-masking"]
MEMORY_BYTES = 5 * 2**30  # of contexts that are remembered
FEW_RUNS = 2  # of samplers that are not among the main ones


def run(
    output: Path,
    quick: bool = False,
    model: str | None = None,
    problems: list[str] | None = None,
    families: list[str] | None = None,
    samplers: list[str] | None = None,
    budgets: list[int] | None = None,
    runs: int | None = None,
    seed: int = 0,
    truths_only: bool = False,
    threads: int = 1,
    device: str | None = None,
    dtype: str = "float32",
    measure: bool = True,
    temperature: float = 1.0,
) -> list[Row]:
    """Measure, and write `results.json`, `table.md`, `texts.md` and plots; what is in the folder already stays.

    Args:
        output: folder of the results; a run that was killed goes on where it stopped.
        quick: a few problems and samplers with a small budget, in five minutes.
        model: another name or a folder of the same weights.
        problems: names of problems; all by default.
        families: only problems of these.
        samplers: names of samplers; all by default.
        budgets: LM tokens of a run.
        runs: of each sampler at each budget.
        seed: of everything, the drawn problems included; truths for another seed than 0 are made first, which takes hours.
        truths_only: make the truths that are missing, and stop.
        threads: of torch.
        device: where the model computes; as for `locore.load`.
        dtype: of its weights, such as "bfloat16"; the truths stay those of 32 bits.
        measure: False: write the tables of what is in the folder.
        temperature: other than 1: the written problems alone, at this temperature; .7 has truths.

    Raises:
        InvalidArgument: unknown names; or the model is not the one that the truths speak of.
        ModelNotFound: the model is not installed.
    """
    torch.set_num_threads(threads)
    known = [*written_problems(), *drawn_problems(seed)] if temperature == 1 else at_temperature(temperature)
    chosen = selected(known, problems, families, quick)
    plan = replace(planned(quick, seed, budgets, runs), dtype=dtype)
    start = time.process_time()
    with only_writer(output):
        study = TasksStudy(output, plan, opener(model, device, dtype), remembering())
        if truths_only:
            made = [study.truth(problem) for problem in chosen]
            say(f"{sum(truth is not None for truth in made)} of {len(chosen)} truths are known")
            return []
        rows = _measured(study, chosen, samplers or (QUICK_SAMPLERS if quick else None), measure)
    say(f"{len(rows)} rows in {output / 'table.md'}, {time.process_time() - start:.0f} CPU seconds")
    return rows


def planned(quick: bool, seed: int, budgets: list[int] | None, runs: int | None) -> TasksPlan:
    """The plan with what the caller changed."""
    plan = replace(QUICK if quick else TasksPlan(), seed=seed)
    rounds = {b: runs or plan.rounds.get(b, min(plan.rounds.values())) for b in budgets or plan.rounds}
    few = {b: min(FEW_RUNS, n) for b, n in rounds.items() if budgets or b in plan.few}
    return replace(plan, rounds=rounds, few=few)


def selected(known: list[Problem], names: list[str] | None, families: list[str] | None, quick: bool) -> list[Problem]:
    """The problems asked for.

    Raises:
        InvalidArgument: an unknown name or family, or nothing is left.
    """
    by_name = {problem.name: problem for problem in known}
    for what, asked, there in (("problems", names, by_name), ("families", families, {p.family for p in known})):
        unknown = [name for name in asked or [] if name not in there]
        if unknown:
            raise InvalidArgument(f"unknown {what} {', '.join(unknown)}; known are {', '.join(there)}.")
    brief = [name for name in by_name if name.startswith(QUICK_PROBLEMS)]
    wanted = names or (brief if quick else list(by_name))
    found = [by_name[name] for name in wanted if not families or by_name[name].family in families]
    if not found:
        raise InvalidArgument("no problem is left; name others, or other families.")
    return found


def opener(model: str | None, device: str | None = None, dtype: str = "float32") -> Callable[[str], LanguageModel]:
    """Opens each model once; `model` stands in for every name.

    Raises:
        InvalidArgument: torch has no such dtype.
    """
    weights = getattr(torch, dtype, None)
    if not isinstance(weights, torch.dtype):
        raise InvalidArgument(f"dtype must be one of torch, such as float32 or bfloat16, got {dtype!r}.")

    @cache
    def opened(name: str) -> LanguageModel:
        return locore.load(name, device=device, dtype=weights)

    return lambda name: opened(model or name)


def _measured(study: TasksStudy, problems: list[Problem], samplers: list[str] | None, measure: bool) -> list[Row]:
    """Run what is missing, and write everything."""
    rivals = entrants(samplers, installed=measure)
    if measure:
        for name in {problem.model for problem in problems}:
            study.open_model(name)  # from the user's cache, where a converted model lies
        # A table that `locore prepare` left there would steer `auto`, and a newcomer has none.
        with cache_in(study.output / "cache"):
            rows, truths = study.run(problems, rivals)
    else:
        rows, truths = study.found(problems, rivals)
    settings = {**asdict(study.plan), "samplers": [rival.name for rival in rivals]}
    write_results(study.output, rows, problems, truths, settings)
    shown = JUDGED_AT if JUDGED_AT in study.plan.rounds else max(study.plan.rounds)
    texts = {(p.name, r.name): study.runs(p, r, shown) for p in problems for r in rivals}
    write_texts(study.output, [p for p in problems if p.name in truths], rivals, texts)
    plot([_plotted(row) for row in rows], study.output / "plots")
    return rows


def _plotted(row: Row) -> Row:
    """As the plots of `bench fidelity` want it: what one run cannot tell counts as nothing."""
    return {**row, "noise": row["noise"] or 0.0, "rmse_error": row["rmse_error"] or 0.0, "log_weights": None}


def remembering() -> Callable[[LanguageModel], LanguageModel]:
    """Wraps a model so that no context is evaluated twice; a model that cannot be wrapped stays as it is."""

    def wrapped(model: LanguageModel) -> LanguageModel:
        if isinstance(model, HuggingFaceModel) and model.causal.shares:
            return Remembered(model, MEMORY_BYTES)
        return model

    return wrapped
