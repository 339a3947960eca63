"""Sums of truth values inside a Python function, compared with integers.

`(tokens == v).sum()`, `sum(t == v for t in tokens)` and `2 * (tokens[0] == v) + (tokens[1] == w)`
are sums. A comparison makes a constraint of them: a `Count` where it is one, and nested
if-then-else over the partial sums otherwise.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from locore.constraints.base import Constant, Constraint, Not, if_then_else, reading_with
from locore.constraints.tokens import Count, Literal
from locore.errors import BudgetExceeded, InvalidConstraint

MAX_PARTIAL_SUMS = 100_000
Terms = list[tuple[Constraint, int]]


@dataclass(frozen=True, eq=False)
class Sum:
    """Σ weight · condition + offset, where a condition is 1 if it holds and 0 if not."""

    __array_ufunc__ = None  # numpy's integers leave `+` and `==` to this class
    terms: tuple[tuple[Constraint, int], ...] = ()
    offset: int = 0

    @staticmethod
    def of(value: Any) -> Sum:
        """An integer, a condition or a sum as a sum; `InvalidConstraint` for anything else."""
        if isinstance(value, Sum):
            return value
        if isinstance(value, Constant):
            return Sum(offset=int(value.value))
        if isinstance(value, Constraint):
            return Sum(((value, 1),))
        return Sum(offset=_integer(value))

    def __add__(self, other: Any) -> Sum:
        more = Sum.of(other)
        return Sum(self.terms + more.terms, self.offset + more.offset)

    def __mul__(self, other: Any) -> Sum:
        factor = _integer(other)
        terms = tuple((condition, weight * factor) for condition, weight in self.terms)
        return Sum(terms, self.offset * factor)

    def __neg__(self) -> Sum:
        return self * -1

    def __sub__(self, other: Any) -> Sum:
        return self._minus(other)

    def __rsub__(self, other: Any) -> Sum:
        return Sum.of(other)._minus(self)

    def _minus(self, other: Any) -> Sum:
        return self + -Sum.of(other)

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: object) -> Any:
        return self._minus(other).within(0, 0)

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    def __le__(self, other: Any) -> Constraint:
        return self._minus(other).within(None, 0)

    def __lt__(self, other: Any) -> Constraint:
        return self._minus(other).within(None, -1)

    def __ge__(self, other: Any) -> Constraint:
        return self._minus(other).within(0, None)

    def __gt__(self, other: Any) -> Constraint:
        return self._minus(other).within(1, None)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def within(self, low: int | None, high: int | None) -> Constraint:
        """low ≤ sum ≤ high, None meaning no bound."""
        with reading_with(None):
            terms = _collected(self.terms)
            smallest = sum(min(weight, 0) for _, weight in terms)
            largest = sum(max(weight, 0) for _, weight in terms)
            low = smallest if low is None else max(low - self.offset, smallest)
            high = largest if high is None else min(high - self.offset, largest)
            if low > high or not terms:
                return Constant(low <= high)
            if (low, high) == (smallest, largest):
                return Constant(True)
            count = _as_count(terms, low, high)
            return _by_partial_sums(terms, low, high) if count is None else count


def _collected(terms: tuple[tuple[Constraint, int], ...]) -> Terms:
    """Each condition once with its total weight."""
    weights: dict[Constraint, int] = {}
    for condition, weight in terms:
        weights[condition] = weights.get(condition, 0) + weight
    return [(condition, weight) for condition, weight in weights.items() if weight]


def _as_count(terms: Terms, low: int, high: int) -> Constraint | None:
    """The same as a `Count`, where all terms are one literal at several positions."""
    if any(weight != 1 for _, weight in terms):
        return None
    conditions = [condition for condition, _ in terms]
    if all(isinstance(condition, Not) for condition in conditions):
        conditions = [~condition for condition in conditions]
        low, high = len(terms) - high, len(terms) - low
    literals = [condition for condition in conditions if isinstance(condition, Literal)]
    if len(literals) < len(terms) or len({literal.tokens for literal in literals}) > 1:
        return None
    positions = tuple(literal.position for literal in literals)
    return Count(positions, literals[0].tokens, low, high if high < len(terms) else None)


def _by_partial_sums(terms: Terms, low: int, high: int) -> Constraint:
    """Nested if-then-else, one node for every condition and partial sum before it."""
    sums_before = [{0}]
    for _, weight in terms:
        last = sums_before[-1]
        sums_before.append(last | {partial + weight for partial in last})
        if sum(map(len, sums_before)) > MAX_PARTIAL_SUMS:
            raise BudgetExceeded(
                f"a sum of {len(terms)} conditions has more than {MAX_PARTIAL_SUMS} partial sums; "
                "use smaller weights or fewer conditions"
            )
    holds: dict[int, Constraint] = {total: Constant(low <= total <= high) for total in sums_before.pop()}
    for (condition, weight), partials in zip(reversed(terms), reversed(sums_before), strict=True):
        holds = {partial: if_then_else(condition, holds[partial + weight], holds[partial]) for partial in partials}
    return holds[0]


def _integer(value: Any) -> int:
    if isinstance(value, np.bool_) or not hasattr(value, "__index__"):
        raise InvalidConstraint(f"a number of conditions was combined with {value!r}; use integers, or another count")
    return operator.index(value)
