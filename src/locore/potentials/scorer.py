"""The factors of one run: what texts are worth, each asked about once; and experts as a part of the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import stdev
from typing import Any

import torch
from torch import Tensor

from locore.kernel.chat import Prompt
from locore.kernel.errors import BrokenPotential, CannotScore, InvalidArgument, InvalidConstraint
from locore.kernel.evidence.bounds import SAME
from locore.kernel.evidence.record import Factors
from locore.kernel.models.language_model import Drafts, Wrapper
from locore.kernel.numerics import NEG_INF
from locore.kernel.tokenizer import Tokenizer
from locore.models import Cursor, LanguageModel
from locore.models.wrappers import CombinedCursor
from locore.potentials.asking import Tally, log_factors
from locore.potentials.outcomes import HasTokens, Outcomes
from locore.potentials.target import Expert, Factor, Potential

INFINITE = (
    "an expert with a negative weight gives no probability to what the model may write, which would be infinitely good; mix a "
    "little of a full model into it, locore.models.Mixture(expert, model, 0.01)."
)
SPREADS = 2.0  # by which what was not asked may exceed what was
Change = Callable[[LanguageModel], LanguageModel]  # what a run makes of a prompted model


class Tilted(Wrapper):
    """p(v | y_<t) · Π_k q_k(v | y_<t)^{w_k}, not normalised: its rows do not sum to 1.

    So the product over positions is p(y) · Π_k q_k(y)^{w_k} itself, and a sampler that weighs prefixes by the sums of rows, as
    masking does by the sum of what is allowed, weighs by the experts too. What expects a distribution gets none.
    """

    def __init__(self, base: LanguageModel, experts: Sequence[tuple[float, LanguageModel]]) -> None:
        """Prompted models with the same tokenizer, and their exponents."""
        super().__init__(base)
        self.experts = tuple(experts)
        self.full_support = base.full_support and all(model.full_support for _, model in self.experts)

    def prompted(self, prompt: Prompt) -> LanguageModel:
        """Not possible: each of the models has its prompt."""
        raise InvalidArgument("prompt the models first, then multiply them.")

    def fingerprint(self) -> None:
        """None: nothing that is kept is about products."""
        return None

    def log_probs(self, tokens: Tensor) -> Tensor:
        """Float[batch, time, vocab], as of the base but for normalisation."""
        return self._product([self.base.log_probs(tokens), *(model.log_probs(tokens) for _, model in self.experts)])

    def token_scores(self, tokens: Tensor) -> Tensor:
        """f64[batch, time], as of the base but for normalisation."""
        return self._product([self.base.token_scores(tokens), *(model.token_scores(tokens) for _, model in self.experts)])

    def begin(self, batch: int) -> Cursor:
        """As of the base but for normalisation."""
        cursors = (self.base.begin(batch), *(model.begin(batch) for _, model in self.experts))
        return CombinedCursor(cursors, self._product)

    def sample(self, num: int, length: int, seed: int | torch.Generator | None = None, keep_log_probs: bool = False) -> Drafts:
        """Drafts from the base, for what only learns from them; they have no density here."""
        return self.base.sample(num, length, seed, keep_log_probs)

    def neighbours(self, tokens: Tensor, candidates: Tensor) -> Tensor:
        """Not known."""
        raise CannotScore("a product of experts is read from left to right.")

    def _log_probs(self, tokens: Tensor) -> Tensor:
        return self.log_probs(tokens)

    def _product(self, rows: Sequence[Tensor]) -> Tensor:
        total = rows[0]
        for (weight, _), row in zip(self.experts, rows[1:], strict=True):
            total = total + weight * row if weight else total  # 0 · −∞ is no number
        total = total.masked_fill(rows[0] == NEG_INF, NEG_INF)  # where p is 0 it stays so, and −∞ + ∞ is no number
        if bool((total == -NEG_INF).any()):
            raise BrokenPotential(INFINITE)
        return total


@dataclass(eq=False)
class _Asked:
    """One potential, and what it has said so far: of finished texts and of beginnings."""

    phi: Potential
    tally: Tally = field(default_factory=Tally)
    along: Tally = field(default_factory=Tally)
    finished: dict[str, float] = field(default_factory=dict)
    begun: dict[str, float] = field(default_factory=dict)

    def of(self, texts: Sequence[str]) -> Tensor:
        """f64[texts]: log φ of finished texts."""
        return self._logs(self.phi.ask, texts, self.finished, self.tally, ahead=False)

    def ahead(self, texts: Sequence[str]) -> Tensor:
        """f64[texts]: about the log φ of texts that begin so."""
        assert self.phi.prefix is not None  # only those that steer are asked
        return self._logs(self.phi.prefix, texts, self.begun, self.along, ahead=True)

    def _logs(self, f: Callable[..., Any], texts: Sequence[str], logs: dict[str, float], tally: Tally, ahead: bool) -> Tensor:
        new = [text for text in dict.fromkeys(texts) if text not in logs]
        if new:
            logs.update(zip(new, log_factors(self.phi, f, new, tally, ahead), strict=True))
        return torch.tensor([logs[text] for text in texts], dtype=torch.float64)


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
        return any(asked.phi.prefix is not None for asked in self._asked)

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

    def lessons(self) -> Outcomes:
        """What finished texts will have taught."""
        return Outcomes(self.of, self.of_beginnings)

    def of_beginnings(self, tokens: Tensor) -> Tensor:
        """f64[num]: about what sequences that begin with Long[num, time] are worth; −inf where all of them are worth nothing.

        A text that has ended is a beginning too: what it is worth itself is asked once it is known to be needed.
        """
        total = torch.zeros(len(tokens), dtype=torch.float64)
        for asked in self._asked:
            left = (total > NEG_INF).nonzero()[:, 0]
            if asked.phi.prefix is not None and len(left):
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
        """Log of what a text may be worth that was not asked about; see `locore.kernel.evidence.bounds`."""
        of_texts = [ask.phi.bound if ask.phi.bound < math.inf else _beyond(list(ask.finished.values())) for ask in self._asked]
        of_models = [min(_beyond(said), math.inf if weight < 0 else 0.0) for weight, _, said in self._experts]
        return float(sum(of_texts) + sum(of_models))

    def _texts(self, tokens: Tensor) -> list[str]:
        return [self.tokenizer.decode(y) for y in tokens.tolist()]


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
