"""The exact law of the experiment: draws of the model that are refused until one satisfies the constraint."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import locore
from locore.models import LanguageModel
from locore_lab.detox.randomness import sources
from locore_lab.detox.side_by_side import bill, draw, then_nucleus
from locore_lab.detox.task import Continuation, Law, Level, Method, Task, live

MOST_DRAWS = 5_000  # for each generation


def exact(level: Level, law: Law = "plain") -> Method:
    """Draws of the model are refused until one holds: the law p(y | α) itself. Whatever lies below it is bias.

    With the nucleus law p is that of its draws. With the constraint on tokens α is that of the paper: y ⊨ α, canonize(y) ⊨ α.
    """

    def method(model: LanguageModel, prompt: str, task: Task, seeds: Sequence[int]) -> list[Continuation]:
        start = time.perf_counter()
        prompted = model.prompted(prompt)
        mask = then_nucleus(None) if law == "nucleus" else None
        holds = _indicator(model, prompt, task, level)
        runs = sources(seeds, task.races)
        found: list[list[int] | None] = [None] * len(seeds)
        costs, draws = [0] * len(seeds), [0] * len(seeds)
        waiting = list(range(len(seeds)))
        while waiting and max(draws) < MOST_DRAWS:
            tokens = draw(prompted, task.length, [runs[i] for i in waiting], mask)
            good = holds(tokens).tolist()
            for i, y, cost, accepted in zip(waiting, tokens.tolist(), bill(tokens, model.tokenizer), good, strict=True):
                costs[i] += cost
                draws[i] += 1
                found[i] = live(y, model) if accepted else None
            waiting = [i for i, accepted in zip(waiting, good, strict=True) if not accepted]
        seconds = (time.perf_counter() - start) / len(seeds)
        return [Continuation(found[i], costs[i], seconds, {"draws": draws[i]}) for i in range(len(seeds))]

    return method


def _indicator(model: LanguageModel, prompt: str, task: Task, level: Level) -> Callable[[Tensor], Tensor]:
    """Long[num, time] → Bool[num]: y ⊨ α, and on the level of tokens canonize(y) ⊨ α too."""
    circuit = locore.compile(task.constraint(level), model, task.length)
    if level == "text":
        return circuit.accepts
    canonical = canonical_test(model, prompt, task)
    return lambda tokens: circuit.accepts(tokens) & canonical(tokens)


def canonical_test(model: LanguageModel, prompt: str, task: Task) -> Callable[[Tensor], Tensor]:
    """Long[num, time] → Bool[num]: does the canonical tokenisation of the text hold none of the banned sequences?"""
    tokenizer = model.tokenizer
    alpha = task.constraint("tokens").bind(tokenizer)
    ids = tokenizer.encode_prompt(prompt)

    def canonical(tokens: Tensor) -> Tensor:
        spelled = [list(tokenizer.canonize(y, ids)) for y in tokens.tolist()]
        # More tokens than the horizon are refused, as `generate(canonical="alpha")` does.
        return torch.tensor([len(y) <= task.length and alpha.evaluate(y, tokenizer) for y in spelled])

    return canonical
