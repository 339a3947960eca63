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
from typing import TYPE_CHECKING, Any

import numpy as np

from locore.constraints.structure import Structural
from locore.errors import InvalidConstraint

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
    def summand(self, condition: Constraint) -> Any:
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


class Readable(Structural):
    """What a constraint can do only while a function is read: truth value, `==`, arithmetic.

    There `==` means "has the same truth value", as for Python's bools; elsewhere it is structural.
    """

    __hash__ = Structural.__hash__

    def __bool__(self) -> bool:
        reading = current_reading()
        if reading is None:
            raise InvalidConstraint(
                "a constraint is neither true nor false before the tokens are known; combine "
                "with & | ~ >> instead of and, or, not, if, or write a @constraint function"
            )
        return reading.decide(self)  # type: ignore[arg-type]

    def summand(self) -> Any:
        """This constraint as a number, 0 or 1."""
        reading = current_reading()
        if reading is None:
            raise InvalidConstraint(
                "constraints are added up inside a @constraint function only; outside of one use count_tokens"
            )
        return reading.summand(self)  # type: ignore[arg-type]

    def __eq__(self, other: object) -> Any:
        if current_reading() is None:
            return self.same_as(other)
        if isinstance(other, Readable | bool | np.bool_):
            return ~(self ^ other)  # type: ignore[operator]
        return self.summand() == other

    def __ne__(self, other: object) -> Any:
        same = self == other
        return ~same if isinstance(same, Readable) else not same  # type: ignore[operator]

    def __int__(self) -> int:
        return int(bool(self))

    def __add__(self, other: Any) -> Any:
        return self.summand() + other

    def __sub__(self, other: Any) -> Any:
        return self.summand() - other

    def __rsub__(self, other: Any) -> Any:
        return other - self.summand()

    def __mul__(self, other: Any) -> Any:
        return self.summand() * other

    __radd__, __rmul__ = __add__, __mul__
