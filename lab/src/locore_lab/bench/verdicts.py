"""Do intervals hold, and is "trust" right, for every kind of problem? 300 problems in eight families against the truth.

The problems are drawn by a seed (`locore_lab.fidelity.drawn`): half are endings, infilling and rare words. Chains have an
exact answer at any length; after prompts of the real model all prefixes that are more probable than 1e-8 and than p(α)/100 are
read, or than p(α)/1,000,000 where these are no more than 40,000, and all last tokens of texts of 3 or 4 tokens summed; a
problem that takes more even so is left out. What less probable ones would add is at most what the last factor of ten added.
A run is *off* if its Ẑ is wrong by more than 30 %. Exact draws are trusted for what they are, however few, and counted apart:
of Ẑ their verdict says what their interval says. At the end stands for each verdict how often the report was right in how much
too high probabilities may be. Nothing is prepared: tables are learned in the call.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import torch

import locore
from locore.circuits import Circuit, LeftToRight
from locore.kernel.errors import BudgetExceeded, Unsatisfiable
from locore.kernel.evidence.verdict import LEVELS
from locore.kernel.samplers.sampler import Prefixes, left_to_right
from locore.models import LanguageModel
from locore_lab.fidelity.drawn import in_families
from locore_lab.fidelity.problems import Problem, open_model
from locore_lab.fidelity.truth import first_tokens
from locore_lab.harness import Case, Row, measurement
from locore_lab.shared import SHARED, seed_of
from locore_lab.tasks.measures import OFF

CALLS: dict[str, tuple[str, int | None]] = {  # sampler and LM tokens
    "auto": ("auto", None),
    "auto 400": ("auto", 400),
    "auto 2000": ("auto", 2000),
    "swor 400": ("swor", 400),
    "smc 400": ("smc", 400),
}
FACTOR = 10.0  # of the probability of prefixes
CHUNK = 1024
ROUNDING = 1e-5
SMALL, SMALLEST = 0.01, 1e-6  # of p(α): prefixes that are less probable need not be read, or are not if that takes too many
MOST = 40_000  # prefixes that are read for a truth
RARE, LIKELY = -25.0, -0.01  # log p(α) outside of which a problem says nothing


@dataclass(frozen=True)
class Known:
    """log p(α), and by how much it may be larger."""

    log_z: float
    missing: float


def truth(problem: Problem, model: LanguageModel, circuit: Circuit) -> Known:
    """By dynamic programming, or by reading the prefixes that are probable enough."""
    if problem.answer == "dynamic":
        return Known(first_tokens(circuit, model)[0], 0.0)
    reader, floor, known = left_to_right(circuit), math.log(problem.min_prob), None
    while True:
        try:
            found = _above(floor, model, reader)
        except BudgetExceeded as error:
            if known is None:
                raise Unsatisfiable(str(error)) from None
            return known
        known = found if floor <= found.log_z + math.log(SMALL) else known
        if floor <= found.log_z + math.log(SMALLEST):
            return found
        floor = found.log_z + math.log(SMALL if known is None else SMALLEST)


def _above(floor: float, model: LanguageModel, reader: LeftToRight) -> Known:
    """By the prefixes whose log-probability is above a floor."""
    sums = dict.fromkeys((True, False), 0.0)
    for probable, mass in _ends(model, reader, floor):
        sums[probable] += mass
    total = sum(sums.values())
    if not total:
        raise Unsatisfiable("no prefix that is probable enough can be completed.")
    return Known(math.log(total), math.log1p(sums[False] / total))


def _ends(model: LanguageModel, reader: LeftToRight, floor: float) -> Iterator[tuple[bool, float]]:
    """Of prefixes before the last token: are they well above the floor, and the probability of what satisfies α after them."""
    stack, read = [Prefixes.start(model, reader)], 0
    while stack:
        prefixes = stack.pop()
        read += len(prefixes)
        if read > MOST:
            raise BudgetExceeded(f"its truth takes more than {MOST:,} prefixes.")
        joint = prefixes.log_mass[:, None] + prefixes.masked()
        if prefixes.position == reader.length - 1:
            well = prefixes.log_mass > floor + math.log(FACTOR)
            for which, mask in ((True, well), (False, ~well)):
                yield which, float(joint[mask].exp().sum())
            continue
        row, token = (joint >= floor).nonzero(as_tuple=True)
        stack += prefixes.extended(row, token).split(CHUNK)


def judged(particles: locore.Particles, known: Known) -> Counter[str]:
    """What one run says, and whether it is so, as counts."""
    error, level = particles.log_mean_weight - known.log_z, particles.verdict.level
    beyond = max(0.0, error - known.missing, -error)
    off, exact = math.expm1(beyond) > OFF, particles.record.exact_draws
    trusted = level == "trust" and not exact
    low, high = particles.log_evidence_interval
    found = {"runs": 1, "off": off, "trusted": trusted, "trusted_off": trusted and off, "exact_draws_off": exact and off}
    found["squares"] = beyond**2
    if not math.isnan(low):
        covers = low - ROUNDING <= known.log_z + known.missing and high >= known.log_z - ROUNDING
        found |= {"intervals": 1, "covered": covers, "trusted_covered": trusted and covers}
        # What the report says of probabilities: too high by no more than the factor from Ẑ to the end of the interval.
        found |= {f"said {level}": 1, f"held {level}": high >= known.log_z - ROUNDING, f"near {level}": not off}
    return Counter({name: int(value) if isinstance(value, bool) else value for name, value in found.items()})


def measured(problem: Problem, models: Path, runs: int, seed: int) -> Row:
    """All calls on one problem: counts by the name of the call."""
    model = open_model(problem.model, models).prompted(problem.prompt or "")
    row: Row = {"model": problem.model, "length": problem.length}
    try:
        circuit = locore.compile(problem.constraint, model, problem.length)
        with torch.no_grad():
            known = truth(problem, model, circuit)
    except Unsatisfiable as error:
        return {**row, "left_out": str(error)}
    row |= {"log_p": known.log_z, "missing": known.missing}
    if not RARE < known.log_z < LIKELY:
        return {**row, "left_out": "says nothing"}
    counts: dict[str, Counter[str]] = {name: Counter() for name in CALLS}
    for name, (sampler, budget) in CALLS.items():
        for number in range(runs):
            options = {"sampler": sampler, "budget": budget, "seed": seed_of(seed, problem.name, name, number)}
            try:
                particles = locore.generate(model, "", problem.constraint, problem.length, ending="eos", **options)
            except locore.kernel.errors.LocoreError:
                counts[name]["failed"] += 1
                continue
            counts[name] += judged(particles, known)
    return {**row, "counts": counts}


def by_family(rows: list[Row]) -> str:
    """For each call and family how often the interval holds, "trust" is said and wrong, and Ẑ is off."""
    lines = []
    for name in CALLS:
        total: Counter[str] = Counter()
        for family in dict.fromkeys(row["family"] for row in rows):
            found: Counter[str] = sum((Counter(row["counts"][name]) for row in rows if _has(row, family)), Counter())
            total += found
            lines.append(f"{name:10} {family:11} {_told(found)}")
        lines.append(f"{name:10} {'all':11} {_told(total)}")
        for level in LEVELS:
            if said := total[f"said {level}"]:
                held, near = total[f"held {level}"] / said, total[f"near {level}"] / said
                lines.append(
                    f"{name:10} {level}: {said} runs, probabilities too high by no more than was said in {held:.1%}, off by no "
                    f"more than 30 % in {near:.1%}"
                )
    return "\n".join(lines)


def _has(row: Row, family: str) -> bool:
    return row["family"] == family and "counts" in row


def _told(found: Counter[str]) -> str:
    covered = found["covered"] / max(1, found["intervals"])
    runs = max(1, found["runs"])
    return (
        f"{found['runs']:5} runs {found['failed']:3} failed  covered {covered:6.1%}  trust {found['trusted']:4}, "
        f"{found['trusted_off']} off  off {found['off'] / runs:5.1%}  RMSE {math.sqrt(found['squares'] / runs):.2f}"
    )


@measurement(
    "family | problem | n | log p(α) | may be larger by",
    "{family} | {problem} | {length} | {log_p:.2f} | {missing:.3f}",
    quick={"problems": 8, "runs": 1},
    after=by_family,
)
def run(
    models: Annotated[Path, "folder that holds stories260k; without it all problems are of chains"] = SHARED / "models",
    seed: int = 39,
    problems: int = 300,
    runs: int = 2,
) -> Iterator[Case]:
    for family, problem in in_families(seed, problems, models):
        yield {"family": family, "problem": problem.name}, partial(measured, problem, models, runs, seed)
