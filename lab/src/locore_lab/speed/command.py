"""What Locore costs: CPU seconds as ratios to what it is compared with in the same run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import torch

import locore
from locore.io import Journal, only_writer
from locore.kernel.errors import InvalidArgument
from locore_lab.harness import Hidden, Output, Quick, Some, experiment, option, say
from locore_lab.shared import check_known
from locore_lab.speed import accelerator, circuits, footprint, masks, neighbours, sampling, scaling
from locore_lab.speed.models import on_cpu
from locore_lab.speed.plan import BUNDLED, FULL, QUICK, Case, SpeedPlan
from locore_lab.speed.tables import write_results

PARTS = ("sampling", "neighbours", "circuits", "masks", "footprint", "scaling", "accelerator")


@experiment("locore bench speed --quick -o results")
def run(
    output: Output,
    quick: Quick = False,
    models: Annotated[Some, option('Only these: "tiny", "small", "large".', "--model")] = None,
    parts: Annotated[Some, option(f"Only these: {', '.join(PARTS)}.", "--part")] = None,
    device: Annotated[str | None, option('Where "accelerator" computes, such as cuda; left out without.')] = None,
    plan: Hidden = None,
) -> list[dict[str, Any]]:
    """What Locore costs: CPU seconds as ratios to what it is compared with in the same run.

    What is in the folder already is not measured again.

    Returns:
        All rows of the folder, each with its `part`.
    """
    plan = replace(plan or (QUICK if quick else FULL), device=device)
    names = _known("model", models or (), [BUNDLED, *plan.shapes])
    wanted = _known("part", parts or (), PARTS)
    if "accelerator" in wanted and parts and device is None:
        raise InvalidArgument('the part "accelerator" needs a --device, such as cuda.')
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more wait for each other, and waiting counts as CPU seconds
    try:
        with only_writer(output):
            settings = {"locore": locore.__version__, "quick": quick, **asdict(replace(plan, device=None))}
            journal = Journal(output / "rows.jsonl", settings)
            for key, measure in _cases(plan, names, wanted):
                if key not in journal:
                    journal.append(key, {"rows": measure()})
                    say(", ".join(map(str, key)))
                    write_results(output, _found(journal), settings)  # whatever comes, what was measured is there
            found = _found(journal)
            write_results(output, found, settings)
    finally:
        torch.set_num_threads(threads)
    return found


def _found(journal: Journal) -> list[dict[str, Any]]:
    return [row for _, record in journal.items() for row in record["rows"]]


def _cases(plan: SpeedPlan, names: Sequence[str], parts: Sequence[str]) -> Iterator[Case]:
    models = on_cpu(plan)
    for name in names:
        if "sampling" in parts:
            yield from sampling.cases(plan, name, models)
        if "neighbours" in parts and name != BUNDLED:
            yield from neighbours.cases(plan, name, models)
    for part in (circuits, masks, footprint, scaling, accelerator):
        if part.__name__.rsplit(".", 1)[1] in parts:
            yield from part.cases(plan)


def _known(what: str, given: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """Those that were given, or all."""
    check_known(what, given, known)
    return given or known
