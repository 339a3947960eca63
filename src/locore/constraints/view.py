"""`tokens` as a Python function decorated with `@constraint` sees it, and sums of what it compares.

Nothing here knows whether the tokens are finished or only imagined: every comparison asks the current `Reading` for a literal.
`(tokens == v).sum()`, `sum(t == v for t in tokens)` and `2 * (tokens[0] == v) + (tokens[1] == w)` are sums. A comparison makes
a constraint of them: a `Count` where it is one, and nested if-then-else over the partial sums otherwise.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, overload

import numpy as np

from locore.kernel.constraints.constraint import (
    Constant,
    Constraint,
    Not,
    Reading,
    conjunction,
    disjunction,
    if_then_else,
    reading_with,
)
from locore.kernel.constraints.serial import as_integer, id_list
from locore.kernel.constraints.tokens import Count, Literal
from locore.kernel.errors import BudgetExceeded, InvalidConstraint

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


class _NoText(InvalidConstraint, AttributeError):
    """Also an AttributeError, as `hasattr` and the protocols of Python expect one."""


def _no_text(function: str, what: str, attribute: str | None = None) -> AttributeError:
    """The error of a function that treats its tokens as a text, by an attribute or by `str`."""
    if attribute is not None and attribute.startswith("_"):
        return AttributeError(attribute)  # a question of Python's own, such as copy or numpy ask
    asked = "as a string" if attribute is None else f"for .{attribute}"
    return _NoText(
        f"`{function}` asks {what} {asked}, but a @constraint function gets token ids, not a text, and which ones is not "
        "known yet: compare them, as in tokens[0] == 17. For what the text says use contains, ban, regex, word_count and the "
        'like; they may be part of what the function returns, as in contains("a") & (tokens[0] == 17).'
    )


class TokensView:
    """The tokens at some positions, by default all of them: a sequence as Python knows it.

    Args:
        reading: makes the literals.
        positions: absolute positions, in the order of the view.
        function: the name of the user's function, for messages.
    """

    __array_ufunc__ = None  # numpy's integers leave `==` to this class

    def __init__(self, reading: Reading, positions: Sequence[int], function: str) -> None:
        self._reading = reading
        self._positions = positions
        self._function = function

    def __len__(self) -> int:
        return len(self._positions)

    def __call__(self, position: int, ids: Any) -> Constraint:
        """`tokens(i, v)`: the token at i is v. `tokens(i, [v, w])`: v at i, then w, and so on.

        False for a sequence of ids that runs past the end; `InvalidConstraint` when i itself does.
        """
        start = self._index(position)
        sequence = id_list(ids, f"`{self._function}`", ordered=True)
        if not sequence:
            raise InvalidConstraint(f"`{self._function}` asks for an empty list of token ids")
        if len(sequence) == 1:
            return self[start].isin(sequence)
        if start + len(sequence) > len(self):
            return Constant(False)
        return conjunction(self[start + step] == token for step, token in enumerate(sequence))

    @overload
    def __getitem__(self, index: slice) -> TokensView: ...
    @overload
    def __getitem__(self, index: int) -> TokenView: ...
    def __getitem__(self, index: int | slice) -> TokensView | TokenView:
        if isinstance(index, slice):
            return TokensView(self._reading, self._positions[index], self._function)
        return TokenView(self._reading, self._positions[self._index(index)], self._function)

    def __iter__(self) -> Iterator[TokenView]:
        return (self[index] for index in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __eq__(self, other: object) -> Any:
        return Conditions([token == other for token in self])

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return len(self) > 0

    def __getattr__(self, name: str) -> NoReturn:
        raise _no_text(vars(self).get("_function", ""), "the tokens", name)

    def __str__(self) -> str:
        raise _no_text(self._function, "the tokens")

    def isin(self, ids: Any) -> Conditions:
        """For each token: is it one of `ids`?"""
        return Conditions([token.isin(ids) for token in self])

    def _index(self, index: Any) -> int:
        given = as_integer(index, f"a position in `{self._function}`")
        if not -len(self) <= given < len(self):
            raise InvalidConstraint(
                f"`{self._function}` reads position {given} of {len(self)} tokens (0 to "
                f"{len(self) - 1}); use `len(tokens)` for the bound, or ask for a longer sequence"
            )
        return given % len(self)


class TokenView:
    """The token at one position."""

    __array_ufunc__ = None

    def __init__(self, reading: Reading, position: int, function: str) -> None:
        self._reading = reading
        self._position = position
        self._function = function

    def __eq__(self, other: object) -> Any:
        if isinstance(other, TokenView | TokensView):
            self._refuse(
                "compares tokens with each other; a constraint compares them with ids: combine "
                "(tokens[i] == v) & (tokens[j] == v) with | over the ids v that you mean"
            )
        if isinstance(other, str | bytes):
            self._refuse(
                f"compares a token with the text {other!r}, but tokens are ids; take them from "
                f"model.tokenizer.encode({other!r}), and for what the text says combine the function with contains or regex"
            )
        if not hasattr(other, "__index__"):
            self._refuse(f"compares one token with {other!r}; use .isin for several ids")
        return self.isin([other])

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    def isin(self, ids: Any) -> Constraint:
        """The token is one of `ids`; never true when there are none."""
        return self._reading.literal(self._position, frozenset(id_list(ids, f"`{self._function}`")))

    def __bool__(self) -> bool:
        self._refuse("uses a token as a truth value; compare it with an id")

    def __index__(self) -> int:
        self._refuse(
            "uses a token as a number, but which one it is is not known yet; compare it with ids, and for what the text says "
            "combine the function with contains, regex and the like"
        )

    __int__ = __float__ = __index__

    def _calculate(self, *_: object) -> NoReturn:
        self._refuse(
            "calculates with a token, but tokens are ids, and which one it is is not known yet; count conditions instead, as "
            "in sum(token == 17 for token in tokens) <= 2"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _calculate
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _calculate
    __neg__ = __pos__ = __abs__ = _calculate

    def __lt__(self, other: object) -> bool:
        self._refuse("orders tokens; use .isin with the ids that you mean")

    __le__ = __gt__ = __ge__ = __lt__

    def __hash__(self) -> int:
        self._refuse("looks a token up in a set or dictionary; use .isin")

    def __getattr__(self, name: str) -> NoReturn:
        raise _no_text(vars(self).get("_function", ""), "one token", name)

    def __str__(self) -> str:
        raise _no_text(self._function, "one token")

    def _refuse(self, what: str) -> NoReturn:
        raise InvalidConstraint(f"`{self._function}` {what} (position {self._position})")


@dataclass(frozen=True, eq=False)
class Conditions:
    """One condition for each of several tokens, combined elementwise with `&`, `|`, `~`."""

    __array_ufunc__ = None
    of: list[Constraint]

    def all(self) -> Constraint:
        """All of them hold."""
        return conjunction(self.of)

    def any(self) -> Constraint:
        """Some of them holds."""
        return disjunction(self.of)

    def sum(self) -> Sum:
        """How many of them hold, to be compared with a number."""
        return sum(map(Sum.of, self.of), Sum())

    def __len__(self) -> int:
        return len(self.of)

    def __getitem__(self, index: Any) -> Any:
        return Conditions(self.of[index]) if isinstance(index, slice) else self.of[index]

    def __invert__(self) -> Conditions:
        return Conditions([~condition for condition in self.of])

    def __and__(self, other: Any) -> Conditions:
        return self._with(other, lambda mine, theirs: mine & theirs)

    def __or__(self, other: Any) -> Conditions:
        return self._with(other, lambda mine, theirs: mine | theirs)

    __rand__, __ror__ = __and__, __or__

    def __bool__(self) -> bool:
        raise InvalidConstraint("several conditions have no single truth value; use .any or .all")

    def _with(self, other: Any, combine: Callable[[Constraint, Any], Constraint]) -> Conditions:
        others = other.of if isinstance(other, Conditions) else [other] * len(self)
        if len(others) != len(self):
            raise InvalidConstraint(f"{len(self)} conditions were combined with {len(others)}; use equal slices")
        return Conditions([combine(mine, theirs) for mine, theirs in zip(self.of, others, strict=True)])
