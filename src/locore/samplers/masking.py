"""Masked decoding: at each step only tokens that can still be completed, renormalised. With its weight it is proper.

Everybody ships this without the weight Π_t Z_t, Z_t the model's mass of the allowed tokens, and so samples
p^myopic(y) = Π_t p(y_t | y_<t) 1[y_t allowed] / Z_t instead of p(y | α) (paper, Section 2.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from locore.circuits import Circuit, LeftToRight
from locore.evidence.record import UNKNOWN, Draws, keep_positive
from locore.models import LanguageModel
from locore.numerics import NEG_INF, categorical, distinct
from locore.samplers.base import Prefixes, UnreadMass, affordable, left_to_right

NO_TOKEN = "the model gives no allowed token any probability"
NOT_COMPLETE = "the text ended without satisfying the constraint"
NUMBERS = 2**24  # next-token probabilities that are held together


@dataclass(frozen=True)
class Masking:
    """Independent masked sequences, weighted by what the mask cost.

    Attributes:
        look_ahead: mask by what can be completed within the length. False reproduces engines that do not know the length: they
            mask by what can be completed at some length, and run out of tokens; such sequences have weight zero.
    """

    look_ahead: bool = True
    name: str = "masked"

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
        prefixes, weights = Prefixes.start(model, reader, num), torch.zeros(num, dtype=torch.float64)
        number = torch.zeros(num, dtype=torch.long)  # one for each distinct prefix
        unread, bounds, cap = UnreadMass(), UNKNOWN, 0.0
        while not prefixes.are_complete:
            position, masked = prefixes.position, prefixes.masked(self.look_ahead)
            mass = torch.logsumexp(masked, -1)
            cap = cap if position else float(mass[0])  # the first factor is the same for all, no other exceeds 1
            going = (mass > NEG_INF).nonzero()[:, 0]  # the weights of the others are zero
            if not len(going):
                return keep_positive(prefixes.tokens, torch.full_like(weights, NEG_INF), drawn=num)
            weights, number, uniforms = (weights + mass)[going], number[going], uniforms[going]
            token = categorical(masked[going], uniforms[:, position])
            first, number = distinct(number)
            joint = prefixes.log_mass[going[first], None] + masked[going[first]]
            if position + 1 < circuit.length:
                unread.leave(joint, number, token)
            else:  # without look-ahead more is allowed than satisfies α
                bounds = unread.bounds(joint.masked_fill(~prefixes.allowed()[going[first]], NEG_INF))
            number = number * circuit.vocab_size + token
            prefixes = prefixes.extended(going, token, self.look_ahead)
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

    def replaced(self, rows: Tensor, new: Masked) -> Masked:
        """With other sequences in these rows."""
        result = self.at(torch.arange(len(self.tokens)))
        result.tokens[rows] = new.tokens
        result.token_scores[rows] = new.token_scores
        result.log_masses[rows] = new.log_masses
        return result


def read(model: LanguageModel, circuit: Circuit, tokens: Tensor) -> Masked:
    """Score sequences Long[num, time] that satisfy α, and what masking would pay for them."""
    together = max(1, NUMBERS // (tokens.shape[1] * model.vocab_size))
    parts = [_read(model, circuit.reader, part) for part in torch.split(tokens, together)]
    return Masked(
        tokens,
        torch.cat([part.token_scores for part in parts]),
        torch.cat([part.log_masses for part in parts]),
    )


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


def masked_sequences(model: LanguageModel, reader: LeftToRight, num: int, generator: torch.Generator) -> Masked:
    """Independent masked sequences."""
    nothing = torch.zeros(num, reader.length, dtype=torch.long)
    return regrown(model, reader, nothing, torch.zeros(num, dtype=torch.long), generator)
