"""At which temperature does it write well: plain draws for a few wishes, what can be counted of them, and blind grades."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import torch

import locore
from locore import regex
from locore.models import LanguageModel
from locore_lab.people.sheet import graded
from locore_lab.people.wishes import Wish
from locore_lab.people.written import read
from locore_lab.shared import shown

TEMPERATURES = (0.3, 0.5, 0.7, 1.0)
NAMES = tuple(f"{each:g}" for each in TEMPERATURES)
TEXTS, TOKENS = 3, 30  # of a wish at a temperature, and their horizon
OPEN = ("tweet", "slogan", "ban list", "product text", "forbidden words", "last word")
GRAM = 2  # words
ANYTHING = regex("(?s).*")


def write(output: Path, wishes: Sequence[Wish], seed: int, model_name: str) -> None:
    """Append lines for each wish whose texts are open, and each temperature, that the file does not have."""
    model = locore.load(model_name)
    there = {(row["wish"], row["tool"]) for row in read(output)}
    wanted = [wish for wish in wishes if wish.name in OPEN]
    todo = [(wish, each) for wish in wanted for each in TEMPERATURES if (wish.name, f"{each:g}") not in there]
    output.parent.mkdir(parents=True, exist_ok=True)
    for wish, each in shown(todo, "temperatures"):
        budget = TEXTS * (TOKENS - 1)
        asked: dict[str, Any] = {
            "num_particles": TEXTS,
            "budget": budget,
            "sampler": "rejection",
            "temperature": each,
            "seed": seed,
        }
        p = locore.generate(model.unprompted(), wish.prompt, ANYTHING, TOKENS, **asked)
        lines = [
            {"wish": wish.name, "seed": number, "tool": f"{each:g}", "text": text, **measured(model, wish, text)}
            for number, text in enumerate(p.texts)
        ]
        with output.open("a") as file:
            file.write("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


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
