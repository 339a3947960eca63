"""What samplers share: their call, and how a budget buys particles."""

from __future__ import annotations

from typing import Protocol

import torch

from locore.circuits import Circuit, LeftToRight
from locore.errors import BudgetExceeded, InvalidArgument
from locore.evidence import Draws
from locore.models import LanguageModel


class Sampler(Protocol):
    """An algorithm with its settings: a frozen dataclass."""

    @property
    def name(self) -> str:
        """What the report calls it."""

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """Sample p(y | α).

        Args:
            model: the prompted model p.
            circuit: the constraint α, compiled over the length wanted.
            num_particles: how many weighted sequences are asked for.
            budget: LM tokens that may be spent; None for the sampler's own limit.
            generator: source of all randomness.

        Raises:
            ZeroWeights: no sequence of positive weight was found.
            BudgetExceeded: the budget does not pay for a single particle.
        """


def affordable(num_particles: int, price: int, budget: int | None, what: str) -> int:
    """How many particles at `price` LM tokens each the budget pays for, at most the number asked for.

    Raises:
        BudgetExceeded: not even one.
    """
    if num_particles < 1:
        raise InvalidArgument(f"num_particles must be at least 1, got {num_particles}.")
    if budget is None or price == 0:
        return num_particles
    if price > budget:
        raise BudgetExceeded(
            f"one particle of {what} costs up to {price:,} LM tokens, the budget is {budget:,}; raise the budget, ask for "
            "fewer tokens, or use a cheaper kernel or sampler."
        )
    return min(num_particles, budget // price)


def left_to_right(circuit: Circuit) -> LeftToRight:
    """The circuit's left-to-right reading, which samplers that go token by token need."""
    if circuit.reader is None:
        raise InvalidArgument(
            "this circuit has no left-to-right reading (it was compiled for a vtree); leave vtree out, or use sampler='lcr' or "
            "'rejection'."
        )
    return circuit.reader
