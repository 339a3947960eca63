"""The sampler of the paper as its appendix describes it for language detoxification, with nothing repaired.

Drafts ỹ come from the nucleus of 0.9 at temperature 1. The local distribution at each position knows the k likeliest tokens
only and is tempered, q_i ∝ p̃_i^(1/τ), and of S pairs one is taken by Algorithm 2:

    w = p(y) · 1[canonize(y) ⊨ α] · p̃_y(ỹ) / (p(ỹ) · p̃_ỹ(y | α)).

Neither k, nor what τ divides, nor what happens where all weights are zero is printed. Weights often are all zero, since p̃_y
gives ỹ any probability only if each of its tokens is among the k likeliest along y. Here one of the proposals is then taken
at random, as an implementation does that adds a small number to the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.local import TopK
from locore.models import LanguageModel, TopP
from locore.numerics import NEG_INF

NUCLEUS = 0.9


@dataclass(frozen=True)
class Published:
    """What a run found.

    Attributes:
        tokens: the sequence that was taken; None if no draft's neighbourhood reaches the constraint.
        positive: pairs with a weight above zero.
    """

    tokens: list[int] | None
    positive: int


def published(
    model: LanguageModel,
    circuit: Circuit,
    pairs: int,
    kernel: TopK,
    is_canonical: Callable[[Tensor], Tensor],
    generator: torch.Generator,
) -> Published:
    """One draw.

    Args:
        model: the prompted model p.
        circuit: α, compiled for the length.
        pairs: S.
        kernel: without a floor; its temperature is τ.
        is_canonical: Long[pairs, time] → Bool[pairs], 1[canonize(y) ⊨ α].
        generator: source of all randomness.
    """
    drafts = TopP(model, NUCLEUS).sample(pairs, circuit.length, generator).tokens
    along = model.log_probs(drafts)
    around = kernel.distributions(model, drafts, forward=along)
    reaches = circuit.log_mass(around) > NEG_INF
    if not bool(reaches.any()):
        return Published(None, 0)
    drafts, along, around = drafts[reaches], along[reaches], around[reaches]
    proposed, log_proposal = circuit.sample(around, generator)
    along_proposed = model.log_probs(proposed)
    way_back = _way_back(model, kernel, proposed, drafts, along_proposed)
    log_weights = _score(along_proposed, proposed) + way_back - _score(along, drafts) - log_proposal
    log_weights = log_weights.masked_fill(~is_canonical(proposed), NEG_INF)
    positive = log_weights > NEG_INF
    if not bool(positive.any()):
        log_weights = torch.zeros_like(log_weights)
    chosen = int(torch.multinomial(torch.softmax(log_weights, 0), 1, generator=generator))
    return Published(proposed[chosen].tolist(), int(positive.sum()))


def _score(log_probs: Tensor, tokens: Tensor) -> Tensor:
    """f64[pairs], log p of sequences whose next-token distributions are known."""
    return log_probs.gather(-1, tokens[..., None])[..., 0].double().sum(-1)


def _way_back(model: LanguageModel, kernel: TopK, proposed: Tensor, drafts: Tensor, along: Tensor) -> Tensor:
    """f64[pairs], log p̃_y(ỹ); it is −inf for most, which the candidates tell before any neighbour of y is evaluated."""
    candidates = along.topk(min(kernel.k, model.vocab_size)).indices
    possible = (candidates == drafts[..., None]).any(-1).all(-1)
    log_probs = torch.full((len(proposed),), NEG_INF, dtype=torch.float64)
    if bool(possible.any()):
        around = kernel.distributions(model, proposed[possible], forward=along[possible])
        log_probs[possible] = around.gather(-1, drafts[possible, :, None])[..., 0].sum(-1)
    return log_probs
