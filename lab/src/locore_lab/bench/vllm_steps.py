"""What a step costs in vLLM and in transformers, one process, one thread: LM tokens a second behind a long prompt.

Both are driven by the same loop, cursors that every sampler uses, and give whole distributions. Rows have read tokens of their
own; each step adds one to every row. In vLLM requests go on, or are made anew: then the prompt and whole blocks of what follows
come from its prefix cache.
It runs in the environment of `make test-vllm`.
"""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

import torch

import locore
from locore.models import LanguageModel
from locore_lab.harness import Case, Row, measurement

PROMPTS, ROWS = (16, 1_500), (1, 32, 96)
READ, STEPS = 8, 8
ROADS = ("transformers", "vLLM, requests that go on", "vLLM, requests made anew", "vLLM, written as numbers")
WRITTEN_ROWS = 32  # more would take minutes
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}
BLOCK = 32  # tokens; the smallest that vLLM has on a CPU


def opened(model: str) -> Any:
    """The model of a folder in vLLM, in this process, in 32 bits."""
    os.environ |= ENVIRONMENT
    return locore.load(f"vllm:{model}", dtype="float32", enforce_eager=True, max_model_len=4096, block_size=BLOCK)


def tokens_a_second(model: LanguageModel, prompt: int, rows: int, steps: int, before: Callable[[], None]) -> Row:
    """Of the quickest of some steps, by the clock, each `before` something; and what all took of the CPU, in seconds a step."""
    generator = torch.Generator().manual_seed(prompt)
    after = model.prompted(torch.randint(model.vocab_size, (prompt,), generator=generator).tolist())
    cursor = after.begin(rows)
    times, start = [], time.process_time()
    for step in range(READ + steps):
        if step == READ:
            start = time.process_time()
        before()
        begun = time.perf_counter()
        cursor = cursor.advance(torch.randint(model.vocab_size, (rows,), generator=generator))
        assert cursor.log_probs.shape == (rows, model.vocab_size)
        times.append(time.perf_counter() - begun)
    return {"tokens_a_second": rows / min(times[READ:]), "cpu_seconds_a_step": (time.process_time() - start) / steps}


@measurement(
    "prompt | rows | road | LM tokens a second | CPU seconds a step",
    "{prompt:,} | {rows} | {road} | {tokens_a_second:.1f} | {cpu_seconds_a_step:.2f}",
)
def run(model: Annotated[str, "a folder"]) -> Iterator[Case]:
    engine = opened(model)
    plain, live = locore.load(model), engine.engine.live

    def stepped(prompt: int, rows: int, road: str) -> Row:
        live.release()
        engine.engine.live = None if road == ROADS[3] else live
        found = tokens_a_second(
            plain if road == ROADS[0] else engine,
            prompt,
            rows,
            STEPS if road != ROADS[3] else 2,
            live.release if road == ROADS[2] else lambda: None,
        )
        engine.engine.live = live
        return found

    for prompt in PROMPTS:
        for rows in ROWS:
            for road in ROADS if rows <= WRITTEN_ROWS else ROADS[:3]:
                yield {"prompt": prompt, "rows": rows, "road": road}, partial(stepped, prompt, rows, road)
