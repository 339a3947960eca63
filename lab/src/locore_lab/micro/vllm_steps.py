"""What a step costs in vLLM and in transformers, one process, one thread: LM tokens a second behind a long prompt.

Both are driven by the same loop, cursors that every sampler uses, and give whole distributions. Rows have read tokens of their
own; each step adds one to every row. In vLLM the prompt and whole blocks of what follows come from its prefix cache.

    python -m locore_lab.micro.vllm_steps FOLDER [--json lab/results/vllm_steps.json]     (in the environment of make test-vllm)
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}

import argparse
import json
import time
from pathlib import Path

import torch

import locore
from locore.models import LanguageModel
from locore_lab.micro.machine import machine

PROMPTS, ROWS = (16, 1_500), (1, 32, 96)
READ, STEPS = 8, 8
ROADS = ("transformers", "vLLM, whole distributions kept", "vLLM, written as numbers")
WRITTEN_ROWS = 32  # more would take minutes
BLOCK = 32  # tokens; the smallest that vLLM has on a CPU


def tokens_a_second(model: LanguageModel, prompt: int, rows: int, steps: int) -> dict[str, float]:
    """Of the quickest of some steps, by the clock; and what all of them took of the CPU, in seconds a step."""
    generator = torch.Generator().manual_seed(prompt)
    after = model.prompted(torch.randint(model.vocab_size, (prompt,), generator=generator).tolist())
    cursor = after.begin(rows)
    times, start = [], time.process_time()
    for step in range(READ + steps):
        if step == READ:
            start = time.process_time()
        begun = time.perf_counter()
        cursor = cursor.advance(torch.randint(model.vocab_size, (rows,), generator=generator))
        assert cursor.log_probs.shape == (rows, model.vocab_size)
        times.append(time.perf_counter() - begun)
    return {"tokens_a_second": rows / min(times[READ:]), "cpu_seconds_a_step": (time.process_time() - start) / steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="of a model")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    engine = locore.load(f"vllm:{options.folder}", dtype="float32", enforce_eager=True, max_model_len=4096, block_size=BLOCK)
    models = {ROADS[0]: locore.load(options.folder), ROADS[1]: engine, ROADS[2]: engine}
    found = []
    print("| prompt | rows | road | LM tokens a second | CPU seconds a step |\n|---:|---:|---|---:|---:|")
    for prompt in PROMPTS:
        for rows in ROWS:
            for road in ROADS if rows <= WRITTEN_ROWS else ROADS[:2]:
                engine.engine.keeps_rows = road == ROADS[1]
                one = tokens_a_second(models[road], prompt, rows, STEPS if road != ROADS[2] else 2)
                found.append({"prompt": prompt, "rows": rows, "road": road, **one})
                print(
                    f"| {prompt:,} | {rows} | {road} | {one['tokens_a_second']:.1f} | {one['cpu_seconds_a_step']:.2f} |",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
