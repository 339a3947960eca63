"""The texts of objects: names, each once, and what their values have to be."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import product as every_pair
from typing import Any

import numpy as np

from locore.automata.pushdown import NEVER, Choice, Row, Sequence, Symbol, cost_of
from locore.automata.regex.determinise import determinise
from locore.automata.regex.dfa import Budget, Dfa, intersection
from locore.automata.regex.language import EMPTY, partition
from locore.automata.regex.scanner import DEAD, Scanner
from locore.constraints.json_schema.characters import ASCII, BACKSLASH, LEADS, QUOTE, alike, least_bytes, read_on, ways_on
from locore.constraints.json_schema.facts import EachName, Fact, Goal, Has, Member, Names, Size, SomeMember, SomeName
from locore.constraints.json_schema.scalars import language_of_strings, matching, of_words, strings
from locore.constraints.json_schema.values import Goals, Reading, Value, joined
from locore.errors import BudgetExceeded

Label = tuple[bool, ...]  # which patterns occur in a name, then which goals of names it meets
# The listed names that cannot come any more, as bits; how many properties so far; what is missing; and, where it matters, the
# names so far that are not listed.
State = tuple[int, int, frozenset[int], frozenset[str]]
MOST_NAME_STATES = 20_000
NEW = "\ud800"  # in the place of any name that is none of those before; no text spells it
MOST_NAMES = 64  # that are listed where a pattern says which there are


def object_(reading: Reading, facts: tuple[Fact, ...], depth: int, level: int) -> Sequence:
    """An object of which these facts hold."""
    plan = plan_of(reading, facts)
    key = Objects, plan, depth, level
    objects: Objects = reading.once(key, Objects, reading, plan, depth, level)
    return (reading.literal(b"{"), objects.rest((0, 0, plan.all_missing, frozenset()), True))


def plan_of(reading: Reading, facts: tuple[Fact, ...]) -> Plan:
    """What facts say of an object."""
    plan: Plan = reading.once((Plan, facts), Plan, reading, facts)
    return plan


class Plan:
    """What facts say of an object, name by name.

    Attributes:
        listed: the names that are told apart from all others: those that the facts name, and those that have a rank.
        available: for each of them whether it may be there; goals: what its value has to meet.
        required: as bits.
        closes: as bits, for each of them the names that cannot come after it.
        patterns: that are looked for in other names; name_goals: that other names may have to meet.
        missing: what some property has to be.
        least, most: how many properties.
    """

    def __init__(self, reading: Reading, facts: tuple[Fact, ...]) -> None:
        """Of the facts about objects."""
        self.reading = reading
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
        self.impossible = any(not self.available[self.number[name]] for name in has)
        self.closes = [
            sum(1 << self.number[other] for other in ranks if ranks[other] <= ranks[name]) if name in ranks else 1 << number
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
        found: Dfa | None = self.reading.once((Names, goal), _strings_of, self.reading, goal)
        return found

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
        if not (self.patterns or self.name_goals):
            return frozenset({()})
        *_, labels = self._product
        return frozenset(label for label in labels if label is not None and self.may_be(label))

    def scanner(self, labels: frozenset[Label]) -> Scanner | None:
        """Of the names that are not listed and have one of these labels; None for any name."""
        if not (self.patterns or self.name_goals):
            return None
        if labels not in self._scanners:
            table, classes, found = self._product
            accepting = np.array([label in labels for label in found])
            self._scanners[labels] = Scanner(Dfa(table, accepting, classes), least_bytes)
        return self._scanners[labels]

    def label_at(self, state: int) -> Label | None:
        """Of the name that ends in a state of the scanner; None if it is listed."""
        if not (self.patterns or self.name_goals):
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
    known = {states[0]: 0}
    rows = []
    for state in states:
        row = []
        for after in zip(*(column[one] for column, one in zip(columns, state, strict=True)), strict=True):
            if after not in known:
                known[after] = len(states)
                states.append(after)
            row.append(known[after])
        rows.append(row)
        if len(states) > MOST_NAME_STATES:
            raise BudgetExceeded(
                f"the patterns of the names of its properties need more than {MOST_NAME_STATES:,} states together"
            )
    accepting = [dfa.accepting.tolist() for dfa in automata]
    labels: list[Label | None] = []
    for state in states:
        *flags, is_listed = (found[one] for found, one in zip(accepting, state, strict=True))
        labels.append(None if is_listed else tuple(flags))
    return np.array(rows, dtype=np.int32), classes, labels


def _strings_of(reading: Reading, goal: Goal) -> Dfa | None:
    found: Dfa | None = None
    for shape in reading.shapes.of((goal,)):
        if "string" in shape.kinds:
            one = language_of_strings(strings(shape.of("string")))
            if one is not None:  # the union, by the law of De Morgan
                both = (
                    one if found is None else intersection(found.complement(), one.complement(), Budget.in_force()).complement()
                )
                found = both
    return found


def is_named(names: Names, name: str) -> bool:
    """Is it one of these names?"""
    if names.name is not None:
        return names.name == name
    occurs = any(matching("pattern", pattern).accepts(name) for pattern in names.patterns)
    return not occurs and name not in names.but if names.others else occurs


@dataclass(eq=False)
class _Node:
    """A place in the trie of the listed names."""

    children: dict[str, _Node]
    below: list[int]  # the names that go through it
    depth: int  # letters so far
    word: int | None = None


def _trie(names: list[str]) -> _Node:
    root = _Node({}, [], 0)
    for number, name in enumerate(names):
        node = root
        node.below.append(number)
        for letter in name:
            node = node.children.setdefault(letter, _Node({}, [], node.depth + 1))
            node.below.append(number)
        node.word = number
    return root


class Objects:
    """The symbols of the objects of a plan at one depth."""

    def __init__(self, reading: Reading, plan: Plan, depth: int, level: int) -> None:
        """Nothing has been made."""
        self.reading, self.plan, self._depth, self._level = reading, plan, depth, level
        self._costs: dict[tuple[State, bool], float] = {}
        self._values: dict[object, Value] = {}
        self.close = reading.literal(b"}")
        before_colon, after_colon = reading.gap(), reading.gap(space=True)
        self.colon = (*before_colon, reading.literal(b":"), *after_colon)
        self.first = (*reading.gap(level + 1), reading.literal(b'"'))
        self.next = (*reading.gap(), reading.literal(b","), *reading.gap(level + 1), reading.literal(b'"'))
        self.end = (*reading.gap(level), self.close)
        self.empty = (*reading.gap(), self.close)

    @cached_property
    def root(self) -> _Node:
        """Of the trie of names that may come."""
        plan = self.plan
        can = [ok and self.value(plan.goals[number]).cost != NEVER for number, ok in enumerate(plan.available)]
        root = _trie(plan.listed)
        pending = [root]
        while pending:
            node = pending.pop()
            node.below = [number for number in node.below if can[number]]
            pending += node.children.values()
        return root

    def value(self, goals: Goals) -> Value:
        """Of a property."""
        return self.reading.value(goals, self._depth, self._level + 1)

    def rest(self, state: State, is_first: bool) -> ObjectRest:
        """The rest of an object after some properties."""
        key = ObjectRest, self, state, is_first
        found: ObjectRest = self.reading.once(key, ObjectRest, self, state, is_first)
        return found

    def may_come(self, number: int, state: State) -> bool:
        """May a listed name come next? Not where it comes too late, or before one that is required and then would."""
        seen, plan = state[0], self.plan
        late = plan.closes[number] & ~(1 << number) & plan.required & ~seen
        return not seen >> number & 1 and not late

    def after(self, number: int | None, label: Label, state: State, name: str = "") -> list[tuple[Value, State]]:
        """The values that a name may have, and the states behind them."""
        plan = self.plan
        seen, count, missing, names = state
        if plan.most is not None and count >= plan.most:
            return []
        seen = seen if number is None else seen | plan.closes[number] | 1 << number
        count = count + 1 if plan.most is not None else min(count + 1, plan.least)
        names = names | {name} if plan.remembers(state) and number is None else names
        goals = plan.goals_by(label) if number is None else plan.goals[number]
        free = frozenset(one for one in missing if plan.met_by(number, label, one) == ())
        could = [(one, met) for one in missing - free if (met := plan.met_by(number, label, one))]
        found = []
        for chosen in every_pair((False, True), repeat=len(could)):
            taken = [pair for pair, is_taken in zip(could, chosen, strict=True) if is_taken]
            more = [goal for _, met in taken for goal in met]
            left = missing - free - {one for one, _ in taken}
            following = seen, count, left, names
            following = following if plan.remembers(following) else (seen, count, left, frozenset())
            found.append((self.value(joined((*goals, *more))), following))
        return found

    def member_cost(self, number: int | None, label: Label, state: State) -> float:
        """Of the colon, the cheapest value of a property and all that follows."""
        ways = self.after(number, label, state)
        return min((cost_of(self.colon) + value.cost + self.rest_cost(after, False) for value, after in ways), default=NEVER)

    def name_cost(self, number: int, start: int = 0) -> float:
        """Of the rest of a listed name and its quote."""
        text = json.dumps(self.plan.listed[number][start:], ensure_ascii=False).encode()[1:]
        return self.reading.measure(text)

    def rest_cost(self, state: State, is_first: bool) -> float:
        """Of the cheapest way to go on to the last bracket."""
        key = state, is_first
        if key not in self._costs:
            self._costs[key] = NEVER if self.plan.impossible else self._rest_cost(state, is_first)
        return self._costs[key]

    def is_complete(self, state: State) -> bool:
        """May the object end here?"""
        seen, count, missing, _ = state
        return not (self.plan.required & ~seen or missing) and count >= self.plan.least

    def _rest_cost(self, state: State, is_first: bool) -> float:
        seen, count, missing, _ = state
        if missing:
            return self._searched_cost(state, is_first)
        plan = self.plan
        found, members = 0.0, 0
        for number in _bits(plan.required & ~seen):
            found += self._whole_member(number)
            members += 1
        if found == NEVER:
            return NEVER
        lacking = plan.least - count - members
        if lacking > 0:
            free = (1 << len(plan.listed)) - 1 & ~seen & ~plan.required
            costs = sorted(self._whole_member(number) for number in _bits(free) if plan.available[number])
            other = self._whole_other
            costs = [cost for cost in costs if cost < other][:lacking]
            costs += [other] * (lacking - len(costs))
            found += sum(costs)
            members += lacking
        if plan.most is not None and count + members > plan.most:
            return NEVER
        if not members:
            return found + cost_of(self.empty if is_first else self.end)
        commas = members - 1 if is_first else members
        return found + (cost_of(self.first) if is_first else 0) + commas * cost_of(self.next) + cost_of(self.end)

    def _whole_member(self, number: int) -> float:
        value = self.value(self.plan.goals[number])
        return self.name_cost(number) + cost_of(self.colon) + value.cost

    @cached_property
    def _whole_other(self) -> float:
        """Of a property that is not listed."""
        plan, found = self.plan, NEVER
        for label in plan.labels:
            scanner = plan.scanner(frozenset({label}))
            name = float(max(map(len, plan.listed), default=0) > 0) if scanner is None else scanner.cost(0)
            found = min(found, name + 1 + cost_of(self.colon) + self.value(plan.goals_by(label)).cost)
        return found

    def _searched_cost(self, state: State, is_first: bool) -> float:
        """Where a property is missing that is not known by name: property by property, required ones first."""
        plan, seen = self.plan, state[0]
        required = next(iter(_bits(plan.required & ~seen)), None)
        start = cost_of(self.first if is_first else self.next)
        numbers = [required] if required is not None else list(_bits((1 << len(plan.listed)) - 1 & ~seen))
        costs = [
            self.name_cost(number) + self._progress(number, (), state, required is None)
            for number in numbers
            if plan.available[number] and self.may_come(number, state)
        ]
        for label in plan.labels if required is None else ():
            scanner = plan.scanner(frozenset({label}))
            name = float(bool(plan.listed)) if scanner is None else scanner.cost(0)
            costs.append(name + 1 + self._progress(None, label, state, True))
        return start + min(costs, default=NEVER)

    def _progress(self, number: int | None, label: Label, state: State, must: bool) -> float:
        """As `member_cost`; if it must, only of ways with less missing than before."""
        ways = [(value, after) for value, after in self.after(number, label, state) if not must or after[2] != state[2]]
        return min((cost_of(self.colon) + value.cost + self.rest_cost(after, False) for value, after in ways), default=NEVER)


def _bits(mask: int) -> list[int]:
    return [number for number in range(mask.bit_length()) if mask >> number & 1]


class ObjectRest(Choice):
    """The rest of an object, with its last bracket."""

    def __init__(self, objects: Objects, state: State, is_first: bool) -> None:
        """After the properties of a state."""
        self._objects, self._state, self._is_first = objects, state, is_first

    @cached_property
    def cost(self) -> float:
        """Counted, not searched."""
        return self._objects.rest_cost(self._state, self._is_first)

    @cached_property
    def ways(self) -> tuple[Sequence, ...]:
        """Its end, or one more property."""
        objects, state = self._objects, self._state
        found: list[Sequence] = []
        if objects.is_complete(state):
            found.append(objects.empty if self._is_first else objects.end)
        name = name_at(objects, state, b"", objects.root, 0)
        if name.cost != NEVER:
            found.append((*(objects.first if self._is_first else objects.next), name))
        return tuple(found)


def name_at(objects: Objects, state: State, beginning: bytes, node: _Node | None, scanned: int, written: str = "") -> NameRest:
    """The rest of a name behind its first quote, and of all that follows in the object."""
    if beginning:
        node, beginning = _simplified(objects, beginning, node, scanned, objects.plan.remembers(state) and written != NEW)
    key = NameRest, objects, state, beginning, node and id(node), scanned, written
    found: NameRest = objects.reading.once(key, NameRest, objects, state, beginning, node, scanned, written)
    return found


def _simplified(
    objects: Objects, beginning: bytes, node: _Node | None, scanned: int, remembered: bool
) -> tuple[_Node | None, bytes]:
    """Without names that the beginning of a character excludes, and without telling characters apart needlessly."""
    if beginning[0] != BACKSLASH and node is not None:
        node = node if any(letter.encode().startswith(beginning) for letter in node.children) else None
    if node is None:
        plan = objects.plan
        scanner = plan.scanner(plan.labels) if scanned != DEAD and (plan.patterns or plan.name_goals) else None
        alone = scanner is None or (beginning[0] != BACKSLASH and not scanner.tells_beyond_ascii)
        if alone and not remembered:
            beginning = alike(beginning, objects.reading.minimal)
    return node, beginning


@dataclass(frozen=True)
class _Others:
    """Names that are not listed.

    Attributes:
        scanner: of all that can come; None for any name.
        ways: what may have to be paid behind a name, and the scanner of the names for which it is that.
    """

    scanner: Scanner | None
    ways: tuple[tuple[float, Scanner | None], ...]


class NameRest(Symbol):
    """The rest of a name, its value, and the rest of the object."""

    def __init__(
        self, objects: Objects, state: State, beginning: bytes, node: _Node | None, scanned: int, written: str
    ) -> None:
        """What has been read of it: a place among the listed names (None: it is another one), and a state of their scanner.

        Args:
            written: what has been read, where names are remembered; or NEW.
        """
        self._objects, self._state, self._beginning, self._node, self._scanned = objects, state, beginning, node, scanned
        self._written, self._remembers = written, objects.plan.remembers(state) and written != NEW
        is_free = node is None and scanned != DEAD
        self.is_wide = is_free and self._remembers and not any(map(self._may_become, state[3]))
        if is_free and not beginning and not self._remembers and self._others.scanner is None:
            self.plain_room = NEVER

    def _may_become(self, name: str) -> bool:
        """Can what has been read be the beginning of this name?"""
        if not name.startswith(self._written):
            return False
        following, beginning = name[len(self._written) : len(self._written) + 1], self._beginning
        return not beginning or bool(following and (beginning[0] == BACKSLASH or following.encode().startswith(beginning)))

    @property
    def stand_in(self) -> Symbol:
        """A name that can become none of those before is as good as any other one."""
        if not self.is_wide:
            return self
        return name_at(self._objects, self._state, self._beginning, None, self._scanned, NEW)

    @cached_property
    def _others(self) -> _Others:
        """The names that are not listed, by what the rest of the object costs behind them."""
        key = "others", self._objects, self._state
        found: _Others = self._objects.reading.once(key, self._find_others)
        return found

    def _find_others(self) -> _Others:
        objects, plan = self._objects, self._objects.plan
        labels: dict[float, set[Label]] = {}
        for label in plan.labels:
            labels.setdefault(objects.member_cost(None, label, self._state), set()).add(label)
        labels.pop(NEVER, None)
        whole: frozenset[Label] = frozenset().union(*labels.values())
        return _Others(
            plan.scanner(whole) if whole else None,
            tuple((cost, plan.scanner(frozenset(some))) for cost, some in labels.items()),
        )

    @cached_property
    def cost(self) -> float:
        """Of the cheapest name and what follows."""
        if not self._beginning:
            return min(self._listed_cost(self._node), self._other_cost())
        found = NEVER
        for missing, low, high in ways_on(self._beginning, self._objects.reading.minimal):
            for letter, child in self._node.children.items() if self._node is not None else ():
                if low <= ord(letter) <= high:
                    found = min(found, missing + self._listed_cost(child))
            found = min(found, missing + self._other_cost_through(low, high))
        return found

    def _listed_cost(self, node: _Node | None) -> float:
        objects = self._objects
        if node is None or not node.below:
            return NEVER
        return min(
            (
                objects.name_cost(number, node.depth) + objects.member_cost(number, (), self._state)
                for number in node.below
                if objects.may_come(number, self._state)
            ),
            default=NEVER,
        )

    def _other_cost(self) -> float:
        if self._scanned == DEAD:
            return NEVER
        is_taken = self._written in self._state[3] and self._remembers
        # Of any name that is not listed; one letter more always makes one.
        more = float(is_taken or (self._node is not None and self._node.word is not None))
        return min(
            (
                after + 1 + (more if scanner is None else (scanner.cost(self._scanned) or float(is_taken)))
                for after, scanner in self._others.ways
            ),
            default=NEVER,
        )

    def _other_cost_through(self, low: int, high: int) -> float:
        if self._scanned == DEAD:
            return NEVER
        return min(
            (
                after + 2 if scanner is None else scanner.cost_through(self._scanned, low, high, 0, None) + 1 + after
                for after, scanner in self._others.ways
            ),
            default=NEVER,
        )

    @cached_property
    def row(self) -> Row:
        """Byte by byte."""
        found: dict[int, tuple[Sequence, ...]] = {}
        minimal = self._objects.reading.minimal
        if self._beginning:
            for byte in range(0x80, 0xC0) if self._beginning[0] != BACKSLASH else range(0x22, 0x80):
                read = read_on(self._beginning, byte, minimal)
                symbol = self._after(read) if isinstance(read, int) else None if read is None else self._begun(read)
                self._put(found, byte, symbol)
            return found
        if self._node is None and self._others.scanner is None and not self._remembers:
            self._put(found, 0x20, self._after(0x20))
            found.update(dict.fromkeys(ASCII, found[0x20]) if 0x20 in found else {})
        else:
            for byte in ASCII:
                self._put(found, byte, self._after(byte))
        for byte in (BACKSLASH, *LEADS):
            self._put(found, byte, self._begun(bytes([byte])))
        if ends := self._ends():
            found[QUOTE] = ends
        return found

    def ways_after(self, byte: int) -> tuple[Sequence, ...]:
        """Of the row, without the rest of it."""
        if byte == QUOTE and not self._beginning:
            return self._ends()
        symbol: NameRest | None = None
        if self._beginning:
            if (0x80 <= byte < 0xC0) if self._beginning[0] != BACKSLASH else (0x22 <= byte < 0x80):
                read = read_on(self._beginning, byte, self._objects.reading.minimal)
                symbol = self._after(read) if isinstance(read, int) else None if read is None else self._begun(read)
        elif byte in ASCII:
            symbol = self._after(byte)
        elif byte == BACKSLASH or byte in LEADS:
            symbol = self._begun(bytes([byte]))
        return () if symbol is None or symbol.cost == NEVER else ((symbol,),)

    def _put(self, found: dict[int, tuple[Sequence, ...]], byte: int, symbol: NameRest | None) -> None:
        if symbol is not None and symbol.cost != NEVER:
            found[byte] = self._objects.reading.once(("ways", symbol), lambda: ((symbol,),))

    def _begun(self, beginning: bytes) -> NameRest:
        return name_at(self._objects, self._state, beginning, self._node, self._scanned, self._written)

    def _after(self, code: int) -> NameRest | None:
        scanner = self._others.scanner
        node = None if self._node is None else self._node.children.get(chr(code))
        scanned = self._scanned
        if not self._others.ways:
            scanned = DEAD
        elif scanner is not None and scanned != DEAD:
            scanned = scanner.after(scanned, code)
        if node is None and scanned == DEAD:
            return None
        written = self._written + chr(code) if self._remembers else self._written
        return name_at(self._objects, self._state, b"", node, scanned, written)

    def _ends(self) -> tuple[Sequence, ...]:
        objects = self._objects
        word = None if self._node is None else self._node.word
        if word is not None:
            if word not in self._node.below or not objects.may_come(word, self._state):  # type: ignore[union-attr]
                return ()
            ways = objects.after(word, (), self._state)
        else:
            scanner = self._others.scanner
            is_name = self._others.ways and self._scanned != DEAD and (scanner is None or scanner.accepting[self._scanned])
            label = objects.plan.label_at(self._scanned) if is_name else None
            is_taken = self._remembers and self._written in self._state[3]
            ways = [] if label is None or is_taken else objects.after(None, label, self._state, self._written)
        found = [(*objects.colon, value, objects.rest(state, False)) for value, state in ways]
        return tuple(way for way in found if cost_of(way) != NEVER)
