"""How probable is the text that temperature 0 finds? Beside it greedy masked decoding, and the best of weighted draws.

    python -m locore_lab.micro.most_probable [MODEL] [--budget 600] [--seeds 3]

All ways have the same LM tokens; greedy decoding needs few, and has no use for more. A row is one constraint: log p of the text
that each way found, in nats, the mean over seeds, and how often the search proved that nothing is more probable.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import mean
from typing import Any

import torch

import locore
from locore.constraints import Constraint
from locore.errors import LocoreError
from locore.models import Tempered
from locore.stopping import stopped

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
PROBLEMS: list[tuple[str, Constraint, int]] = [
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
WAYS = ("greedy", "draws", "draws at 1/2", "temperature=0")
SHARPENED = 0.5
GREEDY = 0.01


def found(way: str, model: locore.models.LanguageModel, ask: Callable[..., locore.Particles], budget: int) -> locore.Particles:
    """What a way finds."""
    if way == "greedy":
        return ask(Tempered(model, GREEDY), num_particles=1, sampler="masked")
    if way == "temperature=0":
        return ask(model, budget=budget, temperature=0)
    return ask(model if way == "draws" else Tempered(model, SHARPENED), budget=budget)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="tiny")
    parser.add_argument("--budget", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = locore.load(arguments.model)
    print(f"{'':44}" + "".join(f"{way:>15}" for way in WAYS) + "  proven")
    best = dict.fromkeys(WAYS, 0)
    for prompt, constraint, length in PROBLEMS:
        law = stopped(model.prompted(prompt), locore.compile(constraint, model, length))
        means, proven = {}, 0
        for way in WAYS:
            logs = []
            for seed in range(arguments.seeds):

                def ask(used: locore.models.LanguageModel, seed: int = seed, **options: Any) -> locore.Particles:
                    return locore.generate(used, prompt, constraint, length, seed=seed, **options)  # noqa: B023

                try:
                    particles = found(way, model, ask, arguments.budget)
                except LocoreError:
                    continue
                logs.append(float(law.token_scores(particles.tokens).sum(-1).max()))
                proven += particles.record.mode is not None and particles.record.mode.is_proven
            means[way] = mean(logs) if logs else float("-inf")
        for way in WAYS:
            best[way] += means[way] >= max(means.values()) - 1e-6
        print(
            f"{prompt + ' … ' + str(constraint):.42}".ljust(44) + "".join(f"{means[way]:15.2f}" for way in WAYS) + f"  {proven}"
        )
    print(f"{'the best, of ' + str(len(PROBLEMS)):44}" + "".join(f"{best[way]:15}" for way in WAYS))


if __name__ == "__main__":
    main()
