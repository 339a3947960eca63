"""Who samples from p(y | α), at what price: distance from the truth against LM tokens."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch

from locore.kernel.errors import InvalidArgument
from locore_lab.fidelity.drawn import in_families
from locore_lab.fidelity.entries import choose
from locore_lab.fidelity.plots import plot
from locore_lab.fidelity.problems import Problem, full_problems, quick_problems
from locore_lab.fidelity.study import FidelityPlan, FidelityStudy
from locore_lab.fidelity.tables import write_results
from locore_lab.harness import Output, Quick, Seed, Some, experiment, option, say
from locore_lab.shared import check_known

QUICK = FidelityPlan(budgets=(80, 400), runs=16, goal=0.1, table_positions=4000)


@experiment("locore bench fidelity --quick -o results")
def run(
    output: Output,
    quick: Quick = False,
    model: Annotated[str | None, option("Only problems of this model.")] = None,
    problems: Annotated[Some, option("Only these problems.", "--problem")] = None,
    samplers: Annotated[Some, option("Only these samplers.", "--sampler")] = None,
    runs: Annotated[int | None, option("Runs in every cell; by default as many as the noise asks for.")] = None,
    seed: Seed = 0,
    budgets: Annotated[list[int] | None, option("LM tokens for one draw.", "--budget")] = None,
    drawn: Annotated[int | None, option("Problems drawn by the seed, the families in turn.")] = None,
    models: Annotated[Path | None, option("Folder of models that the package does not have.", "--data")] = None,
    truths: Annotated[list[Path] | None, option("More folders of answers that were found before.")] = None,
    cell_seconds: Annotated[float | None, option("CPU seconds for a sampler on a problem at a budget.")] = None,
    threads: Annotated[int, option("Of the model's arithmetic.")] = 1,
) -> dict[str, Any]:
    """Who samples from p(y | constraint), at what price: distance from the truth against LM tokens.

    What is in the folder already is not measured again.
    """
    plan = QUICK if quick else FidelityPlan()
    plan = replace(plan, seed=seed, runs=runs or plan.runs, budgets=tuple(budgets or plan.budgets))
    plan = plan if cell_seconds is None else replace(plan, cell_seconds=cell_seconds)
    start = time.process_time()
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    known = all_problems(quick, seed, (1 if quick else 16) if drawn is None else drawn, models)
    chosen = _selected(known, problems, model)
    study = FidelityStudy(output, plan, models, truths or [])
    with cache_in(output / "cache"):
        rows = study.run(chosen, choose(samplers))
    settings = {"quick": quick, "seed": seed, "runs": plan.runs, "budgets": list(plan.budgets), "goal": plan.goal}
    settings |= {"cell_seconds": plan.cell_seconds, "cpu_seconds": time.process_time() - start}
    write_results(output, rows, chosen, study.prepared, settings)
    plot(rows, output / "plots")
    say(f"{len(rows)} rows in {output / 'table.md'}")
    return {"settings": settings, "rows": rows}


@contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """Tables made here stay here: nothing of the user's cache is read, and nothing is left in it."""
    before = os.environ.get("LOCORE_CACHE")
    os.environ["LOCORE_CACHE"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("LOCORE_CACHE")
        if before is not None:
            os.environ["LOCORE_CACHE"] = before


def all_problems(quick: bool, seed: int, drawn: int, models: Path | None) -> list[Problem]:
    """The listed problems and those drawn by the seed; problems of models that are not here are left out."""
    found = quick_problems() if quick else full_problems()
    found += [problem for _, problem in in_families(seed, drawn, models)][:drawn] if drawn else []
    stories = models is not None and (models / "stories260k").is_dir()
    missing = [p.name for p in found if p.model == "stories260k" and not stories]
    if missing:
        say(f"left out, because the model stories260k is not here (give its folder): {', '.join(missing)}")
    return [p for p in found if p.name not in missing]


def _selected(known: list[Problem], names: list[str] | None, model: str | None) -> list[Problem]:
    by_name = {p.name: p for p in known}
    check_known("problems", names, by_name)
    chosen = [by_name[name] for name in names] if names else known
    chosen = [p for p in chosen if model is None or p.model == model]
    if not chosen:
        models = ", ".join(sorted({p.model for p in known}))
        raise InvalidArgument(f"no problem of the model {model!r}; there are problems of {models}.")
    return chosen
