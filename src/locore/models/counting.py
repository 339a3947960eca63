"""Counting what is asked of a model."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locore.chat import Prompt
from locore.ending import ended_before, is_end
from locore.models.base import Drafts, LanguageModel, Wrapper, substituted
from locore.models.cursor import Cursor
from locore.models.validation import row_indices

_Hashes = NDArray[np.uint64]

# An odd multiplier; hashes are polynomials in it modulo 2**64 over mixed token ids.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class Meter:
    """What has been asked so far, shared by a counted model and its prompted forms."""

    def __init__(self) -> None:
        self.lm_tokens = 0
        self.seconds = 0.0
        self._contexts: list[_Hashes] = []

    def count(self, contexts: _Hashes) -> None:
        """A next-token distribution was asked for after each of these contexts."""
        self.lm_tokens += len(contexts)
        self._contexts.append(np.unique(contexts))

    @property
    def lm_contexts(self) -> int:
        """How many of the contexts were distinct."""
        if self._contexts:
            self._contexts = [np.unique(np.concatenate(self._contexts))]
        return sum(map(len, self._contexts))

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the time that passes inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start


class Counted(Wrapper):
    """A model that counts what is asked of it; before any prompt, its base is not counted.

    Counted is every next-token distribution after at least one generated token and before the end: what the method needs, not
    what an implementation evaluates. Wrap last: inside another wrapper it counts what that wrapper asks for.
    """

    def __init__(self, base: LanguageModel, meter: Meter | None = None, prompt_hash: int = 0) -> None:
        """Count from zero, or on a meter that is shared with others.

        Args:
            base: the model that is asked.
            meter: where to count; a new one by default.
            prompt_hash: 64 bits that tell this prompt from others on the same meter.
        """
        super().__init__(base)
        self._meter = Meter() if meter is None else meter
        self._prompt_hash = np.uint64(prompt_hash)

    @property
    def lm_tokens(self) -> int:
        """Next-token distributions asked for."""
        return self._meter.lm_tokens

    @property
    def lm_contexts(self) -> int:
        """Distinct ones (by a 64-bit hash of the tokens and the prompt)."""
        return self._meter.lm_contexts

    @property
    def model_seconds(self) -> float:
        """Wall-clock seconds inside the model."""
        return self._meter.seconds

    def account(self) -> dict[str, Any]:
        """All three, by their names."""
        return {"lm_tokens": self.lm_tokens, "lm_contexts": self.lm_contexts, "model_seconds": self.model_seconds}

    def prompted(self, prompt: Prompt) -> Counted:
        """The prompted model, on the same count."""
        with self._meter.timed():
            after = self.base.prompted(prompt)
        text = repr((int(self._prompt_hash), prompt if isinstance(prompt, str) else list(prompt)))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return Counted(after, self._meter, int.from_bytes(digest, "little"))

    def log_probs(self, tokens: Tensor) -> Tensor:
        """As the base; counts every position but the first of each row, up to its end."""
        with self._meter.timed():
            rows = self.base.log_probs(tokens)
        self._count_along(torch.as_tensor(tokens))
        return rows

    def token_scores(self, tokens: Tensor) -> Tensor:
        """As the base; counts as `log_probs`."""
        with self._meter.timed():
            scores = self.base.token_scores(tokens)
        self._count_along(torch.as_tensor(tokens))
        return scores

    def sample(self, num: int, length: int, seed: int | torch.Generator | None = None, keep_log_probs: bool = False) -> Drafts:
        """As the base; counts as `log_probs` of what was drawn."""
        with self._meter.timed():
            drafts = self.base.sample(num, length, seed, keep_log_probs)
        self._count_along(drafts.tokens)
        return drafts

    def neighbours(self, tokens: Tensor, candidates: Tensor) -> Tensor:
        """As the base; counts the sequence, and of each neighbour what it does not share."""
        with self._meter.timed():
            scores = self.base.neighbours(tokens, candidates)
        tokens, candidates = torch.as_tensor(tokens), torch.as_tensor(candidates)
        self._count_along(tokens[None])
        sequences = substituted(tokens, candidates)
        differs = torch.arange(len(tokens)) > torch.arange(len(tokens))[:, None]
        asked = differs[:, None, :] & (candidates != tokens[:, None])[..., None]
        self._count_along(sequences.flatten(0, 1), asked.flatten(0, 1))
        return scores

    def begin(self, batch: int) -> Cursor:
        """As the base; each row that is fed a token and has not ended counts once."""
        with self._meter.timed():
            inner = self.base.begin(batch)
        start = np.full(batch, self._prompt_hash, dtype=np.uint64)
        ended = torch.zeros(batch, dtype=torch.bool)
        return _CountedCursor(inner, self._meter, self.tokenizer.eos_ids, start, ended)

    def _log_probs(self, tokens: Tensor) -> Tensor:
        return self.base.log_probs(tokens)

    def _count_along(self, tokens: Tensor, asked: Tensor | None = None) -> None:
        """Count positions t ≥ 1 of Long[batch, time] up to the end, only those `asked` if given."""
        live = ~ended_before(tokens, self.tokenizer.eos_ids)
        live = live if asked is None else live & asked
        hashes = np.full(tokens.shape, self._prompt_hash, dtype=np.uint64)
        for step in range(1, tokens.shape[1]):
            hashes[:, step] = _extended(hashes[:, step - 1], tokens[:, step - 1])
        self._meter.count(hashes[:, 1:][live[:, 1:].numpy()])


class _CountedCursor(Cursor):
    def __init__(self, inner: Cursor, meter: Meter, eos_ids: tuple[int, ...], contexts: _Hashes, ended: Tensor) -> None:
        self._inner = inner
        self._meter = meter
        self._eos_ids = eos_ids
        self._contexts = contexts
        self._ended = ended

    @property
    def log_probs(self) -> Tensor:
        with self._meter.timed():
            return self._inner.log_probs

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> _CountedCursor:
        with self._meter.timed():
            inner = self._inner.advance(tokens, parents)
        tokens = torch.as_tensor(tokens)
        rows = row_indices(parents, len(tokens), len(self._ended))
        contexts = _extended(self._contexts[rows.numpy()], tokens)
        ended = self._ended[rows] | is_end(tokens, self._eos_ids)
        self._meter.count(contexts[~ended.numpy()])
        return _CountedCursor(inner, self._meter, self._eos_ids, contexts, ended)


def _extended(contexts: _Hashes, tokens: Tensor) -> _Hashes:
    """Hashes of contexts that are one token longer."""
    mixed = tokens.numpy().astype(np.uint64) + _MULTIPLIER
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return contexts * _MULTIPLIER + (mixed ^ (mixed >> np.uint64(31)))
