"""Iterated sampling importance resampling: independent proposals against the current state.

An iteration of i-SIR (Andrieu, Lee and Vihola 2018; Tjelmeland 2004) draws N − 1 fresh weighted
sequences and lets the current one, with its weight, compete with them:

    K(y, ·) = E[ Σ_k w_k δ_{y_k} / Σ_k w_k ],  y_1 = y,  y_2 … y_N ~ q,  w = p(y) 1[y ⊨ α] / q(y).

It leaves p(· | α) invariant: y_1 … y_N with weights w_1 … w_N are exchangeable under
Σ_k w_k Π_j q(y_j), where one of them, drawn by weight, is the state. With bounded weights it is
uniformly ergodic: each iteration forgets its start with probability at least
(N − 1) / (N − 2 + 2 w_max/p(α)). Masked decoding has w = Π_t Z_t ≤ 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.kernel.numerics import NEG_INF, categorical
from locore.kernel.samplers.base import Sampler, left_to_right
from locore.kernel.samplers.masking import regrown
from locore.models import LanguageModel
from locore_lab.baselines.chains import Anytime, Visit, pick, require_mass


@dataclass(frozen=True)
class IteratedSIR(Anytime):
    """i-SIR over masked decoding, or independent Metropolis–Hastings over any proper sampler.

    A sampler's particles may depend on each other, so one call of it is one proposal: a sequence
    drawn by weight, which weighs the mean Ẑ of all. It is accepted with probability
    min(1, Ẑ'/Ẑ) (particle independent Metropolis–Hastings; Andrieu, Doucet and Holenstein 2010),
    because E[Ẑ f(y)] = Σ_y p(y) 1[y ⊨ α] f(y) makes (Ẑ, y) a weighted pair like any other.
    """

    # None for masked decoding; or a sampler with the guarantee "proper", which is called for `particles` particles
    proposal: Sampler | None = None
    proposal_budget: int | None = None  # LM tokens for one call of the sampler; by default those of `particles` sequences
    name: str = "isir"

    def price(self, length: int) -> int:
        """LM tokens of one iteration of one chain, at most."""
        if self.proposal is None:
            return super().price(length)
        # The sequence that is chosen is scored.
        return length + (self.proposal_budget or super().price(length))

    def iterate(
        self, model: LanguageModel, circuit: Circuit, visit: Visit | None, chains: int, generator: torch.Generator
    ) -> Visit:
        """One iteration of every chain; see `Anytime`."""
        if self.proposal is None:
            return self._compete(model, circuit, visit, chains, generator)
        news = [self._propose(self.proposal, model, circuit, generator) for _ in range(chains)]
        new = Visit(*(torch.cat(column) for column in zip(*news, strict=True)))
        new = Visit(new.tokens, new.token_scores, new.log_weight, log_estimate=new.log_weight)
        if visit is None:
            require_mass(new.log_weight[:, None])
            return new
        uniforms = torch.rand(chains, generator=generator, dtype=torch.float64)
        new = replace(new, log_tilted=visit.log_weight)
        return new.where(uniforms.log() >= new.log_weight - visit.log_weight, visit)

    def _compete(
        self, model: LanguageModel, circuit: Circuit, visit: Visit | None, chains: int, generator: torch.Generator
    ) -> Visit:
        num = self.particles - 1
        nothing = torch.zeros(chains * num, circuit.length, dtype=torch.long)
        drawn = regrown(model, left_to_right(circuit), nothing, nothing[:, 0], generator)
        weights = drawn.log_weight.view(chains, num)
        estimate = torch.logsumexp(weights, 1) - math.log(num)
        old = torch.full((chains,), NEG_INF).double() if visit is None else visit.log_weight
        competing = torch.cat([old[:, None], weights], 1)
        require_mass(competing)
        uniforms = torch.rand(chains, generator=generator, dtype=torch.float64)
        winner = categorical(competing, uniforms)
        candidates = Visit(drawn.tokens, drawn.token_scores, drawn.log_weight)
        new = pick(candidates, (winner - 1).clamp_min(0), chains)
        new = Visit(new.tokens, new.token_scores, new.log_weight, log_estimate=estimate)
        if visit is None:
            return new
        tilted = torch.logsumexp(competing, 1) - math.log(self.particles)
        return replace(new, log_tilted=tilted).where(winner == 0, visit)

    def _propose(
        self, proposal: Sampler, model: LanguageModel, circuit: Circuit, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One sequence by weight, its scores, and log Ẑ; −inf if nothing was found."""
        budget = self.price(circuit.length) - circuit.length
        try:
            draws = proposal(model, circuit, self.particles, budget, generator)
        except ZeroWeights:
            nothing = torch.zeros(1, circuit.length, dtype=torch.long)
            return nothing, nothing.double(), torch.full((1,), NEG_INF, dtype=torch.float64)
        if draws.record.guarantee != "proper":
            raise InvalidArgument(
                f"the proposal {proposal.name!r} is {draws.record.guarantee}; independent Metropolis–Hastings needs a proper "
                "one."
            )
        uniform = torch.rand(1, generator=generator, dtype=torch.float64)
        chosen = draws.tokens[categorical(draws.log_weights[None], uniform)]
        evidence = torch.tensor([draws.log_mean_weight], dtype=torch.float64)
        return chosen, model.token_scores(chosen), evidence
