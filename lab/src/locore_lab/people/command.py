"""`locore bench people`: write the texts, lay out a sheet to be graded, and read the grades."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from locore.kernel.errors import InvalidArgument
from locore_lab.harness import Output, Some, experiment, option, say
from locore_lab.people import sheet, temperatures, written
from locore_lab.people.wishes import WISHES

STEPS = ("write", "sheet", "table")


@experiment("locore bench people write -o results --wish tweet --seed 1")
def run(
    step: Annotated[str, typer.Argument(help="write: ask the model. sheet: shuffle the texts. table: read the grades.")],
    output: Output,
    names: Annotated[Some, option("Only these wishes.", "--wish")] = None,
    seeds: Annotated[list[int], option("A text of each tool for each.", "--seed")] = [1, 2],  # noqa: B006  # nobody changes it
    model: Annotated[str, option("As locore.load knows it.")] = "smollm2",
    heat: Annotated[bool, typer.Option("--temperatures", help="Of Locore alone, at several temperatures.")] = False,
) -> None:
    """Twenty wishes of people by Locore, masking and transformers: texts, a sheet to be graded blind, and the table."""
    folder, tools = (output / "temperatures", temperatures.NAMES) if heat else (output, written.TOOLS)
    if step not in STEPS:
        raise InvalidArgument(f"there is no step {step!r}; the steps are {', '.join(STEPS)}.")
    if step == "write":
        say(_write(folder / "texts.jsonl", heat, names or (), seeds, model))
    elif step == "sheet":
        sheet.lay_out(folder, WISHES, tools, (0,) if heat else ())
        say(f"grade {folder / 'sheet.md'} in {folder / 'grades.json'}: {{number: {{letter: [1 to 5, reason]}}}}")
    else:
        (folder / "table.md").write_text(temperatures.table_of(folder) if heat else sheet.table_of(folder))
        say(f"{folder / 'table.md'}")


def _write(path: Path, heat: bool, names: Sequence[str], seeds: Sequence[int], model: str) -> str:
    known = [wish.name for wish in WISHES]
    for name in names:
        if name not in known:
            raise InvalidArgument(f"there is no wish {name!r}; the wishes are {', '.join(known)}.")
    meant = [wish for wish in WISHES if not names or wish.name in names]
    if heat:
        temperatures.write(path, meant, seeds[0], model)
    else:
        written.write(path, meant, seeds, model)
    return f"{path} has the texts"
