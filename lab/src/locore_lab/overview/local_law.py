"""The local distribution p̃_ỹ of one draft, beside the model's: entropy, divergence, and the texts that both give."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.kernel.numerics import make_generator
from locore.local import Kernel
from locore.models import LanguageModel


@dataclass(frozen=True)
class Fidelity:
    """Of one draft, in nats.

    Attributes:
        entropy: of p̃_ỹ, in closed form.
        surprise: −log p(ỹ); its mean over drafts is the model's entropy.
        divergence: KL(p̃_ỹ ‖ p), from draws of p̃_ỹ; error: its standard error.
        allowed: p̃_ỹ(α).
    """

    entropy: float
    surprise: float
    divergence: float
    error: float
    allowed: float


@dataclass(frozen=True)
class Texts:
    """Some texts, in the order of a picture.

    Attributes:
        tokens: Long[text, time]; distance: Long[text], tokens by which each differs from the draft.
        log_model, log_local: f64[text], log p and log p̃_ỹ; allowed: Bool[text], those that satisfy α.
        draft: number of ỹ.
    """

    tokens: Tensor
    distance: Tensor
    log_model: Tensor
    log_local: Tensor
    allowed: Tensor
    draft: int


def fidelity(model: LanguageModel, local: Tensor, draft: Tensor, circuit: Circuit, draws: int, seed: int) -> Fidelity:
    """What the paper's Section 3.1 says of p̃_ỹ, measured."""
    tokens = drawn(local, draws, seed)
    gaps = of_tokens(local, tokens) - model.score(tokens).double()
    entropy = -(local.exp() * local.nan_to_num(neginf=0.0)).sum()
    return Fidelity(
        entropy=float(entropy),
        surprise=-float(model.score(draft[None])),
        divergence=float(gaps.mean()),
        error=float(gaps.std()) / draws**0.5,
        allowed=float(circuit.log_mass(local[None]).exp()),
    )


def drawn(local: Tensor, number: int, seed: int) -> Tensor:
    """Long[number, time] from a factorised law."""
    generator = make_generator(seed)
    return torch.stack([torch.multinomial(row.exp(), number, True, generator=generator) for row in local], 1)


def of_tokens(local: Tensor, tokens: Tensor) -> Tensor:
    """f64[batch]: log p̃_ỹ of sequences."""
    return local[torch.arange(len(local)), tokens].sum(-1)


def shown(
    model: LanguageModel, kernel: Kernel, draft: Tensor, circuit: Circuit, draws: int, least: float, seed: int
) -> tuple[Texts, Tensor]:
    """The texts that the model or p̃_ỹ gives at least so often, by their distance from ỹ, likely ones first.

    They are found by drawing from both.
    """
    local = kernel.distributions(model, draft[None])[0]
    found = torch.cat([draft[None], model.sample(draws, len(draft), seed=seed).tokens, drawn(local, draws, seed)])
    tokens = torch.unique(found, dim=0)
    log_model, log_local = model.score(tokens).double(), of_tokens(local, tokens)
    distance = (tokens != draft).sum(-1)
    kept = (torch.maximum(log_model, log_local).exp() >= least) | (distance == 0)
    order = sorted(kept.nonzero()[:, 0].tolist(), key=lambda i: (int(distance[i]), -float(log_model[i])))
    at = torch.tensor(order)
    allowed = circuit.accepts(tokens[at])
    return Texts(tokens[at], distance[at], log_model[at], log_local[at], allowed, int(distance[at].argmin())), local
