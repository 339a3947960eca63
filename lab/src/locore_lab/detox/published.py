"""The sampler of the paper as its appendix describes it for language detoxification, with nothing repaired.

Drafts ỹ come from the nucleus of 0.9 at temperature 1. The local distribution at each position knows k candidates and is
tempered, q_i ∝ p̃_i^(1/τ), and of S pairs one is taken by Algorithm 2:

    w = p(y) · 1[canonize(y) ⊨ α] · p̃_y(ỹ) / (p(ỹ) · p̃_ỹ(y | α)).

Printed are neither k, nor which tokens are candidates, nor what the others get, nor what τ divides, nor whether p is the model
or its nucleus law. A `Reading` says all that. The authors' code for an earlier paper (Ahmed, Chang and Van den Broeck, "A
Pseudo-Semantic Loss for Autoregressive Models with Logical Constraints", NeurIPS 2023; UCLA-StarAI/PseudoSL, folder detox)
has 450 candidates at a place: the 9 likeliest allowed tokens, the 440 likeliest that occur in banned words, and the token of
the sample; the others are at −300 nats; allowed tokens are one class. Whether this paper used that code is not known.

With the k likeliest alone the weights are often all zero, since p̃_y gives ỹ any probability only if each of its tokens is
among the k likeliest along y. Here one of the proposals is then taken at random, as an implementation does that adds a small
number to the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.kernel.numerics import NEG_INF
from locore.local import TopK
from locore.models import LanguageModel, TopP
from locore.models.wrappers import nucleus
from locore_lab.detox.task import NUCLEUS, Law

AUTHORS_REST = -300.0  # log-probability of tokens that are no candidates, in the earlier code
OUT_OF_REACH = -100.0  # a step off the candidates below this decides between two pairs, whatever else is in their weights


@dataclass(frozen=True)
class Reading:
    """What the paper leaves open."""

    # the likeliest tokens at a place, which are candidates; if `banned` is given, of those that occur in no banned phrase
    k: int
    tau: float  # τ, the temperature of the local distribution
    own: bool = False  # is the token of the sequence a candidate too?
    rest: float = NEG_INF  # log-probability of all others
    law: Law = "plain"  # p in the weights, the model or its nucleus law
    banned: int = 0  # the likeliest tokens that occur in a banned phrase, which are candidates too

    @property
    def name(self) -> str:
        """Of its row."""
        rest = f", rest {self.rest:g}" if self.rest > NEG_INF else ""
        banned = f" and {self.banned} of phrases" if self.banned else ""
        own, law = ", own token" * self.own, ", nucleus" * (self.law == "nucleus")
        return f"k={self.k}{banned}, τ={self.tau:g}{own}{rest}{law}"

    def kernel(self, in_phrases: Sequence[int]) -> TopK:
        """Without a floor; `in_phrases` are the ids that occur in a banned phrase."""
        options: dict[str, Any] = {"own": self.own, "off_candidates": self.rest, "temperature": self.tau, "floor": 0.0}
        if self.banned:
            return BothKinds(k=self.k, in_phrases=tuple(in_phrases), banned=self.banned, **options)
        return TopK(k=self.k, **options)


@dataclass(frozen=True)
class BothKinds(TopK):
    """Candidates of the authors' earlier code: the likeliest tokens of either kind.

    Attributes:
        k: of those that occur in no banned phrase.
        in_phrases: ids that occur in one.
        banned: how many of these are candidates.
    """

    in_phrases: tuple[int, ...] = ()
    banned: int = 440

    def candidates(self, tokens: Tensor, forward: Tensor) -> Tensor:
        """Long[batch, time, candidates]; see `TopK.candidates`."""
        ids = torch.tensor(self.in_phrases, device=forward.device)
        others = super().candidates(tokens, forward.index_fill(-1, ids, NEG_INF))
        likeliest = ids[forward[..., ids].topk(min(self.banned, len(ids))).indices]
        return torch.cat([likeliest, others], -1)

    def price(self, length: int, vocab_size: int, positions: int | None = None) -> int:
        """LM tokens for one sequence, at most."""
        return TopK(k=self.k + min(self.banned, len(self.in_phrases))).price(length, vocab_size, positions)


@dataclass(frozen=True)
class Published:
    """What a run found."""

    tokens: list[int] | None  # the sequence that was taken; None if no draft's neighbourhood reaches the constraint
    positive: int  # pairs with a weight above zero
    missed: int = 0  # tokens of the draft that are no candidates along the sequence that was taken


def published(
    model: LanguageModel,
    circuit: Circuit,
    pairs: int,
    reading: Reading,
    is_canonical: Callable[[Tensor], Tensor],
    generator: torch.Generator,
    in_phrases: Sequence[int] = (),
) -> Published:
    """One draw."""
    kernel = reading.kernel(in_phrases)
    drafts = TopP(model, NUCLEUS).sample(pairs, circuit.length, generator).tokens
    along = model.log_probs(drafts)
    around = kernel.distributions(model, drafts, forward=along)
    reaches = circuit.log_mass(around) > NEG_INF
    if not bool(reaches.any()):
        return Published(None, 0)
    drafts, along, around = drafts[reaches], along[reaches], around[reaches]
    proposed, log_proposal = circuit.sample(around, generator)
    along_proposed = model.log_probs(proposed)
    target, context = _score(along_proposed, proposed, reading.law), _score(along, drafts, reading.law)
    known = (target > NEG_INF) & is_canonical(proposed)
    missed = (kernel.candidates(proposed, along_proposed) != drafts[..., None]).all(-1).sum(-1)
    way_back = _way_back(model, kernel, proposed, drafts, along_proposed, _worth(kernel, known, missed))
    log_weights = (target + way_back - context - log_proposal).masked_fill(~known, NEG_INF)
    positive = known & (missed == 0) if kernel.excludes else known
    if not bool((log_weights > NEG_INF).any()):
        log_weights = torch.zeros_like(log_weights)
    chosen = int(torch.multinomial(torch.softmax(log_weights, 0), 1, generator=generator))
    return Published(proposed[chosen].tolist(), int(positive.sum()), int(missed[chosen]))


def _score(log_probs: Tensor, tokens: Tensor, law: Law) -> Tensor:
    """f64[pairs], log p of sequences whose next-token distributions are known."""
    rows = log_probs if law == "plain" else nucleus(log_probs, NUCLEUS)
    return rows.gather(-1, tokens[..., None])[..., 0].double().sum(-1)


def _worth(kernel: TopK, known: Tensor, missed: Tensor) -> Tensor:
    """Bool[pairs]: whose way back is to be evaluated; the candidates tell of the others that it decides nothing."""
    if kernel.excludes:
        return known & (missed == 0)
    if kernel.off_candidates > OUT_OF_REACH or not bool(known.any()):
        return known
    return known & (missed == missed[known].min())


def _way_back(model: LanguageModel, kernel: TopK, proposed: Tensor, drafts: Tensor, along: Tensor, worth: Tensor) -> Tensor:
    """f64[pairs], log p̃_y(ỹ); −inf where it is not worth it."""
    log_probs = torch.full((len(proposed),), NEG_INF, dtype=torch.float64)
    if bool(worth.any()):
        around = kernel.distributions(model, proposed[worth], forward=along[worth])
        log_probs[worth] = around.gather(-1, drafts[worth, :, None])[..., 0].sum(-1)
    return log_probs
