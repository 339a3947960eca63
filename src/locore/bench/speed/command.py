"""`locore bench speed`: measure, and write the tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import locore
from locore.bench.progress import say
from locore.bench.speed.llamas import Shape
from locore.bench.speed.neighbours import NeighbourCase, measure_neighbours
from locore.bench.speed.sampling import SamplingCase, measure_sampling
from locore.bench.speed.tables import write_results
from locore.errors import InvalidArgument
from locore.models import HuggingFaceModel
from locore.records import Journal, only_writer

BUNDLED = "tiny"


@dataclass(frozen=True)
class Plan:
    """How much is measured; the rows are the same in every plan.

    Attributes:
        shapes: of the Llamas with random weights, by name.
        n: tokens of a draft and of a continuation.
        ks: candidates at each position.
        rows: continuations that are drawn together.
        full_tokens: tokens of full sequences that one measurement of the plain Algorithm 1 reads, at most.
        repeats: of each measurement; the fastest counts.
        neighbour_prompts, sampling_prompts: tokens of the prompts.
    """

    shapes: dict[str, Shape]
    n: int
    ks: tuple[int, int]
    rows: int
    full_tokens: int
    repeats: int
    neighbour_prompts: tuple[int, ...] = (16, 256, 1024)
    sampling_prompts: tuple[int, ...] = (16, 256)


FULL = Plan({"small": Shape(8192, 384, 1024, 10, 6), "large": Shape(32000, 768, 2048, 11, 12)}, 20, (16, 64), 32, 4096, 2)
QUICK = Plan({"small": Shape(512, 64, 176, 2, 2), "large": Shape(2048, 128, 352, 4, 2)}, 8, (4, 8), 8, 4096, 2)


def run(output: Path, quick: bool = False, models: list[str] | None = None, plan: Plan | None = None) -> list[dict[str, Any]]:
    """Measure, and write `results.json` and `table.md`; what is in the folder already is not measured again.

    Args:
        output: folder of the results; a run that was killed goes on where it stopped.
        quick: small models and few tokens, in a few minutes; the same rows through the same code.
        models: only those; "tiny" (bundled), "small" and "large" (random weights). All by default.
        plan: sizes; by default those of `quick`.

    Returns:
        All rows in the folder, each with its `part`: "neighbours" or "sampling".
    """
    plan = plan or (QUICK if quick else FULL)
    known = [BUNDLED, *plan.shapes]
    unknown = [name for name in models or [] if name not in known]
    if unknown:
        raise InvalidArgument(f"unknown models {', '.join(unknown)}; known are {', '.join(known)}.")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more wait for each other, and waiting counts as CPU seconds
    try:
        with only_writer(output):
            settings = {"locore": locore.__version__, "quick": quick, **asdict(plan)}
            journal = Journal(output / "rows.jsonl", settings)
            for name in models or known:
                for key, rows in _missing_rows(plan, name, journal):
                    journal.append(key, {"rows": rows})
                    say(", ".join(map(str, key)))
            found = [row for _, record in journal.items() for row in record["rows"]]
            write_results(output, found, settings)
    finally:
        torch.set_num_threads(threads)
    return found


def _missing_rows(plan: Plan, name: str, journal: Journal) -> Iterator[tuple[tuple[str | int, ...], list[dict[str, Any]]]]:
    """Rows of one model that are not in the journal, each under its key; the model is made when first needed."""
    model: HuggingFaceModel | None = None
    for prompt in plan.sampling_prompts:
        key: tuple[str | int, ...] = ("sampling", name, prompt)
        if key not in journal:
            model = model or _model(plan, name)
            case = SamplingCase(name, prompt, plan.rows, plan.n, plan.repeats)
            yield key, [{"part": "sampling", **row} for row in measure_sampling(case, model)]
    if name == BUNDLED:
        return
    for k in plan.ks:
        for prompt in plan.neighbour_prompts:
            key = ("neighbours", name, prompt, k)
            if key not in journal:
                model = model or _model(plan, name)
                one = NeighbourCase(name, prompt, plan.n, k, plan.full_tokens, plan.repeats)
                yield key, [{"part": "neighbours", **measure_neighbours(one, model)}]


def _model(plan: Plan, name: str) -> HuggingFaceModel:
    if name in plan.shapes:
        return plan.shapes[name].model(max(plan.neighbour_prompts + plan.sampling_prompts) + plan.n)
    model = locore.load(name)
    assert isinstance(model, HuggingFaceModel)
    return model
