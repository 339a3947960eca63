"""What a first call costs beside the model: CPU seconds of the first and the second call in a new process, and of a refusal.

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
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from locore_lab.harness import Case, measurement

INTEGERS = {"type": "array", "items": {"type": "integer"}}
COLUMNS = ("loaded", "first", "first_model", "second", "second_model")


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
        with suppress(locore.kernel.errors.LocoreError):
            inside = ask(model, locore).info["model_seconds"]
        found += [time.process_time() - before, inside]
    return found


def _apart(name: str, bytecode: str) -> dict[str, float]:
    known = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    program = f"import json; from {__name__} import measured; print(json.dumps(measured({name!r})))"
    environment = {**known, "PYTHONPYCACHEPREFIX": bytecode}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    return dict(zip(COLUMNS, json.loads(done.stdout), strict=True))


@measurement(
    "call | imports, loading | first call | of it the model | another one | of it the model",
    "{call} | {loaded:.2f} | {first:.2f} | {first_model:.2f} | {second:.2f} | {second_model:.2f}",
    quick={"calls": ["unknown sampler"]},
)
def run(calls: Annotated[list[str] | None, "only these"] = None) -> Iterator[Case]:
    with tempfile.TemporaryDirectory() as bytecode:
        _apart("unknown sampler", bytecode)  # compiles modules
        for name in calls or cases():
            yield {"call": name}, partial(_apart, name, bytecode)
