"""Models that are changed by what a constraint has read of a text: texts that end when they are complete, and texts in
canonical tokenisation alone; and what can be said of tokenisations.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from locore.circuits import Circuit, LeftToRight
from locore.constraints import Constraint
from locore.evidence import Particles
from locore.kernel.chat import Prompt
from locore.kernel.errors import InvalidArgument
from locore.kernel.numerics import is_end
from locore.kernel.request import Canonical, Ending
from locore.kernel.tokenizer import Tokenizer
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


FEW = 256  # tokens that the constraint allows; each is tried, which takes some 20 µs
NOT_CANONICAL = "not canonical"
NOT_ALPHA = "the canonical tokenisation does not satisfy the constraint"


@dataclass(frozen=True)
class Spelling:
    """Which sequences an answer may have by their tokenisation: the indicator of the paper's Algorithm 2, line 6.

    Attributes:
        mode: "alpha" asks for canonize(y) ⊨ α, "only" for canonize(y) = y.
        before: the ids of the prompt.
    """

    mode: Canonical
    constraint: Constraint
    tokenizer: Tokenizer
    before: list[int]

    def allows(self, tokens: Tensor) -> Tensor:
        """Bool[num] of Long[num, length]."""
        if self.mode == "only":
            return are_canonical(tokens, self.tokenizer, self.before)
        length = tokens.shape[1]
        bound = self.constraint.at(length).bind(self.tokenizer)
        canonical = (list(self.tokenizer.canonize(y, self.before)) for y in tokens.tolist())
        return torch.tensor([_satisfies(bound, ids, length, self.tokenizer) for ids in canonical], dtype=torch.bool)

    def survivors(self, particles: Particles) -> Particles:
        """Those that it allows.

        Raises:
            ZeroWeights: nothing is left.
        """
        return particles.where(self.allows(particles.tokens), NOT_CANONICAL if self.mode == "only" else NOT_ALPHA)


def are_canonical(tokens: Tensor, tokenizer: Tokenizer, before: list[int]) -> Tensor:
    """Bool[num]: are Long[num, length] the tokenizer's own ids of their texts, after a prompt of these ids?"""
    own: dict[bytes, list[int]] = {}
    answers = []
    for y in tokens.tolist():
        text = tokenizer.text_bytes(y)
        canonical = own.get(text)
        if canonical is None:
            canonical = own[text] = list(tokenizer.canonize(y, before))
        rest = y[len(canonical) :]
        answers.append(canonical == y[: len(canonical)] and (not rest or rest[0] in tokenizer.eos_ids))
    return torch.tensor(answers, dtype=torch.bool)


def share_of_others(particles: Particles, before: list[int]) -> float:
    """The share of the weight on tokenisations that are not canonical."""
    return float(particles.weights[~are_canonical(particles.tokens, particles.tokenizer, before)].sum())


def _satisfies(bound: Constraint, ids: list[int], length: int, tokenizer: Tokenizer) -> bool:
    """Canonical ids longer than the horizon fail; shorter ones are padded."""
    missing = length - len(ids)
    if missing < 0 or (missing and not tokenizer.eos_ids):
        return False
    return bound.evaluate([*ids, *tokenizer.eos_ids[:1] * missing], tokenizer)


class OnlyCanonical(ReadAlong):
    """A model that agrees with another on canonical sequences that satisfy the constraint, and avoids other tokenisations.

    Where the constraint allows few tokens, those that no canonical tokenisation goes on with lose their probability to a token
    that the constraint forbids: distributions stay distributions, and what is lost does not satisfy the constraint. All else
    that is not canonical is left to `Spelling`. So every proper sampler stays proper for both conditions together, and finds
    them at the price of canonical spellings: ten labels, enumerated, cost 79 LM tokens on SmolLM2, all their tokenisations
    8,800.

    Attributes:
        base: the model before this change.
        reader: of the constraint's circuit.
    """

    def __init__(self, base: LanguageModel, reader: LeftToRight, before: list[int]) -> None:
        """Change a model that was prompted with these ids."""
        super().__init__(base, reader)
        self._before = before
        self._canonical: dict[tuple[int, ...], bool] = {}  # rows often begin alike, and each answer encodes the prompt
        self._ends = torch.zeros(base.vocab_size, dtype=torch.bool)
        self._ends[list(base.tokenizer.eos_ids)] = True

    def changed(self, rows: Tensor, tokens: Tensor, states: Tensor) -> Tensor:
        """Float[batch, vocab] after the tokens Long[batch, time], without the probability of what cannot become canonical."""
        device, rows = rows.device, rows.cpu()
        allowed = self.reader.allowed_tokens(tokens.shape[1], states) & (rows > -torch.inf) & ~self._ends
        few = (allowed.sum(-1) <= FEW) & (states >= 0)
        changed = rows.clone()
        for row in few.nonzero()[:, 0].tolist():
            prefix = tokens[row].tolist()
            if any(self._ends[prefix]):
                continue
            wrong = [v for v in allowed[row].nonzero()[:, 0].tolist() if not self._may_be_canonical((*prefix, v))]
            elsewhere = (~allowed[row] & ~self._ends).nonzero()[:1, 0]
            if wrong and len(elsewhere):
                changed[row, elsewhere] = torch.logsumexp(rows[row, [*wrong, *elsewhere.tolist()]], 0)
                changed[row, wrong] = -torch.inf
        return changed.to(device)

    def _may_be_canonical(self, ids: tuple[int, ...]) -> bool:
        if ids not in self._canonical:
            self._canonical[ids] = self.tokenizer.may_be_canonical(ids, self._before)
        return self._canonical[ids]
