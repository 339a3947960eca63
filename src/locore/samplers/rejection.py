"""Rejection: draws from the model itself, kept if they satisfy the constraint; until there are enough, or a fixed number."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from locore.kernel.circuits.circuit import Circuit
from locore.kernel.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.kernel.evidence.bounds import binomial_bounds
from locore.kernel.evidence.record import Draws, Factors, Record, keep_positive
from locore.kernel.limits import expected as may_cost
from locore.kernel.models.language_model import LanguageModel
from locore.kernel.samplers.sampler import Promises, Worth, affordable

DRAWS_PER_PARTICLE = 256  # the limit where the caller sets no budget
BATCH = 256
NO_DRAW = "the draw of the model does not satisfy the constraint"

MARGIN = 2.0  # standard deviations of the number that is accepted


@dataclass(frozen=True)
class Rejection(Promises):
    """Exact draws from p(· | α): the model is sampled until enough sequences satisfy the constraint.

    Sampling goes on until one sequence more than asked for is accepted, at draw T, or until the budget is spent. Accepted
    sequences are independent of T, and K/(T−1) with K+1 acceptances is the unbiased estimate of p(α) under this stop;
    accepted/drawn is it where the budget ends the run (Girshick, Mosteller and Savage 1946). The interval of p(α) is exact for
    both ways of stopping (Clopper and Pearson 1934).

    Attributes:
        worth: of texts beyond α, at most e^most: a text that satisfies α is accepted with probability φ/e^most, so
            that accepted texts are exact draws from p(y | α) · φ(y), normalised.
        draws_all: `num_particles` draws, of which those are returned that satisfy α; none may, and then there is nothing to
            return. Potentials are left to the weights.
        seen: how many of how many draws were accepted before the call, which says how many to draw at once; then it is over.
    """

    name: str = "rejection"
    worth: Worth | None = field(default=None, compare=False, repr=False)
    draws_all: bool = False
    seen: tuple[int, int] = field(default=(0, 0), compare=False, repr=False)

    def most_prefixes(self, num_particles: int) -> float | None:
        """Of a fixed number of draws; others say themselves what they expect."""
        return num_particles if self.draws_all else None

    def with_worth(self, worth: Worth) -> Rejection:
        """With what texts are worth."""
        return self if self.draws_all else replace(self, worth=worth)

    def __call__(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """Sequences of equal weight; see `Sampler`."""
        if self.draws_all:
            return _drawn_once(model, circuit, num_particles, budget, generator)
        most, most_worth = self._most_draws(circuit.length, num_particles, budget), _most_worth(self.worth)
        sequences: list[Tensor] = []
        scores: list[Tensor] = []
        accepted = drawn = 0
        enough = self._expected(num_particles + 1, 0, 0) if self.seen[1] else most
        while drawn < most and accepted <= num_particles and drawn < enough:
            needed = num_particles + 1 - accepted
            expected = self._expected(needed, accepted, drawn)
            batch = min(max(needed, min(expected, BATCH)), most - drawn, enough - drawn)  # a stop that no draw decides
            may_cost(min(expected, most - drawn) * max(1, circuit.length - 1))
            drafts = model.sample(batch, circuit.length, generator)
            holds = circuit.accepts(drafts.tokens)
            if self.worth is not None:
                holds = _accepted(self.worth, drafts.tokens, holds, generator)
            if int(holds.sum()) >= needed:  # stop at the very draw that is the last one needed
                last = int(holds.nonzero()[needed - 1]) + 1
                holds[last:] = False
                drawn += last
            else:
                drawn += len(holds)
            accepted += int(holds.sum())
            sequences.append(drafts.tokens[holds])
            scores.append(drafts.token_scores[holds])
        if not accepted:
            raise ZeroWeights(
                f"none of {drawn} draws from the model satisfies the constraint, so its probability is probably below "
                f"{3 / drawn:.1g}; use the default sampler, or a larger budget."
            )
        stopped = accepted > num_particles
        log_weight = math.log(num_particles / (drawn - 1) if stopped else accepted / drawn) + most_worth
        tokens = torch.cat(sequences)[:num_particles]
        details = {"draws": drawn, "accepted": accepted}
        factors = None if self.worth is None else Factors(log_most=most_worth)
        counted = _counted(accepted, drawn, stopped, most_worth)
        record = Record(drawn=drawn - stopped, details=details, factors=factors, **counted)
        weights = torch.full((len(tokens),), log_weight, dtype=torch.float64)
        return Draws(tokens, weights, torch.cat(scores)[:num_particles], record)

    def _expected(self, needed: int, accepted: int, drawn: int) -> int:
        """Draws of which so many will probably be accepted, by all that is known; a few too many cost less than a second go."""
        share = (self.seen[0] + accepted + 1) / (self.seen[1] + drawn + 1)
        if self.seen[1]:  # there is no second go: so many by a share that is a standard deviation below what was seen
            share = (self.seen[0] + accepted + 1) / (self.seen[1] + drawn + 2)
            return math.ceil(needed / (share - math.sqrt(share * (1 - share) / (self.seen[1] + drawn + 2))))
        return math.ceil((needed + MARGIN * math.sqrt(needed * (1 - share))) / share)

    @staticmethod
    def _most_draws(length: int, num_particles: int, budget: int | None) -> int:
        if num_particles < 1:
            raise InvalidArgument(f"num_particles must be at least 1, got {num_particles}.")
        if budget is None:
            return DRAWS_PER_PARTICLE * (num_particles + 1)
        price = max(1, length - 1)
        if budget < price:
            raise BudgetExceeded(
                f"one draw of {length} tokens costs {price} LM tokens, the budget is {budget}; raise the budget."
            )
        return budget // price


def Oversampling() -> Rejection:  # noqa: N802  # a class once
    """The paper's "oversampling": `num_particles` draws from the model, weighted by 1[y ⊨ α]."""
    return Rejection(name="oversampling", draws_all=True)


def _drawn_once(
    model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
) -> Draws:
    """A fixed number of draws, of which those that hold are returned."""
    num = affordable(num_particles, circuit.length - 1, budget, "oversampling")
    drafts = model.sample(num, circuit.length, generator)
    holds = circuit.accepts(drafts.tokens)
    weights = torch.where(holds, 0.0, float("-inf")).double()
    accepted = int(holds.sum())
    counted = _counted(accepted, num, False) if accepted else {}
    return keep_positive(drafts.tokens, weights, drafts.token_scores, weight_cap=0.0, details={"draws": num}, **counted)


def _most_worth(worth: Worth | None) -> float:
    """Log of what φ cannot exceed; 0 where there is none."""
    if worth is None:
        return 0.0
    if worth.log_most == math.inf:
        raise InvalidArgument(
            "rejection accepts a text with probability φ over the largest φ there is, and that is not known: give the "
            "potential bound=..., the largest number that it ever returns, or use another sampler."
        )
    return worth.log_most


def _accepted(worth: Worth, tokens: Tensor, holds: Tensor, generator: torch.Generator) -> Tensor:
    """Bool[num]: which of the sequences that satisfy α, Bool[num], are accepted for what they are worth."""
    rows = holds.nonzero()[:, 0]
    chances = torch.rand(len(rows), generator=generator, dtype=torch.float64).log()
    accepted = torch.zeros_like(holds)
    if len(rows):
        accepted[rows] = chances < worth.of(tokens[rows]) - worth.log_most
    return accepted


def _counted(accepted: int, drawn: int, stopped: bool, most_worth: float = 0.0) -> dict[str, Any]:
    """What the numbers of draws say of p(α), exactly, and the share that was refused: fields of the record."""
    share = 1 - accepted / drawn
    low, high = binomial_bounds(accepted, drawn, stopped)
    bounds = low + most_worth, high + most_worth
    return {"exact_draws": True, "interval": bounds, "likely": bounds, "zeros": {NO_DRAW: share} if share else {}}
