"""What samplers return: weighted sequences, and a record of what is known of their error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor

from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.kernel.evidence.blocks import Blocks
from locore.kernel.evidence.pareto import pareto_k
from locore.kernel.numerics import NEG_INF, distinct, effective_sample_size
from locore.kernel.plugins import cached_property

Guarantee = Literal["proper", "asymptotic", "biased", "mode"]
Knowledge = Literal["estimated", "enclosed", "thinned", "exact"]
Bounds = tuple[float, float]
UNKNOWN: Bounds = (NEG_INF, 0.0)


@dataclass(frozen=True)
class TableUse:
    """The n-gram table that steered a run, or was put to the test and did not.

    Attributes:
        origin: "of the model", "given", "learned in the call", or "left aside": learned, and no help.
        lm_tokens, seconds: what making the model's table cost, once; 0 otherwise.
    """

    origin: Literal["of the model", "given", "learned in the call", "left aside"]
    lm_tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Factors:
    """What is known of factors φ that weights were multiplied with; the evidence is then log Σ p(y) 1[y ⊨ α] φ(y).

    Attributes:
        texts, beginnings: how many functions were asked about, each once.
        errors, timeouts: texts of which a predicate raised something, or took too long, which means no.
        first_error: what the first of them raised.
        steered: were draws steered by what beginnings are worth?
        tilted: were experts a part of the model, so that the weight without factors is none of α alone?
        log_most: log of what φ cannot exceed; infinite where that is not known.
        log_before: log of the mean weight without φ.
        log_seen: the largest log φ of a draw.
        log_beyond: log of what a text that was not asked about may be worth: the bound, where there is one; elsewhere by how
            much the answers differ, and infinite where they do not, so that nothing was learned.
        unasked: of the weight without φ, the share that texts may hold which nobody asked about.
    """

    texts: int = 0
    beginnings: int = 0
    errors: int = 0
    timeouts: int = 0
    first_error: str | None = None
    steered: bool = False
    tilted: bool = False
    log_most: float = 0.0
    log_before: float = 0.0
    log_seen: float = 0.0
    log_beyond: float = 0.0
    unasked: float = 0.0

    def info(self) -> dict[str, Any]:
        """By the names of `Particles.info`."""
        names = ("texts", "beginnings", "errors", "timeouts", "first_error")
        return {f"potential_{name}": value for name in names if (value := getattr(self, name))}


@dataclass(frozen=True)
class Joined:
    """What is known where draws were put together from parts that were drawn apart; see `locore.evidence.joining`.

    Attributes:
        error: relative standard error of the evidence.
        level, reason: the judgement, in the words of a verdict.
    """

    error: float
    level: str
    reason: str


@dataclass(frozen=True)
class Mode:
    """What is known where the most probable texts were looked for, and no draws. Logs are natural.

    A text counts by its likeliest sequence of tokens.

    Attributes:
        log_found: of the probability of the best one that was found, times what it is worth.
        log_unread: what no sequence exceeds that is none of these texts; up to `log_found`, none is more probable.
        compared: how many sequences were compared.
        proven: so many texts, from the first, are the most probable ones in their order, for certain.
    """

    log_found: float
    log_unread: float
    compared: int
    proven: int

    @classmethod
    def of(cls, values: Sequence[float], log_unread: float, compared: int) -> Mode:
        """Of texts that are worth so much, the best first, as logarithms."""
        return cls(values[0], log_unread, compared, sum(value >= log_unread for value in values))

    @property
    def is_proven(self) -> bool:
        """Is none more probable than the first, for certain?"""
        return self.proven > 0


# Of a record, by the same names in `Particles.info`.
SAID = ("chosen", "iterations", "not_canonical", "pareto_k", "resampled_from", "sequences", "why")
SAID_IF_TRUE = ("cut_off", "exact_draws", "guided")


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """What a sampler knows of its draws. Logarithms are natural; bounds and intervals are of log p(α).

    Attributes:
        guarantee: "proper" if E[mean_i w_i f(y_i)] = Σ_y p(y) 1[y ⊨ α] f(y); "asymptotic" if that holds in the limit;
            "biased" if no weight helps; "mode" of a most probable text, which is no draw.
        evidence: how p(α) is known: "estimated" by weights; "enclosed" where next to all that satisfies α was read; "exact"
            where all was; "thinned" where all was read, and some of what was then dropped would be needed.
        drawn: how many weights were drawn, zeros included; None for as many as there are sequences.
        sequences: how many there are in all, where all were read.
        independent: are the weights independent of each other?
        exact_draws: is each an independent draw from p(· | α)?
        guided: does something that was known before the call steer the draws towards α?
        weighted: False for what masking engines return.
        zeros: reason -> share of the weights that were zero.
        refused: reason -> share that was refused afterwards.
        bounds: certain ones.
        interval: the exact 95 % interval, where draws of the model were counted.
        likely: bounds that hold with probability 95 % whatever the law of the weights; None for those that the weights give.
        weight_cap: log of what no weight exceeds.
        pareto_k, ess: where the weights do not tell; None where they do.
        resampled_from: how many particles these were resampled from.
        iterations: of Markov chains.
        blocks: the independent repetitions that the draws are the mean of.
        table: the n-gram table that steered them.
        factors: what potentials and experts the weights were multiplied with; None for none.
        mode: what is known of a most probable sequence; None of draws.
        joined: what parts say that were drawn apart; None where all were drawn together.
        chosen, why: what `auto` chose.
        not_canonical: share of the weight on tokenisations that are not the tokenizer's own.
        cut_off: share of the weight on texts that end where the horizon happens to be.
        tables_mislead: is it known that n-gram tables do not help with such a constraint?
        notes: what the report should say.
        hints: what it should say even in short.
        details: more of the algorithm for readers; nothing here depends on it.
    """

    guarantee: Guarantee = "proper"
    evidence: Knowledge = "estimated"
    drawn: int | None = None
    sequences: int | None = None
    independent: bool = True
    exact_draws: bool = False
    guided: bool = False
    weighted: bool = True
    zeros: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, float] = field(default_factory=dict)
    bounds: Bounds = UNKNOWN
    interval: Bounds | None = None
    likely: Bounds | None = None
    weight_cap: float | None = None
    pareto_k: float | None = None
    ess: float | None = None
    resampled_from: int | None = None
    iterations: int | None = None
    blocks: Blocks | None = None
    table: TableUse | None = None
    factors: Factors | None = None
    mode: Mode | None = None
    joined: Joined | None = None
    chosen: str | None = None
    why: str | None = None
    not_canonical: float | None = None
    cut_off: float | None = None
    tables_mislead: bool = False
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def enumerated(self) -> bool:
        """Was every sequence read, so that p(α) is exact?"""
        return self.evidence == "exact"

    @property
    def log_most(self) -> float:
        """Log of what the evidence cannot exceed: 0, as it is a probability, unless factors are multiplied with it."""
        return 0.0 if self.factors is None else self.factors.log_most

    def info(self) -> dict[str, Any]:
        """What there is to say, by the names of `Particles.info`."""
        (low, high), table = self.bounds, self.table
        entries = {
            **{name: getattr(self, name) for name in SAID},
            **{name: getattr(self, name) or None for name in SAID_IF_TRUE},
            "blocks": None if self.blocks is None else len(self.blocks),
            "dependent": not self.independent or None,
            "ess_before": self.ess,
            "evidence": self.evidence if self.evidence != "estimated" else None,
            "hints": list(self.hints) or None,
            "log_evidence_bounds_95": self.likely,
            "log_evidence_interval": self.interval,
            "log_evidence_lower": low if low > NEG_INF else None,
            "log_evidence_upper": high if high < self.log_most else None,
            "log_weight_cap": self.weight_cap,
            "proven": self.mode and self.mode.proven,
            "refused": dict(self.refused) or None,
            "table": table and table.origin,
            "table_lm_tokens": (table and table.lm_tokens) or None,
            "table_seconds": table.seconds if table and table.lm_tokens else None,
            "unweighted": not self.weighted or None,
        }
        always = {"guarantee": self.guarantee, "zero_weights": dict(self.zeros), "notes": list(self.notes)}
        of_factors = {} if self.factors is None else self.factors.info()
        return {**always, **{name: value for name, value in entries.items() if value is not None}, **of_factors, **self.details}


@dataclass(frozen=True)
class Run:
    """What the caller of a sampler knows: settings and cost. `lm_tokens` and the like are those of `models.Counted`;
    `slow_because` is that of the model, `law` how it was changed, `remedy` what the sampler's makers advise where draws are not
    to be trusted.
    """

    sampler: str = "unknown"
    seed: int | None = None
    ending: str | None = None
    seconds: float | None = None
    compile_seconds: float | None = None
    lm_tokens: int | None = None
    lm_contexts: int | None = None
    passes: int | None = None
    model_seconds: float | None = None
    slow_because: str | None = None
    law: str | None = None
    remedy: str = ""

    def info(self) -> dict[str, Any]:
        """What is known, by the names of `Particles.info`."""
        return {name: value for name, value in vars(self).items() if value is not None and name != "remedy"}


@dataclass(frozen=True, eq=False, repr=False)
class Draws:
    """Weighted sequences that satisfy the constraint.

    Attributes:
        tokens: Long[num, length], padded with the first end-of-sequence id.
        log_weights: f64[num], natural logs; their mean is the evidence, also where weights of zero were dropped: see
            `keep_positive`.
        token_scores: f64[num, length], log p(y_t | y_<t), where the sampler knows them.
        record: what is known of their error.
    """

    tokens: Tensor
    log_weights: Tensor
    token_scores: Tensor | None = None
    record: Record = field(default_factory=Record)

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.log_weights):
            raise InvalidArgument(f"{len(self.tokens)} sequences but {len(self.log_weights)} weights.")
        if not len(self.tokens):
            raise ZeroWeights("there are no particles: every weight was zero.")

    def __len__(self) -> int:
        return len(self.tokens)

    def at(self, rows: Tensor, log_weights: Tensor | None = None) -> Self:
        """These rows, Long or Bool, with their weights or others."""
        weights = self.log_weights[rows] if log_weights is None else log_weights
        scores = None if self.token_scores is None else self.token_scores[rows]
        return replace(self, tokens=self.tokens[rows], log_weights=weights, token_scores=scores)

    @property
    def is_thinned(self) -> bool:
        """Were all sequences read, and are some of them left out here?"""
        return self.record.enumerated and self.record.sequences is not None and len(self) < self.record.sequences

    @property
    def is_whole(self) -> bool:
        """Are these all sequences, each with its own weight?"""
        return self.record.enumerated and not self.is_thinned and self.record.resampled_from is None

    @property
    def info(self) -> dict[str, Any]:
        """What is known of them, for readers."""
        return {**self.record.info(), "drawn": self.drawn}

    @property
    def drawn(self) -> int:
        """How many weights were drawn, zeros included."""
        return len(self) if self.record.drawn is None else self.record.drawn

    @property
    def blocks(self) -> Blocks | None:
        """The independent repetitions that they are the mean of, where there were such."""
        return self.record.blocks

    @property
    def weights(self) -> Tensor:
        """f64[num]: weights that sum to 1."""
        return torch.softmax(self.log_weights, 0)

    @property
    def log_evidence(self) -> float:
        """Estimate of log p(α), at most 0; nan for unweighted sequences, which know nothing of it.

        With potentials that of log Σ p(y) 1[y ⊨ α] φ(y), which may be above 0.
        """
        return min(self.record.log_most, self.log_mean_weight) if self.record.weighted else math.nan

    @property
    def log_mean_weight(self) -> float:
        """Log of the mean weight, whose mean is p(α): of a likely constraint it may be above 0. For averages over runs."""
        return float(torch.logsumexp(self.log_weights, 0)) - math.log(len(self))

    @property
    def log_evidence_error(self) -> float:
        """Standard error of `log_evidence` in nats (delta method); nan where it is not known.

        Particles that depend on each other are judged by their blocks (`locore.kernel.evidence.blocks`), others by weights.
        """
        if self.record.guarantee == "biased":
            return math.nan
        if self.record.enumerated:
            return 0.0
        if self.record.joined is not None:
            return self.record.joined.error
        if self.blocks is not None:
            return self.blocks.error
        if self.drawn < 2 or not self.record.independent:
            return math.nan
        return math.sqrt(max(0.0, (1 / self.ess - 1 / self.drawn) * self.drawn / (self.drawn - 1)))

    @cached_property  # interval, verdict and report all ask for it
    def log_evidence_bounds(self) -> Bounds:
        """Numbers that log p(α) lies between for certain, in nats; −inf and 0 where nothing is known.

        From below the total probability of distinct sequences that satisfy α; from above, where the sampler reads prefixes,
        that and the probability of all that it left unread.
        """
        if self.record.enumerated:
            return self.log_evidence, self.log_evidence
        low, high = self.record.bounds
        if self.token_scores is not None and self.record.factors is None:
            low = max(low, log_total(self.tokens, self.token_scores.sum(-1)))
        high = min(self.record.log_most, high)
        return min(low, high), high  # rounding may put the sum of everything above its bound

    @property
    def pareto_k(self) -> float:
        """Shape k̂ of the tail of independent weights, above 0.7 a warning; nan where it means nothing.

        That is for fewer than 25 weights, for weights without a tail, and for particles that depend on each other.
        """
        record = self.record
        if record.pareto_k is not None:
            return record.pareto_k
        independent = record.independent and record.weighted and record.evidence == "estimated" and record.blocks is None
        if not independent or record.guarantee == "asymptotic":
            return math.nan
        return pareto_k(self.log_weights, self.drawn - len(self))

    @cached_property
    def ess(self) -> float:
        """How many independent draws from p(y | α) would know its law as well.

        (Σw)²/Σw² of independent weights; of blocks what they support (`locore.kernel.evidence.blocks`), nan for one. Of
        resampled particles that of their source.
        """
        if self.record.ess is not None:
            return self.record.ess
        if self.blocks is not None:
            return self.blocks.effective_number()
        return effective_sample_size(self.log_weights)


def log_total(tokens: Tensor, log_probs: Tensor) -> float:
    """Log of the total probability of the distinct sequences among Long[num, time], f64[num] their log p."""
    return float(torch.logsumexp(log_probs[distinct(tokens)[0]], 0))


def keep_positive(tokens: Tensor, log_weights: Tensor, token_scores: Tensor | None = None, **fields: Any) -> Draws:
    """Drop particles of weight zero, and rescale the others by kept/drawn so that their mean stays the evidence.

    `fields` are those of the record; `drawn` counts weights that are zero and not given at all, by default there are none.

    Raises:
        ZeroWeights: there is nothing left.
    """
    keep = log_weights > NEG_INF
    positive, drawn = int(keep.sum()), fields.pop("drawn", None) or len(log_weights)
    if not positive:
        raise ZeroWeights(
            f"none of {drawn} particles satisfies the constraint with positive weight; use more particles, a larger budget, or "
            "another sampler (masking always finds sequences that satisfy the constraint)."
        )
    scores = None if token_scores is None else token_scores[keep]
    return Draws(tokens[keep], log_weights[keep] + math.log(positive / drawn), scores, Record(drawn=drawn, **fields))
