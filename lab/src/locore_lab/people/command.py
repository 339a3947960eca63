"""`locore bench people`: write the texts, lay out a sheet to be graded, and read the grades."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from locore.errors import InvalidArgument
from locore_lab.people import sheet, temperatures, written
from locore_lab.people.wishes import WISHES

STEPS = ("write", "sheet", "table")


def run(step: str, output: Path, heat: bool, names: Sequence[str], seeds: Sequence[int], model: str) -> str:
    """One step of three; what to print.

    Args:
        step: "write" asks the model, "sheet" shuffles the texts under letters, "table" reads the grades and the key.
        output: folder of all files; a run that was killed goes on where it stopped.
        heat: of Locore alone at several temperatures, in a folder of its own.
        names: of wishes; all for none.
        seeds: a text of each tool for each.
        model: as `locore.load` knows it.
    """
    folder, tools = (output / "temperatures", temperatures.NAMES) if heat else (output, written.TOOLS)
    if step == "write":
        return _write(folder / "texts.jsonl", heat, names, seeds, model)
    if step == "sheet":
        sheet.lay_out(folder, WISHES, tools)
        return f"grade {folder / 'sheet.md'} in {folder / 'grades.json'}: {{number: {{letter: [1 to 5, reason]}}}}"
    if step == "table":
        text = temperatures.table_of(folder) if heat else sheet.table_of(folder)
        (folder / "table.md").write_text(text)
        return text
    raise InvalidArgument(f"there is no step {step!r}; the steps are {', '.join(STEPS)}.")


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
