"""Models that a state changes which every token moves on: where a search stands, what a constraint has read, what occurred. And
more models made of models, as services have them: a bias for each token, a floor on probabilities, penalties.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from locore.automata.stops import search_for
from locore.kernel.errors import InvalidArgument
from locore.kernel.lists import items_of
from locore.kernel.models.cursor import Cursor
from locore.kernel.models.language_model import LanguageModel
from locore.kernel.models.validation import row_indices
from locore.kernel.numerics import NEG_INF
from locore.models.wrappers import Adjusted, Around, Reshaped


class Following(Around):
    """A model whose distributions are changed by what has been read; a subclass says how."""

    def initial(self, batch: int) -> Tensor:
        """Long[batch]: the states before anything is read."""
        return torch.zeros(batch, dtype=torch.long)

    def step(self, position: int, states: Tensor, tokens: Tensor) -> Tensor:
        """Long[batch]: the states after the tokens Long[batch] at a position."""
        return states

    @abstractmethod
    def changed(self, rows: Tensor, tokens: Tensor, states: Tensor) -> Tensor:
        """Float[batch, vocab] of the base after Long[batch, time], in the states Long[batch], as they become; `rows` stay."""

    def _log_probs(self, tokens: Tensor) -> Tensor:
        rows = self.base.log_probs(tokens).clone()
        states = self.initial(len(tokens))
        for position in range(tokens.shape[1]):
            rows[:, position] = self.changed(rows[:, position], tokens[:, :position], states)
            states = self.step(position, states, tokens[:, position])
        return rows

    def _begin(self, batch: int) -> Cursor:
        return _FollowingCursor(self, self.base.begin(batch), torch.zeros(batch, 0, dtype=torch.long), self.initial(batch))


class _FollowingCursor(Cursor):
    def __init__(self, model: Following, inner: Cursor, tokens: Tensor, states: Tensor) -> None:
        self._model = model
        self._inner = inner
        self._tokens = tokens
        self._states = states

    @property
    def log_probs(self) -> Tensor:
        return self._model.changed(self._inner.log_probs, self._tokens, self._states)

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> _FollowingCursor:
        tokens = torch.as_tensor(tokens)
        rows = row_indices(parents, len(tokens), len(self._tokens))
        states = self._model.step(self._tokens.shape[1], self._states[rows], tokens)
        read = torch.cat([self._tokens[rows], tokens[:, None]], 1)
        return _FollowingCursor(self._model, self._inner.advance(tokens, parents), read, states)


class EndingAt(Adjusted, Following):
    """Once a text holds one of these strings, its end is certain, and free.

    Tokens are not cut: what the token that completes a string says behind it is written, and probable as the model has it.
    `locore.before` says what holds of the text before the string.

    Attributes:
        stops: the strings.
    """

    def __init__(self, base: LanguageModel, stops: str | Sequence[str]) -> None:
        """End a model's texts.

        Raises:
            InvalidArgument: the model has no end of sequence or no text, or there is no string, or an empty one.
            BudgetExceeded: the strings are too long.
        """
        super().__init__(base)
        if not base.tokenizer.eos_ids or not base.tokenizer.has_text:
            raise InvalidArgument("only a model with text and an end of sequence can end its texts at strings.")
        listed = [stops] if isinstance(stops, str) else items_of(stops, "EndingAt", "a list of strings", error=InvalidArgument)
        if not all(isinstance(stop, str) for stop in listed):
            raise InvalidArgument(f"EndingAt needs a list of strings, got {listed!r}.")
        self.stops = tuple(listed)
        self.full_support = False
        self._machine = search_for(self.stops)
        self._end = base.tokenizer.eos_ids[0]

    def fingerprint(self) -> str | None:
        """That of the base, and the strings."""
        base = self.base.fingerprint()
        return base and f"{base}-EndingAt-{self.stops!r}"

    def step(self, position: int, states: Tensor, tokens: Tensor) -> Tensor:
        """Long[batch], where the search for the strings stands after one token more."""
        spelled = self.tokenizer.token_bytes
        pairs = zip(states.tolist(), tokens.tolist(), strict=True)
        return torch.tensor([self._machine.read(state, spelled[token] or b"") for state, token in pairs], dtype=torch.long)

    def changed(self, rows: Tensor, tokens: Tensor, states: Tensor) -> Tensor:
        """Float[batch, vocab] with certainty of the end in rows that hold a string."""
        stopped = states == self._machine.stopped
        if not bool(stopped.any()):
            return rows
        changed = rows.clone()
        changed[stopped] = float("-inf")
        changed[stopped, self._end] = 0.0
        return changed


class Biased(Reshaped):
    """p_b(v | y_<t) ∝ p(v | y_<t) · exp(b_v): some tokens are made likelier or less likely, as by OpenAI's `logit_bias`.

    No bias excludes a token: one of −100 leaves it e^−100 of its odds. What must not occur belongs into a constraint.
    """

    def __init__(self, base: LanguageModel, bias: Mapping[int, float]) -> None:
        """A bias in nats for each of these token ids.

        Raises:
            InvalidArgument: an id that the vocabulary does not have, or a bias that is not finite.
        """
        super().__init__(base)
        for token, value in bias.items():
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < base.vocab_size:
                raise InvalidArgument(f"there is a bias for token {token!r}, but the ids are 0 to {base.vocab_size - 1}.")
            if not math.isfinite(value):
                raise InvalidArgument(f"the bias of token {token} is {value}; give a finite number of nats.")
        self.bias = dict(sorted(bias.items()))
        self._added = torch.zeros(base.vocab_size, dtype=torch.float64)
        self._added[list(self.bias)] = torch.tensor(list(self.bias.values()), dtype=torch.float64)

    def fingerprint(self) -> str | None:
        """That of the base, and of the bias."""
        base = self.base.fingerprint()
        return base and f"{base}-Biased-{hashlib.sha256(repr(self.bias).encode()).hexdigest()[:16]}"

    def _reshape(self, log_probs: Tensor) -> Tensor:
        return (log_probs + self._added.to(log_probs.dtype)).log_softmax(-1)


class MinP(Reshaped):
    """The tokens that are at least a share as likely as the likeliest, renormalised.

    Nguyen et al., "Turning up the heat: min-p sampling", 2024. Its support is cut; see `TopP`.
    """

    def __init__(self, base: LanguageModel, share: float) -> None:
        """The likeliest token always stays.

        Raises:
            InvalidArgument: the share is not in [0, 1].
        """
        super().__init__(base)
        if not 0 <= share <= 1:
            raise InvalidArgument(f"the share is {share}; give a number from 0 to 1.")
        self.share = share
        self.full_support = base.full_support and share == 0

    def _reshape(self, log_probs: Tensor) -> Tensor:
        if self.share == 0:
            return log_probs
        least = log_probs.max(-1, keepdim=True).values + math.log(self.share)
        return log_probs.masked_fill(log_probs < least, NEG_INF).log_softmax(-1)


class Penalised(Adjusted, Following):
    """p'(v | y_<t) ∝ p(v | y_<t) · exp(−f·c_v − g·1[c_v > 0]), c_v how often v occurs in y_<t; OpenAI's two penalties.

    The prompt does not count. Negative penalties reward repetition.

    Attributes:
        frequency: f, in nats for each earlier occurrence.
        presence: g, in nats for tokens that have occurred.
    """

    def __init__(self, base: LanguageModel, frequency: float = 0.0, presence: float = 0.0) -> None:
        """Penalise.

        Raises:
            InvalidArgument: a penalty is not finite.
        """
        super().__init__(base)
        if not (math.isfinite(frequency) and math.isfinite(presence)):
            raise InvalidArgument(f"penalties must be finite numbers of nats, got {frequency} and {presence}.")
        self.frequency = frequency
        self.presence = presence

    def changed(self, rows: Tensor, tokens: Tensor, states: Tensor) -> Tensor:
        """Float[batch, vocab] after Long[batch, time], penalised."""
        counts = torch.zeros_like(rows).scatter_add_(-1, tokens, torch.ones_like(tokens, dtype=rows.dtype))
        return (rows - self.frequency * counts - self.presence * (counts > 0)).log_softmax(-1)
