"""Models that follow a constraint: their distributions depend on what has been read, and on the state of the constraint."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from locore.chat import Prompt
from locore.circuits import LeftToRight
from locore.errors import InvalidArgument
from locore.models import Cursor, LanguageModel


class FollowingModel(LanguageModel):
    """A prompted model whose distributions a constraint that is read from left to right changes; a subclass says how.

    Attributes:
        base: the model before this change.
        reader: of the constraint's circuit.
    """

    def __init__(self, base: LanguageModel, reader: LeftToRight) -> None:
        """Change a prompted model."""
        self.base = base
        self.tokenizer = base.tokenizer
        self.full_support = False
        self.reader = reader

    @abstractmethod
    def changed(self, rows: Tensor, tokens: Tensor, states: Tensor) -> Tensor:
        """Float[batch, vocab] of the base after Long[batch, time], in the states Long[batch], as they become; `rows` stay."""

    def prompted(self, prompt: Prompt) -> LanguageModel:
        """Not possible: the constraint belongs to one continuation."""
        raise InvalidArgument(f"prompt the model first, then change it: {type(self).__name__} belongs to one continuation.")

    def unprompted(self) -> LanguageModel:
        """The base before any prompt."""
        return self.base.unprompted()

    def fingerprint(self) -> str | None:
        """That of the base: what is learned of its text serves here too."""
        return self.base.fingerprint()

    def _require_length(self, length: int) -> None:
        self.base._require_length(length)

    def _log_probs(self, tokens: Tensor) -> Tensor:
        rows = self.base.log_probs(tokens).clone()
        states = self.reader.initial(len(tokens))
        for position in range(tokens.shape[1]):
            rows[:, position] = self.changed(rows[:, position], tokens[:, :position], states)
            states = self.reader.step(position, states, tokens[:, position])
        return rows

    def _begin(self, batch: int) -> Cursor:
        nothing = torch.zeros(batch, 0, dtype=torch.long)
        return _FollowingCursor(self, self.base.begin(batch), nothing, self.reader.initial(batch))


class _FollowingCursor(Cursor):
    def __init__(self, model: FollowingModel, inner: Cursor, tokens: Tensor, states: Tensor) -> None:
        self._model = model
        self._inner = inner
        self._tokens = tokens
        self._states = states

    @property
    def log_probs(self) -> Tensor:
        """Float[batch, vocab]: log p of the next token after the tokens fed so far."""
        return self._model.changed(self._inner.log_probs, self._tokens, self._states)

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> _FollowingCursor:
        """Feed one token to each row that goes on; see `Cursor.advance`."""
        rows = slice(None) if parents is None else parents
        states = self._model.reader.step(self._tokens.shape[1], self._states[rows], tokens)
        read = torch.cat([self._tokens[rows], tokens[:, None]], 1)
        return _FollowingCursor(self._model, self._inner.advance(tokens, parents), read, states)
