"""The factors of one run: what texts are worth, each asked about once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import stdev
from typing import Any, Protocol

import torch
from torch import Tensor

from locore.errors import BrokenPotential, InvalidConstraint
from locore.evidence.record import Factors
from locore.evidence.unseen import SAME
from locore.models import LanguageModel
from locore.numerics import NEG_INF
from locore.potentials.asking import Tally, log_factors
from locore.potentials.tilted import INFINITE, Tilted
from locore.potentials.values import Expert, Factor, Potential
from locore.tokenizer import Tokenizer

SPREADS = 2.0  # by which what was not asked may exceed what was
Change = Callable[[LanguageModel], LanguageModel]  # what a run makes of a prompted model


@dataclass(eq=False)
class _Asked:
    """One potential, and what it has said so far: of finished texts and of beginnings."""

    one: Potential
    tally: Tally = field(default_factory=Tally)
    along: Tally = field(default_factory=Tally)
    finished: dict[str, float] = field(default_factory=dict)
    begun: dict[str, float] = field(default_factory=dict)

    def of(self, texts: Sequence[str]) -> Tensor:
        """f64[texts]: log φ of finished texts."""
        return self._known(self.one.ask, texts, self.finished, self.tally, ahead=False)

    def ahead(self, texts: Sequence[str]) -> Tensor:
        """f64[texts]: about the log φ of texts that begin so."""
        assert self.one.prefix is not None  # only those that steer are asked
        return self._known(self.one.prefix, texts, self.begun, self.along, ahead=True)

    def _known(self, f: Callable[..., Any], texts: Sequence[str], known: dict[str, float], tally: Tally, ahead: bool) -> Tensor:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known.update(zip(new, log_factors(self.one, f, new, tally, ahead), strict=True))
        return torch.tensor([known[text] for text in texts], dtype=torch.float64)


class Scorer:
    """All factors of a target in one run, as numbers for token ids.

    A text is asked about once, whatever its tokens, and whoever asks: a sampler on its way, or the end of the run. What was
    answered first counts.

    Attributes:
        log_most: log of what the product cannot exceed; infinite where that is not known.
    """

    def __init__(self, factors: Sequence[Factor], tokenizer: Tokenizer, change: Change) -> None:
        """For a vocabulary; models of experts are changed as the sampled one is, so that all end their texts alike.

        Raises:
            InvalidConstraint: a potential of texts where tokens are bare ids, or an expert with another tokenizer.
        """
        self.tokenizer = tokenizer
        self._is_tilted = False
        self.log_most = float(sum(factor.bound for factor in factors))
        self._asked = [_Asked(factor) for factor in factors if isinstance(factor, Potential)]
        self._experts: list[tuple[float, LanguageModel, list[float]]] = [  # and what they said
            (factor.weight, change(_fitting(factor, tokenizer)), []) for factor in factors if isinstance(factor, Expert)
        ]
        if self._asked and not tokenizer.has_text:
            raise InvalidConstraint("a potential is a function of texts; bare ids have no text, so give the model a tokenizer.")

    def tilted(self, model: LanguageModel) -> LanguageModel:
        """The model times the experts, which from now on are no factors of finished texts."""
        experts, self._experts = self._experts, []
        self._is_tilted = bool(experts)
        return Tilted(model, [(weight, expert) for weight, expert, _ in experts]) if experts else model

    @property
    def steers(self) -> bool:
        """Is there anything to be said of beginnings?"""
        return any(asked.one.prefix is not None for asked in self._asked)

    def of(self, tokens: Tensor) -> Tensor:
        """f64[num]: log Π φ of finished sequences Long[num, length].

        What one factor excludes the next are not asked about; experts come last.
        """
        total = torch.zeros(len(tokens), dtype=torch.float64)
        for asked in self._asked:
            left = (total > NEG_INF).nonzero()[:, 0]
            if len(left):
                total[left] += asked.of(self._texts(tokens[left]))
        for weight, model, said in self._experts:
            left = (total > NEG_INF).nonzero()[:, 0]
            if len(left) and weight:
                logs = weight * model.score(tokens[left])
                said += logs.tolist()
                total[left] += logs
                if bool((total == -NEG_INF).any()):
                    raise BrokenPotential(INFINITE)
        return total

    @property
    def ahead(self) -> Beginnings | None:
        """What samplers may be steered by; None where there is nothing to be said of beginnings."""
        return Beginnings(self) if self.steers else None

    def of_beginnings(self, tokens: Tensor) -> Tensor:
        """f64[num]: about what sequences that begin with Long[num, time] are worth; −inf where all of them are worth nothing.

        A text that has ended is a beginning too: what it is worth itself is asked once it is known to be needed.
        """
        total = torch.zeros(len(tokens), dtype=torch.float64)
        for asked in self._asked:
            left = (total > NEG_INF).nonzero()[:, 0]
            if asked.one.prefix is not None and len(left):
                total[left] += asked.ahead(self._texts(tokens[left]))
        return total

    def use(self, steered: bool) -> Factors:
        """What was asked, for the record of a run."""
        tallies = [asked.tally for asked in self._asked]
        return Factors(
            texts=sum(tally.texts for tally in tallies),
            beginnings=sum(asked.along.texts for asked in self._asked),
            errors=sum(tally.errors for tally in tallies),
            timeouts=sum(tally.timeouts for tally in tallies),
            first_error=next((tally.first_error for tally in tallies if tally.first_error), None),
            steered=steered,
            tilted=self._is_tilted,
            log_most=self.log_most,
            log_beyond=self._log_beyond(),
        )

    def _log_beyond(self) -> float:
        """Log of what a text may be worth that was not asked about; see `locore.evidence.unseen`."""
        of_texts = [one.one.bound if one.one.bound < math.inf else _beyond(list(one.finished.values())) for one in self._asked]
        of_models = [min(_beyond(said), math.inf if weight < 0 else 0.0) for weight, _, said in self._experts]
        return float(sum(of_texts) + sum(of_models))

    def _texts(self, tokens: Tensor) -> list[str]:
        return [self.tokenizer.decode(y) for y in tokens.tolist()]


class HasTokens(Protocol):
    """Prefixes, as far as texts go: `locore.samplers.base.Prefixes`."""

    @property
    def tokens(self) -> Tensor:
        """Long[num, time]."""


@dataclass(frozen=True, eq=False)
class Beginnings:
    """What factors say of beginnings."""

    scorer: Scorer

    def of(self, prefixes: HasTokens) -> Tensor:
        """f64[num]: as `Scorer.of_beginnings`."""
        return self.scorer.of_beginnings(prefixes.tokens)


def _beyond(logs: list[float]) -> float:
    """What other logs than these may be at most: further up by twice their spread; anything where they are all the same."""
    finite = [log for log in logs if log > NEG_INF]
    if len(finite) < 2 or max(finite) - min(finite) <= SAME:
        return math.inf
    return max(finite) + SPREADS * stdev(finite)


def _fitting(factor: Expert, tokenizer: Tokenizer) -> LanguageModel:
    if factor.model.tokenizer != tokenizer:
        raise InvalidConstraint(
            "an expert needs the tokenizer of the model that is sampled, token for token; a model with another one can score "
            "texts inside a potential: potential(lambda texts: [...])."
        )
    return factor.model
