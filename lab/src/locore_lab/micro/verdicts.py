"""Do intervals hold, and is "trust" right, for every kind of problem? 300 problems in eight families against the truth.

    python -m locore_lab.micro.verdicts --models ../shared/models [--seed 39] [--runs 4] [--json lab/results/verdicts.json]

The problems are drawn by a seed (`locore_lab.fidelity.families`): half are endings, infilling and rare words. Chains have an
exact answer at any length; after prompts of the real model all prefixes that are more probable than 1e-8 are read, and all last
tokens of texts of 3 or 4 tokens summed. What less probable ones would add is taken to be at most what the last factor of ten
added. A run is *off* if its Ẑ is wrong by more than 30 %. Exact draws are trusted for what they are, however few, and counted
apart: of Ẑ their verdict says what their interval says. At the end stands for each verdict how often the report was right in
how much too high probabilities may be. Nothing is prepared: tables are learned in the call.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

import locore
from locore.circuits import Circuit, LeftToRight
from locore.errors import Unsatisfiable
from locore.evidence.verdict import LEVELS
from locore.models import LanguageModel
from locore.samplers.base import Prefixes, left_to_right
from locore_lab.fidelity.dynamic import first_tokens
from locore_lab.fidelity.families import MIN_PROB, in_families
from locore_lab.fidelity.opening import open_model
from locore_lab.fidelity.problems import Problem
from locore_lab.fidelity.runs import seed_of
from locore_lab.micro.machine import machine
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
RARE, LIKELY = -25.0, -0.01  # log p(α) outside of which a problem says nothing


@dataclass(frozen=True)
class Known:
    """log p(α), and by how much it may be larger."""

    log_z: float
    missing: float


@dataclass
class Tally:
    """Runs of one call on the problems of one family."""

    runs: int = 0
    failed: int = 0
    intervals: int = 0
    covered: int = 0
    trusted: int = 0
    trusted_off: int = 0
    trusted_covered: int = 0
    exact_draws_off: int = 0
    off: int = 0
    squares: float = 0.0
    said: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)

    def add(self, particles: locore.Particles, known: Known) -> None:
        """One run."""
        error = particles.log_mean_weight - known.log_z
        beyond = max(0.0, error - known.missing, -error)
        off, exact = math.expm1(beyond) > OFF, particles.record.exact_draws
        trusted = particles.verdict.level == "trust" and not exact
        low, high = particles.log_evidence_interval
        covers = low - ROUNDING <= known.log_z + known.missing and high >= known.log_z - ROUNDING
        self.runs += 1
        self.off += off
        self.squares += beyond**2
        self.trusted += trusted
        self.trusted_off += trusted and off
        self.exact_draws_off += exact and off
        if not math.isnan(low):
            # What the report says of probabilities: too high by no more than the factor from Ẑ to the end of the interval.
            self.said[particles.verdict.level] += 1
            self.held[particles.verdict.level] += high >= known.log_z - ROUNDING
            self.intervals += 1
            self.covered += covers
            self.trusted_covered += trusted and covers

    def __str__(self) -> str:
        covered = self.covered / self.intervals if self.intervals else math.nan
        wrong = self.trusted_off / self.trusted if self.trusted else 0.0
        rmse = math.sqrt(self.squares / self.runs) if self.runs else math.nan
        return (
            f"{self.runs:5} runs {self.failed:3} failed  covered {covered:6.1%}  trust {self.trusted:4}, off {wrong:5.1%}  "
            f"off {self.off / max(1, self.runs):5.1%}  RMSE {rmse:.2f}"
        )


def truth(problem: Problem, model: LanguageModel, circuit: Circuit) -> Known:
    """By dynamic programming, or by reading the prefixes that are probable enough."""
    if problem.answer == "dynamic":
        return Known(first_tokens(circuit, model)[0], 0.0)
    reader, sums = left_to_right(circuit), defaultdict(float)
    for probable, mass in _ends(model, reader, math.log(problem.min_prob)):
        sums[probable] += mass
    total = sum(sums.values())
    if not total:
        raise Unsatisfiable("no prefix that is probable enough can be completed.")
    return Known(math.log(total), math.log1p(sums[False] / total))


def _ends(model: LanguageModel, reader: LeftToRight, floor: float) -> Iterator[tuple[bool, float]]:
    """Of prefixes before the last token: are they well above the floor, and the probability of what satisfies α after them."""
    stack = [Prefixes.start(model, reader)]
    while stack:
        prefixes = stack.pop()
        joint = prefixes.log_mass[:, None] + prefixes.masked()
        if prefixes.position == reader.length - 1:
            well = prefixes.log_mass > floor + math.log(FACTOR)
            for which, mask in ((True, well), (False, ~well)):
                yield which, float(joint[mask].exp().sum())
            continue
        row, token = (joint >= floor).nonzero(as_tuple=True)
        stack += prefixes.extended(row, token).split(CHUNK)


def measure(problem: Problem, models: Path, runs: int, tallies: dict[str, Tally], seed: int) -> str:
    """All calls on one problem; what was found, in a line."""
    model = open_model(problem.model, models).prompted(problem.prompt or "")
    try:
        circuit = locore.compile(problem.constraint, model, problem.length)
        with torch.no_grad():
            known = truth(problem, model, circuit)
    except Unsatisfiable as error:
        return f"left out: {error}"
    if not RARE < known.log_z < LIKELY:
        return f"left out: log p(α) = {known.log_z:.2f}"
    for name, (sampler, budget) in CALLS.items():
        for number in range(runs):
            options = {"sampler": sampler, "budget": budget, "seed": seed_of(seed, problem.name, name, number) % 2**31}
            try:
                particles = locore.generate(model, "", problem.constraint, problem.length, ending="eos", **options)
            except locore.errors.LocoreError:
                tallies[name].failed += 1
                continue
            tallies[name].add(particles, known)
    return f"log p(α) = {known.log_z:.2f} (+ {known.missing:.3f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=Path("../shared/models"))
    parser.add_argument("--seed", type=int, default=39)
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tallies: dict[str, dict[str, Tally]] = defaultdict(lambda: {name: Tally() for name in CALLS})
    start = time.process_time()
    for family, problem in in_families(arguments.seed, arguments.problems, arguments.models):
        found = measure(problem, arguments.models, arguments.runs, tallies[family], arguments.seed)
        what = f"{problem.name} ({problem.model}, n = {problem.length})"
        print(f"{what}: {found}, {time.process_time() - start:.0f} CPU s", flush=True)
    for name in CALLS:
        for family, rows in tallies.items():
            print(f"{name:10} {family:11} {rows[name]}")
        for level in LEVELS:
            said, held = (sum(getattr(rows[name], what)[level] for rows in tallies.values()) for what in ("said", "held"))
            if said:
                print(f"{name:10} {level}: {said} runs, probabilities too high by no more than was said in {held / said:.1%}")
    if arguments.json:
        found = {family: {name: asdict(one) for name, one in each.items()} for family, each in tallies.items()}
        settings = {key: getattr(arguments, key) for key in ("seed", "problems", "runs")} | {"min_prob": MIN_PROB}
        arguments.json.write_text(json.dumps({"machine": machine(), "settings": settings, "rows": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
