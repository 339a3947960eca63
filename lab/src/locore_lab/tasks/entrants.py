"""Who competes: the samplers of Locore as a newcomer calls them, what others ship, and the baselines."""

from __future__ import annotations

from dataclasses import dataclass

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
PLAIN_WEIGHTS = ("masked-is", "masked")  # masked decoding with its weight


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
    """By name; None for all. What is not installed is left out, and stderr says so, unless they need not be.

    Raises:
        InvalidArgument: an unknown name, or nothing is left.
    """
    chosen = choose(names or [*MAIN, *OTHERS], installed)
    return [Entrant(entry, NEWCOMER if entry.name == "auto" else None, main=entry.name not in OTHERS) for entry in chosen]
