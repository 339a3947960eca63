"""A model whose texts end where a stop string has been written, as `stop` of OpenAI's API has it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from locore.automata.stops import StopMachine
from locore.chat import Prompt
from locore.errors import InvalidArgument
from locore.lists import items_of
from locore.models.base import LanguageModel
from locore.models.following import Following


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
