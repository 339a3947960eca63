"""One GGUF file in transformers and in llama.cpp: loading, memory, one text, 32 texts, masks, and a default call with weights.

Each in a process of its own, with one thread; seconds are CPU seconds, the fewest of some runs. Memory is what the process
takes beyond what it takes once torch and transformers are imported: when the model is loaded, and at most. The first load of
transformers converts the file, in an empty cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import locore
from locore.models import LanguageModel
from locore_lab.harness import Case, measurement
from locore_lab.shared import process_bytes, timed

PROMPT, WORD, MANY = "The weather is", " sun", 32
FIRST, TRANSFORMERS, LLAMACPP = "transformers, first load", "transformers", "llama.cpp"


def measured(file: str, engine: str, tokens: int, runs: int) -> dict[str, Any]:
    """Seconds and megabytes in this process."""
    import transformers.models.llama.modeling_llama  # noqa: F401  # what every load imports

    locore.generate("tiny", PROMPT, locore.contains(WORD), 4, num_particles=2, seed=0)  # all that calls import
    before = _megabytes("VmRSS")
    # A name that begins otherwise is left to the choice of `load`, but for the device.
    name, options = (f"llamacpp:{file}", {}) if engine == LLAMACPP else (file, {"device": "cpu"})
    model, seconds = timed(lambda: locore.load(name, threads=1, **options))
    found = {"load": seconds, "loaded": _megabytes("VmRSS") - before}
    if engine == FIRST:
        return {**found, "most": _megabytes("VmHWM") - before}
    return {**found, **columns(model, tokens, runs), "most": _megabytes("VmHWM") - before}


def columns(model: LanguageModel, tokens: int, runs: int) -> dict[str, float]:
    """CPU seconds of what an engine is asked for, the fewest of some runs."""
    after, word = model.prompted(PROMPT), locore.contains(WORD)
    calls: dict[str, Callable[[int], object]] = {
        "one": lambda seed: after.sample(1, tokens, seed=seed),
        "many": lambda seed: after.sample(MANY, tokens, seed=seed),
        "masks": lambda seed: locore.generate(model, PROMPT, word, tokens, num_particles=MANY, sampler="masked", seed=seed),
        "weights": lambda seed: locore.generate(model, PROMPT, word, tokens, seed=seed),
    }
    return {name: min(timed(partial(call, seed))[1] for seed in range(runs)) for name, call in calls.items()}


def _megabytes(name: str) -> float:
    return process_bytes(name) / 1024e3  # as the table has had them: thousands of KiB


def _apart(file: str, engine: str, tokens: int, runs: int) -> dict[str, Any]:
    program = (
        f"import json; from {__name__} import measured; print(json.dumps(measured({file!r}, {engine!r}, {tokens}, {runs})))"
    )
    with tempfile.TemporaryDirectory() as empty:
        cache = {"LOCORE_CACHE": empty} if engine == FIRST else {}
        known = {**os.environ, "OMP_NUM_THREADS": "1", **cache}
        if engine == TRANSFORMERS:  # which reads what it keeps
            subprocess.run([sys.executable, "-c", f"import locore; locore.load({file!r})"], check=True, env=known)
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True, env=known)
    return dict(json.loads(done.stdout))


@measurement(
    "file | engine | load, s | loaded, MB | at most, MB | one text, s | 32 texts, s | masks, s | weights, s",
    "{file} | {engine} | {load:.1f} | {loaded:.0f} | {most:.0f} | {one:.2f} | {many:.1f} | {masks:.1f} | {weights:.1f}",
    quick={"tokens": 4, "runs": 1},
)
def run(
    file: Annotated[list[str] | None, "GGUF files, or smollm2"] = None,
    tokens: Annotated[int, "of a text"] = 20,
    runs: Annotated[int, "the cheapest counts"] = 3,
) -> Iterator[Case]:
    for name in file or ["smollm2"]:
        for engine in (LLAMACPP, FIRST, TRANSFORMERS):
            yield {"file": Path(name).stem, "engine": engine}, partial(_apart, name, engine, tokens, runs)
