"""Many requests at once against one after the other: python -m locore_lab.micro.together [--json lab/results/together.json]

SmolLM2 on one thread: chats about different things, with different constraints, 32 particles of up to 20 tokens. Requests share
forward passes (`locore.generate_many`), or come one after the other (`locore.generate`, of which the first few are timed). The
same LM tokens either way; CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import locore
from locore.models import LanguageModel
from locore_lab.micro.machine import machine

THINGS = ("the sea", "a dog", "the moon", "bread", "a king", "rain", "a garden", "music", "the night", "a train")
ASKED = (
    "Write one sentence about {}.",
    "Describe {} in a few words.",
    "Ask me something about {}.",
    "What is {}?",
    "Praise {}.",
)
PARTICLES, LENGTH = 32, 20


@dataclass(frozen=True)
class Row:
    """One sampler with so many requests at once.

    Attributes:
        together: requests beside each other; 1 for one after the other.
        requests: how many were timed.
        lm_tokens: of all of them.
        seconds: of one CPU thread, for each request.
    """

    sampler: str
    together: int
    requests: int
    lm_tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        """LM tokens a CPU second."""
        return self.lm_tokens / (self.seconds * self.requests)


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
    """So many requests with this many at once."""
    prompts, constraints = requests(num)
    start = time.process_time()
    found = locore.generate_many(
        model, prompts, constraints, seed=0, together=together, max_new_tokens=LENGTH, num_particles=PARTICLES, sampler=sampler
    )
    seconds = (time.process_time() - start) / num
    return Row(sampler, together, num, sum(int(one.info["lm_tokens"]) for one in found), seconds)


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--loop", type=int, default=10, help="requests that are timed one after the other")
    parser.add_argument("--together", type=int, action="append", help="16 and 50 by default")
    parser.add_argument("--sampler", action="append", help="smc and auto by default")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = locore.load("smollm2")
    measured(model, "smc", 2, 2)  # what is done once: self-checks, compiled constraints
    print("| sampler | at once | requests | LM tokens a request | CPU s a request | times the throughput of a loop |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    rows = []
    for sampler in options.sampler or ["smc", "auto"]:
        alone = measured(model, sampler, options.loop, 1)
        for row in (alone, *(measured(model, sampler, options.requests, k) for k in options.together or [16, 50])):
            each = row.lm_tokens / row.requests
            gain = row.rate / alone.rate
            print(
                f"| {row.sampler} | {row.together} | {row.requests} | {each:,.0f} | {row.seconds:.2f} | {gain:.1f} |",
                flush=True,
            )
            rows.append(row)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "rows": [asdict(row) for row in rows]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
