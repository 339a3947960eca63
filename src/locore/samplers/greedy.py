"""Masked decoding: at each step only tokens that can still be completed, renormalised. With its weight it is proper.

Everybody ships this without the weight Π_t Z_t, Z_t the model's mass of the allowed tokens, and so samples
p^myopic(y) = Π_t p(y_t | y_<t) 1[y_t allowed] / Z_t instead of p(y | α) (paper, Section 2.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from locore.circuits import Circuit, LeftToRight
from locore.models import LanguageModel
from locore.numerics import NEG_INF, categorical
from locore.samplers.base import Draws, affordable, keep_positive, left_to_right


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
        for position in range(circuit.length):
            log_probs = cursor.log_probs.double()
            allowed = self._allowed(reader, position, states)[:, reader.token_class]
            masked = log_probs.masked_fill(~allowed, NEG_INF)
            step = masked.logsumexp(-1)
            going = step > NEG_INF
            weights[alive] += step
            alive, masked, states = alive[going], masked[going] - step[going, None], states[going]
            if not len(alive):
                break
            token = categorical(masked, uniforms[alive, position])
            tokens[alive, position] = token
            scores[alive, position] = log_probs[going].gather(1, token[:, None])[:, 0]
            states = reader.step(position, states, token, look_ahead=self.look_ahead)
            if position + 1 < circuit.length:
                cursor = cursor.advance(token, going.nonzero()[:, 0])
        weights[alive] = weights[alive].masked_fill(~reader.accepting(states), NEG_INF)
        return keep_positive(tokens, weights, scores)

    def _allowed(self, reader: LeftToRight, position: int, states: Tensor) -> Tensor:
        """Bool[batch, classes]."""
        return reader.allowed(position, states, look_ahead=self.look_ahead)
