"""Who answers when Python asks a constraint for its truth value.

Outside a function decorated with `@constraint` nobody does, and `bool(constraint)` is an error.
While such a function runs, one `Reading` answers: a trace that explores both answers, or a plain
reading of finished tokens. It is kept in a context variable, so threads do not disturb each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from locore.constraints.base import Constraint


class Reading(ABC):
    """One run of a Python function over `tokens`."""

    @abstractmethod
    def decide(self, condition: Constraint) -> bool:
        """The truth value with which the function goes on."""

    @abstractmethod
    def literal(self, position: int, ids: frozenset[int]) -> Constraint:
        """The condition "the token at `position` is one of `ids`"."""

    @abstractmethod
    def summand(self, condition: Constraint) -> object:
        """The condition as a number, 0 or 1, that can be added to others."""


_current: ContextVar[Reading | None] = ContextVar("locore_reading", default=None)


def current_reading() -> Reading | None:
    """The reading of the function that is running now, or None outside of one."""
    return _current.get()


@contextmanager
def reading_with(reading: Reading | None) -> Iterator[None]:
    """Let `reading` answer inside the `with` block; None: constraints are plain values there."""
    token = _current.set(reading)
    try:
        yield
    finally:
        _current.reset(token)
