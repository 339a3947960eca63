"""What a step of many rows costs behind a long prompt: seconds, memory, and what is left when contexts are remembered.

Rows share one copy of the prompt's keys and values; "rows of their own" is the road of models that cannot, with a copy for each
row. Both take turns in one process. Parents are drawn at random at each step, as resampling does. Memory is measured in a
process for each prompt: the prompt is read, then the rows go on.

    python -m locore_lab.micro.prompts MODEL [--json lab/results/prompts.json]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import locore
from locore.models import Cursor, HuggingFaceModel, Remembered
from locore_lab.micro.machine import machine
from locore_lab.speed.measuring import peak_bytes

ROWS, SHORT = 96, 16
PROMPTS, COPIED_PROMPTS = (SHORT, 100, 400, 1_500, 6_000), (SHORT, 100, 400)
MEMORY_PROMPTS, MEMORY_STEPS = (256, 1_500, 6_000), 64
WARM, STEPS, TURNS = 4, 4, 3
DRAWN, LENGTH, REMEMBERED_PROMPT = 96, 16, 400
GOAL_RATIO, GOAL_PROMPT, GOAL_MEMORY = 1.3, 1_500, 1.3


class Rows:
    """Rows behind a prompt of random tokens."""

    def __init__(self, model: HuggingFaceModel, length: int) -> None:
        self._generator = torch.Generator().manual_seed(length)
        self._vocab_size = model.vocab_size
        self.model = model.prompted(self._random(length).tolist())

    def walk(self, steps: int) -> Cursor:
        """A cursor that has read so many tokens."""
        cursor = self.model.begin(ROWS)
        for _ in range(steps):
            cursor = self.step(cursor)
        return cursor

    def step(self, cursor: Cursor) -> Cursor:
        """One token after rows that are chosen at random."""
        return cursor.advance(self._random(ROWS), torch.randint(ROWS, (ROWS,), generator=self._generator))

    def _random(self, count: int) -> Tensor:
        return torch.randint(self._vocab_size, (count,), generator=self._generator)


def seconds_of(work: Callable[[], object]) -> float:
    """CPU seconds."""
    start = time.process_time()
    work()
    return time.process_time() - start


def step_seconds(model: HuggingFaceModel) -> list[dict]:
    """The least CPU seconds of one step behind each prompt, all in turns."""
    roads = [(True, length) for length in PROMPTS] + [(False, length) for length in COPIED_PROMPTS]
    found: dict[tuple[bool, int], list[float]] = {road: [] for road in roads}
    for _ in range(TURNS):
        for shares, length in roads:
            model.causal.shares = shares
            rows = Rows(model, length)
            cursor = rows.walk(WARM if shares else 1)
            for _ in range(STEPS if shares else 1):
                # From the same cursor each time: all of these steps are equally long.
                found[shares, length].append(seconds_of(lambda cursor=cursor, rows=rows: rows.step(cursor)))
    model.causal.shares = True
    return [{"shares": shares, "prompt": length, "seconds": min(found[shares, length])} for shares, length in roads]


def parts_of_step(model: HuggingFaceModel, length: int) -> dict[str, float]:
    """Where a step goes, by kind of operation: wall-clock milliseconds, of each kind the least of several steps."""
    rows = Rows(model, length)
    cursor = rows.walk(WARM)
    found = [profiled(rows, cursor) for _ in range(STEPS)]
    return {kind: min(parts[kind] for parts in found) for kind in found[0]}


def profiled(rows: Rows, cursor: Cursor) -> dict[str, float]:
    """Milliseconds of one step by kind of operation."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        rows.step(cursor)
    kinds = {"aten::mm": "linear layers and head", "aten::addmm": "linear layers and head", "aten::bmm": "attention's products"}
    kinds |= dict.fromkeys(["aten::amax", "aten::sub_", "aten::exp_", "aten::sum"], "attention's exponentials")
    parts: dict[str, float] = {}
    for event in profile.key_averages():
        kind = kinds.get(event.key, "the rest")
        parts[kind] = parts.get(kind, 0.0) + event.self_cpu_time_total / 1e3
    return parts


def memory(model: HuggingFaceModel, length: int) -> dict:
    """The most memory that a prompt and its rows take beyond the model, and what keys and values of all tokens take."""
    Rows(model, 2).walk(2)  # what is made once, at the first steps
    rows = Rows(model, length)
    peak = peak_bytes(lambda: rows.walk(MEMORY_STEPS))
    tokens = length + ROWS * MEMORY_STEPS
    return {"prompt": length, "tokens": tokens, "bytes_per_token": model.causal.bytes_per_token, "peak": peak}


def drawing(model: HuggingFaceModel) -> list[dict]:
    """CPU seconds of drawing texts, by the model and by one that remembers, which is asked again and again."""
    prompt = Rows(model, REMEMBERED_PROMPT).model.prompt_ids
    plain = model.prompted(prompt)
    plain.sample(1, 1, 0)
    found = [
        {"kind": "the model itself", "seconds": seconds_of(lambda: plain.sample(DRAWN, LENGTH, 1)), "new": None, "bytes": 0}
    ]
    for keeps in ("log_probs", "hidden"):
        remembered = Remembered(model, keeps=keeps).prompted(prompt)
        remembered.sample(1, 1, 0)
        for kind, seed in (("first", 1), ("the same texts", 1), ("other texts", 2)):
            before = remembered.contexts
            seconds = seconds_of(lambda seed=seed, asked=remembered: asked.sample(DRAWN, LENGTH, seed))
            new, held = remembered.contexts - before, remembered.bytes
            found.append({"kind": f"remembered, {keeps}: {kind}", "seconds": seconds, "new": new, "bytes": held})
    return found


def show(results: dict) -> None:
    """As tables."""
    short = next(row["seconds"] for row in results["steps"] if row["shares"] and row["prompt"] == SHORT)
    print(f"\n| prompt | rows | a step, CPU ms | of that behind {SHORT} tokens |\n|---:|---|---:|---:|")
    for row in results["steps"]:
        kind = "share it" if row["shares"] else "of their own"
        print(f"| {row['prompt']:,} | {kind} | {1e3 * row['seconds']:,.0f} | {row['seconds'] / short:.2f} |")
    for length, parts in results["parts"].items():
        print(f"\nprompt {length}, ms:", ", ".join(f"{kind} {ms:.0f}" for kind, ms in parts.items()))
    print("\n| prompt | tokens read | their keys and values, MB | most memory, MB | ratio |\n|---:|---:|---:|---:|---:|")
    for row in results["memory"]:
        exact = row["tokens"] * row["bytes_per_token"]
        peak = f"{row['peak'] / 1e6:,.0f} | {row['peak'] / exact:.2f}" if row["peak"] else "? | ?"
        print(f"| {row['prompt']:,} | {row['tokens']:,} | {exact / 1e6:,.0f} | {peak} |")
    print(f"\n| {DRAWN} texts of {LENGTH} tokens | CPU s | new contexts | memory, MB |\n|---|---:|---:|---:|")
    for row in results["drawing"]:
        new = "–" if row["new"] is None else row["new"]
        print(f"| {row['kind']} | {row['seconds']:.2f} | {new} | {row['bytes'] / 1e6:,.0f} |")


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--memory", type=int, metavar="PROMPT", help="measure only this, and print it as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = locore.load(options.model)
    if not isinstance(model, HuggingFaceModel) or not model.causal.shares:
        sys.exit("The rows of this model cannot share a prompt.")
    if options.memory:
        print(json.dumps(memory(model, options.memory)))
        return
    results = {"machine": machine(), "goals": {"step": GOAL_RATIO, "prompt": GOAL_PROMPT, "memory": GOAL_MEMORY}, "rows": ROWS}
    results["steps"] = step_seconds(model)
    results["parts"] = {length: parts_of_step(model, length) for length in (SHORT, GOAL_PROMPT)}
    results["memory"] = []
    for length in MEMORY_PROMPTS:
        command = [sys.executable, __file__, options.model, "--memory", str(length)]
        results["memory"].append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    results["drawing"] = drawing(model)
    show(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
