"""Rejection that remembers what failed: ARS, and CARS (Parys et al. 2025, arXiv 2510.01902).

A trie holds the prefixes that were visited and the set F_k of sequences known, before attempt k, to
violate α: those below a prefix that cannot be completed. Attempt k draws y ~ p(· | not F_k), and
M_k = 1 − p(F_k) is known exactly. F_k holds violations only, so y is accepted with probability
Z/M_k, Z = p(α), and is then an exact draw from p(· | α), whatever happened before.

**Evidence, run until K + 1 are accepted.** Plain rejection would first draw from F_k, a geometric
number of times, and fail; here these draws are skipped. With G_k ~ Geometric(M_k) the τ attempts
stand for T = Σ_k G_k draws of plain rejection, for which K/(T−1) is unbiased and independent of
what was accepted; both remain when it is averaged over the G_k. From 1/m = ∫_0^1 s^(m−1) ds and
E s^G_k = M_k s / (1 − (1−M_k) s), with x = 1/s − 1,

    Ẑ = K · E[1/(T−1) | M_1 … M_τ] = K · ∫_0^∞ Π_k (1 + x/M_k)^(−1) dx,

which is K/(τ−1) if nothing is remembered (all M_k = 1), and Z itself in the limit (all M_k = Z).

**Evidence, run for a fixed number T of attempts.** M_k is known before attempt k, so the mean of
M_k 1[y_k ⊨ α] f(y_k), given what happened before, is Σ_y p(y) 1[y ⊨ α] f(y): an accepted sequence
weighs w = M_k, any other 0.

Always Σ of p over the distinct accepted ≤ Z ≤ M_k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.errors import InvalidArgument, ZeroWeights
from locore.evidence import Draws, Record
from locore.evidence.bounds import betting_bounds
from locore.evidence.record import log_total
from locore.models import LanguageModel
from locore.numerics import NEG_INF
from locore.samplers.base import affordable, left_to_right
from locore.samplers.baselines.trie import Attempt, Trie

ATTEMPTS_PER_PARTICLE = 256  # the limit where the caller sets no budget
NO_ATTEMPT = "the attempt met what cannot satisfy the constraint"
STEP, REACH = 0.25, 37.0  # of the quadrature, in nats: relative error below 1e-12
QUADRATURE_NUMBERS = 2**20


@dataclass(frozen=True)
class AdaptiveRejection:
    """Exact independent draws from p(· | α), the cheaper the more has failed before.

    Without a budget it runs until one sequence more than asked for is accepted, and returns the
    others with equal weights. With a budget it makes as many attempts as that surely pays for and
    returns all that were accepted.

    Attributes:
        records: "all" (CARS): every token that cannot follow a visited prefix; "failed" (ARS): only
            the prefix that failed.
    """

    records: Literal["all", "failed"] = "all"

    @property
    def name(self) -> str:
        """What the report calls it."""
        return "cars" if self.records == "all" else "ars"

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """See `Sampler`."""
        if self.records not in ("all", "failed"):
            raise InvalidArgument(f"records must be 'all' or 'failed', got {self.records!r}.")
        limit = ATTEMPTS_PER_PARTICLE * (affordable(num_particles, 0, None, self.name) + 1)
        most = affordable(limit, circuit.length - 1, budget, self.name)
        enough = num_particles + 1 if budget is None else None
        trie = Trie(model, left_to_right(circuit), self.records)
        attempts = _run(trie, most, enough, generator)
        accepted = [attempt for attempt in attempts if attempt.accepted]
        if not accepted:
            raise ZeroWeights(
                f"none of {len(attempts)} attempts satisfies the constraint, which has a probability below "
                f"{trie.remaining:.3g}; use sampler='twisted' or a larger budget."
            )
        record = _record(attempts, trie.remaining)
        if len(accepted) == enough:
            log_weight = log_evidence(_log_masses(attempts), num_particles)
            return _draws(accepted[:-1], log_weight.expand(num_particles), replace(record, drawn=len(attempts) - 1))
        log_weights = _log_masses(accepted) + math.log(len(accepted) / len(attempts))
        if budget is None:
            note = (
                f"the limit of {limit:,} attempts ended the run, which makes the evidence a little biased; set a budget instead"
            )
            record = replace(record, guarantee="asymptotic", notes=(note,))
        return _draws(accepted, log_weights, record)


def log_evidence(log_masses: Tensor, accepted: int) -> Tensor:
    """Log of the unbiased estimate K · ∫_0^∞ Π_k (1 + x/M_k)^(−1) dx of the probability of
    acceptance.

    Args:
        log_masses: f64[..., attempts], log M_k; +inf is no attempt.
        accepted: K ≥ 1, how many were accepted before the last attempt, which was accepted too.

    Returns:
        f64[...]. The trapezoidal rule on v = log x, where the integrand is analytic and falls off
        exponentially on both sides.
    """
    lowest = float(log_masses.min()) - math.log(log_masses.shape[-1])
    grid = torch.arange(lowest - REACH, REACH, STEP, dtype=torch.float64)
    values = grid.expand(*log_masses.shape[:-1], len(grid))
    size = max(1, QUADRATURE_NUMBERS // values.numel())
    for part in torch.split(log_masses, size, -1):
        values = values - torch.nn.functional.softplus(grid[:, None] - part[..., None, :], threshold=40.0).sum(-1)
    return values.logsumexp(-1) + math.log(STEP * accepted)


def _run(trie: Trie, most: int, enough: int | None, generator: torch.Generator) -> list[Attempt]:
    """Attempts until there were `most`, or `enough` of them were accepted."""
    attempts: list[Attempt] = []
    accepted = 0
    while len(attempts) < most and accepted != enough:
        if trie.remaining == 0.0:
            raise ZeroWeights("the model gives no probability to any sequence that satisfies the constraint.")
        attempts.append(trie.attempt(generator))
        accepted += attempts[-1].accepted
    return attempts


def _draws(accepted: list[Attempt], log_weights: Tensor, record: Record) -> Draws:
    tokens = torch.tensor([attempt.tokens for attempt in accepted])
    scores = torch.tensor([attempt.scores for attempt in accepted], dtype=torch.float64)
    return Draws(tokens, log_weights.clone(), scores, record)


def _log_masses(attempts: list[Attempt]) -> Tensor:
    return torch.tensor([attempt.mass for attempt in attempts], dtype=torch.float64).log()


def _record(attempts: list[Attempt], remaining: float) -> Record:
    """What is certain of p(α), what is likely, and the share of attempts that failed."""
    accepted = [attempt for attempt in attempts if attempt.accepted]
    tokens = torch.tensor([attempt.tokens for attempt in accepted])
    scores = torch.tensor([sum(attempt.scores) for attempt in accepted], dtype=torch.float64)
    caps = _log_masses(attempts)
    # w = M_k 1[y_k ⊨ α] has the mean p(α) given what happened before, and at most M_k, whenever the run stops.
    weights = caps.where(torch.tensor([attempt.accepted for attempt in attempts]), NEG_INF)
    failed = 1 - len(accepted) / len(attempts)
    return Record(
        drawn=len(attempts),
        exact_draws=True,
        pareto_k=math.nan,  # bounded weights that know of each other have no tail to speak of
        bounds=(log_total(tokens, scores), math.log(remaining)),
        likely=betting_bounds(weights, caps),
        zeros={NO_ATTEMPT: failed} if failed else {},
        details={
            "attempts": len(attempts),
            "accepted": len(accepted),
            "nominal_lm_tokens": sum(attempt.lm_tokens for attempt in attempts),
        },
    )
