"""Does the probability of a field say whether it is right? Short business letters, read by a real model.

Letters and their records are fictitious (`locore_lab.extraction.letters`). Beside `locore.parse` stand what people do without
it, on the same letters: the product of the probabilities of a value's tokens in the masked text of the likeliest ones, the
share of eight masked texts that agree, and asking the model how sure it is of the record that it wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import locore
from locore.models import LanguageModel
from locore_lab.bench.records import METHODS, Question, asked, rated
from locore_lab.extraction.letters import SCHEMA, Letter, chat, letters
from locore_lab.harness import Case, Row, measurement

LENGTH = 32
HOW_SURE = "How sure are you that this is right? Answer with a percentage."


def measured(model: LanguageModel, letter: Letter, seed: int) -> Row:
    """One letter."""
    question = Question(chat(letter.text), SCHEMA, letter.record, LENGTH)
    answer, row = asked(model, question, seed)
    talk = [
        *chat(letter.text),
        {"role": "assistant", "content": json.dumps(answer.fieldwise)},
        {"role": "user", "content": HOW_SURE},
    ]
    sure = locore.generate(model, talk, locore.choice([f"{n}%" for n in range(0, 101, 5)]), 4, seed=seed, num_particles=16)
    said = sum(float(text[:-1]) / 100 * chance for text, chance in sure.posterior().items())
    for field in row["said"]:
        field["asked"] = (field["locore"][0], said)
    return row


def summary(rows: list[Row]) -> str:
    """Over all fields of all letters."""
    return "\n".join(rated(rows, (*METHODS, "asked")))


@measurement(
    "letter | seconds | of one masked text | verdict",
    "{letter} | {seconds:.1f} | {masked_seconds:.1f} | {verdict}",
    quick={"number": 2, "model": "tiny"},
    after=summary,
)
def run(number: int = 300, model: str = "smollm2") -> Iterator[Case]:
    loaded = locore.load(model)
    for which, letter in enumerate(letters(number)):
        yield {"letter": which}, partial(measured, loaded, letter, which)
