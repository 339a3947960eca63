"""Is what runs say of themselves true? Verdicts and intervals of many runs against exact answers, on problems drawn by a seed.

The problems are those of `locore bench fidelity`: Markov chains, whose answers are calculated at any length, and a small real
model, whose posteriors are enumerated. A verdict is on one draw. Its runs on a problem together have a law, which is *near* if
it is within .1 of p(y | α) in total variation, beyond what chance gives. A run is *off* if its Ẑ is wrong by more than 30 %: it
does not know how probable its texts are. A run deserves "trust" if its law is near and it is not off, and "do not trust" if it
does not deserve "trust". The interval is on p(α).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import locore
from locore.samplers import SequentialMonteCarlo, Twisted, WithoutReplacement
from locore_lab.fidelity.drawn import in_families
from locore_lab.fidelity.measures import merged, noise_floor, total_variation
from locore_lab.fidelity.problems import Problem, chains, enumerable, open_model, tables
from locore_lab.fidelity.runs import Chunk, Task, add_run, run_once
from locore_lab.fidelity.truth import calculated, enumerated
from locore_lab.harness import Case, Row, measurement
from locore_lab.shared import SHARED, seed_of
from locore_lab.tasks.measures import OFF

SAMPLERS = {
    "auto": locore.samplers.Auto(),
    "twisted": Twisted(None),
    "swor": WithoutReplacement(),
    "smc": SequentialMonteCarlo(),
    "masked-is": SequentialMonteCarlo(ess_threshold=0.0),
}
LARGE_TV = 0.1
PREFIXES = (32, 96, 384)  # prefixes at a position that the budget buys
ROUNDING = 1e-6


@dataclass
class Tally:
    """Runs of one sampler with one verdict."""

    runs: int = 0
    intervals: int = 0
    covered: int = 0
    near: int = 0  # runs in cells whose draws are within LARGE_TV
    off: int = 0
    deserving: int = 0  # runs that are near and not off

    def row(self) -> dict[str, float | int | None]:
        """As written down."""
        covered = self.covered / self.intervals if self.intervals else None
        shares = {"draws_near": self.near, "off": self.off, "deserves_trust": self.deserving}
        return {"runs": self.runs, "covered": covered, **{name: count / self.runs for name, count in shares.items()}}


@dataclass
class Cell:
    """Runs of one sampler on one problem at one budget, by verdict."""

    chunks: dict[str, list[Chunk]] = field(default_factory=lambda: defaultdict(lambda: [Chunk() for _ in range(8)]))
    intervals: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    off: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))


def measure(task: Task, sampler: locore.samplers.Sampler, prefixes: int, runs: int, place: tuple[object, ...]) -> Cell:
    """Many runs of a cell; those that return nothing claim nothing."""
    cell, price = Cell(), max(1, task.circuit.length - 1)
    for number in range(runs):
        seed = seed_of(*place, number)
        particles, *_ = run_once(task, sampler, prefixes, prefixes * price, seed)
        if particles is None:
            continue
        level = particles.verdict.level
        chunk = cell.chunks[level][number % 8]
        chunk.runs += 1
        add_run(chunk, task, particles)
        missing = task.truth.missing  # enumeration may leave a little out
        cell.off[level].append(math.expm1(max(0.0, abs(particles.log_mean_weight - task.truth.log_z) - missing)) > OFF)
        low, high = particles.log_evidence_interval
        if not math.isnan(low):
            cell.intervals[level].append(low - ROUNDING <= task.truth.log_z + missing and high >= task.truth.log_z - ROUNDING)
    return cell


def tally(cell: Cell, task: Task, into: dict[str, Tally]) -> None:
    """Add a cell."""
    for level, chunks in cell.chunks.items():
        used = [chunk for chunk in chunks if chunk.runs]
        whole = merged(used)
        chance = noise_floor(used, task.truth) if len(used) > 1 else 1.0
        apart = total_variation(whole, task.truth, task.score) - chance
        one = into[level]
        one.runs += whole.runs
        one.intervals += len(cell.intervals[level])
        one.covered += sum(cell.intervals[level])
        near = apart <= LARGE_TV
        one.near += whole.runs * near
        one.off += sum(cell.off[level])
        one.deserving += near * (whole.runs - sum(cell.off[level]))


def trusted(levels: dict[str, Tally]) -> float:
    """Share of the runs that deserve trust that have it."""
    deserving = sum(one.deserving for one in levels.values())
    return levels["trust"].deserving / deserving if deserving else math.nan


def problems(seed: int, count: int, models: Path) -> list[Problem]:
    """Listed ones and drawn ones."""
    found = [*chains(), *tables(), *(problem for _, problem in in_families(seed, count, models))]
    if (models / "stories260k").is_dir():
        found += [p for p in enumerable() if p.name != "ban6"]
    return found


def measured(problem: Problem, models: Path, runs: int, seed: int) -> Row:
    """All samplers on one problem: counts by sampler and verdict."""
    model = open_model(problem.model, models).prompted(problem.prompt or "")
    circuit = locore.compile(problem.constraint, model, problem.length)
    truth = {"enumerate": enumerated, "dynamic": calculated}[problem.answer](problem, model, circuit)
    task = Task(model, circuit, truth)
    counts: dict[str, dict[str, Row]] = {}
    for name, sampler in SAMPLERS.items():
        levels: dict[str, Tally] = defaultdict(Tally)
        for prefixes in PREFIXES:
            tally(measure(task, sampler, prefixes, runs, (seed, problem.name, name, prefixes)), task, levels)
        counts[name] = {level: asdict(one) for level, one in levels.items()}
    return {"log_z": truth.log_z, "counts": counts}


def by_verdict(rows: list[Row]) -> str:
    """For each sampler and verdict how often intervals hold, draws are near, Ẑ is off, and trust is deserved."""
    lines = []
    for name in SAMPLERS:
        levels: dict[str, Tally] = {}
        for level in sorted({level for row in rows for level in row["counts"][name]}):
            found = [row["counts"][name][level] for row in rows if level in row["counts"][name]]
            levels[level] = Tally(**{what: sum(one[what] for one in found) for what in found[0]})
            shares = levels[level].row()
            told = "  ".join(
                f"{what.replace('_', ' ')} {share:.1%}"
                for what, share in shares.items()
                if what != "runs" and share is not None
            )
            lines.append(f"{name:12}{level:14}{shares['runs']:6} runs  {told}")
        if "trust" in levels:
            lines.append(f'{name:12}of the runs that deserve it, {trusted(levels):.1%} are told "trust"')
    return "\n".join(lines)


@measurement(
    "problem | log p(α)", "{problem} | {log_z:.2f}", quick={"count": 1, "runs": 2, "only": ["happy4"]}, after=by_verdict
)
def run(
    models: Annotated[Path, "folder that holds stories260k; without it all problems are of chains"] = SHARED / "models",
    seed: int = 11,
    count: Annotated[int, "problems that are drawn"] = 24,
    runs: Annotated[int, "of each sampler at each budget"] = 24,
    only: Annotated[list[str] | None, "problems"] = None,
) -> Iterator[Case]:
    for problem in problems(seed, count, models):
        if not only or problem.name in only:
            yield {"problem": problem.name}, partial(measured, problem, models, runs, seed)
