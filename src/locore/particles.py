"""Particles: weighted sequences that stand for p(y | α), and what they are worth."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from locore.blocks import Blocks
from locore.bounds import certain_bounds, confidence_bounds
from locore.diagnosis import Verdict, diagnose
from locore.errors import InvalidArgument, ZeroWeights
from locore.interval import interval
from locore.numerics import effective_sample_size, make_generator
from locore.pareto import pareto_k
from locore.tokenizer import Tokenizer

# What is not so for α ∧ an indicator.
FOR_ALPHA_ALONE = {"log_evidence_interval", "log_evidence_bounds_95", "log_evidence_lower", "not_canonical"}


@dataclass(frozen=True, eq=False, repr=False)
class Particles:
    """Sequences that satisfy the constraint, with weights.

    Attributes:
        tokens: Long[num, time], padded with the first end-of-sequence id.
        log_weights: f64[num], natural logs, unnormalised: their mean estimates p(α).
        tokenizer: the vocabulary.
        info: how they were made: `sampler`, `guarantee` ("proper", "asymptotic" or "biased"), `lm_tokens`, `lm_contexts`,
            `seconds`, `drawn` (weights drawn, zeros included), `zero_weights` (share of the zeros, by reason), and more.
        token_scores: f64[num, time], log p(y_t | y_<t), where known.
        blocks: the independent repetitions that they are the mean of, where there were such.
    """

    tokens: Tensor
    log_weights: Tensor
    tokenizer: Tokenizer
    info: dict[str, Any] = field(default_factory=dict)
    token_scores: Tensor | None = None
    blocks: Blocks | None = None

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.log_weights):
            raise InvalidArgument(f"{len(self.tokens)} sequences but {len(self.log_weights)} weights.")
        if not len(self.tokens):
            raise ZeroWeights("there are no particles: every weight was zero.")

    def __repr__(self) -> str:
        return f"<{len(self)} particles, log p(α) ≈ {self.log_evidence:.2f}, verdict: {self.verdict.level}; see report()>"

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
    def distinct_texts(self) -> int:
        """How many different texts there are; sequences, where tokens are bare ids."""
        return len(set(self.bytes)) if self.tokenizer.has_text else len(torch.unique(self.tokens, dim=0))

    @property
    def weights(self) -> Tensor:
        """f64[num]: weights that sum to 1."""
        return torch.softmax(self.log_weights, 0)

    @property
    def log_evidence(self) -> float:
        """Estimate of log p(α), at most 0; nan for `unweighted()` particles, which know nothing of it."""
        return math.nan if self.info.get("unweighted") else min(0.0, self.log_mean_weight)

    @property
    def log_mean_weight(self) -> float:
        """Log of the mean weight, whose mean is p(α): of a likely constraint it may be above 0. For averages over runs."""
        return float(torch.logsumexp(self.log_weights, 0)) - math.log(len(self))

    @property
    def log_evidence_error(self) -> float:
        """Standard error of `log_evidence` in nats (delta method); nan where it is not known.

        Particles that depend on each other are judged by their blocks, see `locore.blocks`, others by their weights.
        """
        if self.info.get("guarantee") == "biased":
            return math.nan
        if self.info.get("evidence") == "exact":
            return 0.0
        if self.blocks is not None:
            return self.blocks.error
        drawn = int(self.info.get("drawn", len(self)))
        if drawn < 2 or self.info.get("dependent"):
            return math.nan
        return math.sqrt(max(0.0, (1 / self.ess - 1 / drawn) * drawn / (drawn - 1)))

    @cached_property
    def log_evidence_interval(self) -> tuple[float, float]:
        """95 % interval of log p(α); nan if unknown.

        Exact (Clopper and Pearson) where draws of the model were counted; elsewhere an approximation that reaches further up
        than down, see `locore.interval`.
        """
        return interval(self)

    @cached_property  # interval, verdict and report all ask for it
    def log_evidence_bounds(self) -> tuple[float, float]:
        """Numbers that log p(α) lies between for certain, in nats; −inf and 0 where nothing is known.

        From below the total probability of distinct sequences that satisfy α; from above, where the sampler reads prefixes,
        that and the probability of all that it left unread.
        """
        return certain_bounds(self)

    @cached_property  # resampling, verdict and report all ask for it
    def log_evidence_bounds_95(self) -> tuple[float, float]:
        """Numbers that log p(α) lies between with probability 95 %, whatever the law of the weights; see `locore.bounds`."""
        return confidence_bounds(self)

    @property
    def pareto_k(self) -> float:
        """Shape k̂ of the tail of independent weights, above 0.7 a warning; nan where it means nothing.

        That is for fewer than 25 weights, for weights without a tail, and for particles that depend on each other.
        """
        if "pareto_k" in self.info:
            return float(self.info["pareto_k"])
        depend = {"dependent", "evidence", "unweighted"} & self.info.keys()
        if depend or self.blocks is not None or self.info.get("guarantee") == "asymptotic":
            return math.nan
        return pareto_k(self.log_weights, int(self.info.get("drawn", len(self))) - len(self))

    @cached_property
    def ess(self) -> float:
        """How many independent draws from p(y | α) would know its law as well.

        (Σw)²/Σw² of independent weights; of blocks what they support, see `locore.blocks`, nan for a single one. Of resampled
        particles that of their source.
        """
        if "ess_before" in self.info:
            return float(self.info["ess_before"])
        if self.blocks is not None:
            return self.blocks.effective_number()
        return effective_sample_size(self.log_weights)

    def resample(self, num: int = 1, seed: int | None = None) -> Particles:
        """Draw `num` equally weighted particles in proportion to the weights, independently.

        They keep the evidence: each weight is the mean of the old ones.
        """
        if isinstance(num, bool) or not isinstance(num, int) or num < 1:
            raise InvalidArgument(f"resample needs a whole number of particles, at least 1, got {num!r}.")
        chosen = torch.multinomial(self.weights, num, replacement=True, generator=make_generator(seed))
        info = {
            "resampled_from": len(self),
            "dependent": True,
            "ess_before": self.ess,
            "pareto_k": self.pareto_k,
            "log_evidence_lower": self.log_evidence_bounds[0],
            "log_evidence_bounds_95": self.log_evidence_bounds_95,
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

        Multiplying by an indicator keeps proper weights proper, for α ∧ indicator. Blocks are filtered before they are
        averaged, so that every error is that of α ∧ indicator; where that is not possible none is known.
        """
        kept = int(keep.sum())
        if not kept:
            raise ZeroWeights(f"all {len(self)} particles were refused: {reason}. Use more particles, or drop this condition.")
        share = kept / len(self)
        zeros = self.info.get("zero_weights", {})
        info = {
            **self.info,
            "drawn": self.info.get("drawn", len(self)),
            "refused": {**self.info.get("refused", {}), reason: 1 - share},
            "zero_weights": {**zeros, f"{reason} (refused)": (1 - sum(zeros.values())) * (1 - share)},
        }
        for known in FOR_ALPHA_ALONE & info.keys():
            info[known] = None
        if self.info.get("evidence") == "exact" and len(self) < self.info["sequences"]:
            # How much of what was thinned out satisfies the indicator is not known.
            info |= {"evidence": "thinned", "dependent": True}
        # Blocks do not know what was resampled from them.
        blocks = self.blocks.where(keep) if self.blocks and "resampled_from" not in self.info else None
        if self.blocks and blocks is None:
            info["dependent"] = True
        return replace(
            self,
            tokens=self.tokens[keep],
            log_weights=self.log_weights[keep] + math.log(share),
            info=info,
            token_scores=None if self.token_scores is None else self.token_scores[keep],
            blocks=blocks,
        )

    @cached_property
    def verdict(self) -> Verdict:
        """How far these weights can be trusted, and why."""
        return diagnose(self)

    def report(self, full: bool = False) -> str:
        """What to trust, in plain words: a line on the texts and why, and one on p(α); with `full` all that is known."""
        return f"{self.verdict.text}\n{self.verdict.details}" if full else self.verdict.text

    def to_json(self) -> dict[str, Any]:
        """Texts, tokens, weights and diagnostics as plain values; None where a number is unknown or infinite."""
        values = {
            "texts": self.texts if self.tokenizer.has_text else None,
            "tokens": self.tokens.tolist(),
            "log_weights": self.log_weights.tolist(),
            "log_evidence": self.log_evidence,
            "log_evidence_error": self.log_evidence_error,
            "log_evidence_interval": self.log_evidence_interval,
            "log_evidence_bounds": self.log_evidence_bounds,
            "log_evidence_bounds_95": self.log_evidence_bounds_95,
            "ess": self.ess,
            "pareto_k": self.pareto_k,
            "largest_weight": float(self.weights.max()),
            "distinct_texts": self.distinct_texts,
            "zero_weights": self.info.get("zero_weights", {}),
            "verdict": self.verdict.level,
            "report": self.report(full=True),
            "info": self.info,
        }
        return {key: _plain(value) for key, value in values.items()}

    def _chosen(self, index: Tensor, info: dict[str, Any]) -> Particles:
        mean = torch.logsumexp(self.log_weights, 0) - math.log(len(self))
        return replace(
            self,
            tokens=self.tokens[index],
            log_weights=mean.expand(len(index)).clone(),
            info={**self.info, **info},
            token_scores=None if self.token_scores is None else self.token_scores[index],
        )


def _plain(value: Any) -> Any:
    """With None for nan and infinities, which JSON has no words for."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
