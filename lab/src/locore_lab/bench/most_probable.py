"""How probable is the text that temperature 0 finds? Beside it greedy masked decoding, and the best of weighted draws.

All ways have the same LM tokens; greedy decoding needs few, and has no use for more. A row is one constraint: log p of the text
that each way found, in nats, the mean over seeds, and how often the search proved that nothing is more probable.
"""

from collections.abc import Iterator
from functools import partial
from statistics import mean
from typing import Any

import locore
from locore.constraints import Constraint
from locore.kernel.errors import LocoreError
from locore.models import Tempered
from locore.stopping import stopped
from locore_lab.harness import Case, Row, measurement

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
PROBLEMS: list[tuple[str, Constraint, int]] = [  # behind a prompt, of so many tokens
    ("The weather is", locore.contains(" sun"), 12),
    ("Once upon a time", locore.contains("dog") & locore.contains("cat") & locore.ban(" the"), 16),
    ("She was", locore.ends_with(" happy."), 10),
    ("The list:", locore.json_schema(PERSON), 24),
    ("I", locore.word_count(5, 5) & locore.finished(), 12),
    ("The weather is", locore.choice([" good.", " very bad indeed.", " sunny today."]), 10),
    ("My phone number is", locore.regex(r" \d{3}-\d{3}"), 12),
    ("Tom said", locore.char_count(20, 20), 12),
    ("Yesterday", locore.ban([" a", " the"]), 16),
]


SHARPENED = 0.5
GREEDY = 0.01
WAYS: dict[str, tuple[float, dict[str, Any]]] = {  # temperature of the model, and options
    "greedy": (GREEDY, {"num_particles": 1, "sampler": "masked"}),
    "draws": (1.0, {}),
    "sharpened": (SHARPENED, {}),
    "coldest": (1.0, {"temperature": 0}),
}


def measured(model: locore.models.LanguageModel, place: int, budget: int, seeds: int) -> Row:
    """Mean log p of the likeliest text of each way, and how often it was proven to be the likeliest of all."""
    prompt, constraint, length = PROBLEMS[place]
    law = stopped(model.prompted(prompt), locore.compile(constraint, model, length))
    row: Row = {"proven": 0}
    for way, (heat, options) in WAYS.items():
        used, logs = model if heat == 1 else Tempered(model, heat), []
        for seed in range(seeds):
            given = options if way == "greedy" else {"budget": budget, **options}
            try:
                found = locore.generate(used, prompt, constraint, length, seed=seed, **given)
            except LocoreError:
                continue
            logs.append(float(law.token_scores(found.tokens).sum(-1).max()))
            row["proven"] += found.record.mode is not None and found.record.mode.is_proven
        row[way] = mean(logs) if logs else float("-inf")
    return row


@measurement(
    "problem | greedy | draws | draws at 1/2 | temperature=0 | proven",
    "{problem} | {greedy:.2f} | {draws:.2f} | {sharpened:.2f} | {coldest:.2f} | {proven}",
    quick={"budget": 60, "seeds": 1},
)
def run(model: str = "tiny", budget: int = 600, seeds: int = 3) -> Iterator[Case]:
    opened = locore.load(model)
    for place, (prompt, constraint, _) in enumerate(PROBLEMS):
        yield {"problem": f"{prompt} … {constraint}"[:60]}, partial(measured, opened, place, budget, seeds)
