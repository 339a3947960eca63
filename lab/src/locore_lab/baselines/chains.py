"""Chains that may run as long as there is budget or time: what i-SIR and particle Gibbs share.

Each iteration is a Markov kernel on sequences that leaves p(· | α) invariant and forgets where it
started, so the law of a state converges to p(· | α), geometrically where the weights are bounded:
"asymptotic". The evidence is estimated beside it, from what was drawn without looking at the state.
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

from locore.circuits import Circuit
from locore.evidence import Blocks, Draws, Guarantee, Record
from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.kernel.numerics import NEG_INF
from locore.kernel.samplers.base import Promises, affordable
from locore.models import LanguageModel


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
