"""`stop="complete"`: a text ends by itself once no longer text can satisfy the constraint."""

from __future__ import annotations

import torch
from torch import Tensor

from locore.chat import Prompt
from locore.circuits import Circuit, LeftToRight
from locore.ending import is_end
from locore.errors import InvalidArgument
from locore.models import Cursor, LanguageModel


def stopped(model: LanguageModel, circuit: Circuit) -> LanguageModel:
    """The model whose texts end where they are complete; the model itself where no text ever is, which is quicker.

    Raises:
        InvalidArgument: as `StopWhenComplete`.
    """
    changed = StopWhenComplete(model, circuit)
    complete = changed.reader.complete
    return model if complete is not None and not any(bool(flags.any()) for flags in complete[:-1]) else changed


def is_finished(circuit: Circuit, tokens: Tensor, eos_ids: tuple[int, ...]) -> Tensor:
    """Bool[batch]: has the text of Long[batch, length] an end, or is it complete, so that the horizon cuts nothing off?"""
    ended = is_end(tokens, eos_ids).any(-1) if eos_ids else torch.zeros(len(tokens), dtype=torch.bool)
    reader = circuit.reader
    if bool(ended.all()) or reader is None or reader.complete is None:
        return ended
    states = reader.read(tokens)
    return ended | ((states >= 0) & reader.complete[-1][states.clamp_min(0)]).cpu()


class StopWhenComplete(LanguageModel):
    """A model whose end of sequence is certain, and free, where a text is complete.

    A text is complete if it satisfies the constraint as it is, and no token can be added so that it, or a longer text that
    begins with it, satisfies the constraint. A horizon that leaves no room does not make a text complete: what would go on
    behind the horizon counts, with all that the constraint says of positions before it. (Constraints on whole sequences of
    fixed positions, such as `permutation`, mean nothing behind the horizon, and there it is the end.) Where a search of 10,000
    remainders does not tell, the text is not taken for complete.

    The probability of a finished text is then that of its tokens alone: a model that rarely ends its texts is not asked to.

    Attributes:
        base: the model before this change.
        reader: of the constraint's circuit.
    """

    def __init__(self, base: LanguageModel, circuit: Circuit) -> None:
        """Change a model.

        Raises:
            InvalidArgument: the model has no end, or the circuit is not read from left to right.
        """
        if circuit.reader is None or not base.tokenizer.eos_ids:
            raise InvalidArgument(
                "stop='complete' needs a model with an end of sequence and a constraint compiled from left to right; leave "
                "stop out, or use stop='eos'."
            )
        self.base = base
        self.tokenizer = base.tokenizer
        self.full_support = False  # where a text is complete, only its end is possible
        self.reader = circuit.reader
        token_class = circuit.reader.token_class
        self._ends = torch.tensor(base.tokenizer.eos_ids)
        self._end_classes = token_class[self._ends]
        # An end may share its class with tokens that do the same, as the last one of a sequence.
        others = torch.ones(len(token_class), dtype=torch.bool)
        others[self._ends] = False
        self._has_others = torch.bincount(token_class[others], minlength=circuit.num_classes) > 0

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
        states = self.reader.initial(len(tokens))
        for position in range(tokens.shape[1]):
            rows[:, position] = self.ended(rows[:, position], position, states)
            states = self.reader.step(position, states, tokens[:, position])
        return rows

    def _begin(self, batch: int) -> Cursor:
        return _StoppingCursor(self, self.base.begin(batch), self.reader, self.reader.initial(batch), 0)

    def ended(self, rows: Tensor, position: int, states: Tensor) -> Tensor:
        """Float[batch, vocab] with certainty of the end in rows that are complete; −inf elsewhere in them."""
        complete = self._complete(position, states)
        if not bool(complete.any()):
            return rows
        allowed = self.reader.allowed(position, states[complete])[:, self._end_classes]
        ends = self._ends[allowed.long().argmax(-1)]  # the first that the constraint allows
        certain = torch.full((len(ends), rows.shape[1]), float("-inf"), dtype=rows.dtype)
        changed = rows.clone()
        changed[complete] = certain.scatter_(1, ends[:, None], 0.0)
        return changed

    def _complete(self, position: int, states: Tensor) -> Tensor:
        """Bool[batch]: which texts are complete."""
        if self.reader.complete is not None:
            return (states >= 0) & self.reader.complete[position][states.clamp_min(0)]
        allowed = self.reader.allowed(position, states)
        return allowed[:, self._end_classes].any(-1) & ~(allowed & self._has_others).any(-1)


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
