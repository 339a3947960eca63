"""Models that a state changes which every token moves on: where a search stands, what a constraint has read, what occurred."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from locore.models.base import Wrapper
from locore.models.cursor import Cursor
from locore.models.validation import row_indices


class Following(Wrapper):
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
