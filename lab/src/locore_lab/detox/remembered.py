"""Neighbours that are scored once for all rows that share their drafts.

The rows of the paper's sampler differ in k and τ only. They draw with the same seeds, so they begin with the same drafts,
and the k likeliest tokens around a draft are among the 50 likeliest. The law of each row stays what it is, rows become
easier to compare, and less than half of the time is left. LM tokens are counted above this wrapper: each row pays for all
that it asks.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from locore.kernel.chat import Prompt
from locore.models import Cursor, LanguageModel

_Known = tuple[Tensor, Tensor]  # Long[time, m] candidates, f64[time, m] joint log-probabilities


class Memory:
    """Neighbours of the sequences behind one prompt.

    Attributes:
        known: by the tokens of the sequence.
        seconds: that were spent on them.
        tails: tokens that were read for them.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[int, ...], _Known] = {}
        self.seconds = 0.0
        self.tails = 0
        self._prompt: str | None = None

    def behind(self, prompt: str) -> Memory:
        """Itself; what another prompt left is forgotten."""
        if prompt != self._prompt:
            self.known, self._prompt = {}, prompt
        return self


class Remembered(LanguageModel):
    """A prompted model that scores no neighbour twice.

    Attributes:
        base: the prompted model.
        saved: seconds that what was known would have taken, at the pace of what was read.
    """

    def __init__(self, base: LanguageModel, memory: Memory) -> None:
        """Around a model."""
        self.base = base
        self.tokenizer = base.tokenizer
        self.full_support = base.full_support
        self.saved = 0.0
        self._memory = memory

    def prompted(self, prompt: Prompt) -> LanguageModel:
        """The base behind more, which remembers nothing."""
        return self.base.prompted(prompt)

    def neighbours(self, tokens: Tensor, candidates: Tensor) -> Tensor:
        """As the base; a candidate that is known is not read again."""
        key, own = tuple(tokens.tolist()), tokens[:, None]
        ids, scores = self._memory.known.get(key, (own[:, :0], torch.empty(len(tokens), 0, dtype=torch.float64)))
        same = candidates[..., None] == ids[:, None, :]
        known = same.any(-1)
        asked = torch.where(known, own, candidates)  # the token itself is free
        start = time.perf_counter()
        found = self.base.neighbours(tokens, asked)
        self._memory.seconds += time.perf_counter() - start
        self._memory.tails += _tail_tokens(asked != own)
        self._memory.known[key] = torch.cat([ids, asked], 1), torch.cat([scores, found], 1)
        if not bool(known.any()):
            return found
        saved = _tail_tokens(known & (candidates != own))
        self.saved += self._memory.seconds / max(1, self._memory.tails) * saved
        return torch.where(known, scores.gather(1, same.int().argmax(-1)), found)

    def _log_probs(self, tokens: Tensor) -> Tensor:
        return self.base.log_probs(tokens)

    def _token_scores(self, tokens: Tensor) -> Tensor:
        return self.base.token_scores(tokens)

    def _begin(self, batch: int) -> Cursor:
        return self.base.begin(batch)


def _tail_tokens(read: Tensor) -> int:
    """Tokens behind the position of each candidate Bool[time, k] that is read."""
    behind = torch.arange(len(read)).flip(0)
    return int((read.sum(1) * behind).sum())
