"""What is said of an object, name by name: which properties may be there, and what their values have to be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from locore.automata.regex.determinise import determinise
from locore.automata.regex.dfa import Budget, Dfa, intersection
from locore.automata.regex.language import EMPTY, partition
from locore.automata.regex.scanner import Scanner
from locore.constraints.json_schema.facts import (
    FALSE,
    EachName,
    Fact,
    Goal,
    Has,
    Listed,
    Member,
    Names,
    Size,
    SomeMember,
    SomeName,
)
from locore.constraints.json_schema.json_characters import least_bytes
from locore.constraints.json_schema.scalars import Strings, language_of_strings, matching, of_words, strings
from locore.constraints.json_schema.value_symbols import Goals, Reading, joined
from locore.kernel.errors import BudgetExceeded
from locore.kernel.plugins import cached_property

Label = tuple[bool, ...]  # which patterns occur in a name, then which goals of names it meets
# The listed names that cannot come any more, as bits; how many properties so far; what is missing; and, where it matters, the
# names so far that are not listed.
State = tuple[int, int, frozenset[int], frozenset[str]]
MOST_NAME_STATES = 20_000
MOST_NAMES = 64  # that are listed where a pattern says which there are


class Plan:
    """What facts say of an object, name by name.

    Attributes:
        listed: the names that are told apart from all others: those that the facts name, and those that have a rank.
        available: for each of them whether it may be there; goals: what its value has to meet.
        required: as bits.
        closes: as bits, for each of them the names that cannot come after it; ranked: those that no other name comes before.
        patterns: that are looked for in other names; name_goals: that other names may have to meet.
        missing: what some property has to be.
        least, most: how many properties.
    """

    def __init__(self, reading: Reading, facts: tuple[Fact, ...]) -> None:
        self.reading, facts = reading, closed(facts)
        self._members = [fact for fact in facts if isinstance(fact, Member)]
        self.missing = [fact for fact in facts if isinstance(fact, SomeMember | SomeName)]
        self.all_missing = frozenset(range(len(self.missing)))
        self._names = list(dict.fromkeys(fact.goal for fact in facts if isinstance(fact, EachName)))
        has = {fact.name: True for fact in facts if isinstance(fact, Has) and fact.wanted}
        lacks = {fact.name for fact in facts if isinstance(fact, Has) and not fact.wanted}
        self.least = max((fact.least for fact in facts if isinstance(fact, Size)), default=0)
        self.most = min((fact.most for fact in facts if isinstance(fact, Size) and fact.most is not None), default=None)
        ranks = self._ranks() if reading.style.order == "schema" else {}
        said = [fact.names for fact in (*self._members, *self.missing) if not isinstance(fact, SomeName)]
        named = [name for names in said for name in (*([] if names.name is None else [names.name]), *sorted(names.but))]
        self.patterns = sorted({pattern for names in said for pattern in names.patterns})
        self.name_goals = list(dict.fromkeys((*self._names, *(f.goal for f in self.missing if isinstance(f, SomeName)))))
        self.listed = list(dict.fromkeys((*ranks, *named, *has, *sorted(lacks))))
        if (self.least > 1 or self.most is not None or self.missing) and (self.patterns or self.name_goals):
            self.listed += self._few_names()
            del self._product, self.labels
        self.number = {name: number for number, name in enumerate(self.listed)}
        self.goals = [self._goals(name) for name in self.listed]
        self.available = [name not in lacks and all(self._meets(goal, name) for goal in self._names) for name in self.listed]
        self.required = sum(1 << self.number[name] for name in has)
        self.ranked = sum(1 << self.number[name] for name in ranks)
        self.impossible = any(not self.available[self.number[name]] for name in has)
        self.closes = [
            sum(1 << self.number[other] for other in ranks if ranks[other] <= ranks[name])
            if name in ranks
            else self.ranked | 1 << number
            for number, name in enumerate(self.listed)
        ]
        self._scanners: dict[frozenset[Label], Scanner] = {}

    def remembers(self, state: State) -> bool:
        """Must names that are not listed be told apart, as there may be too few without those that come twice?

        A name that comes twice where there may be too many is counted twice, and one that comes twice elsewhere is let through.
        """
        return bool(self.missing) or (self.least > 1 and state[1] < self.least)

    def _ranks(self) -> dict[str, int]:
        """The names whose values the facts describe, in their order."""
        names = dict.fromkeys(fact.names.name for fact in self._members if fact.names.name is not None)
        return {name: rank for rank, name in enumerate(names)}

    def _few_names(self) -> list[str]:
        """The other names, if they are so few that they can be counted; each of them is told apart, then."""
        table, classes, labels = self._product
        possible = {label for label in self.labels if self.reading.shapes.of(self.goals_by(label))}
        dfa = Dfa(table, np.array([label in possible for label in labels]), classes)
        return dfa.words(MOST_NAMES) or []

    def _meets(self, goal: Goal, name: str) -> bool:
        dfa = self.names_of(goal)
        return dfa is not None and dfa.accepts(name)

    def names_of(self, goal: Goal) -> Dfa | None:
        """The strings that meet a goal; None if there are none."""
        dfa: Dfa | None = self.reading.once((Names, goal), _strings_of, self.reading, goal)
        return dfa

    def parts(self) -> Iterable[Goals]:
        """What the values of properties may have to meet."""
        for goals, is_available in zip(self.goals, self.available, strict=True):
            if is_available:
                yield goals
        for label in sorted(self.labels):
            yield self.goals_by(label)
        for fact in self.missing:
            if isinstance(fact, SomeMember):
                yield (fact.goal,)

    def _goals(self, name: str) -> Goals:
        return joined(fact.goal for fact in self._members if is_named(fact.names, name))

    def goals_by(self, label: Label) -> Goals:
        """What the value of a name that is not listed has to meet."""
        return joined(fact.goal for fact in self._members if self._is_meant(fact.names, label))

    def _is_meant(self, names: Names, label: Label) -> bool:
        occurs = any(label[self.patterns.index(pattern)] for pattern in names.patterns)
        return names.name is None and occurs != names.others

    def may_be(self, label: Label) -> bool:
        """May a name that is not listed be so?"""
        return all(label[len(self.patterns) + self.name_goals.index(goal)] for goal in self._names)

    def met_by(self, number: int | None, label: Label, missing: int) -> Goals | None:
        """What the value of such a property has to meet to be the missing one; None if it cannot be."""
        fact = self.missing[missing]
        if isinstance(fact, SomeName):
            met = self._meets(fact.goal, self.listed[number]) if number is not None else self._label_of(label, fact.goal)
            return () if met else None
        meant = self._is_meant(fact.names, label) if number is None else is_named(fact.names, self.listed[number])
        return (fact.goal,) if meant else None

    def _label_of(self, label: Label, goal: Goal) -> bool:
        return label[len(self.patterns) + self.name_goals.index(goal)]

    # Names that are not listed.

    @cached_property
    def labels(self) -> frozenset[Label]:
        """Those that a name which is not listed can have."""
        if not self.tells_others:
            return frozenset({()})
        *_, labels = self._product
        return frozenset(label for label in labels if label is not None and self.may_be(label))

    def scanner(self, labels: frozenset[Label]) -> Scanner | None:
        """Of the names that are not listed and have one of these labels; None for any name."""
        if not self.tells_others:
            return None
        if labels not in self._scanners:
            table, classes, state_labels = self._product
            accepting = np.array([label in labels for label in state_labels])
            self._scanners[labels] = Scanner(Dfa(table, accepting, classes), least_bytes)
        return self._scanners[labels]

    @property
    def tells_others(self) -> bool:
        """Are names that are not listed told apart?"""
        return bool(self.patterns or self.name_goals)

    @cached_property
    def others(self) -> dict[Label, Strings]:
        """The names that are not listed, by label."""
        return {label: Strings(self.scanner(frozenset({label})), 0, None) for label in sorted(self.labels)}

    def label_at(self, state: int) -> Label | None:
        """Of the name that ends in a state of the scanner; None if it is listed."""
        if not self.tells_others:
            return ()
        label: Label | None = self._product[2][state]
        return label

    @cached_property
    def _product(self) -> tuple[Any, Any, list[Label | None]]:
        """The patterns and the goals of names, side by side; and the listed names, which have no label."""
        automata = [matching("pattern", pattern) for pattern in self.patterns]
        automata += [self.names_of(goal) or determinise(EMPTY, Budget()) for goal in self.name_goals]
        automata.append(of_words(self.listed))
        return _side_by_side(automata)


def _side_by_side(automata: list[Dfa]) -> tuple[Any, Any, list[Label | None]]:
    sets = [chars for dfa in automata for chars in dfa.classes.sets]
    classes, members = partition(sets)
    columns, place = [], 0
    for dfa in automata:
        column = np.zeros(classes.num_classes, dtype=np.int64)
        for number in range(dfa.classes.num_classes):
            column[list(members[place + number])] = number
        columns.append(dfa.table[:, column].tolist())
        place += dfa.classes.num_classes
    states: list[tuple[int, ...]] = [(0,) * len(automata)]
    numbers = {states[0]: 0}
    rows = []
    for state in states:
        row = []
        for after in zip(*(column[part] for column, part in zip(columns, state, strict=True)), strict=True):
            if after not in numbers:
                numbers[after] = len(states)
                states.append(after)
            row.append(numbers[after])
        rows.append(row)
        if len(states) > MOST_NAME_STATES:
            raise BudgetExceeded(
                f"the patterns of the names of its properties need more than {MOST_NAME_STATES:,} states together"
            )
    accepting = [dfa.accepting.tolist() for dfa in automata]
    labels: list[Label | None] = []
    for state in states:
        *flags, is_listed = (accepts[part] for accepts, part in zip(accepting, state, strict=True))
        labels.append(None if is_listed else tuple(flags))
    return np.array(rows, dtype=np.int32), classes, labels


def _strings_of(reading: Reading, goal: Goal) -> Dfa | None:
    union: Dfa | None = None
    for shape in reading.shapes.of((goal,)):
        if "string" in shape.kinds:
            dfa = language_of_strings(strings(shape.of("string")))
            if dfa is not None:  # the union, by the law of De Morgan
                both = (
                    dfa if union is None else intersection(union.complement(), dfa.complement(), Budget.in_force()).complement()
                )
                union = both
    return union


def closed(facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """Without other properties than those that are listed, where they are and nothing says what others may be.

    All schemas that hold of an object in one place list together, so that one of several in `allOf` excludes no other's
    properties. Where more are demanded than are listed, the others must be unlisted ones.
    """
    listed = [fact for fact in facts if isinstance(fact, Listed)]
    names = frozenset().union(*(fact.names for fact in listed if fact.names is not None))
    says_others = any(fact.names is None for fact in listed) or not any(fact.closes for fact in listed)
    if says_others or any(isinstance(fact, Size) and fact.least > len(names) for fact in facts):
        return facts
    return (*facts, Member(Names(others=True, but=names), Goal(FALSE)))


def is_named(names: Names, name: str) -> bool:
    """Is it one of these names?"""
    if names.name is not None:
        return names.name == name
    occurs = any(matching("pattern", pattern).accepts(name) for pattern in names.patterns)
    return not occurs and name not in names.but if names.others else occurs
