"""What Locore costs: CPU seconds as ratios to what it is compared with in the same run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import torch

import locore
from locore.io import Journal, machine, only_writer, write_whole
from locore.kernel.errors import InvalidArgument
from locore_lab.harness import Hidden, Output, Quick, Some, experiment, option, say, table, write_rows
from locore_lab.shared import check_known
from locore_lab.speed.accelerator import ACCELERATOR, PASSES, accelerator_cases
from locore_lab.speed.circuits import CIRCUITS, MASKS, PYSDD, circuits_cases, masks_cases
from locore_lab.speed.plan import BUNDLED, FULL, QUICK, Case, SpeedPlan, on_cpu
from locore_lab.speed.sampling import NEIGHBOURS, SAMPLING, neighbours_cases, sampling_cases
from locore_lab.speed.scaling import FOOTPRINT, SCALING, footprint_cases, scaling_cases

ABOUT = """\
CPU seconds of one thread, the least of {repeats}; both sides of a ratio take turns in one run. The Llamas "small" and "large"
have random weights (speed does not depend on them), {n} tokens are drawn or changed, weights and arithmetic are float32."""
TABLES = {
    "neighbours": NEIGHBOURS,
    "sampling": SAMPLING,
    "circuits": CIRCUITS,
    "pysdd": PYSDD,
    "masks": MASKS,
    "footprint": FOOTPRINT,
    "scaling": SCALING,
    "pass": PASSES,
    "accelerator": ACCELERATOR,
}
WITH_MODEL = {"sampling": sampling_cases, "neighbours": neighbours_cases}
WITHOUT = {
    "circuits": circuits_cases,
    "masks": masks_cases,
    "footprint": footprint_cases,
    "scaling": scaling_cases,
    "accelerator": accelerator_cases,
}
PARTS = (*WITH_MODEL, *WITHOUT)


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
        for part, cases in WITH_MODEL.items():
            if part in parts and (part, name) != ("neighbours", BUNDLED):
                yield from cases(plan, name, models)
    for part, others in WITHOUT.items():
        if part in parts:
            yield from others(plan)


def _known(what: str, given: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """Those that were given, or all."""
    check_known(what, given, known)
    return given or known


def write_results(output: Path, rows: list[dict[str, Any]], settings: dict[str, Any]) -> None:
    """Write both files; parts that were not measured are left out."""
    write_rows(output / "results.json", {"settings": settings, "machine": machine()}, rows)
    parts = ["# Speed", ABOUT.format(**settings)]
    for part, shown in TABLES.items():
        measured = [row for row in rows if row["part"] == part]
        if measured:
            parts += [shown.about.format(**settings), table(measured, shown.columns, shown.fields)]
    write_whole(output / "table.md", "\n\n".join(parts) + "\n")
