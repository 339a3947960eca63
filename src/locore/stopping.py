"""`stop="complete"`: a text ends by itself once no longer text can satisfy the constraint."""

from __future__ import annotations

import torch
from torch import Tensor

from locore.chat import Prompt
from locore.circuits import Circuit, LeftToRight
from locore.errors import InvalidArgument
from locore.models import Cursor, LanguageModel


class StopWhenComplete(LanguageModel):
    """A model whose end of sequence is certain, and free, where the constraint allows nothing else.

    The probability of a finished text is then that of its tokens alone: a model that rarely ends its texts is not asked to.

    Attributes:
        base: the model before this change.
    """

    def __init__(self, base: LanguageModel, circuit: Circuit) -> None:
        if circuit.reader is None or not base.tokenizer.eos_ids:
            raise InvalidArgument(
                "stop='complete' needs a model with an end of sequence and a constraint compiled from left to right."
            )
        self.base = base
        self.tokenizer = base.tokenizer
        self.full_support = False  # where a text is complete, only its end is possible
        self._reader = circuit.reader
        self._ends = base.tokenizer.eos_ids

    def prompted(self, prompt: Prompt) -> LanguageModel:
        """Not possible: the circuit belongs to one continuation."""
        raise InvalidArgument("prompt the model first, then stop it: StopWhenComplete belongs to one continuation.")

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
        states = self._reader.initial(len(tokens))
        for position in range(tokens.shape[1]):
            rows[:, position] = self.ended(rows[:, position], position, states)
            states = self._reader.step(position, states, tokens[:, position])
        return rows

    def _begin(self, batch: int) -> Cursor:
        return _StoppingCursor(self, self.base.begin(batch), self._reader, self._reader.initial(batch), 0)

    def ended(self, rows: Tensor, position: int, states: Tensor) -> Tensor:
        """Float[batch, vocab] with certainty of the end in rows that are complete; −inf elsewhere in them."""
        allowed = self._reader.allowed(position, states)
        classes = self._reader.token_class[list(self._ends)]
        more = allowed.clone()
        more[:, classes] = False
        complete = allowed[:, classes[0]] & ~more.any(-1)
        end = torch.full_like(rows[0], float("-inf"))
        end[self._ends[0]] = 0.0
        return torch.where(complete[:, None], end, rows)


class _StoppingCursor(Cursor):
    def __init__(self, model: StopWhenComplete, inner: Cursor, reader: LeftToRight, states: Tensor, position: int) -> None:
        self._model = model
        self._inner = inner
        self._reader = reader
        self._states = states
        self._position = position

    @property
    def log_probs(self) -> Tensor:
        """Float[batch, vocab]: log p of the next token after the tokens fed so far."""
        return self._model.ended(self._inner.log_probs, self._position, self._states)

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> _StoppingCursor:
        """Feed one token to each row that goes on; see `Cursor.advance`."""
        before = self._states if parents is None else self._states[parents]
        states = self._reader.step(self._position, before, tokens)
        inner = self._inner.advance(tokens, parents)
        return _StoppingCursor(self._model, inner, self._reader, states, self._position + 1)
