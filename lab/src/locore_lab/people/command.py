"""`locore bench people`: write the texts, lay out a sheet to be graded, and read the grades."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import torch
import typer

import locore
from locore import regex
from locore.kernel.errors import InvalidArgument
from locore.models import LanguageModel
from locore_lab.harness import Output, Some, experiment, option, say
from locore_lab.people import sheet, written
from locore_lab.people.sheet import graded
from locore_lab.people.wishes import WISHES, Wish
from locore_lab.people.written import append, read
from locore_lab.shared import check_known, shown

TEMPERATURES = (0.3, 0.5, 0.7, 1.0)
NAMES = tuple(f"{each:g}" for each in TEMPERATURES)
TEXTS, TOKENS = 3, 30  # of a wish at a temperature, and their horizon
OPEN = ("tweet", "slogan", "ban list", "product text", "forbidden words", "last word")
GRAM = 2  # words
ANYTHING = regex("(?s).*")


def write(output: Path, wishes: Sequence[Wish], seed: int, model_name: str) -> None:
    """At which temperature does it write well? Lines that are missing, for each wish whose texts are open."""
    model = locore.load(model_name)
    there = {(row["wish"], row["tool"]) for row in read(output)}
    wanted = [wish for wish in wishes if wish.name in OPEN]
    todo = [(wish, each) for wish in wanted for each in TEMPERATURES if (wish.name, f"{each:g}") not in there]
    for wish, each in shown(todo, "temperatures"):
        asked: dict[str, Any] = {"num_particles": TEXTS, "budget": TEXTS * (TOKENS - 1), "sampler": "rejection", "seed": seed}
        p = locore.generate(model.unprompted(), wish.prompt, ANYTHING, TOKENS, temperature=each, **asked)
        lines = [
            {"wish": wish.name, "seed": number, "tool": f"{each:g}", "text": text, **measured(model, wish, text)}
            for number, text in enumerate(p.texts)
        ]
        append(output, lines)


def measured(model: LanguageModel, wish: Wish, text: str) -> dict[str, float]:
    """Nats for each token by the model itself, at temperature 1, and the share of its word pairs that were there before."""
    ids = model.tokenizer.encode(text)
    score = float(model.prompted(wish.prompt).score(torch.tensor([ids]))[0])
    words = text.lower().split()
    pairs = Counter(zip(*(words[start:] for start in range(GRAM)), strict=False))
    repeated = sum(count - 1 for count in pairs.values()) / max(1, pairs.total())
    return {"nats": -score / len(ids), "repeated": repeated}


def table_of(folder: Path) -> str:
    """Means by temperature, and of the first text of each wish the grade."""
    rows = read(folder / "texts.jsonl")
    return "\n".join([*_lines(rows, graded(folder, NAMES)), ""])


def _lines(rows: list[dict[str, Any]], grades: Sequence[dict[str, int]]) -> Iterator[str]:
    yield f"| temperature | nats for a token, at 1 | repeated word pairs | different texts of {TEXTS} | grade, blind |"
    yield "|---:|---:|---:|---:|---:|"
    for name in NAMES:
        mine = [row for row in rows if row["tool"] == name]
        different = len({(row["wish"], row["text"]) for row in mine}) * TEXTS / len(mine)
        told = mean(sheet[name] for sheet in grades)
        yield (
            f"| {name} | {mean(row['nats'] for row in mine):.2f} | {mean(row['repeated'] for row in mine):.1%} | "
            f"{different:.1f} | {told:.1f} |"
        )


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
    folder, tools = (output / "temperatures", NAMES) if heat else (output, written.TOOLS)
    if step not in STEPS:
        raise InvalidArgument(f"there is no step {step!r}; the steps are {', '.join(STEPS)}.")
    if step == "write":
        check_known("wishes", names, [wish.name for wish in WISHES])
        meant = [wish for wish in WISHES if not names or wish.name in names]
        path = folder / "texts.jsonl"
        if heat:
            write(path, meant, seeds[0], model)
        else:
            written.write(path, meant, seeds, model)
        say(f"{path} has the texts")
    elif step == "sheet":
        sheet.lay_out(folder, WISHES, tools, (0,) if heat else ())
        say(f"grade {folder / 'sheet.md'} in {folder / 'grades.json'}: {{number: {{letter: [1 to 5, reason]}}}}")
    else:
        (folder / "table.md").write_text(table_of(folder) if heat else sheet.table_of(folder))
        say(f"{folder / 'table.md'}")
