"""Where the draws of a run come from: numbers of its own, or races that the rows of a prompt have in common.

A token that arrives after an exponential time of rate p(v) is the first one with probability p(v). Rows that read the same
times and differ in their laws draw the same token wherever the first to arrive under one law is the first under the other. So
a ban changes a draw only where what it bans would have been drawn, and the texts of two rows differ as little as their laws do.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from locore_lab.shared import seed_of


def generator_of(seed: int) -> torch.Generator:
    """The source of randomness of one run."""
    return torch.Generator().manual_seed(seed)


class Races:
    """Times at which tokens arrive, made once for each seed and step, whichever row asks first."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Tensor] = {}

    def log_times(self, seed: int, step: int, size: int) -> Tensor:
        """Float[size], logarithms of exponential times of rate 1: a function of seed, step and size alone."""
        if (seed, step) not in self._known:
            generator = generator_of(seed_of(seed, step))
            # In 64 bits: the first of 50,000 arrives at 2e-5, where 32 bits of a uniform number have two digits.
            times = torch.rand(size, generator=generator, dtype=torch.float64).log_().neg_()
            self._known[seed, step] = times.log_().float()
        return self._known[seed, step]


class Source:
    """The randomness of one run.

    Attributes:
        seed: of it.
        races: where its tokens are drawn by races; None if by uniform numbers of its own.
    """

    def __init__(self, seed: int, races: Races | None = None) -> None:
        self.seed, self.races = seed, races
        self._generator = generator_of(seed)
        self._step = 0

    def uniforms(self, number: int) -> Tensor:
        """f64[number], the next ones of its own."""
        return torch.rand(number, generator=self._generator, dtype=torch.float64)

    def log_times(self, size: int) -> Tensor:
        """Float[size], of its next race."""
        assert self.races is not None
        self._step += 1
        return self.races.log_times(self.seed, self._step, size)


def sources(seeds: Sequence[int], races: Races | None) -> list[Source]:
    """One for each seed."""
    return [Source(seed, races) for seed in seeds]
