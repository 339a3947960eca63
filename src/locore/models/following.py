"""Models that a state changes which every token moves on: where a search stands, what a constraint has read, what occurred."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from locore.automata.stops import StopMachine
from locore.kernel.chat import Prompt
from locore.kernel.errors import InvalidArgument
from locore.kernel.lists import items_of
from locore.kernel.models.base import LanguageModel, Wrapper
from locore.kernel.models.cursor import Cursor
from locore.kernel.models.validation import row_indices


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


class EndingAt(Following):
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
        self._machine = StopMachine(stop.encode() for stop in self.stops)
        self._end = base.tokenizer.eos_ids[0]

    def prompted(self, prompt: Prompt) -> EndingAt:
        """The same ends of the prompted model; strings in the prompt do not count."""
        return self._around(self.base.prompted(prompt))

    def unprompted(self) -> EndingAt:
        """The same ends of the model before any prompt."""
        return self._around(self.base.unprompted())

    def _around(self, base: LanguageModel) -> EndingAt:
        ending = copy(self)  # the search for the strings is the same one
        ending.base = base
        return ending

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
