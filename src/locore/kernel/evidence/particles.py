"""Particles: weighted sequences that stand for p(y | α), as texts, and what they are worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from html import escape
from typing import Any, ClassVar

import torch
from torch import Tensor

from locore.kernel import plugins
from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.kernel.evidence.bounds import Estimate
from locore.kernel.evidence.record import UNKNOWN, Draws, Record, Run
from locore.kernel.evidence.shares import FieldValue, Posterior
from locore.kernel.evidence.verdict import Verdict
from locore.kernel.evidence.weighing import with_all_of_blocks
from locore.kernel.lists import largest_first
from locore.kernel.numerics import NEG_INF, is_end, make_generator
from locore.kernel.plugins import cached_property
from locore.kernel.request import OWN, cut_before
from locore.kernel.tokenizer import Tokenizer

SHOWN, SHOWN_IN_NOTEBOOKS = 4, 10  # texts


RESAMPLING = 0x5851F42D4C957F2D  # stream of random numbers: a sampler may have had the same seed


@dataclass(frozen=True, eq=False, repr=False)
class Particles(Estimate):
    """Sequences that satisfy the constraint, with weights.

    Attributes:
        tokens: Long[num, time], padded with the first end-of-sequence id.
        log_weights: f64[num], natural logs, unnormalised: their mean estimates p(α).
        token_scores: f64[num, time], log p(y_t | y_<t), where known.
        record: what their sampler knows of their error.
        tokenizer: the vocabulary.
        run: settings and cost of the run.
        stops: strings before the first of which texts are cut; they are in the tokens.
        places: where values of texts that are JSON may be, see `locore.evidence.fields.Fields`; None where that is not known.
    """

    tokenizer: Tokenizer = field(kw_only=True)
    run: Run = field(default_factory=Run, kw_only=True)
    stops: tuple[str, ...] = field(default=(), kw_only=True)
    places: Callable[[tuple[str, ...]], list[str] | None] | None = field(default=None, kw_only=True)

    # What a module that knows the words, or JSON, puts here.
    judge: ClassVar[Callable[[Particles], Verdict]]
    read_json: ClassVar[Callable[[Sequence[str], Any], list[Any]]]
    field_at: ClassVar[Callable[[Particles, str], list[FieldValue]]]

    @classmethod
    def of(cls, draws: Draws, tokenizer: Tokenizer, run: Run | None = None, **more: Any) -> Particles:
        """What a sampler returned, as texts."""
        held = {each.name: getattr(draws, each.name) for each in fields(Draws)}
        return cls(**held, tokenizer=tokenizer, run=run or Run(), **more)

    def __repr__(self) -> str:
        if self.record.mode is not None:
            texts = "text" if len(self) == 1 else f"{len(self)} texts"
            return "\n".join([f"<the most probable {texts} found: {self.verdict.level}>", *self.found_by_search()])
        number = f"{len(self)} particle{'s' * (len(self) != 1)}"
        return "\n".join([f"<{number}, {self._law}: {self.verdict.level}>", *self._table(SHOWN, "  {1:.3f}  {0!r}")])

    def _repr_html_(self) -> str:
        """For notebooks: the most probable texts, the law and the verdict."""
        number = "{1:.3f}" if self.record.mode is None else "{1:.2g}"
        rows = "".join(self._table(SHOWN_IN_NOTEBOOKS, f"<tr><td>{number}</td><td style='text-align:left'>{{2}}</td></tr>"))
        said = "<br>".join(escape(line) for line in self.report().splitlines())
        return f"<p>{said}<br>Law: {escape(self._law)}.</p><table><tr><th>probability</th><th>text</th></tr>{rows}</table>"

    @property
    def _law(self) -> str:
        """The law that was sampled, in words."""
        return "the model's own law" if self.run.law in (None, OWN) else str(self.run.law)

    def found_by_search(self) -> list[str]:
        """A line for each text that a search found: its probability, times what it is worth, and the text."""
        return self._table(len(self), "  {1:.2g}  {0!r}")

    def _table(self, most: int, line: str) -> list[str]:
        """A line for each of the most probable texts: of the text, its probability, and the text spelled for a page."""
        if self.record.mode is None and self.tokenizer.has_text:
            posterior = self.posterior()
            lines = [line.format(text, p, escape(repr(text))) for text, p in list(posterior.items())[:most]]
            others = sum(list(posterior.values())[most:])
            return lines if len(posterior) <= most else [*lines, line.format("…", others, "others")]
        texts = self.texts if self.tokenizer.has_text else self.tokens.tolist()
        values = self.weights if self.record.mode is None else self.log_weights.exp()
        rows = zip(texts[:most], values[:most].tolist(), strict=True)
        return [line.format(text, p, escape(repr(text))) for text, p in rows]

    def __iter__(self) -> Iterator[tuple[str, float]]:
        """Pairs (text, normalised weight)."""
        return iter(zip(self.texts, self.weights.tolist(), strict=True))

    @property
    def info(self) -> dict[str, Any]:
        """How they were made, for readers: `sampler`, `guarantee` ("proper", "asymptotic" or "biased"), `lm_tokens`,
        `lm_contexts`, `passes`, `seconds`, `drawn` (weights drawn, zeros included), `zero_weights` (share of the zeros, by
        reason), and more. A copy: changing it changes nothing.
        """
        return {**self.run.info(), **super().info}

    @property
    def bytes(self) -> list[bytes]:
        """The bytes of each text."""
        stops = [stop.encode() for stop in self.stops]
        return [cut_before(self.tokenizer.text_bytes(y), stops) for y in self.tokens.tolist()]

    @property
    def texts(self) -> list[str]:
        """Each text, a leading space kept: prompt + text is what the model wrote."""
        return [content.decode("utf-8", errors="replace") for content in self.bytes]

    @property
    def distinct_texts(self) -> int:
        """How many different texts there are; sequences, where tokens are bare ids."""
        return len(set(self.bytes)) if self.tokenizer.has_text else len(torch.unique(self.tokens, dim=0))

    def ordered(self) -> Particles:
        """The same, most probable text first. Weights that differ by rounding alone leave the order to the texts."""
        if self.record.mode is not None:  # whose order may be proven
            return self
        names = self.bytes if self.tokenizer.has_text else [tuple(y) for y in self.tokens.tolist()]
        total: dict[Any, float] = {}
        for name, weight in zip(names, self.weights.tolist(), strict=True):
            total[name] = total.get(name, 0.0) + weight
        by_name = sorted(range(len(names)), key=names.__getitem__)
        order = torch.tensor(largest_first(by_name, lambda row: total[names[row]]))
        blocks = None if self.blocks is None else self.blocks.ordered(order)
        return replace(self.at(order), record=replace(self.record, blocks=blocks))

    def resample(self, num: int = 1, seed: int | None = None) -> Particles:
        """Draw `num` equally weighted particles in proportion to the weights, independently.

        They keep the evidence: each weight is the mean of the old ones. Of what a search found these are the first `num` texts,
        and again from the first where there are fewer.
        """
        if isinstance(num, bool) or not isinstance(num, int) or num < 1:
            raise InvalidArgument(f"resample needs a whole number of particles, at least 1, got {num!r}.")
        if self.record.mode is not None:
            return self.at(torch.arange(num) % len(self))
        chosen = torch.multinomial(self.weights, num, replacement=True, generator=make_generator(seed, stream=RESAMPLING))
        record = replace(
            self.record,
            drawn=self.drawn,
            resampled_from=len(self),
            independent=False,
            ess=self.ess,
            pareto_k=self.pareto_k,
            bounds=(self.log_evidence_bounds[0], self.record.bounds[1]),
            likely=self.log_evidence_bounds_95,
        )
        return self._evened(chosen, record)

    def unweighted(self) -> Particles:
        """The same sequences with equal weights and no evidence: what masking engines return. Biased; for comparison."""
        record = replace(self.record, drawn=self.drawn, guarantee="biased", weighted=False)
        return self._evened(torch.arange(len(self)), record)

    def draw(self, seed: int | None = None) -> str:
        """One text, drawn in proportion to the weights: what the model would write, given α. `resample` draws several."""
        return self.resample(seed=seed).texts[0]

    @property
    def best(self) -> str:
        """The most probable of these texts, by the sum over its tokenisations."""
        return next(iter(self.posterior()))

    def posterior(self) -> Posterior:
        """Probability of each text given α, summed over tokenisations, most probable first; printed, with its error."""
        total: dict[str, float] = {}
        rows: dict[str, list[int]] = {}
        for row, (text, weight) in enumerate(self):
            total[text] = total.get(text, 0.0) + weight
            rows.setdefault(text, []).append(row)
        return Posterior(self, dict(largest_first(total.items(), lambda item: item[1])), rows)

    def parsed(self, model: Any = None) -> list[tuple[Any, float]]:
        """Pairs (object, normalised weight): each text as JSON, or as a validated object of a pydantic model or another type.

        Args:
            model: what pydantic's `TypeAdapter` takes: a model, a dataclass, a TypedDict; None: plain values.

        Raises:
            InvalidArgument: a text is no JSON, or not valid for the model.
            MissingExtra: pydantic is not installed.
        """
        plugins.load(plugins.EVIDENCE)
        return list(zip(type(self).read_json(self.texts, model), self.weights.tolist(), strict=True))

    def marginal(self, pointer: str) -> list[FieldValue]:
        """The distribution of one field of texts that are JSON, given α: its values, most probable first, each with its error.

        All spellings of a value count together. Errors are standard errors, by blocks where there are such; each value has the
        verdict on these particles beside it.

        Args:
            pointer: a JSON pointer (RFC 6901), such as "/name" or "/items/0/price"; "" is the whole value.

        Raises:
            InvalidArgument: no pointer, one to where no text can have a value by the schema, or a text is no JSON.
        """
        plugins.load(plugins.EVIDENCE)
        return self.field_at(pointer)

    @cached_property
    def every(self) -> Particles:
        """All texts that were found, of which these may be a part."""
        return with_all_of_blocks(self)

    @cached_property  # each field asks for it
    def plain(self) -> list[Any]:
        """Each text as JSON, as plain values."""
        plugins.load(plugins.EVIDENCE)
        return type(self).read_json(self.texts, None)

    def where(self, keep: Tensor, reason: str) -> Particles:
        """Particles that also satisfy an indicator, Bool[num]; the weights of the rest become zero.

        Multiplying by an indicator keeps proper weights proper, for α ∧ indicator. Blocks are filtered before they are
        averaged, so that every error is that of α ∧ indicator; where that is not possible none is known.
        """
        share = int(keep.sum()) / len(self)
        if not share:
            raise ZeroWeights(f"all {len(self)} particles were refused: {reason}. Use more particles, or drop this condition.")
        weights = self.log_weights[keep] + math.log(share)
        return replace(self.at(keep, weights), record=self._record_where(keep, reason, share))

    def _record_where(self, keep: Tensor, reason: str, share: float) -> Record:
        """The record of the particles of which this share is kept: what was known of α alone is dropped."""
        old = self.record
        # Blocks do not know what was resampled from them.
        blocks = old.blocks.where(keep) if old.blocks is not None and old.resampled_from is None else None
        # How much of what was thinned out satisfies the indicator is not known.
        lost = self.is_thinned or old.joined is not None or (old.blocks is not None and blocks is None)
        return replace(
            old,
            drawn=self.drawn,
            blocks=blocks,
            evidence="thinned" if self.is_thinned else old.evidence,
            independent=old.independent and not lost,
            refused={**old.refused, reason: 1 - share},
            zeros={**old.zeros, f"{reason} (refused)": (1 - sum(old.zeros.values())) * (1 - share)},
            bounds=(NEG_INF, old.bounds[1]),
            interval=None,
            joined=None,
            likely=None if old.interval is None and old.likely is None else UNKNOWN,
            not_canonical=None,
            cut_off=None,
        )

    def _evened(self, index: Tensor, record: Record) -> Particles:
        """These, with equal weights."""
        even = torch.full((len(index),), self.log_mean_weight, dtype=torch.float64)
        return replace(self.at(index, even), record=record)

    @cached_property
    def verdict(self) -> Verdict:
        """How far these weights can be trusted, and why."""
        plugins.load(plugins.EVIDENCE)
        return self.judge()

    def report(self, full: bool = False) -> str:
        """What to trust, in plain words: what may be done with the texts, p(α), and why; with `full` all that is known.

        Lines more say how much longer such a run would settle it, what is probably a slip, such as a missing space, or why the
        model is read slowly.
        """
        return f"{self.verdict.text}\n{self.verdict.details}" if full else self.verdict.text

    @property
    def price_of_end(self) -> float:
        """Mean −log p(end | text) over particles that end before the horizon, by weight, in nats; 0 if none does."""
        if self.token_scores is None or not self.tokenizer.eos_ids:
            return 0.0
        ends = is_end(self.tokens, self.tokenizer.eos_ids)
        ended = ends.any(-1)
        if not bool(ended.any()):
            return 0.0
        first = ends.long().argmax(-1)
        price = -self.token_scores.gather(1, first[:, None])[:, 0][ended]
        weights = self.weights[ended]
        # Where all that ended weighs nothing the mean is not known; it is no larger than this.
        return float((price * weights).sum() / weights.sum()) if float(weights.sum()) else float(torch.max(price))

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
            "zero_weights": dict(self.record.zeros),
            "verdict": self.verdict.level,
            "report": self.report(full=True),
            "info": self.info,
        }
        return {key: _plain(value) for key, value in values.items()}


def _plain(value: Any) -> Any:
    """With None for nan and infinities, which JSON has no words for."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
