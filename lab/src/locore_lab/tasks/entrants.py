"""Who competes: the samplers of Locore as a newcomer calls them, what others ship, and the baselines."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from locore.circuits import Circuit
from locore.evidence import Draws
from locore.models import LanguageModel
from locore.samplers.auto import Auto
from locore_lab.fidelity.entries import Entry, choose

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
    """A row of the benchmark.

    Attributes:
        entry: what is called.
        particles: how many are asked for; None for as many as the budget buys.
        main: is it measured at every budget and in every round?
    """

    entry: Entry
    particles: int | None = None
    main: bool = True

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
