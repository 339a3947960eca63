"""How much is there: linear sums of digits or given values, and how many of several conditions hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from locore.constraints.view import Sum
from locore.kernel.constraints.constraint import Constraint, Json, conjunction, has_text, reading_with
from locore.kernel.constraints.sequence import TokenizerLike, TokenSequence
from locore.kernel.constraints.serial import (
    as_integer,
    check_positions,
    list_of,
    positions_of,
    read_constraint,
    read_integer,
    register,
)
from locore.kernel.constraints.spelling import allowed, spelled
from locore.kernel.constraints.tokens import Literal
from locore.kernel.errors import InvalidConstraint
from locore.kernel.lists import items_of
from locore.puzzles.combinatorial.equality import Combinatorial

Values = tuple[tuple[int, int], ...]  # (token id, value), sorted by id
_BOUNDS = {"total": read_integer, "at_least": read_integer, "at_most": read_integer, "weights": list_of(read_integer)}
SHOWN = 3  # conditions that a reason names


def digit_sum(
    positions: Iterable[int],
    total: int | None = None,
    *,
    at_least: int | None = None,
    at_most: int | None = None,
    weights: Iterable[int] | None = None,
) -> DigitSum:
    """The digits at these positions, each times its weight, sum to `total`, or to something between the bounds.

    The value of a token is the digit 0–9 that it spells, nothing else; in a vocabulary of bare ids it is the id. A token
    without a value fails.

    Args:
        positions: 0-based.
        total: what they sum to; or give bounds.
        at_least: the lower bound, inclusive.
        at_most: the upper bound, inclusive.
        weights: an integer for each position; all 1 by default.

    Raises:
        InvalidConstraint: no bound at all, a total together with bounds, or a number of weights that is not that of positions.
    """
    return DigitSum(*_arguments(positions, total, at_least, at_most, weights, "digit_sum"))


def token_sum(
    positions: Iterable[int],
    values: Mapping[int, int] | Iterable[Iterable[int]],
    total: int | None = None,
    *,
    at_least: int | None = None,
    at_most: int | None = None,
    weights: Iterable[int] | None = None,
) -> TokenSum:
    """As `digit_sum`, with the value of each token given; a token that has none fails.

    Args:
        values: {token id: value}, or pairs of them.

    Raises:
        InvalidConstraint: as `digit_sum`; or an id with two values.
    """
    where = "token_sum"
    pairs = list(values.items()) if isinstance(values, Mapping) else _pairs(values, where)
    checked = [(as_integer(t, f"a token id of {where}"), as_integer(v, f"a value of {where}")) for t, v in pairs]
    if not checked or len({token for token, _ in checked}) < len(checked) or min(checked)[0] < 0:
        raise InvalidConstraint(f"{where} needs one value for each of its token ids, which start at 0; got {pairs}")
    places, low, high, factors = _arguments(positions, total, at_least, at_most, weights, where)
    return TokenSum(places, tuple(sorted(checked)), low, high, factors)


class _Linear(Combinatorial):
    at_least: int | None
    at_most: int | None
    weights: tuple[int, ...]

    def value_of(self, token: int, sequence: TokenSequence) -> int | None:
        """The value of a token."""
        raise NotImplementedError

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The sum lies within the bounds, and every token has a value."""
        total = self._total(sequence)
        if total is None:
            return False
        return (self.at_least is None or total >= self.at_least) and (self.at_most is None or total <= self.at_most)

    def why(self, sequence: TokenSequence) -> str:
        """The sum, or the first position whose token has no value."""
        total = self._total(sequence)
        if total is not None:
            return f"the sum is {total}, {_bounds(self.at_least, self.at_most)}"
        without = next(p for p in self.positions if self.value_of(sequence.tokens[p], sequence) is None)
        return f"the token at position {without} has no value"

    def _total(self, sequence: TokenSequence) -> int | None:
        check_positions(self.positions, len(sequence.tokens))
        total = 0
        for position, weight in zip(self.positions, self.factors, strict=True):
            value = self.value_of(sequence.tokens[position], sequence)
            if value is None:
                return None
            total += weight * value
        return total

    @property
    def factors(self) -> tuple[int, ...]:
        """The weight of each position."""
        return self.weights or (1,) * len(self.positions)

    def _bound_fields(self) -> Json:
        json: Json = {}
        if self.at_least is not None and self.at_least == self.at_most:
            json["total"] = self.at_least
        else:
            json |= {name: b for name in ("at_least", "at_most") if (b := getattr(self, name)) is not None}
        return json | ({"weights": list(self.weights)} if self.weights else {})


@dataclass(frozen=True, eq=False)
class DigitSum(_Linear):
    """Σ weight · digit lies within the bounds; `bind` names the ids of the digits."""

    positions: tuple[int, ...]
    at_least: int | None
    at_most: int | None
    weights: tuple[int, ...] = ()

    def leaf_bound(self, tokenizer: TokenizerLike) -> Constraint:
        """The `TokenSum` over this tokenizer's digits; `InvalidConstraint` if it has none."""
        values = digit_values(tokenizer)
        if not values:
            raise InvalidConstraint("digit_sum: no token of this tokenizer spells exactly one digit; use token_sum")
        return TokenSum(self.positions, values, self.at_least, self.at_most, self.weights)

    def value_of(self, token: int, sequence: TokenSequence) -> int | None:
        """The digit, or the id in a vocabulary of bare ids."""
        if sequence.tokenizer is None or not any(sequence.tokenizer.token_bytes):
            return token
        return _digit(sequence.tokenizer.token_bytes[token])

    def parts(self) -> tuple[Constraint, ...]:
        """None before the digits have ids."""
        raise InvalidConstraint("digit_sum must be bound to a tokenizer before it is compiled")

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "digit_sum", "positions": [...], "total": ...}`."""
        return {"type": "digit_sum", "positions": list(self.positions), **self._bound_fields()}


@dataclass(frozen=True, eq=False)
class TokenSum(_Linear):
    """Σ weight · value(token) lies within the bounds, every token there having a value."""

    positions: tuple[int, ...]
    values: Values
    at_least: int | None
    at_most: int | None
    weights: tuple[int, ...] = ()

    def named_ids(self) -> Iterable[int]:
        """The ids that have a value."""
        return (token for token, _ in self.values)

    def value_of(self, token: int, sequence: TokenSequence) -> int | None:
        """The value that was given."""
        return dict(self.values).get(token)

    def groups(self) -> dict[int, frozenset[int]]:
        """The ids of each value."""
        groups: dict[int, set[int]] = {}
        for token, value in self.values:
            groups.setdefault(value, set()).add(token)
        return {value: frozenset(ids) for value, ids in groups.items()}

    def parts(self) -> tuple[Constraint, ...]:
        """Every position has a value, and itself."""
        tokens = frozenset(token for token, _ in self.values)
        return (*(Literal(position, tokens) for position in self.positions), self)

    def lowered(self, vocab_size: int) -> Constraint:
        """Nested if-then-else over partial sums, and a value everywhere; BudgetExceeded if there are too many sums."""
        terms = tuple(
            (Literal(position, ids), weight * value)
            for position, weight in zip(self.positions, self.factors, strict=True)
            for value, ids in self.groups().items()
            if weight * value
        )
        return conjunction([*self.parts()[:-1], Sum(terms).within(self.at_least, self.at_most)])

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "token_sum", "positions": [...], "values": [[id, value], ...], "total": ...}`."""
        values = [list(pair) for pair in self.values]
        return {"type": "token_sum", "positions": list(self.positions), "values": values, **self._bound_fields()}


def digit_values(tokenizer: TokenizerLike) -> Values:
    """(id, digit) of the tokens that spell exactly one digit; (id, id) of bare ids other than ends."""
    if not any(tokenizer.token_bytes):
        return tuple((token, token) for token in range(tokenizer.vocab_size) if token not in tokenizer.eos_ids)
    digits = ((token, _digit(content)) for token, content in enumerate(tokenizer.token_bytes))
    return tuple((token, digit) for token, digit in digits if digit is not None)


def _digit(content: bytes | None) -> int | None:
    return int(content) if content is not None and len(content) == 1 and content.isdigit() else None


def _arguments(
    positions: Any, total: Any, at_least: Any, at_most: Any, weights: Any, where: str
) -> tuple[tuple[int, ...], int | None, int | None, tuple[int, ...]]:
    places = positions_of(positions, where, ordered=weights is not None)
    if total is not None and (at_least, at_most) != (None, None):
        raise InvalidConstraint(f"{where} got total={total!r} and other bounds; give either the one or the others")
    low, high = (total, total) if total is not None else (at_least, at_most)
    if low is None and high is None:
        raise InvalidConstraint(f"{where} got no bound, so that it says nothing; give total, at_least or at_most")
    least = None if low is None else as_integer(low, f"the bound of {where}")
    most = None if high is None else as_integer(high, f"the bound of {where}")
    if least is not None and most is not None and least > most:
        raise InvalidConstraint(f"{where} got at_least={least} above at_most={most}; nothing can satisfy both")
    if weights is None:
        return places, least, most, ()
    listed = items_of(weights, where, "a list of weights", ordered=True)
    factors = tuple(as_integer(weight, f"a weight of {where}") for weight in listed)
    if len(factors) != len(places):
        raise InvalidConstraint(f"{where} got {len(factors)} weights for {len(places)} positions; give one for each")
    return places, least, most, () if set(factors) == {1} else factors


def _pairs(values: Any, where: str) -> list[tuple[Any, Any]]:
    wanted = "{token id: value}, or pairs of them"
    listed = [
        tuple(items_of(pair, where, wanted, ordered=True)) if isinstance(pair, Iterable) else (pair,)
        for pair in items_of(values, where, wanted)
    ]
    if any(len(pair) != 2 for pair in listed):
        raise InvalidConstraint(f"{where} needs pairs of a token id and its value, got {listed}")
    return [(pair[0], pair[1]) for pair in listed]


def _bounds(low: int | None, high: int | None) -> str:
    return f"at most {high}" if low is None else allowed(low, high)


register("digit_sum", digit_sum, {"positions": list_of(read_integer)}, _BOUNDS)
register("token_sum", token_sum, {"positions": list_of(read_integer), "values": list_of(list_of(read_integer))}, _BOUNDS)


def exactly(k: int, of: Iterable[Constraint]) -> HowMany:
    """Exactly k of these conditions hold; a condition is any constraint.

    Raises:
        InvalidConstraint: k is negative or above the number of conditions, or one of them is no constraint.
    """
    number, conditions = _checked(k, of, "exactly")
    return HowMany(conditions, number, number)


def at_least(k: int, of: Iterable[Constraint]) -> HowMany:
    """At least k of these conditions hold; see `exactly`."""
    number, conditions = _checked(k, of, "at_least")
    return HowMany(conditions, number, None)


def at_most(k: int, of: Iterable[Constraint]) -> HowMany:
    """At most k of these conditions hold; see `exactly`."""
    number, conditions = _checked(k, of, "at_most")
    return HowMany(conditions, None, number)


@dataclass(frozen=True, eq=False)
class HowMany(Constraint):
    """The number of conditions that hold lies within the bounds, of which None is none.

    At a length it becomes a `Count` where the conditions are one set of tokens at several positions, and nested if-then-else
    over partial counts otherwise.
    """

    of: tuple[Constraint, ...]
    low: int | None
    high: int | None

    @property
    def is_text(self) -> bool:  # type: ignore[override]
        """Whether a condition speaks about the text."""
        return any(has_text(condition) for condition in self.of)

    def leaf_at(self, length: int) -> Constraint:
        """The count over the conditions at that length."""
        return self._over(lambda condition: condition.at(length))

    def leaf_bound(self, tokenizer: TokenizerLike) -> Constraint:
        """The count over the bound conditions."""
        return self._over(lambda condition: condition.bind(tokenizer))

    def leaf_told(self, prompt: str) -> Constraint:
        """The count over the conditions that know the prompt."""
        return self._over(lambda condition: condition.transform(lambda leaf: leaf.leaf_told(prompt)))

    def waits_for_prompt(self) -> bool:
        """Does a condition?"""
        return any(leaf.waits_for_prompt() for condition in self.of for leaf in condition.leaves())

    def named_ids(self) -> Iterable[int]:
        """The ids of all conditions."""
        return {token for condition in self.of for leaf in condition.leaves() for token in leaf.named_ids()}

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The conditions are read one by one."""
        number = len(self._holding(sequence))
        return (self.low or 0) <= number and (self.high is None or number <= self.high)

    def why(self, sequence: TokenSequence) -> str:
        """How many hold, and some of them."""
        holding = self._holding(sequence)
        named = ", ".join(spelled(condition) for condition in holding[:SHOWN])
        more = f" and {len(holding) - SHOWN} more" if len(holding) > SHOWN else ""
        wanted = allowed(self.low or 0, self.high)
        return f"{len(holding)} of {len(self.of)} hold, {wanted}" + (f": {named}{more}" if holding else "")

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "exactly", "k": 1, "of": [...]}`, and so for `at_least` and `at_most`."""
        conditions = [condition.to_json() for condition in self.of]
        if self.low is None:
            return {"type": "at_most", "k": self.high, "of": conditions}
        return {"type": "at_least" if self.high is None else "exactly", "k": self.low, "of": conditions}

    def _holding(self, sequence: TokenSequence) -> list[Constraint]:
        return [condition for condition in self.of if condition.truth(sequence)]

    def _over(self, change: Callable[[Constraint], Constraint]) -> Constraint:
        # One sum for each condition of the list: the same condition twice counts twice.
        return sum((Sum.of(change(condition)) for condition in self.of), Sum()).within(self.low, self.high)


def _checked(k: object, of: object, where: str) -> tuple[int, tuple[Constraint, ...]]:
    number = as_integer(k, f"k of {where}")
    wanted = f"a list of conditions, as in {where}(1, [token(0, 5), contains('x')])"
    if isinstance(of, Constraint):
        raise InvalidConstraint(f"{where} needs {wanted}")
    with reading_with(None):
        conditions = tuple(items_of(of, where, wanted))
    for condition in conditions:
        if not isinstance(condition, Constraint):
            raise InvalidConstraint(f"{where} needs constraints as conditions, got {condition!r}")
    if not 0 <= number <= len(conditions):
        raise InvalidConstraint(f"{where} got k={number} for {len(conditions)} conditions; k lies between 0 and their number")
    return number, conditions


for _name, _build in (("exactly", exactly), ("at_least", at_least), ("at_most", at_most)):
    register(_name, partial(_build), {"k": read_integer, "of": list_of(read_constraint)})
