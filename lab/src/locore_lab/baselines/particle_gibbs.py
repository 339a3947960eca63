"""Particle Gibbs: masked SMC in which one particle is forced to be the current state.

One iteration (conditional SMC; Andrieu, Doucet and Holenstein 2010) runs N particles by masked
decoding with weights Π_t Z_t. Particle 0 follows the state and is never lost; where the ESS of the
others and it falls below a threshold, all others draw their ancestors by weight. In the end one
particle is drawn by weight and becomes the state. This leaves p(· | α) invariant for every N ≥ 2:
the state, its surroundings and its index together have the law of an SMC run tilted by its unbiased
estimate Ẑ, and an iteration draws first the surroundings, then the index, from their conditionals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from locore.circuits import Circuit, LeftToRight
from locore.kernel.errors import InvalidArgument
from locore.kernel.numerics import NEG_INF, categorical
from locore.kernel.samplers.base import Prefixes, left_to_right
from locore.kernel.samplers.masking import drawable
from locore.models import LanguageModel
from locore_lab.baselines.chains import Anytime, Visit, pick, require_mass


@dataclass(frozen=True)
class ParticleGibbs(Anytime):
    """Particle Gibbs over masked decoding; the evidence is that of the first, unconditional, runs."""

    ess_threshold: float = 0.5  # resample where the ESS is below this share of the particles
    name: str = "particle-gibbs"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.ess_threshold <= 1:
            raise InvalidArgument(f"ess_threshold must lie in 0..1, got {self.ess_threshold}.")

    def iterate(
        self, model: LanguageModel, circuit: Circuit, visit: Visit | None, chains: int, generator: torch.Generator
    ) -> Visit:
        """One iteration of every chain; see `Anytime`."""
        state = None if visit is None else visit.tokens
        shape = (chains, self.particles)
        reader = left_to_right(circuit)
        found = conditional_smc(model, reader, state, shape, self.ess_threshold, generator)
        weights = found.log_weight.view(shape)
        uniforms = torch.rand(chains, generator=generator, dtype=torch.float64)
        chosen = pick(found, categorical(weights, uniforms), chains)
        estimate = torch.logsumexp(weights, 1) - math.log(self.particles)
        if visit is None:
            return replace(chosen, log_estimate=estimate)
        return replace(chosen, log_tilted=estimate)


def conditional_smc(
    model: LanguageModel,
    reader: LeftToRight,
    state: Tensor | None,
    shape: tuple[int, int],
    ess_threshold: float,
    generator: torch.Generator,
) -> Visit:
    """Masked SMC of (chains, particles), particle 0 of each chain forced to Long[chains, time].

    Returns:
        All particles, those of a chain together, with their weights; without a state their mean is
        an unbiased estimate of p(α).
    """
    chains, num = shape
    forced = torch.zeros(shape, dtype=torch.bool)
    forced[:, 0] = state is not None
    prefixes, weights = Prefixes.start(model, reader, chains * num), torch.zeros(shape, dtype=torch.float64)
    while not prefixes.are_complete:
        rows, mass = drawable(prefixes)
        weights = weights + mass.view(shape)
        require_mass(weights)
        weights, parent = _resampled(weights, forced, ess_threshold, generator)
        uniforms = torch.rand(chains * num, generator=generator, dtype=torch.float64)
        token = categorical(rows[parent], uniforms)
        if state is not None:
            token.view(shape)[:, 0] = state[:, prefixes.position]
        prefixes = prefixes.extended(parent, token)
    return Visit(prefixes.tokens, prefixes.token_scores, weights.flatten())


def _resampled(weights: Tensor, forced: Tensor, ess_threshold: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Multinomial resampling of the chains whose weights f64[chains, particles] are uneven.

    Returns:
        The new weights, and Long[chains · particles], the row that each particle continues.
    """
    chains, num = weights.shape
    total = torch.logsumexp(weights, 1, keepdim=True)
    log_ess = 2 * total - torch.logsumexp(2 * weights, 1, keepdim=True)
    uneven = log_ess < (math.log(ess_threshold * num) if ess_threshold else NEG_INF)
    uniforms = torch.rand(chains * num, generator=generator, dtype=torch.float64)
    drawn = categorical(weights.repeat_interleave(num, 0), uniforms).view(chains, num)
    parent = torch.where(uneven & ~forced, drawn, torch.arange(num))
    weights = torch.where(uneven, total - math.log(num), weights)
    return weights, (parent + torch.arange(chains)[:, None] * num).flatten()
