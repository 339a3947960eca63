"""Chains that may run as long as there is budget or time: i-SIR and particle Gibbs.

Each iteration is a Markov kernel on sequences that leaves p(· | α) invariant and forgets where it
started, so the law of a state converges to p(· | α), geometrically where the weights are bounded:
"asymptotic". The evidence is estimated beside it, from what was drawn without looking at the state.

An iteration of i-SIR (Andrieu, Lee and Vihola 2018; Tjelmeland 2004) draws N − 1 fresh weighted
sequences and lets the current one, with its weight, compete with them:

    K(y, ·) = E[ Σ_k w_k δ_{y_k} / Σ_k w_k ],  y_1 = y,  y_2 … y_N ~ q,  w = p(y) 1[y ⊨ α] / q(y).

It leaves p(· | α) invariant: y_1 … y_N with weights w_1 … w_N are exchangeable under
Σ_k w_k Π_j q(y_j), where one of them, drawn by weight, is the state. With bounded weights it is
uniformly ergodic: each iteration forgets its start with probability at least
(N − 1) / (N − 2 + 2 w_max/p(α)). Masked decoding has w = Π_t Z_t ≤ 1.

One of particle Gibbs (conditional SMC; Andrieu, Doucet and Holenstein 2010) runs N particles by masked
decoding with weights Π_t Z_t. Particle 0 follows the state and is never lost; where the ESS of the
others and it falls below a threshold, all others draw their ancestors by weight. In the end one
particle is drawn by weight and becomes the state. This leaves p(· | α) invariant for every N ≥ 2:
the state, its surroundings and its index together have the law of an SMC run tilted by its unbiased
estimate Ẑ, and an iteration draws first the surroundings, then the index, from their conditionals.
"""

from __future__ import annotations

import itertools
import math
import time
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from locore.circuits import Circuit, LeftToRight
from locore.evidence import Blocks, Draws, Guarantee, Record
from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.kernel.numerics import NEG_INF, categorical
from locore.kernel.samplers.sampler import Prefixes, Promises, affordable, left_to_right
from locore.models import LanguageModel
from locore.samplers.masking import drawable, regrown


@dataclass(frozen=True, eq=False)
class Visit:
    """Where chains are after an iteration."""

    tokens: Tensor  # Long[chains, time]
    token_scores: Tensor  # f64[chains, time]
    log_weight: Tensor  # f64[chains], with which the state competes in the next iteration
    log_estimate: Tensor | None = None  # f64[chains], unbiased estimates of p(α) made in this iteration; None if there are none
    # f64[chains], log Ẑ of a run that the state before took part in; None at the beginning. If that state has the law p(· | α),
    # E[1/Ẑ] = 1/p(α)
    log_tilted: Tensor | None = None

    def where(self, stay: Tensor, old: Visit) -> Visit:
        """With the old states where chains stay, Bool[chains]; the estimates are the new ones."""
        return replace(
            self,
            tokens=torch.where(stay[:, None], old.tokens, self.tokens),
            token_scores=torch.where(stay[:, None], old.token_scores, self.token_scores),
            log_weight=torch.where(stay, old.log_weight, self.log_weight),
        )


@dataclass(frozen=True)
class Anytime(Promises):
    """Independent chains, run until the budget or the time is spent.

    Without either, they run until every particle asked for is a state of its own. States before the
    burn-in are dropped, and of the others `num_particles` at equal distances are returned.
    """

    guarantee: ClassVar[Guarantee] = "asymptotic"

    particles: int = 16  # N, sequences written in an iteration by each chain, at most
    chains: int = 4  # how many
    burn_in: float = 0.5  # share of the iterations whose states are dropped
    seconds: float | None = None  # stop after the first iteration that ends later than this

    def __post_init__(self) -> None:
        if self.particles < 2 or self.chains < 1 or not 0 <= self.burn_in < 1:
            raise InvalidArgument(
                "chains need at least 2 particles, 1 chain and a burn_in in [0, 1), got "
                f"particles={self.particles}, chains={self.chains}, burn_in={self.burn_in}."
            )

    def price(self, length: int) -> int:
        """LM tokens of one iteration of one chain, at most."""
        return self.particles * max(1, length - 1)

    @abstractmethod
    def iterate(
        self, model: LanguageModel, circuit: Circuit, visit: Visit | None, chains: int, generator: torch.Generator
    ) -> Visit:
        """One iteration of every chain, or its beginning where there is no visit yet."""

    def __call__(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """Up to `num_particles` states of equal weight; see `Sampler`."""
        start = time.perf_counter()
        price = self.price(circuit.length)
        affordable(num_particles, 0, None, "a chain")
        chains = affordable(self.chains, price, budget, "a chain")
        most: float = math.ceil(num_particles / chains / (1 - self.burn_in))
        if self.seconds is not None:
            most = math.inf
        if budget is not None:
            most = budget // (chains * price)
        visits: list[Visit] = []
        while len(visits) < most:
            previous = visits[-1] if visits else None
            visits.append(self.iterate(model, circuit, previous, chains, generator))
            if self.seconds is not None and time.perf_counter() - start >= self.seconds:
                break
        return self._draws(visits, num_particles)

    def _draws(self, visits: list[Visit], num_particles: int) -> Draws:
        kept = visits[min(int(self.burn_in * len(visits)), len(visits) - 1) :]
        tokens = torch.cat([visit.tokens for visit in kept])
        scores = torch.cat([visit.token_scores for visit in kept])
        chosen = torch.linspace(0, len(tokens) - 1, min(num_particles, len(tokens))).round().long()
        estimates = [visit.log_estimate for visit in visits if visit.log_estimate is not None]
        by_chain = torch.logsumexp(torch.stack(estimates), 0) - math.log(len(estimates))
        chains = len(by_chain)
        log_evidence = float(torch.logsumexp(by_chain, 0)) - math.log(chains)
        trace = torch.stack([visit.token_scores.sum(-1) for visit in kept], 1)
        pairs = itertools.pairwise(visits)
        changes = [(old.tokens != new.tokens).any(-1).double().mean() for old, new in pairs]
        effective = effective_draws(trace)
        details: dict[str, Any] = {"chains": chains, "moved": float(sum(changes)) / max(1, len(changes))}
        if len(visits) > 1:
            details["log_evidence_bracket"] = (log_evidence, upper_bound(kept))
        record = Record(
            guarantee="asymptotic",
            independent=False,
            ess=min(effective, float(len(chosen))),
            iterations=len(visits),
            blocks=Blocks(tuple(by_chain.tolist())),
            notes=_notes(effective, len(kept), chains),
            details=details,
        )
        weights = torch.full((len(chosen),), log_evidence, dtype=torch.float64)
        return Draws(tokens[chosen], weights, scores[chosen], record)


def upper_bound(visits: list[Visit]) -> float:
    """−log mean 1/Ẑ, at least log p(α) in the mean where the chains have converged; inf if unknown.

    As log mean Ẑ is at most log p(α) in the mean, both by Jensen, the two bracket it (bidirectional
    Monte Carlo; Grosse, Ghahramani and Adams 2015).
    """
    tilted = [visit.log_tilted for visit in visits if visit.log_tilted is not None]
    if not tilted:
        return math.inf
    inverse = -torch.cat(tilted)
    return math.log(len(inverse)) - float(torch.logsumexp(inverse, 0))


def effective_draws(trace: Tensor) -> float:
    """How many independent draws the states are worth, by the autocorrelation of f64[chains, time].

    N / (1 + 2 Σ_t ρ_t), ρ_t from the variance within and between chains, summed until a pair of
    neighbours is negative (Geyer 1992; Vehtari et al. 2021). A trace that never moves is worth one.
    """
    chains, length = trace.shape
    if length < 4:
        return float(chains)
    within = trace.var(1).mean()
    between = trace.mean(1).var() if chains > 1 else torch.zeros((), dtype=trace.dtype)
    total = within * (length - 1) / length + between
    if total <= 0:
        return 1.0
    centred = trace - trace.mean(1, keepdim=True)
    time_sum = 1.0
    for lag in range(1, length - 1, 2):
        pair = [_correlation(centred, step, within, total) for step in (lag, lag + 1)]
        if sum(pair) < 0:
            break
        time_sum += 2 * sum(pair)
    return float(chains * length / max(time_sum, 1.0))


def _correlation(centred: Tensor, lag: int, within: Tensor, total: Tensor) -> float:
    product = (centred[:, lag:] * centred[:, :-lag]).sum(1).mean() / centred.shape[1]
    return float(1 - (within - product) / total)


def pick(visit: Visit, rows: Tensor, chains: int) -> Visit:
    """One row of each chain: Long[chains] among equally many rows for each."""
    size = len(visit.tokens) // chains
    chosen = torch.arange(chains) * size + rows
    return Visit(visit.tokens[chosen], visit.token_scores[chosen], visit.log_weight[chosen])


def require_mass(log_weights: Tensor) -> None:
    """Raise `ZeroWeights` if a chain, a row of f64[chains, particles], has nowhere to begin."""
    if bool((log_weights == NEG_INF).all(-1).any()):
        raise ZeroWeights(
            f"none of {log_weights.shape[1]} particles of a chain satisfies the constraint with "
            "positive weight; use more particles, or another sampler to start from."
        )


def _notes(effective: float, kept: int, chains: int) -> tuple[str, ...]:
    notes = [f"states of {chains} chains: their law is p(y | α) in the limit of many iterations"]
    if effective < 10:
        notes.append(
            f"the {kept * chains} states are worth {effective:.1f} independent draws: give a larger budget or more particles"
        )
    return tuple(notes)


@dataclass(frozen=True)
class IteratedSIR(Anytime):
    """i-SIR over masked decoding."""

    name: str = "isir"

    def iterate(
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
