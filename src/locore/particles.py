"""Particles: weighted sequences that stand for p(y | α), and what they are worth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from locore.diagnosis import Verdict, diagnose
from locore.errors import InvalidArgument, ZeroWeights
from locore.numerics import NEG_INF, effective_sample_size, make_generator
from locore.tokenizer import Tokenizer

# Two-sided 95 % quantiles of Student's t for the mean of so many blocks.
STUDENT_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26, 16: 2.13}


@dataclass(frozen=True, eq=False)
class Particles:
    """Sequences that satisfy the constraint, with weights.

    Attributes:
        tokens: Long[num, time], padded with the first end-of-sequence id.
        log_weights: f64[num], natural logs, unnormalised: their mean estimates p(α).
        tokenizer: the vocabulary.
        info: how they were made: `sampler`, `guarantee` ("proper", "asymptotic" or "biased"), `lm_tokens`, `lm_contexts`,
            `seconds`, `drawn` (weights drawn, zeros included), and more.
        token_scores: f64[num, time], log p(y_t | y_<t), where known.
    """

    tokens: Tensor
    log_weights: Tensor
    tokenizer: Tokenizer
    info: dict[str, Any] = field(default_factory=dict)
    token_scores: Tensor | None = None

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.log_weights):
            raise InvalidArgument(f"{len(self.tokens)} sequences but {len(self.log_weights)} weights.")
        if not len(self.tokens):
            raise ZeroWeights("there are no particles: every weight was zero.")

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[tuple[str, float]]:
        """Pairs (text, normalised weight)."""
        return iter(zip(self.texts, self.weights.tolist(), strict=True))

    @property
    def bytes(self) -> list[bytes]:
        """The bytes of each text."""
        return [self.tokenizer.text_bytes(y) for y in self.tokens.tolist()]

    @property
    def texts(self) -> list[str]:
        """Each text, a leading space kept: prompt + text is what the model wrote."""
        return [content.decode("utf-8", errors="replace") for content in self.bytes]

    @property
    def weights(self) -> Tensor:
        """f64[num]: weights that sum to 1."""
        return torch.softmax(self.log_weights, 0)

    @property
    def log_evidence(self) -> float:
        """Estimate of log p(α); nan for `unweighted()` particles, which know nothing of it."""
        if self.info.get("unweighted"):
            return math.nan
        return float(torch.logsumexp(self.log_weights, 0)) - math.log(len(self))

    @property
    def log_evidence_error(self) -> float:
        """Standard error of `log_evidence` in nats (delta method); nan where it is not known.

        Particles that depend on each other are judged by the spread of independent blocks of them, others by their weights.
        """
        if self.info.get("unweighted"):
            return math.nan
        if self.info.get("evidence") == "exact":
            return 0.0
        if "block_log_evidence" in self.info:
            return relative_error(self.info["block_log_evidence"])
        drawn = int(self.info.get("drawn", len(self)))
        if drawn < 2 or self.info.get("dependent"):
            return math.nan
        return math.sqrt(max(0.0, (1 / self.ess - 1 / drawn) * drawn / (drawn - 1)))

    @property
    def log_evidence_interval(self) -> tuple[float, float]:
        """95 % interval of log p(α): Student's t where few blocks give the error, the normal law elsewhere; nan if unknown."""
        blocks = self.info.get("block_log_evidence")
        factor = STUDENT_95.get(len(blocks), 2.0) if blocks else 1.96
        margin = factor * self.log_evidence_error
        return self.log_evidence - margin, self.log_evidence + margin

    @property
    def ess(self) -> float:
        """Effective sample size (Σw)²/Σw², of resampled particles that of their source; it judges independent ones only."""
        return float(self.info.get("ess_before", effective_sample_size(self.log_weights)))

    def resample(self, num: int = 1, seed: int | None = None) -> Particles:
        """Draw `num` equally weighted particles in proportion to the weights, independently.

        They keep the evidence: each weight is the mean of the old ones.
        """
        if num < 1:
            raise InvalidArgument(f"resample needs at least 1 particle, got {num}.")
        chosen = torch.multinomial(self.weights, num, replacement=True, generator=make_generator(seed))
        info = {
            "resampled_from": len(self),
            "dependent": True,
            "ess_before": self.ess,
        }
        return self._chosen(chosen, info)

    def unweighted(self) -> Particles:
        """The same sequences with equal weights and no evidence: what masking engines return. Biased; for comparison."""
        every = torch.arange(len(self))
        return self._chosen(every, {"guarantee": "biased", "unweighted": True})

    def posterior(self) -> dict[str, float]:
        """Probability of each distinct text given α, summed over tokenisations, most probable first."""
        total: dict[str, float] = {}
        for text, weight in self:
            total[text] = total.get(text, 0.0) + weight
        return dict(sorted(total.items(), key=lambda item: -item[1]))

    def where(self, keep: Tensor, reason: str) -> Particles:
        """Particles that also satisfy an indicator, Bool[num]; the weights of the rest become zero.

        Multiplying by an indicator keeps proper weights proper, for α ∧ indicator.
        """
        kept = int(keep.sum())
        if not kept:
            raise ZeroWeights(f"all {len(self)} particles were refused: {reason}. Use more particles, or drop this condition.")
        share = kept / len(self)
        return replace(
            self,
            tokens=self.tokens[keep],
            log_weights=self.log_weights[keep] + math.log(share),
            info={**self.info, "drawn": self.info.get("drawn", len(self)), "refused": {reason: 1 - share}},
            token_scores=None if self.token_scores is None else self.token_scores[keep],
        )

    @property
    def verdict(self) -> Verdict:
        """How far these weights can be trusted, and why."""
        return diagnose(self)

    def report(self) -> str:
        """What to trust and why, in plain words; the verdict comes first."""
        return self.verdict.text

    def to_json(self) -> dict[str, Any]:
        """Texts, tokens, weights and diagnostics as plain values."""
        return {
            "texts": self.texts,
            "tokens": self.tokens.tolist(),
            "log_weights": self.log_weights.tolist(),
            "log_evidence": _finite(self.log_evidence),
            "log_evidence_error": _finite(self.log_evidence_error),
            "ess": self.ess,
            "verdict": self.verdict.level,
            "report": self.report(),
            "info": self.info,
        }

    def _chosen(self, index: Tensor, info: dict[str, Any]) -> Particles:
        mean = torch.logsumexp(self.log_weights, 0) - math.log(len(self))
        return replace(
            self,
            tokens=self.tokens[index],
            log_weights=mean.expand(len(index)).clone(),
            info={**self.info, **info},
            token_scores=None if self.token_scores is None else self.token_scores[index],
        )


def relative_error(log_estimates: Sequence[float]) -> float:
    """Relative standard error of the mean of independent unbiased estimates, given as logs; nan for fewer than two."""
    if len(log_estimates) < 2:
        return math.nan
    top = max(log_estimates)
    if top == NEG_INF:
        return math.nan
    values = torch.tensor([math.exp(value - top) for value in log_estimates], dtype=torch.float64)
    return float(values.std() / values.mean() / math.sqrt(len(values)))


def _finite(value: float) -> float | None:
    """None for nan and infinities, which JSON has no words for."""
    return value if math.isfinite(value) and value != NEG_INF else None
