"""What a copy in 16 bits brings that draws what the model weighs (`steer_dtype`), in CPU seconds and nats.

A call in 32 bits takes outside + model seconds, and to score what it keeps takes weighing. Where a pass in 16 bits takes 1/s
of the time, a call takes outside + model/s + weighing: at half, a quarter and an eighth, over the seconds in 32 bits. Where the
processor computes faster in 16 bits, or if it is asked for, the copy draws too: what that took is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated

import torch

import locore
from locore.models import HuggingFaceModel
from locore.models.precision import copied, pays
from locore_lab.harness import Case, Row, Some, measurement
from locore_lab.tasks.problem import Problem
from locore_lab.tasks.written import written_problems

PROBLEMS = ("keyword-dog", "keyword-ship", "ban-rude", "ending-happy", "infill-home", "count-six-words", "json-book")
BUDGETS = (1_000, 4_000)


def called(model: HuggingFaceModel, problem: Problem, budget: int) -> tuple[locore.Particles, float]:
    """A call, and its CPU seconds."""
    start = time.process_time()
    found = locore.generate(
        model, problem.prompt, problem.constraint, max_new_tokens=problem.length, ending="complete", budget=budget, seed=1
    )
    return found, time.process_time() - start


def measured(model: HuggingFaceModel, problem: Problem, budget: int, draws: bool) -> Row:
    """With the copy put aside, and then with it."""
    copy, model.copied = model.copied, None
    found, seconds = called(model, problem, budget)
    prompted = model.prompted(problem.prompt)
    prompted.token_scores(found.tokens[:1])  # what is done once
    start = time.process_time()
    scores = prompted.score(found.tokens)
    weighing, inside = time.process_time() - start, float(found.info["model_seconds"])
    model.copied = copy
    near = model.prompted(problem.prompt).near
    assert near is not None
    row: Row = {"seconds": seconds, "weighing": weighing, "nats": float((near.score(found.tokens) - scores).std())}
    for name, times in (("half", 2), ("quarter", 4), ("eighth", 8)):
        row[name] = (seconds - inside + inside / times + weighing) / seconds
    row["copy"] = called(model, problem, budget)[1] / seconds if draws else None
    return row


@measurement(
    "problem | LM tokens | s in 32 bits | s to weigh | apart, nats | at half | at a quarter | at an eighth | measured",
    "{problem} | {budget:,} | {seconds:.1f} | {weighing:.1f} | {nats:.2f} | {half:.2f} | {quarter:.2f} | {eighth:.2f} | {told}",
    quick={"model": "tiny", "problems": ["keyword-dog"], "budgets": [200]},
    fields={"told": lambda row: "–" if row["copy"] is None else f"{row['copy']:.2f}"},
)
def run(
    model: str = "smollm2",
    problems: Some = None,
    budgets: list[int] = list(BUDGETS),  # noqa: B006
    force: Annotated[bool, "let the copy draw also where the processor is slower in 16 bits"] = False,
) -> Iterator[Case]:
    """What a copy of the model in 16 bits brings that draws what the model weighs."""
    torch.set_num_threads(1)
    opened = locore.load(model)
    assert isinstance(opened, HuggingFaceModel)
    opened.copied = copied(opened.causal, torch.bfloat16)
    draws = force or pays(opened.causal.module, torch.bfloat16)
    by_name = {problem.name: problem for problem in written_problems()}
    for name in problems or PROBLEMS:
        for budget in budgets:
            yield {"problem": name, "budget": budget}, partial(measured, opened, by_name[name], budget, draws)
