"""What is certain of a draw while it is made: samplers say what they can still return, and of that all texts begin alike.

The draw is the one that would be made if nobody listened: weighted sequences, of which one is chosen by its weight once all
weights are known. Until then any of them that can still come back with a positive weight may be the one. So what all of them
begin with is certain, and nothing beyond it is: two of them differ there, and each has its chance. What can come back only
grows fewer, so nothing is ever taken back. And as listening changes no random number and no choice, the pieces together are
that very draw, and have its law.

A sampler of one particle settles a token with each step; a population what its prefixes have in common; repetitions that are
pooled what the last one has in common with all before it. A text that may yet give way to another is never certain, however
likely it is to stay: whoever shows it earlier takes it back now and then. If all is refused in the end, an error follows what
was certain. Before the first token all is certain that the constraint leaves no choice about, such as `{"name": "`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class PrefixReader(Protocol):
    """Of a constraint from left to right, as `circuits.LeftToRight`."""

    @property
    def length(self) -> int:
        """Number of positions."""

    def allowed_tokens(self, position: int, states: Tensor, look_ahead: bool = True) -> Tensor:
        """Bool[batch, vocab]: tokens that may come at a position."""

    def step(self, position: int, states: Tensor, tokens: Tensor, look_ahead: bool = True) -> Tensor:
        """Long[batch]: states after one token more."""


class Listener(Protocol):
    """Hears what a run can still return."""

    def hear(self, tokens: Tensor, reader: PrefixReader | None, states: Tensor | None, others: bytes | None) -> None:
        """All begins with one of Long[num, time], in the states Long[num], or with the bytes `others`."""

    def common(self, tokens: Sequence[Tensor]) -> bytes:
        """What the texts of Long[num, time] each begin with, all of them."""


@dataclass(frozen=True)
class _Scope:
    """Who hears what is said, and what else the run can return: texts that begin with these bytes."""

    listener: Listener
    others: bytes | None = None


_waiting: ContextVar[Listener | None] = ContextVar("who listens to the next call", default=None)
_scope: ContextVar[_Scope | None] = ContextVar("who listens", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """To the one call inside the `with` block, and to none that it makes itself."""
    token = _waiting.set(listener)
    try:
        yield
    finally:
        _waiting.reset(token)


@contextmanager
def heard() -> Iterator[None]:
    """Around a call, which is heard by who waits for one."""
    listener = _waiting.get()
    waiting, scope = _waiting.set(None), _scope.set(None if listener is None else _Scope(listener))
    try:
        yield
    finally:
        _scope.reset(scope)
        _waiting.reset(waiting)


def is_heard() -> bool:
    """Does anybody listen to the run?"""
    return _scope.get() is not None


@contextmanager
def apart() -> Iterator[None]:
    """Around what is a part of a run, or only prepares it: what is said inside says nothing of the whole."""
    token = _scope.set(None)
    try:
        yield
    finally:
        _scope.reset(token)


@contextmanager
def including(finished: Sequence[Tensor]) -> Iterator[None]:
    """Around the last part of a run, which can also return sequences Long[num, length] that are there already."""
    scope, sequences = _scope.get(), [tokens for tokens in finished if len(tokens)]
    if scope is not None and sequences:
        scope = _Scope(scope.listener, scope.listener.common(sequences))
    token = _scope.set(scope)
    try:
        yield
    finally:
        _scope.reset(token)


def can_only_return(tokens: Tensor, reader: PrefixReader | None = None, states: Tensor | None = None) -> None:
    """What can still be returned begins with one of Long[num, time], in the states Long[num] of a constraint's reading."""
    scope = _scope.get()
    if scope is not None and len(tokens):
        scope.listener.hear(tokens, reader, states, scope.others)
