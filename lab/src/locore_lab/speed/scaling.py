"""Curves: how cost grows with one size while the others stay, and where it ends; start-up, memory and size on disk."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import locore
from locore.kernel.errors import LocoreError
from locore.samplers import SequentialMonteCarlo
from locore_lab.shared import least_seconds
from locore_lab.speed.circuits import vocabulary, words
from locore_lab.speed.plan import BUNDLED, Case, Row, Shape, SpeedPlan, Table
from locore_lab.speed.sampling import never

Work = Callable[[], Any]
SHAPE = Shape(512, 64, 176, 2, 2)  # small, since the exponents are of interest
FIXED_LENGTH = 20
SCALING = Table(
    """\
## Scaling

CPU seconds for growing sizes, and the exponent of the power law through them (least squares on logarithms): of all sizes, and
of the larger half, where calls cost less than work. "ends": the first size that is refused, and by what.""",
    (
        "cost of | grows with | sizes | seconds | exponent | upper half | expected | ends",
        "{cost of} | {grows with} | {sizes[0]:,.3g} … {largest:,.3g} | {seconds[0]:,.3g} … {longest:,.3g} | {exponent:.2f} "
        "| {upper half:.2f} | {expected} | {ends}",
    ),
    {"largest": lambda row: row["sizes"][-1], "longest": lambda row: row["seconds"][-1]},
)


def scaling_cases(plan: SpeedPlan) -> Iterator[Case]:
    """A row for each curve."""
    curves: list[tuple[str, str, str, Sequence[int], Callable[[int], Work]]] = [
        ("neighbours, k = 8", "tokens n", "2", plan.lengths, lambda n: _neighbours(n, 8)),
        ("neighbours, n = 32", "candidates k", "1", plan.candidates, lambda k: _neighbours(32, k)),
        ("compiling a ban of 100 words", "tokens n", "0 to 1 (positions share what is alike)", plan.lengths, _compiling_length),
        ("compiling a ban", "words", "1", plan.constraint_words, _compiling_words),
        ("compiling a ban of 100 words", "vocabulary", "1", plan.vocabularies, _compiling_vocabulary),
        ("log-mass of a ban of 100 words", "tokens n", "1", plan.lengths, _mass_length),
        ("log-mass, 8 distributions", "vocabulary", "1", plan.vocabularies, _mass_vocabulary),
        ("generate by smc", "particles", "1", plan.particles, _generate),
    ]
    for cost, size, expected, sizes, work in curves:
        yield ("scaling", cost, size), partial(_curve, plan.repeats, cost, size, expected, sizes, work)


def _curve(
    repeats: int, cost: str, size: str, expected: str, sizes: Sequence[int], work_of: Callable[[int], Work]
) -> list[Row]:
    found: dict[int, float] = {}
    ends = None
    for each in sizes:
        try:
            work = work_of(each)
            work()  # warm
            found[each] = least_seconds({"work": work}, repeats)["work"]
        except (LocoreError, MemoryError) as error:
            ends = f"{each:,}: {type(error).__name__}"
            break
    row: Row = {"part": "scaling", "cost of": cost, "grows with": size, "expected": expected, "ends": ends}
    row |= {"sizes": list(found), "seconds": list(found.values())}
    return [row | {"exponent": exponent(found), "upper half": exponent(dict(list(found.items())[len(found) // 2 :]))}]


def exponent(seconds: dict[int, float]) -> float | None:
    """b of the law seconds ∝ size^b; None for fewer than two points."""
    if len(seconds) < 2:
        return None
    sizes = np.log(np.array(list(seconds), dtype=float))
    return float(np.polyfit(sizes, np.log(list(seconds.values())), 1)[0])


def _neighbours(n: int, k: int) -> Work:
    model = SHAPE.model(n + 16).prompted(list(range(1, 17)))
    tokens = model.sample(1, n, seed=0).tokens[0]
    candidates = model.log_probs(tokens[None])[0].topk(k).indices
    return lambda: model.neighbours(tokens, candidates)


def _compiling_length(n: int) -> Work:
    return lambda: locore.compile(locore.ban(words(100)), vocabulary(2048), n, use_cache=False)


def _compiling_words(number: int) -> Work:
    return lambda: locore.compile(locore.ban(words(number)), vocabulary(2048), FIXED_LENGTH, use_cache=False)


def _compiling_vocabulary(size: int) -> Work:
    return lambda: locore.compile(locore.ban(words(100)), vocabulary(size), FIXED_LENGTH, use_cache=False)


def _mass_length(n: int) -> Work:
    circuit = locore.compile(locore.ban(words(100)), vocabulary(2048), n)
    row = torch.randn(8, 2048, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    return lambda: circuit.log_mass(lambda _: row)


def _mass_vocabulary(size: int) -> Work:
    circuit = locore.compile(never(list(range(0, size, 100)), FIXED_LENGTH), size, FIXED_LENGTH)
    row = torch.randn(8, size, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    return lambda: circuit.log_mass(lambda _: row)


def _generate(particles: int) -> Work:
    model = locore.load(BUNDLED)
    constraint = locore.ban([" the"])

    def work() -> None:
        sampler = SequentialMonteCarlo()
        locore.generate(model, "The weather is", constraint, FIXED_LENGTH, num_particles=particles, sampler=sampler, seed=0)

    return work


IMPORT = "import locore"
GENERATE = (
    "import sys; from locore.cli import main; "
    f"sys.exit(main(['generate', '--model', '{BUNDLED}', '--prompt', 'The weather is', '--constraint', "
    '\'{"type": "contains", "text": " sun"}\']))'
)
PREPARE = f"import sys; from locore.cli import main; sys.exit(main(['prepare', '{BUNDLED}']))"
WATCH = """\
import json, resource, subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]], stdout=subprocess.DEVNULL, check=True)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))
"""
FOOTPRINT = Table(
    """\
## Start-up and footprint

Each in a process of its own, one thread. Memory is the largest resident size.""",
    ("what | got | goal", "{what} | {value:.3g} {unit} | at most {most:g} {unit}"),
)


def footprint_cases(_: SpeedPlan) -> Iterator[Case]:
    """All in one."""
    yield ("footprint",), _footprint


def _footprint() -> list[Row]:
    with TemporaryDirectory() as cache:
        nothing, imported, generated = (_process(code, cache) for code in ("pass", IMPORT, GENERATE))
        _process(PREPARE, cache)
        prepared = _process(GENERATE, cache)
    found = [
        ("`import locore`", imported[0] - nothing[0], "s", 0.3),
        ("`locore generate` on the bundled model, 32 particles", generated[0], "s", 10.0),
        ("memory of it", generated[1], "MB", 700.0),
        ("memory of it after `locore prepare`", prepared[1], "MB", 700.0),
        ("the package, compressed", packed_bytes(Path(locore.__file__).parent) / 1e6, "MB", 20.0),
    ]
    return [
        {"part": "footprint", "what": what, "value": value, "unit": unit, "most": most} for what, value, unit, most in found
    ]


def _process(code: str, cache: str) -> tuple[float, float]:
    """CPU seconds and megabytes of a Python process that runs this, with what Locore keeps in a folder of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "LOCORE_CACHE": cache}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    # A process counts what its parent held when it began, so a small one stands between.
    found = subprocess.run([sys.executable, "-c", WATCH, code], env=environment, stdout=subprocess.PIPE, check=True)
    seconds, peak = json.loads(found.stdout)
    return seconds, peak * (1 if sys.platform == "darwin" else 1024) / 1e6


def packed_bytes(folder: Path) -> int:
    """How large a wheel of these files is."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in folder.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(folder))
    return buffer.tell()
