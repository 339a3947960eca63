"""Threads on a machine that is free, and on one with a busy loop on each core: wall seconds of loading and of one default call.

Each in a process of its own: with torch's own number of threads, with one, and with what `locore.load` measures and chooses.
A call that takes longer than `--most` seconds is ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

from locore_lab.harness import Case, measurement

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
LOOP = "while True: pass"


def measured(model: str, threads: int | None, tokens: int) -> dict[str, Any]:
    """Wall seconds in this process, and the number of threads."""
    import torch

    import locore

    torch.ones(1)
    start = time.perf_counter()
    opened = locore.load(model, threads=threads)
    loaded, number = time.perf_counter(), torch.get_num_threads()
    locore.generate(opened, "Dear customer,", locore.contains(" refund"), tokens, seed=0)
    return {"threads": number, "load": loaded - start, "call": time.perf_counter() - loaded}


def _apart(model: str, threads: int | None, tokens: int, busy: int, most: float) -> dict[str, Any]:
    known = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    program = f"import json; from {__name__} import measured; print(json.dumps(measured({model!r}, {threads}, {tokens})))"
    with _loops(busy):
        try:
            command = [sys.executable, "-c", program]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=known, timeout=most)
        except subprocess.TimeoutExpired:
            return {"threads": threads, "ended": most}
    return dict(json.loads(done.stdout))


@contextmanager
def _loops(number: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@measurement(
    "machine | asked | threads | load, s | a default call, s",
    "{machine} | {asked} | {threads} | {load:.1f} | {shown}",
    quick={"model": "tiny", "tokens": 4},
    fields={"shown": lambda row: f"more than {row['ended']:.0f}" if "ended" in row else f"{row['call']:.1f}"},
)
def run(
    model: str = "smollm2",
    tokens: int = 10,
    most: Annotated[float, "seconds after which a call is ended, its loading included"] = 240.0,
) -> Iterator[Case]:
    cores = len(os.sched_getaffinity(0))
    for machine, busy in (("no loop", 0), ("a loop on each core", cores)):
        for asked, threads in (("one", 1), ("torch's own number", cores), ("measured", None)):
            yield {"machine": machine, "asked": asked}, partial(_apart, model, threads, tokens, busy, most)
