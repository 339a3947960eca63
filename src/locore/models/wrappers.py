"""Models made of models: temperature, nucleus, top-k and mixtures, each with its true density."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from locore.chat import Prompt
from locore.errors import InvalidArgument
from locore.models.base import LanguageModel, Wrapper
from locore.models.cursor import Cursor
from locore.models.validation import positive
from locore.numerics import NEG_INF


class Reshaped(Wrapper):
    """A model whose next-token distributions are a function of another's; ends stay absorbing."""

    @abstractmethod
    def _reshape(self, log_probs: Tensor) -> Tensor:
        """Normalised Float[…, vocab] from normalised Float[…, vocab]."""

    @abstractmethod
    def _around(self, base: LanguageModel) -> Reshaped:
        """The same function around another model."""

    def prompted(self, prompt: Prompt) -> Reshaped:
        """The same function around the prompted model."""
        return self._around(self.base.prompted(prompt))

    def unprompted(self) -> Reshaped:
        """The same function around the model before any prompt."""
        return self._around(self.base.unprompted())

    def fingerprint(self) -> str | None:
        """That of the base, and what is done to it."""
        base = self.base.fingerprint()
        settings = [f"{k}={v}" for k, v in vars(self).items() if isinstance(v, int | float)]
        return base and f"{base}-{type(self).__name__}-{'-'.join(settings)}"

    def _log_probs(self, tokens: Tensor) -> Tensor:
        return self._reshape(self.base.log_probs(tokens))

    def _begin(self, batch: int) -> Cursor:
        return _CombinedCursor((self.base.begin(batch),), lambda rows: self._reshape(rows[0]))


class Tempered(Reshaped):
    """p_T(v | y_<t) ∝ p(v | y_<t)^{1/T}, token by token."""

    def __init__(self, base: LanguageModel, temperature: float) -> None:
        """A temperature below 1 sharpens, above 1 flattens.

        Raises:
            InvalidArgument: the temperature is not positive and finite.
        """
        super().__init__(base)
        if not 0 < temperature < math.inf:
            raise InvalidArgument(f"The temperature is {temperature}; give a positive number (near 0 for greedy).")
        self.temperature = temperature

    def _reshape(self, log_probs: Tensor) -> Tensor:
        return (log_probs / self.temperature).log_softmax(-1)

    def _around(self, base: LanguageModel) -> Tempered:
        return Tempered(base, self.temperature)


class TopP(Reshaped):
    """Nucleus sampling: the likeliest tokens that together have mass p, renormalised.

    Its support is cut, so it is no law to draw proposals from unless mixed with a full one.
    """

    def __init__(self, base: LanguageModel, p: float) -> None:
        """The token that reaches the mass belongs to the nucleus; ties go to the lower id.

        Raises:
            InvalidArgument: p is not in (0, 1].
        """
        super().__init__(base)
        if not 0 < p <= 1:
            raise InvalidArgument(f"p is {p}; give a number above 0 and at most 1.")
        self.p = p
        self.full_support = base.full_support and p == 1

    def _reshape(self, log_probs: Tensor) -> Tensor:
        if self.p == 1:
            return log_probs
        ordered, order = log_probs.sort(dim=-1, descending=True, stable=True)
        mass = ordered.double().exp()
        outside = mass.cumsum(-1) - mass >= self.p
        outside[..., 0] = False
        ordered = ordered.masked_fill(outside, NEG_INF).log_softmax(-1)
        return torch.empty_like(ordered).scatter_(-1, order, ordered)

    def _around(self, base: LanguageModel) -> TopP:
        return TopP(base, self.p)


class TopK(Reshaped):
    """The k likeliest tokens, renormalised. Its support is cut; see `TopP`."""

    def __init__(self, base: LanguageModel, k: int) -> None:
        """Ties go to the lower id.

        Raises:
            InvalidArgument: k is below 1.
        """
        super().__init__(base)
        self.k = positive(k, "k")
        self.full_support = base.full_support and k >= base.vocab_size

    def _reshape(self, log_probs: Tensor) -> Tensor:
        order = log_probs.sort(dim=-1, descending=True, stable=True).indices[..., : self.k]
        kept = log_probs.gather(-1, order).log_softmax(-1)
        return torch.full_like(log_probs, NEG_INF).scatter_(-1, order, kept)

    def _around(self, base: LanguageModel) -> TopK:
        return TopK(base, self.k)


class Mixture(Wrapper):
    """(1−w)·first + w·second, token by token.

    A little of the full model in a nucleus, `Mixture(TopP(model, 0.9), model, 0.1)`, gives a law with full support that
    proposals may be drawn from.

    Attributes:
        base: the first model.
    """

    def __init__(self, first: LanguageModel, second: LanguageModel, weight: float) -> None:
        """A mixture with this weight of the second model.

        Raises:
            InvalidArgument: the weight is not in [0, 1], or the vocabularies differ.
        """
        if not 0 <= weight <= 1:
            raise InvalidArgument(f"The weight is {weight}; give a number from 0 to 1.")
        if first.tokenizer != second.tokenizer:
            raise InvalidArgument("Only models with the same tokenizer can be mixed.")
        super().__init__(first)
        self.second = second
        self.weight = weight
        self.full_support = (first.full_support and weight < 1) or (second.full_support and weight > 0)

    def prompted(self, prompt: Prompt) -> Mixture:
        """The mixture of the two prompted models; each reads a chat by its own template."""
        return Mixture(self.base.prompted(prompt), self.second.prompted(prompt), self.weight)

    def unprompted(self) -> Mixture:
        """The mixture of the two models before any prompt."""
        return Mixture(self.base.unprompted(), self.second.unprompted(), self.weight)

    def fingerprint(self) -> str | None:
        """Those of both, and the weight."""
        parts = self.base.fingerprint(), self.second.fingerprint()
        return f"{parts[0]}-{parts[1]}-{self.weight}" if all(parts) else None

    def _mix(self, rows: Sequence[Tensor]) -> Tensor:
        logs = [math.log(weight) if weight else NEG_INF for weight in (1 - self.weight, self.weight)]
        return torch.logaddexp(rows[0] + logs[0], rows[1] + logs[1])

    def _require_length(self, length: int) -> None:
        super()._require_length(length)
        self.second._require_length(length)

    def _log_probs(self, tokens: Tensor) -> Tensor:
        return self._mix([self.base.log_probs(tokens), self.second.log_probs(tokens)])

    def _begin(self, batch: int) -> Cursor:
        return _CombinedCursor((self.base.begin(batch), self.second.begin(batch)), self._mix)


class _CombinedCursor(Cursor):
    """Cursors that advance together, and a function of their distributions."""

    def __init__(self, cursors: tuple[Cursor, ...], combine: Callable[[Sequence[Tensor]], Tensor]) -> None:
        self._cursors = cursors
        self._combine = combine

    @property
    def log_probs(self) -> Tensor:
        return self._combine([cursor.log_probs for cursor in self._cursors])

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> _CombinedCursor:
        cursors = tuple(cursor.advance(tokens, parents) for cursor in self._cursors)
        return _CombinedCursor(cursors, self._combine)
