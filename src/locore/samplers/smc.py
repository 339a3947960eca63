"""Sequential Monte Carlo with masked proposals and exact look-ahead to the length.

A particle draws its next token from the model, masked to what can still be completed and
renormalised, and is weighted by what the mask cost, Z_t = Σ_v p(v | y_<t) 1[v allowed] (Lew et al.
2023; Loula et al. 2025). When the weights have become uneven, particles are resampled. In each
block of N particles

    p̂(α) = Σ_i w_i,    w_i = Z_1 ⋯ Z_n / N  without resampling,

and resampling before step t replaces every Z_1 ⋯ Z_t / N by the mean over the block.

Z_t does not depend on the token that is drawn next, so particles are resampled before they move
(Pitt and Shephard 1999, fully adapted): copies of a good prefix part at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from locore.blocks import Surprise
from locore.circuits import Circuit, LeftToRight
from locore.ending import is_end
from locore.errors import InvalidArgument, ZeroWeights
from locore.models import LanguageModel
from locore.numerics import NEG_INF, categorical, effective_sample_size, log_softmax_sum, segment_logsumexp
from locore.samplers.base import Draws, affordable, left_to_right
from locore.samplers.frontier import Frontier
from locore.samplers.swor import Round, pooled, width_of

GATHERED_NUMBERS = 2**24  # probabilities that are copied together, one row for each particle


@dataclass(frozen=True)
class SequentialMonteCarlo:
    """Masked SMC; without resampling it is masked importance sampling.

    Particles on equal prefixes share one evaluation of the model, so fewer LM tokens are asked for
    than particles move, which is `info["nominal_lm_tokens"]` and what the budget bounds.

    Attributes:
        ess_threshold: resample a block when its effective sample size falls below this share of its
            particles; 0 for never.
        blocks: independent repetitions that share the particles, and whose spread is the error of
            the evidence.
    """

    ess_threshold: float = 0.5
    blocks: int = 4

    @property
    def name(self) -> str:
        """What the report calls it."""
        return "smc" if self.ess_threshold else "masked IS"

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """`num_particles` particles, or as many as the budget pays for; equal ones are merged. See `Sampler`."""
        check_threshold(self.ess_threshold)
        reader = left_to_right(circuit)
        affordable(num_particles, 0, None, self.name)
        width = width_of(num_particles, circuit.length, budget, self.blocks, self.name)
        particles, nominal = Population.start(width, self.blocks), 0
        states, cursor = reader.initial(1), model.begin(1)
        frontier, prefix_scores = Frontier(), torch.zeros(1, dtype=torch.float64)
        for position in range(circuit.length):
            log_probs = cursor.log_probs.double()
            masked = mask(reader, position, states, log_probs)
            particles = particles.weighted(log_softmax_sum(masked)[particles.node])
            particles = particles.resampled(self.ess_threshold, generator)
            token = _draw(masked, particles.node, generator)
            particles = particles.extended(token, log_probs[particles.node, token])
            particles, parents, tokens = particles.settled(model.vocab_size)
            states = reader.step(position, states[parents], tokens)
            log_joint = prefix_scores[:, None] + masked
            prefix_scores = log_joint[parents, tokens]
            if position + 1 < circuit.length:
                nominal += particles.unfinished(model.tokenizer.eos_ids)
                cursor = cursor.advance(tokens, parents)
                frontier.leave(log_joint, parents, tokens)
        most = num_particles if budget is None else None
        return particles.draws(most, generator, {"nominal_lm_tokens": nominal, **frontier.close(log_joint)})


def check_threshold(ess_threshold: float) -> None:
    """Raise InvalidArgument unless it is a share."""
    if not 0 <= ess_threshold <= 1:
        raise InvalidArgument(f"ess_threshold is a share of the particles, from 0 to 1, got {ess_threshold}.")


def mask(reader: LeftToRight, position: int, states: Tensor, log_probs: Tensor) -> Tensor:
    """f64[prefixes, vocab]: log p where the constraint can still be completed, −inf elsewhere."""
    return log_probs.masked_fill(~reader.allowed_tokens(position, states), NEG_INF)


def systematic(log_weights: Tensor, num: int, uniform: float) -> Tensor:
    """Systematic resampling: each item num · w_i / Σw times, up to rounding.

    Args:
        log_weights: f64[items], natural logs; −inf is never chosen.
        num: how many to choose.
        uniform: a number in [0, 1), the only randomness.

    Returns:
        Long[num], in increasing order.
    """
    cumulative = (log_weights - log_weights.max()).exp().cumsum(0)
    points = (torch.arange(num, dtype=torch.float64) + uniform) / num
    chosen = torch.searchsorted(cumulative, points * cumulative[-1], right=True)
    return chosen.clamp_max(int((log_weights > NEG_INF).nonzero()[-1]))


@dataclass(frozen=True, eq=False)
class Population:
    """Particles of independent blocks, each on one of the distinct prefixes that the model has
    read.

    Attributes:
        width: particles in a full block.
        blocks: number of blocks.
        block: Long[particles].
        node: Long[particles], the row of the model's cursor.
        tokens: Long[particles, time].
        token_scores: f64[particles, time].
        log_weights: f64[particles]; the weights of a block sum to its estimate of p(α). None is
            −inf.
        surprise: f64[blocks], the sum over positions of the variance within a block of the logs of
            what its weights were multiplied by, nats².
    """

    width: int
    blocks: int
    block: Tensor
    node: Tensor
    tokens: Tensor
    token_scores: Tensor
    log_weights: Tensor
    surprise: Tensor

    @classmethod
    def start(cls, width: int, blocks: int) -> Population:
        """All particles before their first token."""
        num = width * blocks
        return cls(
            width,
            blocks,
            block=torch.arange(blocks).repeat_interleave(width),
            node=torch.zeros(num, dtype=torch.long),
            tokens=torch.zeros(num, 0, dtype=torch.long),
            token_scores=torch.zeros(num, 0, dtype=torch.float64),
            log_weights=torch.full((num,), -math.log(width), dtype=torch.float64),
            surprise=torch.zeros(blocks, dtype=torch.float64),
        )

    def chosen(self, index: Tensor, log_weights: Tensor) -> Population:
        """These particles, with these weights."""
        return replace(
            self,
            block=self.block[index],
            node=self.node[index],
            tokens=self.tokens[index],
            token_scores=self.token_scores[index],
            log_weights=log_weights,
        )

    def weighted(self, log_increments: Tensor) -> Population:
        """Weights multiplied by f64[particles]; what becomes zero is dropped.

        Raises:
            ZeroWeights: nothing is left.
        """
        log_weights = self.log_weights + log_increments
        alive = (log_weights > NEG_INF).nonzero()[:, 0]
        if not len(alive):
            raise ZeroWeights("every particle has reached a prefix after which the model gives the constraint no probability.")
        surprise = self.surprise + self._variance(log_increments)
        return replace(self.chosen(alive, log_weights[alive]), surprise=surprise)

    def _variance(self, values: Tensor) -> Tensor:
        """f64[blocks]: the variance of f64[particles] in each block by its weights, where they are finite."""
        finite = values > NEG_INF
        logs = self.log_weights.masked_fill(~finite, NEG_INF)
        share = (logs - segment_logsumexp(logs, self.block, self.blocks)[self.block]).exp().nan_to_num(0.0)
        kept = values.masked_fill(~finite, 0.0)

        def mean(numbers: Tensor) -> Tensor:
            return torch.zeros(self.blocks, dtype=torch.float64).index_add_(0, self.block, share * numbers)

        return mean((kept - mean(kept)[self.block]).square())

    def resampled(self, threshold: float, generator: torch.Generator) -> Population:
        """Blocks whose effective sample size is below the threshold are made even, by systematic resampling."""
        rows, weights = [], []
        for block in range(self.blocks):
            own = (self.block == block).nonzero()[:, 0]
            own_weights = self.log_weights[own]
            if len(own) and effective_sample_size(own_weights) < threshold * self.width:
                uniform = float(torch.rand((), generator=generator, dtype=torch.float64))
                own = own[systematic(own_weights, self.width, uniform)]
                own_weights = (torch.logsumexp(own_weights, 0) - math.log(self.width)).expand(self.width)
            rows.append(own)
            weights.append(own_weights)
        return self.chosen(torch.cat(rows), torch.cat(weights))

    def extended(self, token: Tensor, token_scores: Tensor) -> Population:
        """One more token each; `node` still says where it was drawn."""
        return replace(
            self,
            tokens=torch.cat([self.tokens, token[:, None]], 1),
            token_scores=torch.cat([self.token_scores, token_scores[:, None]], 1),
        )

    def settled(self, vocab_size: int) -> tuple[Population, Tensor, Tensor]:
        """Particles on their new prefixes, and for each distinct prefix its parent and its last token."""
        prefixes, node = torch.unique(self.node * vocab_size + self.tokens[:, -1], return_inverse=True)
        return replace(self, node=node), prefixes // vocab_size, prefixes % vocab_size

    def unfinished(self, eos_ids: tuple[int, ...]) -> int:
        """How many texts have not ended, each of which needs the next distribution."""
        return int((~is_end(self.tokens, eos_ids).any(-1)).sum())

    def draws(self, most: int | None, generator: torch.Generator, info: dict[str, Any]) -> Draws:
        """The blocks, averaged; at most so many particles, if that is limited."""
        rounds = []
        for block, nats in enumerate(self.surprise.sqrt().tolist()):
            own = self.block == block
            surprise = Surprise(nats, 1.0, self.width)
            rounds.append(Round(self.tokens[own], self.log_weights[own], self.token_scores[own], surprise))
        return pooled(rounds, most, generator, info)


def _draw(masked: Tensor, node: Tensor, generator: torch.Generator) -> Tensor:
    """Long[particles]: a token for each, from the masked distribution of its prefix."""
    uniforms = torch.rand(len(node), generator=generator, dtype=torch.float64)
    size = max(1, GATHERED_NUMBERS // masked.shape[1])
    parts = zip(torch.split(node, size), torch.split(uniforms, size), strict=True)
    return torch.cat([categorical(masked[part], uniform) for part, uniform in parts])
