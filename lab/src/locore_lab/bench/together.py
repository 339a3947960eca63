"""Many requests at once against one after the other.

SmolLM2 on one thread: chats about different things, with different constraints, 32 particles of up to 20 tokens. Requests share
forward passes (`locore.generate_many`), or come one after the other (`locore.generate`, of which the first few are timed). The
same LM tokens either way; CPU seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated

import locore
from locore.models import LanguageModel
from locore_lab.harness import Case, Row, Some, measurement

THINGS = ("the sea", "a dog", "the moon", "bread", "a king", "rain", "a garden", "music", "the night", "a train")
ASKED = (
    "Write one sentence about {}.",
    "Describe {} in a few words.",
    "Ask me something about {}.",
    "What is {}?",
    "Praise {}.",
)
PARTICLES, LENGTH = 32, 20


def requests(num: int) -> tuple[list[list[dict[str, str]]], list[locore.Constraint]]:
    """Chats and constraints."""
    constraints = (
        locore.contains(" good"),
        locore.ends_with("."),
        locore.ban([" the", " a"]),
        locore.word_count(6, 10) & locore.ends_with("."),
        locore.contains("?"),
    )
    texts = [asked.format(thing) for thing in THINGS for asked in ASKED]
    chats = [[{"role": "user", "content": texts[number % len(texts)]}] for number in range(num)]
    return chats, [constraints[(number // 2) % len(constraints)] for number in range(num)]


def measured(model: LanguageModel, sampler: str, num: int, together: int) -> Row:
    """So many requests with this many at once; CPU seconds of each."""
    prompts, constraints = requests(num)
    start = time.process_time()
    found = locore.generate_many(
        model, prompts, constraints, seed=0, together=together, max_new_tokens=LENGTH, num_particles=PARTICLES, sampler=sampler
    )
    seconds = time.process_time() - start
    tokens = sum(int(one.info["lm_tokens"]) for one in found)
    return {"requests": num, "lm_tokens": tokens, "seconds": seconds / num, "rate": tokens / seconds}


@measurement(
    "sampler | at once | requests | LM tokens a request | CPU s a request | LM tokens a CPU s",
    "{sampler} | {together} | {requests} | {each:,.0f} | {seconds:.2f} | {rate:,.0f}",
    quick={"model": "tiny", "requests": 4, "loop": 2, "together": [4], "sampler": ["smc"]},
    fields={"each": lambda row: row["lm_tokens"] / row["requests"]},
)
def run(
    model: str = "smollm2",
    requests: int = 50,
    loop: Annotated[int, "requests that are timed one after the other"] = 10,
    together: list[int] = (16, 50),
    sampler: Some = None,
) -> Iterator[Case]:
    opened = locore.load(model)
    measured(opened, "smc", 2, 2)  # what is done once: self-checks, compiled constraints
    for name in sampler or ["smc", "auto"]:
        for beside, number in [(1, loop), *((k, requests) for k in together)]:
            yield {"sampler": name, "together": beside}, partial(measured, opened, name, number, beside)
