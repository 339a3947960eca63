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
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.kernel.evidence.blocks import Surprise
from locore.kernel.evidence.record import UNKNOWN, Draws, keep_positive
from locore.kernel.models.language_model import LanguageModel
from locore.kernel.numerics import NEG_INF, distinct, effective_sample_size, segment_logsumexp
from locore.kernel.samplers.rounds import Round, pooled, width_of
from locore.kernel.samplers.sampler import Ahead, HasReading, Prefixes, Promises, UnreadMass, affordable, left_to_right

LESS_SPREAD = "Try sampler='twisted', or 'rejection' if the constraint is likely."  # remedy of samplers whose weights vary
NO_TOKEN = "the model gives no allowed token any probability"
NOT_COMPLETE = "the text ended without satisfying the constraint"


@dataclass(frozen=True)
class SequentialMonteCarlo(Promises):
    """Masked SMC; without resampling it is masked importance sampling.

    Particles on equal prefixes share one evaluation of the model, so fewer LM tokens are asked for
    than particles move, which is `info["nominal_lm_tokens"]` and what the budget bounds. Not `apart`.

    Attributes:
        ess_threshold: resample a block when its effective sample size falls below this share of its
            particles; 0 for never.
        blocks: independent repetitions that share the particles, and whose spread is the error of
            the evidence.
        ahead: weights are multiplied by it on their way.
        apart: nothing is resampled, and particles on equal prefixes are not merged: masked decoding, each sequence with its
            weight.
        look_ahead: mask by what can be completed within the length. False (of particles that stay apart) reproduces engines
            that do not know the length: they mask by what can be completed at some length, and run out of tokens; such
            sequences have weight zero.
    """

    reads_prefixes: ClassVar[bool] = True
    remedy: ClassVar[str] = LESS_SPREAD

    ess_threshold: float = 0.5
    blocks: int = 4
    ahead: Ahead | None = field(default=None, compare=False, repr=False)
    apart: bool = False
    look_ahead: bool = True

    def __post_init__(self) -> None:
        if not (self.look_ahead or self.apart):
            raise InvalidArgument(
                "particles that do not look ahead have to stay apart: SequentialMonteCarlo(apart=True, look_ahead=False)."
            )

    @property
    def name(self) -> str:
        """What the report calls it."""
        return "masked" if self.apart else "smc" if self.ess_threshold else "masked-is"

    def most_prefixes(self, num_particles: int) -> float | None:
        """One for each particle, of which each block has one at least."""
        return max(num_particles, self.blocks)

    def __call__(
        self, model: LanguageModel, circuit: HasReading, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """`num_particles` particles, or as many as the budget pays for; equal ones are merged. See `Sampler`."""
        check_threshold(self.ess_threshold)
        if self.apart:
            return drawn_apart(model, circuit, num_particles, budget, generator, self.look_ahead)
        reader = left_to_right(circuit)
        width = width_of(num_particles, circuit.length, budget, self.blocks, self.name)
        prefixes, particles = Prefixes.start(model, reader), Population.start(width, self.blocks)
        unread, nominal = UnreadMass(), 0
        while not prefixes.are_complete:
            following = prefixes.masses()
            particles = particles.weighted(following.log_mass[particles.prefix])
            particles = particles.resampled(self.ess_threshold, generator)
            uniforms = torch.rand(len(particles.prefix), generator=generator, dtype=torch.float64)
            token = following.draw(particles.prefix, uniforms)
            particles, row, token = particles.settled(token, model.vocab_size)
            before, prefixes = prefixes, prefixes.extended(row, token)
            prefixes.settle()
            if not prefixes.are_complete:
                unread.add(before.log_mass + following.left_by(row, token))  # with those that resampling left behind
                if self.ahead is not None:
                    particles, prefixes = particles.steered(self.ahead.of(prefixes), prefixes)
                going = prefixes.going()
                nominal += int(going[particles.prefix].sum())
                log_joint = prefixes.log_mass
                prefixes = prefixes if bool(going.any()) else prefixes.padded()  # only padding is to come
            else:
                log_joint = before.log_mass + following.log_mass
        particles, bounds = particles.unsteered(), unread.bounds(log_joint)
        most = num_particles if budget is None else None
        cost = {"nominal_lm_tokens": nominal}
        return pooled(particles.rounds(prefixes), most, generator, bounds=bounds, details=cost)


def drawn_apart(
    model: LanguageModel,
    circuit: HasReading,
    num_particles: int,
    budget: int | None,
    generator: torch.Generator,
    look_ahead: bool = True,
) -> Draws:
    """Independent masked sequences, weighted by what the mask cost: one for each particle, n − 1 LM tokens each.

    Args:
        model, circuit, num_particles, budget, generator: as of a `Sampler`.
        look_ahead: as in `SequentialMonteCarlo`.
    """
    reader = left_to_right(circuit)
    num = affordable(num_particles, circuit.length - 1, budget, "masked")
    uniforms = torch.rand(num, circuit.length, generator=generator, dtype=torch.float64)
    prefixes, weights = Prefixes.start(model, reader, num), torch.zeros(num, dtype=torch.float64)
    number = torch.zeros(num, dtype=torch.long)  # one for each distinct prefix
    unread, bounds, cap = UnreadMass(), UNKNOWN, 0.0
    while not prefixes.are_complete:
        position, following = prefixes.position, prefixes.masses(look_ahead)
        mass = following.log_mass
        cap = cap if position else float(mass[0])  # the first factor is the same for all, no other exceeds 1
        going = (mass > NEG_INF).nonzero()[:, 0]  # the weights of the others are zero
        if not len(going):
            return keep_positive(prefixes.tokens, torch.full_like(weights, NEG_INF), drawn=num)
        weights, number, uniforms = (weights + mass)[going], number[going], uniforms[going]
        token = following.draw(going, uniforms[:, position])
        first, number = distinct(number)
        first = going[first]
        if position + 1 < circuit.length:
            left = following.left_by(first[number], token)
            unread.add(prefixes.log_mass[first] + left[first])
        else:  # without look-ahead more is allowed than satisfies α
            last_mass = mass if look_ahead else prefixes.masses().log_mass
            bounds = unread.bounds(prefixes.log_mass[first] + last_mass[first])
        number = number * circuit.vocab_size + token
        prefixes = prefixes.extended(going, token, look_ahead)
        prefixes.settle()
    complete = reader.accepting(prefixes.states)
    zeros = {NO_TOKEN: 1 - len(weights) / num, NOT_COMPLETE: int((~complete).sum()) / num}
    return keep_positive(
        prefixes.tokens,
        weights.masked_fill(~complete, NEG_INF),
        prefixes.token_scores,
        drawn=num,
        zeros={reason: share for reason, share in zeros.items() if share},
        bounds=bounds,
        weight_cap=cap,
    )


def check_threshold(ess_threshold: float) -> None:
    """Raise InvalidArgument unless it is a share."""
    if not 0 <= ess_threshold <= 1:
        raise InvalidArgument(f"ess_threshold is a share of the particles, from 0 to 1, got {ess_threshold}.")


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
        prefix: Long[particles], which of the distinct prefixes.
        log_weights: f64[particles]; the weights of a block sum to its estimate of p(α). None is
            −inf.
        surprise: f64[blocks], the sum over positions of the variance within a block of the logs of
            what its weights were multiplied by, nats².
        worth: f64[particles], log of what is foreseen behind a prefix, by which its weight is multiplied on the way.
    """

    width: int
    blocks: int
    block: Tensor
    prefix: Tensor
    log_weights: Tensor
    surprise: Tensor
    worth: Tensor

    @classmethod
    def start(cls, width: int, blocks: int) -> Population:
        """All particles before their first token."""
        num = width * blocks
        return cls(
            width,
            blocks,
            block=torch.arange(blocks).repeat_interleave(width),
            prefix=torch.zeros(num, dtype=torch.long),
            log_weights=torch.full((num,), -math.log(width), dtype=torch.float64),
            surprise=torch.zeros(blocks, dtype=torch.float64),
            worth=torch.zeros(num, dtype=torch.float64),
        )

    def chosen(self, index: Tensor, log_weights: Tensor) -> Population:
        """These particles, with these weights."""
        block, prefix, worth = self.block[index], self.prefix[index], self.worth[index]
        return replace(self, block=block, prefix=prefix, log_weights=log_weights, worth=worth)

    def weighted(self, log_increments: Tensor) -> Population:
        """Weights multiplied by f64[particles]; what becomes zero is dropped.

        Raises:
            ZeroWeights: nothing is left.
        """
        log_weights = self.log_weights + log_increments
        alive = (log_weights > NEG_INF).nonzero()[:, 0]
        if not len(alive):
            raise ZeroWeights(
                "every particle has reached a prefix after which the model gives the constraint no probability; others may go "
                "on. Use more particles, or sampler='auto', which keeps prefixes in all states of the constraint."
            )
        surprise = self.surprise + self._variance(log_increments)
        return replace(self.chosen(alive, log_weights[alive]), surprise=surprise)

    def steered(self, worth: Tensor, prefixes: Prefixes) -> tuple[Population, Prefixes]:
        """Weights multiplied by f64[prefixes], log of what they are worth, instead of what they were before.

        What is worth nothing is dropped, and not read.
        """
        own = worth[self.prefix]
        particles = replace(self, worth=torch.where(own > NEG_INF, own, 0.0)).weighted(own - self.worth)
        rows, prefix = torch.unique(particles.prefix, return_inverse=True)
        return replace(particles, prefix=prefix), prefixes.at(rows)

    def unsteered(self) -> Population:
        """Weights as if nothing had been multiplied on the way."""
        return replace(self, log_weights=self.log_weights - self.worth, worth=torch.zeros_like(self.worth))

    def _variance(self, values: Tensor) -> Tensor:
        """f64[blocks]: the variance of f64[particles] in each block by its weights, where they are finite."""
        finite = values > NEG_INF
        logs = self.log_weights.masked_fill(~finite, NEG_INF)
        share = (logs - segment_logsumexp(logs, self.block, self.blocks)[self.block]).exp().nan_to_num(0.0)
        increments = values.masked_fill(~finite, 0.0)

        def mean(numbers: Tensor) -> Tensor:
            return torch.zeros(self.blocks, dtype=torch.float64).index_add_(0, self.block, share * numbers)

        return mean((increments - mean(increments)[self.block]).square())

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

    def settled(self, token: Tensor, vocab_size: int) -> tuple[Population, Tensor, Tensor]:
        """Particles after Long[particles], and for each distinct prefix that they are on now its parent and its last token."""
        prefixes, prefix = torch.unique(self.prefix * vocab_size + token, return_inverse=True)
        return replace(self, prefix=prefix), prefixes // vocab_size, prefixes % vocab_size

    def rounds(self, prefixes: Prefixes) -> list[Round]:
        """The blocks, each a round of its own."""
        rounds = []
        for block, nats in enumerate(self.surprise.sqrt().tolist()):
            own = (self.block == block).nonzero()[:, 0]
            rows = self.prefix[own]
            surprise = Surprise(nats, 1.0, self.width)
            rounds.append(Round(prefixes.tokens[rows], self.log_weights[own], prefixes.token_scores[rows], surprise))
        return rounds
