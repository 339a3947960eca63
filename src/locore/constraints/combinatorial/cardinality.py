"""How many of several conditions hold: exactly, at least, at most k."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from locore.constraints.arguments import as_integer
from locore.constraints.base import Constraint, Json, has_text, reading_with
from locore.constraints.sequence import TokenizerLike, TokenSequence
from locore.constraints.serial import list_of, read_constraint, read_integer, register
from locore.constraints.spelling import allowed, spelled
from locore.constraints.sums import Sum
from locore.errors import InvalidConstraint

SHOWN = 3  # conditions that a reason names


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
    if isinstance(of, str | Constraint) or not isinstance(of, Iterable):
        raise InvalidConstraint(f"{where} needs a list of conditions, as in {where}(1, [token(0, 5), contains('x')])")
    with reading_with(None):
        conditions = tuple(of)
    for condition in conditions:
        if not isinstance(condition, Constraint):
            raise InvalidConstraint(f"{where} needs constraints as conditions, got {condition!r}")
    if not 0 <= number <= len(conditions):
        raise InvalidConstraint(f"{where} got k={number} for {len(conditions)} conditions; k lies between 0 and their number")
    return number, conditions


for _name, _build in (("exactly", exactly), ("at_least", at_least), ("at_most", at_most)):
    register(_name, partial(_build), {"k": read_integer, "of": list_of(read_constraint)})
