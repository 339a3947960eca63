"""Canonical tokenisations: a model steered away from others, what is left of particles, and how unusual they are.

A text has many tokenisations, and a model gives each of them some probability. The canonical one is what the tokenizer itself
makes of the text after the prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from locore.circuits import LeftToRight
from locore.constraints import Constraint
from locore.evidence import Particles
from locore.kernel.request import Canonical
from locore.kernel.tokenizer import Tokenizer
from locore.models import LanguageModel
from locore.stopping import ReadAlong

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
        self._known: dict[tuple[int, ...], bool] = {}  # rows often begin alike, and each answer takes an encoding of the prompt
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
        if ids not in self._known:
            self._known[ids] = self.tokenizer.may_be_canonical(ids, self._before)
        return self._known[ids]
