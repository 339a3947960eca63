"""What a first call costs beside the model: CPU seconds of the first and the second call in a new process, and of a refusal.

    python -m locore_lab.micro.first_call               # a table, a process for each row

Importing and loading come before the first call and are told apart. Times inside the model are taken off. CPU seconds hardly
depend on what else the machine does. Modules are compiled beforehand, as pip does when it installs them, whatever
PYTHONDONTWRITEBYTECODE says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

INTEGERS = {"type": "array", "items": {"type": "integer"}}
COLUMNS = ("call", "imports, loading", "first call", "of it the model", "another one", "of it the model")


def cases() -> dict[str, Callable[[Any, Any], Any]]:
    """By name: what is asked of a model."""
    return {
        "array of integers, auto": lambda m, locore: locore.generate(
            m, "The numbers are", locore.json_schema(INTEGERS), 24, num_particles=4, seed=0
        ),
        "array of integers, quick": lambda m, locore: locore.generate(
            m, "The numbers are", locore.json_schema(INTEGERS), 24, num_particles=4, seed=0, sampler="quick"
        ),
        "ends with, auto": lambda m, locore: locore.generate(m, "The weather is", locore.ends_with(" happy."), 6, seed=0),
        "choice, auto": lambda m, locore: locore.generate(m, "She was", locore.choice([" good", " bad"]), 6, seed=0),
        "horizon beyond the context": lambda m, locore: locore.generate(m, "The", locore.contains(" sun"), 100_000),
        "unknown sampler": lambda m, locore: locore.generate(m, "The", locore.contains(" sun"), 8, sampler="twistd"),
        "unknown argument": lambda m, locore: locore.generate(m, "The", locore.contains(" sun"), max_tokens=8),
        "contradiction": lambda m, locore: locore.generate(m, "The", locore.contains(" sun") & ~locore.contains(" sun"), 8),
    }


def measured(name: str) -> list[float]:
    """CPU seconds of a case in this process, in the order of the columns."""
    start = time.process_time()
    import locore

    model = locore.load("tiny")
    loaded = time.process_time()
    found, ask = [loaded - start], cases()[name]
    for _ in range(2):
        before, inside = time.process_time(), 0.0
        with suppress(locore.errors.LocoreError):
            inside = ask(model, locore).info["model_seconds"]
        found += [time.process_time() - before, inside]
    return found


def main() -> None:
    """Each case in a process of its own."""
    if len(sys.argv) > 1:
        print(json.dumps(measured(sys.argv[1])))
        return
    print(f"| {' | '.join(COLUMNS)} |\n|---|{'---:|' * (len(COLUMNS) - 1)}")
    with tempfile.TemporaryDirectory() as bytecode:
        known = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment, is_warm = {**known, "PYTHONPYCACHEPREFIX": bytecode}, False
        for name in [next(iter(cases())), *cases()]:  # the first of all compiles modules, and is not told
            command = [sys.executable, "-m", __spec__.name, name]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            if is_warm:
                seconds = json.loads(done.stdout)
                print(f"| {name} | {' | '.join(f'{each:.2f}' for each in seconds)} |", flush=True)
            is_warm = True


if __name__ == "__main__":
    main()
