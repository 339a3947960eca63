"""What samplers share: their call, what they return, and how a budget buys particles."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from locore.blocks import Blocks
from locore.circuits import Circuit, LeftToRight
from locore.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.models import LanguageModel
from locore.numerics import NEG_INF
from locore.particles import Particles
from locore.tokenizer import Tokenizer

Guarantee = Literal["proper", "asymptotic", "biased"]


@dataclass(frozen=True, eq=False)
class Draws:
    """Weighted sequences, as a sampler returns them.

    Attributes:
        tokens: Long[num, length]; all satisfy the constraint.
        log_weights: f64[num], natural logs, none −inf; rescaled by num/drawn, so that their mean is the evidence, as
            `keep_positive` does.
        drawn: how many weights were drawn, the zeros that are not returned included.
        guarantee: "proper" if E[mean_i w_i f(y_i)] = Σ_y p(y) 1[y ⊨ α] f(y).
        token_scores: f64[num, length], log p(y_t | y_<t), where the sampler knows them.
        notes: what the report should say, in plain words.
        blocks: the independent repetitions that they are the mean of, where there were such.
    """

    tokens: Tensor
    log_weights: Tensor
    drawn: int
    guarantee: Guarantee = "proper"
    token_scores: Tensor | None = None
    notes: list[str] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    blocks: Blocks | None = None

    def particles(self, tokenizer: Tokenizer, account: dict[str, Any]) -> Particles:
        """The same as particles; `account` is what the caller knows of the run, such as its cost."""
        own = {"guarantee": self.guarantee, "drawn": self.drawn, "notes": self.notes}
        return Particles(
            self.tokens, self.log_weights, tokenizer, {**account, **own, **self.info}, self.token_scores, self.blocks
        )


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


def keep_positive(
    tokens: Tensor, log_weights: Tensor, token_scores: Tensor | None = None, drawn: int | None = None, **fields: Any
) -> Draws:
    """Drop particles of weight zero, and rescale the others by kept/drawn so that their mean stays the evidence.

    `drawn` counts weights that are zero and not given at all; by default there are none.

    Raises:
        ZeroWeights: there is nothing left.
    """
    keep = log_weights > NEG_INF
    kept, drawn = int(keep.sum()), drawn or len(log_weights)
    if not kept:
        raise ZeroWeights(
            f"none of {drawn} particles satisfies the constraint with positive weight; use more particles, a larger budget, or "
            "another sampler (masking always finds sequences that satisfy the constraint)."
        )
    scores = None if token_scores is None else token_scores[keep]
    rescaled = log_weights[keep] + math.log(kept / drawn)
    return Draws(tokens[keep], rescaled, drawn, token_scores=scores, **fields)
