"""Models whose probabilities are written out: for tests, proofs and documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from locore.kernel.chat import Prompt
from locore.kernel.errors import CannotScore, InvalidArgument
from locore.kernel.models.language_model import LanguageModel
from locore.kernel.models.validation import prompt_ids
from locore.kernel.tokenizer import Tokenizer

_Numbers = Tensor | Sequence[Any]

# Probabilities of a distribution that was typed in sum to 1 within this.
_SUM_TOLERANCE = 1e-6


class TableModel(LanguageModel):
    """Any distribution over short sequences, one table of conditionals per position."""

    def __init__(self, tables: Sequence[_Numbers], eos_ids: Sequence[int] = (), tokenizer: Tokenizer | None = None) -> None:
        """A model of sequences of up to `len(tables)` tokens.

        Args:
            tables: tables[t] has t + 1 axes of the vocabulary's size and holds p(y_t | y_0 … y_{t−1}) on its last; what it
                holds after an end is never read.
            eos_ids: tokens that end a text.
            tokenizer: instead of `eos_ids`, to give the tokens a text.

        Raises:
            InvalidArgument: a shape is wrong, or a row is no distribution.
        """
        if not tables:
            raise InvalidArgument("A table model needs at least one table.")
        self._tables = [torch.as_tensor(t, dtype=torch.float64) for t in tables]
        vocab_size = self._tables[0].numel()
        self.tokenizer = _tokenizer(vocab_size, eos_ids, tokenizer)
        self.full_support = True
        for step, table in enumerate(self._tables):
            if table.shape != (vocab_size,) * (step + 1):
                raise InvalidArgument(f"Table {step} has the shape {tuple(table.shape)}, not {(vocab_size,) * (step + 1)}.")
            live = table[~_after_end(step, vocab_size, self.tokenizer.eos_ids)]
            _check_distributions(live, f"table {step}")
            self.full_support &= bool((live > 0).all())

    @classmethod
    def random(cls, vocab_size: int, length: int, seed: int, eos: bool = False, concentration: float = 1.0) -> TableModel:
        """Conditionals drawn from a symmetric Dirichlet; with `eos` the last token ends a text."""
        generator = np.random.default_rng(seed)
        alpha = np.full(vocab_size, concentration)
        tables = [torch.from_numpy(generator.dirichlet(alpha, size=(vocab_size,) * step)) for step in range(length)]
        return cls(tables, (vocab_size - 1,) if eos else ())

    def prompted(self, prompt: Prompt) -> TableModel:
        """The same model for the empty prompt; there is no table for any other."""
        if len(prompt):
            raise CannotScore("A table model has no prompt. Use the empty one.")
        return self

    def require_length(self, length: int) -> None:
        """By its tables."""
        if length > len(self._tables):
            raise CannotScore(
                f"This table model has {len(self._tables)} positions, not {length}. Ask for fewer tokens or add tables."
            )

    def _log_probs(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        self.require_length(length)
        rows = [
            table[tuple(tokens[:, :step].unbind(1))].expand(len(tokens), -1) for step, table in enumerate(self._tables[:length])
        ]
        return torch.stack(rows, 1).log()


class MarkovModel(LanguageModel):
    """A Markov chain over tokens, for sequences of any length."""

    def __init__(
        self, initial: _Numbers, transition: _Numbers, eos_ids: Sequence[int] = (), tokenizer: Tokenizer | None = None
    ) -> None:
        """A chain with these probabilities.

        Args:
            initial: f64[vocab], p(y_0).
            transition: f64[vocab, vocab], p(y_t | y_{t−1}) in row y_{t−1}; rows of ends are never read.
            eos_ids: tokens that end a text.
            tokenizer: instead of `eos_ids`, to give the tokens a text.

        Raises:
            InvalidArgument: a shape is wrong, or a row is no distribution.
        """
        self._initial = torch.as_tensor(initial, dtype=torch.float64)
        self._transition = torch.as_tensor(transition, dtype=torch.float64)
        vocab_size = self._initial.numel()
        self.tokenizer = _tokenizer(vocab_size, eos_ids, tokenizer)
        if self._transition.shape != (vocab_size, vocab_size) or self._initial.ndim != 1:
            raise InvalidArgument(
                f"The transition has the shape {tuple(self._transition.shape)}, not {(vocab_size, vocab_size)}."
            )
        live = self._transition[~_after_end(1, vocab_size, self.tokenizer.eos_ids)]
        _check_distributions(self._initial[None], "the initial distribution")
        _check_distributions(live, "the transition")
        self.full_support = bool((self._initial > 0).all() and (live > 0).all())

    def prompted(self, prompt: Prompt) -> MarkovModel:
        """The chain that starts after the last token of the prompt."""
        ids = prompt_ids(self.tokenizer, prompt)
        if not ids:
            return self
        if not 0 <= ids[-1] < self.vocab_size or ids[-1] in self.tokenizer.eos_ids:
            raise CannotScore(f"Nothing can follow the token {ids[-1]} at the end of the prompt.")
        return MarkovModel(self._transition[ids[-1]], self._transition, (), self.tokenizer)

    def _log_probs(self, tokens: Tensor) -> Tensor:
        first = self._initial.expand(len(tokens), 1, -1)
        return torch.cat([first, self._transition[tokens[:, :-1]]], 1).log()


def _tokenizer(vocab_size: int, eos_ids: Sequence[int], tokenizer: Tokenizer | None) -> Tokenizer:
    """The given tokenizer, or one of bare ids."""
    if tokenizer is None:
        return Tokenizer.integers(vocab_size, eos_ids)
    if tokenizer.vocab_size != vocab_size:
        raise InvalidArgument(f"The tokenizer has {tokenizer.vocab_size} tokens, the probabilities {vocab_size}.")
    if eos_ids and tuple(eos_ids) != tokenizer.eos_ids:
        raise InvalidArgument(f"eos_ids {tuple(eos_ids)} contradict the tokenizer's {tokenizer.eos_ids}; give one of the two.")
    return tokenizer


def _after_end(step: int, vocab_size: int, eos_ids: Sequence[int]) -> Tensor:
    """Bool[(vocab,) * step]: does this prefix contain an end?"""
    ends = torch.zeros(vocab_size, dtype=torch.bool)
    ends[list(eos_ids)] = True
    after = torch.zeros((), dtype=torch.bool)
    for _ in range(step):
        after = after[..., None] | ends
    return after


def _check_distributions(rows: Tensor, where: str) -> None:
    """Refuse rows Float[…, vocab] that are no distributions."""
    if not bool((rows >= 0).all()):
        raise InvalidArgument(f"A probability in {where} is negative or NaN.")
    total = rows.sum(-1)
    wrong = total[(total - 1).abs() > _SUM_TOLERANCE]
    if wrong.numel():
        raise InvalidArgument(f"The probabilities of a row of {where} sum to {float(wrong[0]):.6g}, not to 1.")
