"""Models that follow a constraint, such as that of `ending="complete"`: a text ends once no longer text can satisfy it."""

from __future__ import annotations

import torch
from torch import Tensor

from locore.circuits import Circuit, LeftToRight
from locore.kernel.chat import Prompt
from locore.kernel.ending import is_end
from locore.kernel.errors import InvalidArgument
from locore.kernel.request import Ending
from locore.models import LanguageModel
from locore.models.following import Following


def stopped(model: LanguageModel, circuit: Circuit) -> LanguageModel:
    """The model whose texts end where they are complete; the model itself where no text ever is, which is quicker.

    Raises:
        InvalidArgument: as `StopWhenComplete`.
    """
    changed = StopWhenComplete(model, circuit)
    return changed if changed.reader.completes else model


def is_finished(circuit: Circuit, tokens: Tensor, eos_ids: tuple[int, ...]) -> Tensor:
    """Bool[batch]: has the text of Long[batch, length] an end, or is it complete, so that the horizon cuts nothing off?"""
    ended = is_end(tokens, eos_ids).any(-1) if eos_ids else torch.zeros(len(tokens), dtype=torch.bool)
    reader = circuit.reader
    if bool(ended.all()) or reader is None:
        return ended
    complete = reader.completed(reader.length, reader.read(tokens))
    return ended if complete is None else ended | complete.cpu()


class ReadAlong(Following):
    """A prompted model that a constraint changes, whose circuit is read from left to right.

    Attributes:
        base: the model before this change.
        reader: of the constraint's circuit.
    """

    def __init__(self, base: LanguageModel, reader: LeftToRight) -> None:
        """Change a prompted model."""
        super().__init__(base)
        self.full_support = False
        self.reader = reader

    def prompted(self, prompt: Prompt) -> LanguageModel:
        """Not possible: the constraint belongs to one continuation."""
        raise InvalidArgument(f"prompt the model first, then change it: {type(self).__name__} belongs to one continuation.")

    def initial(self, batch: int) -> Tensor:
        """The reader's."""
        return self.reader.initial(batch)

    def step(self, position: int, states: Tensor, tokens: Tensor) -> Tensor:
        """The reader's."""
        return self.reader.step(position, states, tokens)


class StopWhenComplete(ReadAlong):
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
                "ending='complete' needs a model with an end of sequence and a constraint compiled from left to right; leave "
                "ending out, or use ending='eos'."
            )
        super().__init__(base, circuit.reader)
        token_class = circuit.reader.token_class
        self._ends = torch.tensor(base.tokenizer.eos_ids)
        self._end_classes = token_class[self._ends]
        # An end may share its class with tokens that do the same, as the last one of a sequence.
        others = torch.ones(len(token_class), dtype=torch.bool)
        others[self._ends] = False
        self._has_others = torch.bincount(token_class[others], minlength=int(token_class.max()) + 1) > 0

    def changed(self, rows: Tensor, tokens: Tensor, states: Tensor) -> Tensor:
        """Float[batch, vocab] with certainty of the end in rows that are complete; −inf elsewhere in them."""
        position = tokens.shape[1]
        complete = self._complete(position, states)
        if not bool(complete.any()):
            return rows
        allowed = self.reader.allowed(position, states[complete])[:, self._end_classes]
        ends = self._ends[allowed.long().argmax(-1)]  # the first that the constraint allows
        certain = rows.new_full((len(ends), rows.shape[1]), float("-inf"))
        changed = rows.clone()
        changed[complete.to(rows.device)] = certain.scatter_(1, ends[:, None].to(rows.device), 0.0)
        return changed

    def _complete(self, position: int, states: Tensor) -> Tensor:
        """Bool[batch]: which texts are complete."""
        complete = self.reader.completed(position, states)
        if complete is not None:
            return complete
        allowed = self.reader.allowed(position, states)
        return allowed[:, self._end_classes].any(-1) & ~(allowed & self._has_others).any(-1)


def ending_of(asked: Ending | None, circuit: Circuit, model: LanguageModel) -> Ending:
    """What was asked for; by default "complete" if the model has an end and the circuit is read from left to right."""
    if asked is not None:
        return asked
    return "complete" if circuit.reader is not None and model.tokenizer.eos_ids else "eos"
