"""Sequences of masked decoding: at each step only tokens that can still be completed, renormalised; and what that costs.

Without the weight Π_t Z_t, Z_t the model's mass of the allowed tokens, they come from p^myopic(y) = Π_t p(y_t | y_<t)
1[y_t allowed] / Z_t instead of p(y | α) (paper, Section 2.3), which is what everybody ships.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from locore.kernel.circuits.circuit import Circuit
from locore.kernel.circuits.reading import LeftToRight
from locore.kernel.models.language_model import LanguageModel
from locore.kernel.numerics import NEG_INF, categorical
from locore.kernel.samplers.sampler import Prefixes
from locore.kernel.samplers.smc import SequentialMonteCarlo

NUMBERS = 2**24  # next-token probabilities that are held together


@dataclass(frozen=True, eq=False)
class Masked:
    """Sequences that satisfy α, together with what masked decoding pays for them.

    Attributes:
        tokens: Long[num, time].
        token_scores: f64[num, time], log p(y_t | y_<t).
        log_masses: f64[num, time], log Z_t, Z_t the model's mass of the tokens with which α can still be completed; 0 where the
            circuit has no left-to-right reading.
    """

    tokens: Tensor
    token_scores: Tensor
    log_masses: Tensor

    @property
    def log_prob(self) -> Tensor:
        """f64[num]: log p(y)."""
        return self.token_scores.sum(-1)

    @property
    def log_weight(self) -> Tensor:
        """f64[num]: log Π_t Z_t, the weight of masked decoding."""
        return self.log_masses.sum(-1)

    def at(self, rows: Tensor) -> Masked:
        """These rows."""
        return Masked(self.tokens[rows], self.token_scores[rows], self.log_masses[rows])


def Masking(look_ahead: bool = True) -> SequentialMonteCarlo:  # noqa: N802  # a class once
    """Masked decoding, each sequence with its weight: SMC whose particles stay apart."""
    return SequentialMonteCarlo(ess_threshold=0.0, blocks=1, apart=True, look_ahead=look_ahead)


def read(model: LanguageModel, circuit: Circuit, tokens: Tensor) -> Masked:
    """Score sequences Long[num, time] that satisfy α, and what masking would pay for them."""
    together = max(1, NUMBERS // (tokens.shape[1] * model.vocab_size))
    parts = [_read(model, circuit.reader, part) for part in torch.split(tokens, together)]
    return Masked(tokens, torch.cat([part.token_scores for part in parts]), torch.cat([part.log_masses for part in parts]))


def _read(model: LanguageModel, reader: LeftToRight | None, tokens: Tensor) -> Masked:
    rows = model.log_probs(tokens).double()
    scores = rows.gather(-1, tokens[..., None])[..., 0]
    masses = torch.zeros_like(scores)
    if reader is not None:
        states = reader.initial(len(tokens))
        for position in range(tokens.shape[1]):
            allowed = reader.allowed_tokens(position, states)
            masses[:, position] = torch.logsumexp(rows[:, position].masked_fill(~allowed, NEG_INF), -1)
            states = reader.step(position, states, tokens[:, position])
    return Masked(tokens, scores, masses)


def regrown(model: LanguageModel, reader: LeftToRight, tokens: Tensor, cuts: Tensor, generator: torch.Generator) -> Masked:
    """Keep y_<c of each sequence and write the rest by masked decoding.

    Where a model that excludes tokens gives no allowed token any mass, Z_t = 0 and so is the weight; the tokens from there on
    are arbitrary allowed ones.

    Args:
        model: p.
        reader: of the circuit of α.
        tokens: Long[num, time]; what stands before the cut must be completable.
        cuts: Long[num], c.
        generator: source of randomness.
    """
    uniforms = torch.rand(*tokens.shape, generator=generator, dtype=torch.float64)
    prefixes, masses = Prefixes.start(model, reader, len(tokens)), []
    while not prefixes.are_complete:
        position = prefixes.position
        rows, mass = drawable(prefixes)
        drawn = categorical(rows, uniforms[:, position])
        masses.append(mass)
        prefixes = prefixes.extended(None, torch.where(position < cuts, tokens[:, position], drawn))
    return Masked(prefixes.tokens, prefixes.token_scores, torch.stack(masses, 1))


def drawable(prefixes: Prefixes) -> tuple[Tensor, Tensor]:
    """Rows to draw from, f64[prefixes, vocab], and log Z, f64[prefixes]; uniform rows where Z = 0."""
    masked = prefixes.masked()
    mass = torch.logsumexp(masked, -1)
    if bool((mass > NEG_INF).all()):
        return masked, mass
    uniform = torch.zeros_like(masked).masked_fill_(~prefixes.allowed(), NEG_INF)
    return torch.where((mass > NEG_INF)[:, None], masked, uniform), mass
