"""The loop over problems, samplers and budgets; every chunk of runs is on disk before the next one starts."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import locore
from locore.circuits import Circuit
from locore.io import Journal, write_whole
from locore.kernel.errors import BudgetExceeded, CannotScore, InvalidArgument
from locore.models import LanguageModel
from locore.samplers import Sampler
from locore.samplers.twist.ngram import NGramTable, prepare
from locore_lab.fidelity.entries import Entry
from locore_lab.fidelity.measures import noise_floor, summarise
from locore_lab.fidelity.problems import Problem, open_model
from locore_lab.fidelity.runs import Chunk, Task, run_chunk
from locore_lab.fidelity.truth import Truth, find_truth, pool_estimates
from locore_lab.harness import say
from locore_lab.shared import seed_of

CHUNKS = 16  # a measurement is made of so many; the noise is read off their spread
PILOT = 16  # runs that only say how many are needed


@dataclass(frozen=True)
class FidelityPlan:
    """How much is measured."""

    budgets: tuple[int, ...] = (20, 80, 400, 2000, 8000)  # LM tokens for one draw
    runs: int | None = None  # in every cell; None for as many as the goal needs
    least: int = 32  # bounds on the number of runs where the goal decides
    most: int = 4000
    cell_seconds: float = 120.0  # what one cell may take, roughly
    goal: float = 0.03  # total variation that is aimed at where a problem says nothing else
    seed: int = 0  # of everything
    table_positions: int = 20_000  # next-token distributions in the table made once per model


@dataclass
class FidelityStudy:
    """A folder of results that can be continued."""

    output: Path  # gets `runs/`, a journal for each problem, since the laws of a whole study are too large; and `truth/`
    plan: FidelityPlan
    models: Path | None = None  # folder of models that the wheel does not have
    truths: list[Path] = field(default_factory=list)  # more folders where answers may lie
    _open: dict[str, LanguageModel] = field(default_factory=dict)
    _tables: dict[str, NGramTable] = field(default_factory=dict)
    prepared: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def _costs(self) -> Path:
        return self.output / "tables.json"

    def run(self, problems: list[Problem], entries: list[Entry]) -> list[dict[str, Any]]:
        """Measure all cells that are not there yet; returns a row for each cell."""
        if self._costs.exists():
            self.prepared |= json.loads(self._costs.read_text())
        rows = []
        for problem in problems:
            task, journal = self.task(problem), self._journal(problem)
            if any(entry.reads_table for entry in entries):
                self.table(problem.model)  # before all rows, so that none depends on their order
            for entry in entries:
                for budget in self.plan.budgets:
                    row = self._cell(problem, task, entry, budget, journal)
                    if row:
                        rows.append(row)
        return rows

    def task(self, problem: Problem) -> Task:
        """The prompted model, the circuit and the truth."""
        model = self._model(problem.model)
        prompted = model.prompted(problem.prompt or "")
        circuit = locore.compile(problem.constraint, model, problem.length)
        folders = [self.output / "truth", *self.truths]

        def pool(problem: Problem, prompted: LanguageModel, circuit: Circuit) -> Truth:
            return pool_estimates(problem, prompted, circuit, self.table(problem.model), self.plan.seed)

        truth = find_truth(problem, prompted, circuit, folders, pool)
        say(f"{problem.name}: log Z = {truth.log_z:.4f} ({truth.source})")
        return Task(prompted, circuit, truth)

    def _journal(self, problem: Problem) -> Journal:
        """Of the chunks of a problem, which may change under its name."""
        path = self.output / "runs" / f"{problem.name}-{problem.key()}.jsonl"
        return Journal(path, {"problem": problem.to_json(), "table_positions": self.plan.table_positions})

    def _cell(self, problem: Problem, task: Task, entry: Entry, budget: int, journal: Journal) -> dict[str, Any] | None:
        chunks: list[Chunk] = []
        while (key := (self.plan.seed, entry.name, budget, len(chunks))) in journal:
            chunks.append(Chunk.from_json(journal[key]))
        if len(chunks) < CHUNKS:
            try:
                self._measure(problem, task, entry, budget, journal, chunks)
            except (BudgetExceeded, CannotScore) as error:
                say(f"  {entry.name} at {budget}: {error}")
                return None
            except InvalidArgument as error:
                say(f"  {entry.name} does not apply: {error}")
                return None
        if self.plan.runs is not None and chunks[0].runs != _per_chunk(self.plan.runs):
            say(f"  {entry.name}: made with other --runs before, which stay; give another folder for {self.plan.runs}.")
        row = {"problem": problem.name, "sampler": entry.name, "budget": budget, "goal": self._goal(problem, budget)}
        row |= summarise(chunks, task.truth, task.score)
        found = f"TV {row['tv']:.4f} (noise {row['noise']:.4f})" if row["tv"] is not None else f"RMSE {row['rmse']}"
        say(f"  {entry.name:26} {budget:6} tokens: {found}, {row['runs']} runs")
        return row

    def _measure(self, problem: Problem, task: Task, entry: Entry, budget: int, journal: Journal, chunks: list[Chunk]) -> None:
        """Append the chunks that are missing, to the list and to the journal."""
        sampler = self._sampler(problem, entry)
        # All chunks of a cell are equally large, also those of a run that goes on.
        size = chunks[0].runs if chunks else self._chunk_size(problem, task, entry, sampler, budget)
        for number in range(len(chunks), CHUNKS):
            place = (self.plan.seed, problem.name, entry.name, budget, number)
            seeds = [seed_of(*place, i) for i in range(size)]
            chunk = run_chunk(task, entry, sampler, budget, seeds)
            journal.append((self.plan.seed, entry.name, budget, number), chunk.to_json())
            chunks.append(chunk)

    def _chunk_size(self, problem: Problem, task: Task, entry: Entry, sampler: Sampler, budget: int) -> int:
        """Runs in a chunk. A pilot, whose runs are thrown away, tells the noise and the price of a run."""
        plan = self.plan
        if plan.runs is not None:
            return _per_chunk(plan.runs)
        start = time.process_time()
        pilot = []
        for number in range(PILOT):
            seed = seed_of(plan.seed, problem.name, entry.name, budget, "pilot", number)
            pilot.append(run_chunk(task, entry, sampler, budget, [seed]))
            if time.process_time() - start > plan.cell_seconds / 4 and number:
                break
        price = (time.process_time() - start) / len(pilot)
        wanted = self._goal(problem, budget) / 3
        needed = len(pilot) * (noise_floor(pilot, task.truth) / wanted) ** 2
        affordable = plan.cell_seconds / max(price, 1e-6)
        return _per_chunk(min(max(needed, plan.least), plan.most, affordable))

    def _goal(self, problem: Problem, budget: int) -> float:
        return problem.goals.get(budget, self.plan.goal)

    def _model(self, name: str) -> LanguageModel:
        if name not in self._open:
            self._open[name] = open_model(name, self.models)
        return self._open[name]

    def _sampler(self, problem: Problem, entry: Entry) -> Sampler:
        """The sampler; a table that it needs is made once per model, and its cost is noted."""
        if entry.with_table is None:
            assert entry.sampler is not None
            return entry.sampler
        return entry.with_table(self.table(problem.model))

    def table(self, name: str) -> NGramTable:
        """The n-gram table of a model, as `locore prepare` makes it; what it cost is kept beside the results."""
        if name not in self._tables:
            start = time.process_time()
            made = prepare(self._model(name), self.plan.table_positions)
            self._tables[name] = made.table
            if made.lm_tokens:
                cost = {"lm_tokens": float(made.lm_tokens), "cpu_seconds": time.process_time() - start}
                self.prepared[name] = cost
                write_whole(self._costs, json.dumps(self.prepared, indent=1) + "\n")
        return self._tables[name]


def _per_chunk(runs: float) -> int:
    return max(1, math.ceil(runs / CHUNKS))
