"""What users ask of a real language model: every sampler against the truth of 35 problems."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from typing import Annotated, Any, get_args

import torch
import typer

import locore
from locore.io import only_writer
from locore.kernel.errors import InvalidArgument
from locore.models import HuggingFaceModel, LanguageModel, Remembered
from locore.models.precision import check_steering
from locore_lab.fidelity.command import cache_in
from locore_lab.fidelity.plots import plot
from locore_lab.harness import Output, Quick, Some, experiment, option, say
from locore_lab.shared import check_known
from locore_lab.tasks.drawn import drawn_problems
from locore_lab.tasks.measures import Row
from locore_lab.tasks.problem import Family, Problem, Task
from locore_lab.tasks.report import JUDGED_AT, write_results, write_texts
from locore_lab.tasks.runs import entrants
from locore_lab.tasks.study import TasksPlan, TasksStudy
from locore_lab.tasks.truth import BATCHES, check_model, stored_truth, tolerance
from locore_lab.tasks.written import at_temperature, written_problems

QUICK = TasksPlan(rounds={250: 2}, few={250: 1}, batches=BATCHES[:1])
QUICK_PROBLEMS = ("keyword-dog", "ban-letter", "ending-happy", "choice-sentiment")
QUICK_SAMPLERS = ["auto", "masked-is", "smc", "swor", "twisted, learned", "rejection", "transformers-masking"]
MEMORY_BYTES = 5 * 2**30  # of contexts that are remembered
FEW_RUNS = 2  # of samplers that are not among the main ones


@experiment("locore bench tasks -o results --family json --sampler auto --budget 1000")
def run(
    output: Output,
    quick: Quick = False,
    model: Annotated[str | None, option("Any causal model; truths that the package lacks are made.")] = None,
    problems: Annotated[Some, option("Only these problems.", "--problem")] = None,
    families: Annotated[Some, option(f"Only these: {', '.join(get_args(Family))}.", "--family")] = None,
    samplers: Annotated[Some, option("Only these samplers.", "--sampler")] = None,
    budgets: Annotated[list[int] | None, option("LM tokens of a run.", "--budget")] = None,
    runs: Annotated[int | None, option("Of each sampler at each budget.")] = None,
    seed: Annotated[int, option("Of everything; other seeds than 0 draw problems whose truth takes hours.")] = 0,
    truths_only: Annotated[bool, typer.Option("--truths", help="Make the truths that are missing, and stop.")] = False,
    threads: Annotated[int, option("Of the model's arithmetic.")] = 1,
    device: Annotated[str | None, option("Where the model computes, such as cuda.")] = None,
    dtype: Annotated[str, option("Of the weights, such as bfloat16; the truths stay those of 32 bits.")] = "float32",
    steer_dtype: Annotated[str, option("Of a copy that draws what the model weighs, such as bfloat16.")] = "",
    tables: Annotated[bool, typer.Option("--tables", help="Measure nothing: write the tables of what is there.")] = False,
    temperature: Annotated[float, option("Another than 1: the written problems there; .7 has truths.")] = 1.0,
) -> list[Row]:
    """What users ask of a real language model: evidence, features, verdicts and texts of every sampler against the truth."""
    torch.set_num_threads(threads)
    known = [*written_problems(), *drawn_problems(seed)] if temperature == 1 else at_temperature(temperature)
    opened = opener(model, device, dtype, steer_dtype)
    chosen = selected(known if model is None else told_to(known, model, opened(model), dtype), problems, families, quick)
    plan = replace(planned(quick, seed, budgets, runs), dtype=dtype, steer_dtype=steer_dtype)
    start = time.process_time()
    with only_writer(output):
        study = TasksStudy(output, plan, opened, remembering())
        if truths_only:
            made = [study.truth(problem) for problem in chosen]
            say(f"{sum(truth is not None for truth in made)} of {len(chosen)} truths are known")
            return []
        rows = _measured(study, chosen, samplers or (QUICK_SAMPLERS if quick else None), measure=not tables)
    say(f"{len(rows)} rows in {output / 'table.md'}, {time.process_time() - start:.0f} CPU seconds")
    return rows


def planned(quick: bool, seed: int, budgets: list[int] | None, runs: int | None) -> TasksPlan:
    """The plan with what the caller changed."""
    plan = replace(QUICK if quick else TasksPlan(), seed=seed)
    rounds = {b: runs or plan.rounds.get(b, min(plan.rounds.values())) for b in budgets or plan.rounds}
    few = {b: min(FEW_RUNS, n) for b, n in rounds.items() if budgets or b in plan.few}
    return replace(plan, rounds=rounds, few=few)


def selected(known: list[Problem], names: list[str] | None, families: list[str] | None, quick: bool) -> list[Problem]:
    """The problems asked for."""
    by_name = {problem.name: problem for problem in known}
    for what, asked, there in (("problems", names, by_name), ("families", families, {p.family for p in known})):
        check_known(what, asked, there)
    brief = [name for name in by_name if name.startswith(QUICK_PROBLEMS)]
    wanted = names or (brief if quick else list(by_name))
    found = [by_name[name] for name in wanted if not families or by_name[name].family in families]
    if not found:
        raise InvalidArgument("no problem is left; name others, or other families.")
    return found


def told_to(problems: list[Problem], name: str, model: LanguageModel, dtype: str) -> list[Problem]:
    """The same, asked of another model; as they are, if the truths of the package are of this one.

    Where there is no chat template, what the user says is a plain prompt.
    """
    first = written_problems()[0]
    truth = stored_truth(first)
    assert truth is not None
    try:
        check_model(Task.of(first, model), truth, tolerance(dtype))
        return problems
    except InvalidArgument:
        knows_chats = model.tokenizer.chat_fingerprint() is not None
        return [replace(problem, model=name, chat=problem.chat and knows_chats) for problem in problems]


def opener(
    model: str | None, device: str | None = None, dtype: str = "float32", steer_dtype: str = ""
) -> Callable[[str], LanguageModel]:
    """Opens each model once; `model` stands in for every name."""
    weights = getattr(torch, dtype, None)
    if not isinstance(weights, torch.dtype):
        raise InvalidArgument(f"dtype must be one of torch, such as float32 or bfloat16, got {dtype!r}.")
    steering: Any = steer_dtype or None
    check_steering(steering, weights)

    @cache
    def opened(name: str) -> LanguageModel:
        return locore.load(name, device=device, dtype=weights, steer_dtype=steering)

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
    return {**row, "noise": row["noise"] or 0.0, "rmse_error": row["rmse_error"] or 0.0}


def remembering() -> Callable[[LanguageModel], LanguageModel]:
    """Wraps a model so that no context is evaluated twice; a model that cannot be wrapped stays as it is."""

    def wrapped(model: LanguageModel) -> LanguageModel:
        if isinstance(model, HuggingFaceModel) and model.causal.shares:
            return Remembered(model, MEMORY_BYTES)
        return model

    return wrapped
