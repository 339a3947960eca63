"""Rejection and oversampling: draws from the model itself, kept if they satisfy the constraint."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.evidence import Draws, Record, keep_positive
from locore.evidence.bounds import binomial_bounds
from locore.models import LanguageModel
from locore.samplers.base import affordable

DRAWS_PER_PARTICLE = 256  # the limit where the caller sets no budget
BATCH = 256
NO_DRAW = "the draw of the model does not satisfy the constraint"


@dataclass(frozen=True)
class Rejection:
    """Exact draws from p(· | α): the model is sampled until enough sequences satisfy the constraint.

    Sampling goes on until one sequence more than asked for is accepted, at draw T, or until the budget is spent. Accepted
    sequences are independent of T, and K/(T−1) with K+1 acceptances is the unbiased estimate of p(α) under this stop;
    accepted/drawn is it where the budget ends the run (Girshick, Mosteller and Savage 1946). The interval of p(α) is exact for
    both ways of stopping (Clopper and Pearson 1934).
    """

    name: str = "rejection"

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """Sequences of equal weight; see `Sampler`."""
        most = self._most_draws(circuit.length, num_particles, budget)
        kept: list[Tensor] = []
        scores: list[Tensor] = []
        accepted = drawn = 0
        while drawn < most and accepted <= num_particles:
            needed = num_particles + 1 - accepted
            expected = math.ceil(needed * (drawn + 1) / (accepted + 1))
            batch = min(max(needed, min(expected, BATCH)), most - drawn)
            drafts = model.sample(batch, circuit.length, generator)
            holds = circuit.accepts(drafts.tokens)
            if int(holds.sum()) >= needed:  # stop at the very draw that is the last one needed
                last = int(holds.nonzero()[needed - 1]) + 1
                holds[last:] = False
                drawn += last
            else:
                drawn += len(holds)
            accepted += int(holds.sum())
            kept.append(drafts.tokens[holds])
            scores.append(drafts.token_scores[holds])
        if not accepted:
            raise ZeroWeights(
                f"none of {drawn} draws from the model satisfies the constraint, so its probability is probably below "
                f"{3 / drawn:.1g}; use sampler='twisted' or a larger budget."
            )
        enough = accepted > num_particles
        log_weight = math.log(num_particles / (drawn - 1) if enough else accepted / drawn)
        tokens = torch.cat(kept)[:num_particles]
        details = {"draws": drawn, "accepted": accepted}
        record = Record(drawn=drawn - enough, details=details, **_counted(accepted, drawn, enough))
        weights = torch.full((len(tokens),), log_weight, dtype=torch.float64)
        return Draws(tokens, weights, torch.cat(scores)[:num_particles], record)

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


@dataclass(frozen=True)
class Oversampling:
    """The paper's "oversampling": `num_particles` draws from the model, weighted by 1[y ⊨ α].

    If none satisfies the constraint there is nothing to return: ZeroWeights.
    """

    name: str = "oversampling"

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """A fixed number of draws, of which those that hold are returned; see `Sampler`."""
        num = affordable(num_particles, circuit.length - 1, budget, self.name)
        drafts = model.sample(num, circuit.length, generator)
        holds = circuit.accepts(drafts.tokens)
        weights = torch.where(holds, 0.0, float("-inf")).double()
        accepted = int(holds.sum())
        known = _counted(accepted, num, False) if accepted else {}
        return keep_positive(drafts.tokens, weights, drafts.token_scores, weight_cap=0.0, details={"draws": num}, **known)


def _counted(accepted: int, drawn: int, stopped: bool) -> dict[str, Any]:
    """What the numbers of draws say of p(α), exactly, and the share that was refused: fields of the record."""
    share = 1 - accepted / drawn
    bounds = binomial_bounds(accepted, drawn, stopped)
    return {"exact_draws": True, "interval": bounds, "likely": bounds, "zeros": {NO_DRAW: share} if share else {}}
