"""Constraints: immutable Boolean values over a sequence of token ids.

A constraint α says of every sequence y of `length` token ids whether it holds. `And`, `Or` and
`Not` combine leaves; the leaves are in `leaves`. Equal parts may be shared, so an expression is a
graph: every walk visits a node once and never recurses, however deep the expression is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from locore.constraints.reading import Reading, current_reading, reading_with
from locore.constraints.sequence import TokenizerLike, TokenSequence
from locore.constraints.walk import fold, postorder
from locore.errors import BudgetExceeded, InvalidArgument, InvalidConstraint

Json = dict[str, Any]
MAX_JSON_DEPTH = 100
MAX_JSON_NODES = 1_000_000


class Constraint(ABC):
    """An immutable Boolean value; combine with `&`, `|`, `~`, `^` and `>>` (implies).

    Subclasses are frozen dataclasses. Equality and hash are structural; while a `@constraint`
    function runs, `==` and `!=` mean "has the same truth value" instead, as for Python's bools.
    """

    __array_ufunc__ = None  # numpy's bools leave `&` and `|` to the methods below

    # --- combining

    def __and__(self, other: object) -> Constraint:
        return _combine(self, other, lambda a, b: conjunction([a, b]))

    def __or__(self, other: object) -> Constraint:
        return _combine(self, other, lambda a, b: disjunction([a, b]))

    def __xor__(self, other: object) -> Constraint:
        return _combine(self, other, lambda a, b: if_then_else(a, negation(b), b))

    def __rshift__(self, other: object) -> Constraint:
        return _combine(self, other, lambda a, b: disjunction([negation(a), b]))

    def __rrshift__(self, other: object) -> Constraint:
        return _combine(self, other, lambda a, b: disjunction([negation(b), a]))

    def __invert__(self) -> Constraint:
        return negation(self)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    # --- inside a `@constraint` function

    def __bool__(self) -> bool:
        return self._reading("a truth value").decide(self)

    def __int__(self) -> int:
        return int(bool(self))

    def __add__(self, other: Any) -> Any:
        return self._reading("a number").summand(self) + other

    def __sub__(self, other: Any) -> Any:
        return self._reading("a number").summand(self) - other

    def __rsub__(self, other: Any) -> Any:
        return other - self._reading("a number").summand(self)

    def __mul__(self, other: Any) -> Any:
        return self._reading("a number").summand(self) * other

    __radd__, __rmul__ = __add__, __mul__

    def _reading(self, what: str) -> Any:
        reading = current_reading()
        if reading is None:
            raise InvalidConstraint(
                f"a constraint has no value as {what} before the tokens are known; combine "
                "constraints with & | ~ >>, or write a function decorated with @constraint"
            )
        return reading
