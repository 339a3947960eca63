"""A model that somebody else can stop whoever reads it."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from locore.chat import Prompt
from locore.models.base import LanguageModel, Wrapper
from locore.models.cursor import Cursor


class Interruptible(Wrapper):
    """The model itself; before each step that it is asked for it calls `check`, which stops the caller by raising."""

    def __init__(self, base: LanguageModel, check: Callable[[], None]) -> None:
        super().__init__(base)
        self._check = check

    def prompted(self, prompt: Prompt) -> Interruptible:
        """The prompted model, as easy to stop."""
        self._check()
        return Interruptible(self.base.prompted(prompt), self._check)

    def _log_probs(self, tokens: Tensor) -> Tensor:
        self._check()
        return self.base.log_probs(tokens)

    def _token_scores(self, tokens: Tensor) -> Tensor:
        self._check()
        return self.base.token_scores(tokens)

    def _neighbours(self, tokens: Tensor, candidates: Tensor) -> Tensor:
        self._check()
        return self.base.neighbours(tokens, candidates)

    def _begin(self, batch: int) -> Cursor:
        self._check()
        return _InterruptibleCursor(self.base.begin(batch), self._check)


class _InterruptibleCursor(Cursor):
    def __init__(self, inner: Cursor, check: Callable[[], None]) -> None:
        self._inner = inner
        self._check = check

    @property
    def log_probs(self) -> Tensor:
        return self._inner.log_probs

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> _InterruptibleCursor:
        self._check()
        return _InterruptibleCursor(self._inner.advance(tokens, parents), self._check)
