"""What an engine of your own costs: neighbours by whole sequences and after cached prefixes, and whole distributions.

For prompts of several lengths, the time of 12 × 16 neighbours by whole sequences, and after cached prefixes, and of
whole next-token distributions. Times are the median of three.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import torch

import locore
from locore.models import LanguageModel
from locore.models.engines.model import EngineModel
from locore.models.engines.opening import TEXT
from locore_lab.harness import Case, Row, measurement, say

LENGTH, CHOSEN, ROWS = 12, 16, 64


def seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measured(engine: EngineModel, size: int) -> Row:
    """Behind a prompt of so many tokens."""
    model = engine.prompted(engine.tokenizer.encode_prompt(40 * TEXT)[:size])
    tokens = model.sample(1, LENGTH, seed=0).tokens[0]
    candidates = torch.randint(model.vocab_size, (LENGTH, CHOSEN), generator=torch.Generator().manual_seed(0))
    cached = seconds(lambda: model.neighbours(tokens, candidates))
    able, engine.engine.reuses_prefix = engine.engine.reuses_prefix, False
    whole = seconds(lambda: LanguageModel.neighbours(model, tokens, candidates))
    engine.engine.reuses_prefix = able
    prefixes = torch.randint(model.vocab_size, (ROWS, 3), generator=torch.Generator().manual_seed(1))
    rows = seconds(lambda: model._next_log_probs(prefixes))
    return {"whole": whole, "cached": cached, "ratio": whole / cached, "distributions_a_second": ROWS / rows}


@measurement(
    "prompt | neighbours, whole s | after cached prefixes s | ratio | distributions a second",
    "{prompt} | {whole:.2f} | {cached:.2f} | {ratio:.1f} | {distributions_a_second:.0f}",
)
def run(address: Annotated[str, "such as http://127.0.0.1:8000/v1"]) -> Iterator[Case]:
    engine = locore.load(address)
    say(f"differences: { {road: f'{nats:.2g}' for road, nats in engine.differences.items()} }")
    for size in (32, 128, 256, 448):
        yield {"prompt": size}, partial(measured, engine, size)
