"""Curves: how cost grows with one size while the others stay, and where it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

import locore
from locore.kernel.errors import LocoreError
from locore.samplers import SequentialMonteCarlo
from locore_lab.harness import Fields
from locore_lab.measuring import least_seconds
from locore_lab.speed.llamas import Shape
from locore_lab.speed.material import vocabulary, words
from locore_lab.speed.plan import BUNDLED, Case, Row, SpeedPlan
from locore_lab.speed.sampling import never

Work = Callable[[], Any]
SHAPE = Shape(512, 64, 176, 2, 2)  # small, since the exponents are of interest
FIXED_LENGTH = 20
COLUMNS = (
    "cost of | grows with | sizes | seconds | exponent | upper half | expected | ends",
    "{cost of} | {grows with} | {sizes[0]:,.3g} … {largest:,.3g} | {seconds[0]:,.3g} … {longest:,.3g} | {exponent:.2f} "
    "| {upper half:.2f} | {expected} | {ends}",
)
FIELDS: Fields = {"largest": lambda row: row["sizes"][-1], "longest": lambda row: row["seconds"][-1]}
ABOUT = """\
## Scaling

CPU seconds for growing sizes, and the exponent of the power law through them (least squares on logarithms): of all sizes, and
of the larger half, where calls cost less than work. "ends": the first size that is refused, and by what."""


def cases(plan: SpeedPlan) -> Iterator[Case]:
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
