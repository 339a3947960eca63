"""Masked decoding: at each step only tokens that can still be completed, renormalised. With its weight it is proper.

Everybody ships this without the weight Π_t Z_t, Z_t the model's mass of the allowed tokens, and so samples
p^myopic(y) = Π_t p(y_t | y_<t) 1[y_t allowed] / Z_t instead of p(y | α) (paper, Section 2.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.models import LanguageModel
from locore.numerics import NEG_INF, categorical
from locore.samplers.base import Draws, affordable, keep_positive, left_to_right
from locore.samplers.frontier import Frontier

NO_TOKEN = "the model gives no allowed token any probability"
NOT_COMPLETE = "the text ended without satisfying the constraint"


@dataclass(frozen=True)
class GreedyMasking:
    """Independent masked sequences, weighted by what the mask cost.

    Attributes:
        look_ahead: mask by what can be completed within the length. False reproduces engines that do not know the length: they
            mask by what can be completed at some length, and run out of tokens; such sequences have weight zero.
    """

    look_ahead: bool = True
    name: str = "greedy"

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """One sequence for each particle, n − 1 LM tokens each; see `Sampler`."""
        reader = left_to_right(circuit)
        num = affordable(num_particles, circuit.length - 1, budget, self.name)
        uniforms = torch.rand(num, circuit.length, generator=generator, dtype=torch.float64)
        states, cursor = reader.initial(num), model.begin(num)
        weights = torch.zeros(num, dtype=torch.float64)
        tokens = torch.full((num, circuit.length), -1)
        scores = torch.zeros(num, circuit.length, dtype=torch.float64)
        alive = torch.arange(num)  # particles whose weight is not zero yet
        prefix = torch.zeros(num, dtype=torch.long)  # of those alive, a number for each distinct one
        frontier = Frontier()
        known: dict[str, Any] = {}
        for position in range(circuit.length):
            log_probs = cursor.log_probs.double()
            allowed = reader.allowed_tokens(position, states, self.look_ahead)
            masked = log_probs.masked_fill(~allowed, NEG_INF)
            step = masked.logsumexp(-1)
            known.setdefault("log_weight_cap", float(step[0]))  # the first factor is the same for all, no other exceeds 1
            going = step > NEG_INF
            weights[alive] += step
            alive, masked, states, prefix = alive[going], masked[going], states[going], prefix[going]
            if not len(alive):
                break
            token = categorical(masked, uniforms[alive, position])
            row, prefix = _distinct(prefix)
            joint = scores[alive[row]].sum(-1, keepdim=True) + masked[row]
            if position + 1 < circuit.length:
                frontier.leave(joint, prefix, token)
            else:
                final = reader.allowed_tokens(position, states[row])
                known |= frontier.close(joint.masked_fill_(~final, NEG_INF))
            prefix = prefix * circuit.vocab_size + token
            tokens[alive, position] = token
            scores[alive, position] = log_probs[going].gather(1, token[:, None])[:, 0]
            states = reader.step(position, states, token, look_ahead=self.look_ahead)
            if position + 1 < circuit.length:
                cursor = cursor.advance(token, going.nonzero()[:, 0])
        complete = reader.accepting(states)
        weights[alive] = weights[alive].masked_fill(~complete, NEG_INF)
        zeros = {NO_TOKEN: 1 - len(alive) / num, NOT_COMPLETE: int((~complete).sum()) / num}
        shares = {reason: share for reason, share in zeros.items() if share}
        return keep_positive(tokens, weights, scores, info={**known, "zero_weights": shares})


def _distinct(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """One row for each distinct number, and for each row which of these it is."""
    distinct, which = torch.unique(numbers, return_inverse=True)
    return torch.zeros(len(distinct), dtype=torch.long).scatter_(0, which, torch.arange(len(which))), which
