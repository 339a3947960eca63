"""Adaptive weighted rejection sampling (Lipkin et al., COLM 2025) inside SMC: a baseline.

It is made for constraints that are dear to check. At each step a token is drawn from the model and
checked; what fails is put aside, until `accepts` tokens were accepted (which are put back). The
first one is a draw from the masked distribution, and the number of failures tells what the mask
costs, without checking the whole vocabulary: with M_k the mass not put aside before check k, and
K = accepts − 1,

    Ẑ_t = K · ∫_0^∞ Π_k (1 + x/M_k)^(−1) dx,    E[Ẑ_t] = Z_t = Σ_v p(v | y_<t) 1[v allowed],

independently of the token; the particle's weight is w = Π_t Ẑ_t. This is the paper's geometric
estimator, averaged over the geometric numbers (derived in `adaptive_rejection`). Here the circuit
knows Z_t itself, so masked SMC is better: Ẑ_t only adds noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.evidence import Draws
from locore.kernel.errors import InvalidArgument
from locore.kernel.numerics import NEG_INF
from locore.kernel.samplers.rounds import pooled, width_of
from locore.kernel.samplers.sampler import Ahead, Prefixes, affordable, left_to_right
from locore.kernel.samplers.smc import Population, check_threshold
from locore.models import LanguageModel
from locore.samplers.adaptive_rejection import log_evidence

GATHERED_NUMBERS = 2**24  # probabilities that are copied together, one row for each particle
Check = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class AWRS:
    """SMC whose proposals and weights come from adaptive rejection, token by token.

    Attributes:
        ess_threshold: as in `SequentialMonteCarlo`.
        accepts: checks go on until so many tokens were accepted, at least 2.
        blocks: as in `SequentialMonteCarlo`.
        ahead: what it says nothing is to come behind is put aside too, of the tokens that are tried.
    """

    ess_threshold: float = 0.5
    accepts: int = 2
    blocks: int = 4
    name: str = "awrs"
    ahead: Ahead | None = field(default=None, compare=False, repr=False)

    def __call__(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """`num_particles` particles, or as many as the budget pays for; equal ones are merged. See `Sampler`."""
        check_threshold(self.ess_threshold)
        if self.accepts < 2:
            raise InvalidArgument(f"accepts must be at least 2, got {self.accepts}: one acceptance tells nothing of the mask.")
        reader = left_to_right(circuit)
        affordable(num_particles, 0, None, self.name)
        width = width_of(num_particles, circuit.length, budget, self.blocks, self.name)
        prefixes, particles = Prefixes.start(model, reader), Population.start(width, self.blocks)
        nominal = checks = 0
        while not prefixes.are_complete:
            token, log_mass, checked = _propose(prefixes, particles.prefix, self.accepts, generator, self._check(prefixes))
            checks += checked
            alive = particles.log_weights + log_mass > NEG_INF
            particles, row, last = particles.weighted(log_mass).settled(token[alive], model.vocab_size)
            prefixes = prefixes.extended(row, last)
            if not prefixes.are_complete:
                particles = particles.resampled(self.ess_threshold, generator)
                kept, prefix = torch.unique(particles.prefix, return_inverse=True)
                prefixes, particles = prefixes.at(kept), replace(particles, prefix=prefix)
                nominal += int(prefixes.going()[particles.prefix].sum())
        most = num_particles if budget is None else None
        cost = {"nominal_lm_tokens": nominal, "constraint_checks": checks}
        return pooled(particles.rounds(prefixes), most, generator, details=cost)

    def _check(self, prefixes: Prefixes) -> Check | None:
        """What is known of tokens after these prefixes; None if nothing is."""
        ahead = self.ahead
        if ahead is None:
            return None

        def passes(rows: Tensor, tokens: Tensor) -> Tensor:
            return ahead.of(prefixes.extended(rows, tokens)) > NEG_INF

        return passes


def adaptive_rejection(
    log_probs: Tensor, allowed: Tensor, accepts: int, generator: torch.Generator, check: Check | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """A draw from each masked distribution, and an unbiased estimate of its mass.

    Args:
        log_probs: f64[rows, vocab], normalised.
        allowed: Bool[rows, vocab].
        accepts: see `AWRS`.
        generator: source of randomness.
        check: of what is allowed: Long[some] rows and their tokens in, Bool[some] out; asked of what would be accepted only.

    Returns:
        Long[rows], the tokens; f64[rows], log Ẑ, −inf where nothing that is allowed has mass;
        Long[rows], checks made.
    """
    left, masses, tokens = log_probs, [], []
    for _ in range(accepts):
        # Sorted by keys log p + Gumbel noise, tokens are in the order of draws without replacement.
        noise = torch.rand(left.shape, generator=generator, dtype=torch.float64).clamp_min(1e-300)
        order = (left - (-noise.log()).log()).argsort(-1, descending=True)
        drawn = left.gather(1, order)
        if check is not None:
            allowed = _checked(order, allowed, drawn, check)
        accepted = allowed.gather(1, order) & (drawn > NEG_INF)
        last = accepted.to(torch.uint8).argmax(-1)
        tokens.append(order.gather(1, last[:, None])[:, 0])
        before = drawn.flip(-1).logcumsumexp(-1).flip(-1)  # log mass of a token and all that come after it
        masses.append(_up_to(before, last, float("inf")))
        failed = torch.arange(left.shape[1]) < last[:, None]
        left = left.scatter(1, order, drawn.masked_fill(failed, NEG_INF))
    attempts = torch.cat(masses, 1)
    possible = (log_probs.masked_fill(~allowed, NEG_INF) > NEG_INF).any(-1)  # where a check refused all, nothing is left
    estimate = log_evidence(torch.where(possible[:, None], attempts, 0.0), accepts - 1)
    return tokens[0], torch.where(possible, estimate, NEG_INF), (attempts < float("inf")).sum(-1)


def _checked(order: Tensor, allowed: Tensor, drawn: Tensor, check: Check) -> Tensor:
    """Bool[rows, vocab]: what is allowed without what was checked and refused, until the first of each row passes."""
    allowed = allowed.clone()
    rows = torch.arange(len(order))
    while len(rows):
        open_ = allowed[rows].gather(1, order[rows]) & (drawn[rows] > NEG_INF)
        rows, first = rows[open_.any(-1)], open_.to(torch.uint8).argmax(-1)[open_.any(-1)]
        if not len(rows):
            break
        tokens = order[rows, first]
        refused = ~check(rows, tokens)
        rows, tokens = rows[refused], tokens[refused]
        allowed[rows, tokens] = False
    return allowed


def _up_to(values: Tensor, last: Tensor, fill: float) -> Tensor:
    """Columns up to the largest of `last`; `fill` behind the own last column of each row."""
    columns = torch.arange(int(last.max()) + 1)
    return values[:, : len(columns)].masked_fill(columns > last[:, None], fill)


def _propose(
    prefixes: Prefixes, rows: Tensor, accepts: int, generator: torch.Generator, check: Check | None
) -> tuple[Tensor, Tensor, int]:
    """Tokens and log Ẑ of particles on these prefixes, and how many checks they took."""
    log_probs, allowed = prefixes.log_probs.cpu().double(), prefixes.allowed()
    size = max(1, GATHERED_NUMBERS // log_probs.shape[1])
    parts = []
    for part in torch.split(rows, size):
        own = None if check is None else partial(_of_rows, check, part)
        parts.append(adaptive_rejection(log_probs[part], allowed[part], accepts, generator, own))
    tokens, estimates, checks = (torch.cat(column) for column in zip(*parts, strict=True))
    return tokens, estimates, int(checks.sum())


def _of_rows(check: Check, part: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
    """A check of prefixes, asked by the particles Long[part] that are on them."""
    return check(part[rows], tokens)
