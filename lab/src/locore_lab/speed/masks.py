"""Allowed-token masks of many different prefixes in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import locore
from locore_lab.harness import Fields
from locore_lab.measuring import least_seconds
from locore_lab.speed.material import vocabulary, words
from locore_lab.speed.plan import Case, Row, SpeedPlan

BANNED = 400
COLUMNS = (
    "prefixes | vocabulary | constraint | read tokens | one call ms | one at a time ms | ratio",
    "{prefixes} | {vocabulary} | {constraint} | {read tokens} | {together} | {apart} | {ratio}",
)
FIELDS: Fields = {"together": lambda row: 1e3 * row["seconds"], "apart": lambda row: 1e3 * row["seconds apart"]}
ABOUT = """\
## Masks

`circuit.allowed` of different prefixes in one call, against one call for each: which tokens may come next so that the text can
still be completed. The tokens of the prefixes are read again by both."""


def cases(plan: SpeedPlan) -> Iterator[Case]:
    """After few and after many tokens."""
    for read in (1, plan.n // 2, plan.n - 1):
        yield ("masks", read), partial(_masks, plan, read)


def _masks(plan: SpeedPlan, read: int) -> list[Row]:
    tokenizer = vocabulary(plan.vocabulary)
    circuit = locore.compile(locore.ban(words(BANNED)), tokenizer, plan.n)
    weights = torch.zeros(plan.batch, plan.n, plan.vocabulary)
    prefixes = circuit.sample(weights, seed=0)[0][:, :read]
    del weights
    works: dict[str, Callable[[], Any]] = {
        "together": lambda: circuit.allowed(prefixes),
        "apart": lambda: [circuit.allowed(prefix) for prefix in prefixes],
    }
    works["together"]()
    seconds = least_seconds(works, 3 * plan.repeats)
    row: Row = {"part": "masks", "prefixes": plan.batch, "vocabulary": plan.vocabulary, "constraint": f"ban of {BANNED} words"}
    row |= {"read tokens": read, "seconds": seconds["together"], "seconds apart": seconds["apart"]}
    return [row | {"ratio": seconds["apart"] / seconds["together"]}]
