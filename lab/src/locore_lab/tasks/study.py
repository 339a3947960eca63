"""The loop: rounds over problems, samplers and budgets; every run is on disk before the next one starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from locore.io import Journal
from locore.kernel.errors import LocoreError
from locore.models import LanguageModel
from locore_lab.harness import say
from locore_lab.shared import give_memory_back, seed_of
from locore_lab.tasks.measures import Row, cell
from locore_lab.tasks.problem import Problem, Task
from locore_lab.tasks.runs import DEFAULT, Entrant, Run, run_once
from locore_lab.tasks.truth import BATCHES, Truth, check_model, find_truth, stored_truth, tolerance, write_truth


@dataclass(frozen=True)
class TasksPlan:
    """How much is measured."""

    # budget -> runs of each main sampler there
    rounds: dict[int, int] = field(default_factory=lambda: {250: 8, 1_000: 8, 4_000: 4})
    few: dict[int, int] = field(default_factory=lambda: {250: 2, 1_000: 2})  # budget -> runs of each other sampler
    seed: int = 0  # of everything
    batches: tuple[int, ...] = BATCHES  # of each of the two samplers that make a truth
    dtype: str = "float32"  # of the model's weights. The truths are of 32 bits; in 16 the model is another, nearly the same
    steer_dtype: str = ""  # of the copy that draws; "" for none

    def wanted(self, entrant: Entrant, budget: int, number: int) -> bool:
        """Is this round measured for this sampler at this budget?"""
        if entrant.name == DEFAULT and budget != min(self.rounds):
            return False  # it has one budget, its own
        return number < (self.rounds if entrant.main else self.few).get(budget, 0)


@dataclass
class TasksStudy:
    """A folder of results that can be continued."""

    output: Path  # gets `runs.jsonl`, and truths that had to be made
    plan: TasksPlan
    open_model: Callable[[str], LanguageModel]  # a model by its name
    # wraps a prompted model so that it is not asked twice for the same; None for never. Runs of the first round are made
    # without it, so that their seconds mean something
    remembered: Callable[[LanguageModel], LanguageModel] | None = None
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.output.mkdir(parents=True, exist_ok=True)
        settings = {"what": "tasks", "seed": self.plan.seed}
        other = {} if self.plan.dtype == "float32" else {"dtype": self.plan.dtype}
        other |= {"steer_dtype": self.plan.steer_dtype} if self.plan.steer_dtype else {}
        self.journal = Journal(self.output / "runs.jsonl", {**settings, **other})

    def truth(self, problem: Problem) -> Truth | None:
        """The truth of a problem, made now if nobody has; None where two samplers do not agree."""
        folder = self.output / "truths"
        found = stored_truth(problem, [folder])
        if found is not None:
            return found
        say(f"{problem.name}: making its truth, which takes some minutes")
        model = self.open_model(problem.model)
        task = Task.of(problem, self.remembered(model) if self.remembered else model)
        batches = Journal(self.output / "batches.jsonl", {"what": "truths"})
        try:
            found = find_truth(task, batches, self.plan.batches)
        except LocoreError as error:
            say(f"  no truth: {error}")
            return None
        write_truth(found, folder / f"{problem.name}.json")
        say(f"  log Z = {found.log_z:.3f} ± {found.log_z_error:.3f}, {found.source}")
        return found

    def run(self, problems: list[Problem], entrants: list[Entrant]) -> tuple[list[Row], dict[str, Truth]]:
        """Measure what is not there yet; returns a row for each sampler, problem and budget, and the truths."""
        truths = {p.name: truth for p in problems if (truth := self.truth(p)) is not None}
        known = [p for p in problems if p.name in truths]
        checked: set[str] = set()
        for number in range(max([*self.plan.rounds.values(), *self.plan.few.values()], default=0)):
            for problem in known:
                missing = self._missing(problem, entrants, number)
                if not missing:
                    continue
                task = self._task(problem, timed=number == 0)
                if problem.name not in checked:
                    check_model(task, truths[problem.name], tolerance(self.plan.dtype))
                    checked.add(problem.name)
                self._measure(task, missing, number)
                del task
                give_memory_back()  # what it remembered would lie about in pieces too small for the next problem
        return self.rows(known, truths, entrants), truths

    def found(self, problems: list[Problem], entrants: list[Entrant]) -> tuple[list[Row], dict[str, Truth]]:
        """As `run`, of what is there."""
        folder = self.output / "truths"
        truths = {p.name: truth for p in problems if (truth := stored_truth(p, [folder])) is not None}
        return self.rows([p for p in problems if p.name in truths], truths, entrants), truths

    def _missing(self, problem: Problem, entrants: list[Entrant], number: int) -> list[tuple[Entrant, int]]:
        """What is planned for this round and not in the journal."""
        planned = [(e, budget) for e in entrants for budget in self.plan.rounds if self.plan.wanted(e, budget, number)]
        return [(e, budget) for e, budget in planned if self._key(problem, e, budget, number) not in self.journal]

    def rows(self, problems: list[Problem], truths: dict[str, Truth], entrants: list[Entrant]) -> list[Row]:
        """What the journal says."""
        rows = []
        for problem in problems:
            for entrant in entrants:
                for budget in self.plan.rounds:
                    runs = self.runs(problem, entrant, budget)
                    row = cell(problem, entrant.name, budget, runs, truths[problem.name]) if runs else None
                    if row:
                        rows.append(row)
        return rows

    def _task(self, problem: Problem, timed: bool) -> Task:
        model = self.open_model(problem.model)
        return Task.of(problem, model if timed or self.remembered is None else self.remembered(model))

    def _measure(self, task: Task, missing: list[tuple[Entrant, int]], number: int) -> None:
        name = task.problem.name
        say(f"{name}, round {number + 1}: {len(missing)} runs")
        for entrant, budget in missing:
            place = (self.plan.seed, name, entrant.name, budget, number)
            run = run_once(task, entrant, budget, seed_of(*place), timed=number == 0 or self.remembered is None)
            self.journal.append(self._key(task.problem, entrant, budget, number), run.to_json())

    def _key(self, problem: Problem, entrant: Entrant, budget: int, number: int) -> tuple[str | int, ...]:
        return (problem.name, problem.key(), entrant.name, budget, number)

    def runs(self, problem: Problem, entrant: Entrant, budget: int) -> list[Run]:
        """Those of one cell that are in the journal."""
        found: list[Run] = []
        while (key := self._key(problem, entrant, budget, len(found))) in self.journal:
            record = dict(self.journal[key])
            record["texts"] = [(text, score) for text, score in record["texts"]]
            found.append(Run(**record))
        return found
