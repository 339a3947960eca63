"""The texts of arrays: items by place, how many there are, and how many of them meet something."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any

from locore.automata.pushdown import NEVER, Sequence, cost_of
from locore.constraints.json_schema.containers import Container
from locore.constraints.json_schema.facts import (
    Distinct,
    Fact,
    Goal,
    Has,
    Holding,
    ItemCount,
    Items,
    Listed,
    Member,
    NumberIn,
    Size,
    StringIn,
    constant,
)
from locore.constraints.json_schema.scalars import numbers, strings
from locore.constraints.json_schema.value_symbols import Goals, Reading, Value, joined

State = tuple[int, tuple[int, ...], frozenset[str]]  # items so far, how many held, and those of which no other may be
MOST_VALUES = 64  # of items that have to differ


def array(reading: Reading, facts: tuple[Fact, ...], depth: int, level: int) -> Sequence:
    """An array of which these facts hold."""
    plan = reading.plan(Plan, facts)
    arrays: Arrays = reading.once((Arrays, plan, depth, level), Arrays, reading, plan, depth, level, b"]")
    return (reading.literal(b"["), arrays.rest((0, plan.none_held, frozenset()), True))


class Plan:
    """What facts say of an array, item by item.

    Attributes:
        least, most: how many items.
        beyond: from this place on all items are alike.
        held: facts about how many items meet a goal.
        values: what items can be if they have to differ, by their texts as `str` writes them; None if they need not.
    """

    def __init__(self, reading: Reading, facts: tuple[Fact, ...]) -> None:
        self.reading = reading
        self._items = [fact for fact in facts if isinstance(fact, Items)]
        counts = [fact for fact in facts if isinstance(fact, ItemCount)]
        self.least = max((fact.least for fact in counts), default=0)
        self.most = min((fact.most for fact in counts if fact.most is not None), default=None)
        self.held = [fact for fact in facts if isinstance(fact, Holding)]
        self.none_held = (0,) * len(self.held)
        firsts = [*(fact.first for fact in self._items), *(fact.first for fact in self.held)]
        edges = [*firsts, *(fact.last + 1 for fact in self._items if fact.last is not None)]
        self.beyond = max(edges, default=0)
        self.values: dict[str, Any] | None = None
        distinct = [fact for fact in facts if isinstance(fact, Distinct)]
        if distinct and not all(fact.wanted for fact in distinct):
            distinct[0].place.refuse("where it is negated, two equal items would have to be found", "uniqueItems")
        if distinct and (self.most is None or self.most > 1):
            self.values = self._finite(distinct[0])

    def goals(self, index: int) -> Goals:
        """What an item has to meet."""
        return joined(fact.goal for fact in self._items if fact.first <= index and (fact.last is None or index <= fact.last))

    def parts(self) -> Iterable[Goals]:
        """What items may have to meet."""
        if self.most != 0:
            for index in range(self.beyond + 1):
                goals = self.goals(index)
                yield goals
                for fact in self.held:
                    yield joined((*goals, fact.goal))
                    if fact.most is not None:
                        yield joined((*goals, fact.goal.opposite()))

    def _finite(self, distinct: Distinct) -> dict[str, Any]:
        by_repr: dict[str, Any] = {}
        top = self.beyond if self.most is None else min(self.beyond, self.most - 1)
        for index in range(top + 1):
            values = values_of(self.reading, self.goals(index))
            if values is None or len(by_repr) + len(values) > MOST_VALUES:
                distinct.place.refuse(
                    f"it needs items of at most {MOST_VALUES} values: an enum, const, boolean or null; leave it away (a set "
                    "in Python: take a list), or say which values there are",
                    "uniqueItems",
                )
            by_repr.update((repr(value), value) for value in values)
        return by_repr


def values_of(reading: Reading, goals: Goals) -> list[Any] | None:
    """All values that meet some goals; None if there are more than `MOST_VALUES`, or it is not plain to see."""
    by_repr: dict[str, Any] = {}
    for shape in reading.shapes.of(goals):
        for kind in shape.kinds:
            values = _values_of_kind(reading, kind, shape.of(kind))
            if values is None:
                return None
            by_repr.update((repr(value), value) for value in values)
    return list(by_repr.values()) if len(by_repr) <= MOST_VALUES else None


def _values_of_kind(reading: Reading, kind: str, facts: tuple[Fact, ...]) -> list[Any] | None:
    if kind in ("null", "true", "false"):
        return [{"null": None, "true": True, "false": False}[kind]]
    if kind == "string":
        words = [fact.strings for fact in facts if isinstance(fact, StringIn) and fact.wanted]
        fitting = strings(facts)
        return [word for word in sorted(words[0]) if fitting is not None and fitting.accepts(word)] if words else None
    if kind == "number":
        named = [fact.numbers for fact in facts if isinstance(fact, NumberIn) and fact.wanted]
        scanner = numbers(frozenset(facts), reading.digits)
        return [plain(number) for number in sorted(named[0]) if scanner.accepts(str(plain(number)))] if named else None
    if kind == "array":
        counts = [fact for fact in facts if isinstance(fact, ItemCount)]
        if not counts or counts[0].least != counts[0].most or not all(isinstance(fact, Items | ItemCount) for fact in facts):
            return None
        parts = [Plan(reading, facts).goals(index) for index in range(counts[0].least)]
        return _products(reading, parts, list)
    facts = tuple(fact for fact in facts if not isinstance(fact, Listed))
    names = [fact.name for fact in facts if isinstance(fact, Has) and fact.wanted]
    sizes = [fact for fact in facts if isinstance(fact, Size)]
    members = [fact for fact in facts if isinstance(fact, Member)]
    if not sizes or sizes[0].most != len(names) or len(names) + len(sizes) + len(members) != len(facts):
        return None
    if any(fact.names.name is None for fact in members):
        return None
    parts = [joined(fact.goal for fact in members if fact.names.name == name) for name in names]
    return _products(reading, parts, lambda values: dict(zip(names, values, strict=True)))


def _products(reading: Reading, parts: list[Goals], make: Callable[[tuple[Any, ...]], Any]) -> list[Any] | None:
    options = [values_of(reading, goals) for goals in parts]
    if any(values is None for values in options):
        return None
    sizes = [len(values or ()) for values in options]
    if math.prod(sizes) > MOST_VALUES:
        return None
    return [make(values) for values in product(*(values or () for values in options))]


def plain(number: Any) -> Any:
    """A fraction as a number of JSON."""
    from decimal import Decimal

    if number.denominator == 1:
        return int(number)
    return Decimal(number.numerator) / Decimal(number.denominator)


class Arrays(Container):
    """The symbols of the arrays of a plan at one depth."""

    plan: Plan

    def is_complete(self, state: State) -> bool:
        """May the array end here?"""
        count, held, _ = state
        return count >= self.plan.least and all(number >= fact.least for number, fact in zip(held, self.plan.held, strict=True))

    def after(self, state: State) -> list[tuple[Value, State]]:
        """The values that the next item may have, and the states behind them."""
        plan = self.plan
        count, held, used = state
        if plan.most is not None and count >= plan.most:
            return []
        top = max(plan.beyond, plan.least) if plan.most is None else plan.most + 1
        goals = plan.goals(count)
        successors = []
        for choice in self._choices(count, held):
            more = tuple(goal for goal, _ in choice if goal is not None)
            after = (min(count + 1, top), tuple(number for _, number in choice))
            if plan.values is None:
                successors.append((self.value(joined((*goals, *more))), (*after, used)))
                continue
            for key, value in plan.values.items():
                if key not in used:
                    fixed = Goal(constant(value))
                    successors.append((self.value((*goals, *more, fixed)), (*after, used | {key})))
        return successors

    def _choices(self, count: int, held: tuple[int, ...]) -> Iterable[tuple[tuple[Goal | None, int], ...]]:
        """For each fact about how many hold: what the item has to meet, and how many hold then."""
        options: list[list[tuple[Goal | None, int]]] = []
        for number, fact in zip(held, self.plan.held, strict=True):
            if count < fact.first:
                options.append([(None, number)])
            elif fact.most is None:  # one that holds need not be counted
                options.append([(None, number), *([(fact.goal, number + 1)] if number < fact.least else [])])
            else:
                more = [(fact.goal, number + 1)] if number < fact.most else []
                options.append([(fact.goal.opposite(), number), *more])
        return product(*options)

    def more(self, state: State) -> Iterator[Sequence]:
        """One more item, and the rest."""
        ways = ((value, self.rest(after, False)) for value, after in self.after(state))
        return (way for way in ways if cost_of(way) != NEVER)

    def _rest_cost(self, state: State, is_first: bool) -> float:
        plain = not self.plan.held and self.plan.values is None
        return self._counted(state, is_first) if plain else self._searched(state, is_first)

    def _counted(self, state: State, is_first: bool) -> float:
        plan, count = self.plan, state[0]
        lacking = max(plan.least - count, 0)
        if plan.most is not None and plan.most < max(plan.least, count):
            return NEVER
        if not lacking:
            return cost_of(self.empty if is_first else self.end)
        singly = range(count, min(plan.least, plan.beyond))
        cost = sum(self.value(plan.goals(index)).cost for index in singly)
        rest = plan.least - max(count, plan.beyond)
        if rest > 0:
            cost += rest * self.value(plan.goals(plan.beyond)).cost
        commas = lacking - 1 if is_first else lacking
        return cost + (cost_of(self.first) if is_first else 0) + commas * cost_of(self.next) + cost_of(self.end)

    def _searched(self, state: State, is_first: bool) -> float:
        if self.is_complete(state):
            return cost_of(self.empty if is_first else self.end)
        cheapest = NEVER
        for value, after in self.after(state):
            if after != state and value.cost != NEVER:
                cheapest = min(cheapest, value.cost + self.rest_cost(after, False))
        return cheapest + cost_of(self.first if is_first else self.next)
