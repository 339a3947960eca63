"""Does what drafts teach foretell p(α)?

For problems of `locore bench tasks`: the steps of forecasts without a twist and with the one that drafts taught, as "twisted"
puts it to the test before it steers by it (docs/samplers.md), and what the round that was not steered found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Annotated

import torch

import locore
from locore.kernel.samplers.base import left_to_right
from locore.models import Counted
from locore.samplers.twist.lessons import Lesson
from locore.samplers.twist.lookahead import look_ahead
from locore_lab.harness import Case, Row, Some, measurement
from locore_lab.tasks.command import selected
from locore_lab.tasks.drawn import drawn_problems
from locore_lab.tasks.problem import Task
from locore_lab.tasks.truth import stored_truth
from locore_lab.tasks.written import written_problems

SHARE = 1 / 8  # of the budget, for drafts and for the trial each


def trial_of(task: Task, budget: int, seed: int) -> Row:
    """One trial."""
    counted, circuit, generator = Counted(task.model), task.circuit, torch.Generator().manual_seed(seed)
    model, reader, price = task.target(counted), left_to_right(circuit), max(1, circuit.length - 1)
    drafts, trial = max(1, int(budget * SHARE) // price), max(2, int(budget * SHARE) // price)
    lesson = Lesson.taken(model, reader, drafts, trial, generator)
    accepted = int(circuit.accepts(lesson.tokens).sum())
    assert lesson.trial is not None and lesson.trial.done is not None
    found = lesson.trial.steps(look_ahead(lesson.counts.table(), reader))
    assert found is not None
    truth = stored_truth(task.problem)
    error = float(torch.logsumexp(lesson.trial.done.log_weights, 0)) - (truth.log_z if truth else math.nan)
    steps = {"without": found.plain, "with": found.foreseen}
    return {"length": circuit.length, "accepted": accepted, "drafts": drafts, **steps, "error": error}


@measurement(
    "problem | n | drafts accepted | steps without, nats | with | error of log Ẑ of the trial",
    "{problem} | {length} | {accepted} of {drafts} | {without:.1f} | {with:.1f} | {error:+.1f}",
    quick={"problem": ["ending-happy"], "seeds": 1},
)
def run(
    problem: Annotated[Some, "only these"] = None,
    budget: Annotated[int, "LM tokens of the call that the trial is part of"] = 1000,
    seeds: int = 2,
) -> Iterator[Case]:
    model = locore.load("smollm2")
    for each in selected([*written_problems(), *drawn_problems(0)], problem, None, quick=False):
        task = Task.of(each, model)
        for seed in range(seeds):
            yield {"problem": each.name, "seed": seed}, partial(trial_of, task, budget, seed)
