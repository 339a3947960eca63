"""What an engine costs: python -m locore_lab.micro.engines http://127.0.0.1:8000/v1

Prints, for prompts of several lengths, the time of 12 × 16 neighbours by whole sequences, and after cached prefixes, and of
whole next-token distributions. Times are the median of three.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch

import locore
from locore.models import LanguageModel
from locore.models.engines.opening import TEXT

LENGTH, CHOSEN, ROWS = 12, 16, 64


def seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main(address: str) -> None:
    engine = locore.load(address)
    print("differences:", {road: f"{nats:.2g}" for road, nats in engine.differences.items()})
    print("| prompt | neighbours, whole s | after cached prefixes s | ratio | distributions a second |")
    print("|---:|---:|---:|---:|---:|")
    ids = engine.tokenizer.encode_prompt(40 * TEXT)
    for size in (32, 128, 256, 448):
        model = engine.prompted(ids[:size])
        tokens = model.sample(1, LENGTH, seed=0).tokens[0]
        candidates = torch.randint(model.vocab_size, (LENGTH, CHOSEN), generator=torch.Generator().manual_seed(0))
        cached = seconds(lambda model=model, y=tokens, c=candidates: model.neighbours(y, c))
        able, engine.engine.reuses_prefix = engine.engine.reuses_prefix, False
        whole = seconds(lambda model=model, y=tokens, c=candidates: LanguageModel.neighbours(model, y, c))
        engine.engine.reuses_prefix = able
        prefixes = torch.randint(model.vocab_size, (ROWS, 3), generator=torch.Generator().manual_seed(1))
        rows = seconds(lambda model=model, p=prefixes: model._next_log_probs(p))
        print(f"| {size} | {whole:.2f} | {cached:.2f} | {whole / cached:.1f} | {ROWS / rows:.0f} |")


if __name__ == "__main__":
    main(sys.argv[1])
