"""Who competes, and one run of one sampler on one task, as it is written down."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from locore.circuits import Circuit
from locore.evidence import Draws, Particles
from locore.kernel.errors import BudgetExceeded, CannotScore, InvalidArgument
from locore.models import Counted, LanguageModel
from locore.samplers.auto import Auto
from locore_lab.fidelity.entries import Entry, choose
from locore_lab.fidelity.runs import call
from locore_lab.tasks.problem import Law, Task, laws_of, shortened

NEWCOMER = 32  # particles of a default call
MAIN = (
    "auto",
    "masked-is",
    "smc",
    "swor",
    "twisted, learned",
    "lcr",
    "rejection",
    "genlm-smc",
    "genlm-awrs",
    "transformers-masking",
)
# Measured at small budgets and in few rounds: on a real model they are dear or far behind.
OTHERS = (
    "masked",
    "oversampling",
    "lcr-published",
    "cars",
    "ars",
    "awrs",
    "mcmc",
    "isir",
    "particle-gibbs",
    "exact",
    "best-first",
    "asap",
)
DEFAULT = "auto, default call"  # whatever the budget, as `generate` without one; on request
PLAIN_WEIGHTS = ("masked-is", "masked")  # masked decoding with its weight


@dataclass(frozen=True)
class DefaultCall:
    """The default sampler, which spends what it holds right."""

    name: str = DEFAULT

    def __call__(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """As `auto` without a budget."""
        return Auto()(model, circuit, num_particles, None, generator)


@dataclass(frozen=True)
class Entrant:
    """A row of the benchmark."""

    entry: Entry  # what is called
    particles: int | None = None  # how many are asked for; None for as many as the budget buys
    main: bool = True  # is it measured at every budget and in every round?

    @property
    def name(self) -> str:
        """In tables."""
        return self.entry.name

    def asked(self, length: int, vocab_size: int, budget: int) -> int:
        """Particles to ask for."""
        return self.entry.particles(length, vocab_size, budget) if self.particles is None else self.particles


def entrants(names: list[str] | None = None, installed: bool = True) -> list[Entrant]:
    """By name; None for all. What is not installed is left out, and stderr says so, unless they need not be."""
    wanted = names or [*MAIN, *OTHERS]
    listed = [name for name in wanted if name != DEFAULT]
    chosen = choose(listed, installed) if listed else []
    chosen += [Entry(DEFAULT, DefaultCall())] * (DEFAULT in wanted)
    newcomers = ("auto", DEFAULT)
    return [Entrant(entry, NEWCOMER if entry.name in newcomers else None, entry.name not in OTHERS) for entry in chosen]


VALUES = 60  # of a feature that are written down
SHOWN = 5  # texts
REFUSED, ZERO = "refused", "zero weights"


@dataclass(frozen=True)
class Run:
    """What a run returned and what it cost."""

    outcome: str  # "ok"; `ZERO` if it found nothing; `REFUSED` if the sampler does not apply or the budget is too small
    log_z: float | None = None  # log Ẑ and the 95 % interval that the run claims; None where it claims nothing
    low: float | None = None
    high: float | None = None
    verdict: str = ""  # of the report
    chosen: str = ""  # what `auto` took
    laws: dict[str, Law] = field(default_factory=dict)  # feature -> value -> weight
    texts: list[tuple[str, float]] = field(default_factory=list)  # some draws in proportion to the weights, with their log p(y)
    signs: dict[str, float | None] = field(default_factory=dict)  # what earlier runs wrote down of their own error
    lm_tokens: int = 0
    lm_contexts: int = 0
    passes: int | None = None  # of the model, one after the other; None of runs that were made before it was counted
    seconds: float = 0.0
    model_seconds: float = 0.0
    cpu_seconds: float = 0.0
    timed: bool = True  # was the model asked anew for everything, so that seconds mean something?
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """For a journal."""
        return asdict(self)


def run_once(task: Task, entrant: Entrant, budget: int, seed: int, timed: bool) -> Run:
    """Call a sampler as `generate` does, without compiling again."""
    counted, sampler = Counted(task.model), entrant.entry.sampler
    assert sampler is not None  # no entrant needs a table
    asked = entrant.asked(task.circuit.length, task.circuit.vocab_size, budget)
    try:
        particles, cost = call(sampler, counted, task.target(counted), task.circuit, asked, budget, seed)
    except (BudgetExceeded, CannotScore, InvalidArgument) as error:
        return Run(REFUSED, timed=timed, note=str(error))
    if particles is None:
        return Run(ZERO, **cost, timed=timed)
    found = particles if entrant.entry.weighted else particles.unweighted()
    return Run("ok", **_found(task, found, seed), **cost, timed=timed)


def _found(task: Task, particles: Particles, seed: int) -> dict[str, Any]:
    """What the particles say."""
    low, high = particles.log_evidence_interval if particles.record.weighted else (math.nan, math.nan)
    laws = laws_of(task.problem.features, particles.posterior())
    return {
        "log_z": _number(particles.log_evidence),
        "low": _number(low),
        "high": _number(high),
        "verdict": particles.verdict.level,
        "chosen": particles.record.chosen or "",
        "laws": {name: shortened(law, VALUES) for name, law in laws.items()},
        "texts": _draws(particles, seed),
    }


def _draws(particles: Particles, seed: int) -> list[tuple[str, float]]:
    """A few texts in proportion to their weights, likeliest first."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.multinomial(particles.weights, SHOWN, replacement=True, generator=generator).tolist()
    texts = particles.texts
    scores = particles.token_scores.sum(-1).tolist() if particles.token_scores is not None else [math.nan] * len(texts)
    found = [(texts[i], round(scores[i], 2)) for i in chosen]
    return sorted(found, key=lambda pair: -pair[1])


def _number(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None
