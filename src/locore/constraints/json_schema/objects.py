"""The texts of objects: names, each once, and what their values have to be."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product as every_pair

from locore.automata.pushdown import NEVER, Sequence, Texts, cost_of
from locore.automata.walking import IS_PLAIN
from locore.constraints.json_schema.containers import Container
from locore.constraints.json_schema.facts import Fact
from locore.constraints.json_schema.names import TrieNode, name_at, trie, words_below
from locore.constraints.json_schema.properties import Label, Plan, State
from locore.constraints.json_schema.value_symbols import Reading, Value, joined
from locore.kernel.plugins import cached_property


def object_(reading: Reading, facts: tuple[Fact, ...], depth: int, level: int) -> Sequence:
    """An object of which these facts hold."""
    plan = reading.plan(Plan, facts)
    key = Objects, plan, depth, level
    objects: Objects = reading.once(key, Objects, reading, plan, depth, level)
    return (reading.literal(b"{"), objects.rest((0, 0, plan.all_missing, frozenset()), True))


class Objects(Container):
    """The symbols of the objects of a plan at one depth."""

    plan: Plan

    def __init__(self, reading: Reading, plan: Plan, depth: int, level: int) -> None:
        super().__init__(reading, plan, depth, level, b"}", (reading.literal(b'"'),))
        self._listed_costs: dict[State, dict[int, float]] = {}
        self._name_costs: dict[tuple[int, int], float] = {}
        self._spelled: dict[int, tuple[Texts, list[int]] | None] = {}
        self._values: dict[int | Label, Value] = {}
        self._whole: dict[int, float] = {}
        self.colon = (*reading.gap(), reading.literal(b":"), *reading.gap(after=":"))

    @cached_property
    def root(self) -> TrieNode:
        """Of the trie of names that may come."""
        plan = self.plan
        can = [ok and self.value(plan.goals[number]).cost != NEVER for number, ok in enumerate(plan.available)]
        root = trie(plan.listed)
        pending = [root]
        while pending:
            node = pending.pop()
            node.below = [number for number in node.below if can[number]]
            pending += node.children.values()
        return root

    def may_come(self, number: int | None, state: State) -> bool:
        """May a listed name (None: another one) come next? Not too late, nor before one that is required and then would be."""
        seen, plan = state[0], self.plan
        if number is None:
            return not plan.ranked & plan.required & ~seen
        late = plan.closes[number] & ~(1 << number) & plan.required & ~seen
        return not seen >> number & 1 and not late

    def after(self, number: int | None, label: Label, state: State, name: str = "") -> list[tuple[Value, State]]:
        """The values that a name may have, and the states behind them."""
        plan = self.plan
        seen, count, missing, names = state
        if (plan.most is not None and count >= plan.most) or not self.may_come(number, state):
            return []
        seen |= plan.ranked if number is None else plan.closes[number] | 1 << number
        count = count + 1 if plan.most is not None else min(count + 1, plan.least)
        names = names | {name} if plan.remembers(state) and number is None else names
        if not missing:
            keeps = names and plan.remembers((seen, count, missing, names))
            return [(self._value_of(number, label), (seen, count, missing, names if keeps else frozenset()))]
        goals = plan.goals_by(label) if number is None else plan.goals[number]
        free = frozenset(absent for absent in missing if plan.met_by(number, label, absent) == ())
        could = [(absent, met) for absent in missing - free if (met := plan.met_by(number, label, absent))]
        successors = []
        for chosen in every_pair((False, True), repeat=len(could)):
            taken = [pair for pair, is_taken in zip(could, chosen, strict=True) if is_taken]
            more = [goal for _, met in taken for goal in met]
            left = missing - free - {absent for absent, _ in taken}
            following = seen, count, left, names
            following = following if plan.remembers(following) else (seen, count, left, frozenset())
            successors.append((self.value(joined((*goals, *more))), following))
        return successors

    def _value_of(self, number: int | None, label: Label) -> Value:
        """Of a name, as far as nothing is missing."""
        key = label if number is None else number
        if key not in self._values:
            self._values[key] = self.value(self.plan.goals_by(label) if number is None else self.plan.goals[number])
        return self._values[key]

    def members(self, number: int | None, label: Label, state: State, name: str = "") -> tuple[Sequence, ...]:
        """A colon, the value of a name, and the rest of the object."""
        ways = [(*self.colon, value, self.rest(after, False)) for value, after in self.after(number, label, state, name)]
        return tuple(way for way in ways if cost_of(way) != NEVER)

    def spelled(self, node: TrieNode) -> tuple[Texts, list[int]] | None:
        """The rests of the listed names from a place of their trie on, and which these are; None if some are not plain."""
        if id(node) not in self._spelled:
            words = [(number, self.plan.listed[number][node.depth :]) for number in words_below(node)]
            spelled = tuple(rest.encode() + b'"' for _, rest in words)
            texts = Texts(spelled, self.reading.measure, float(not self.plan.tells_others))
            is_plain = all(IS_PLAIN[list(rest.encode())].all() for _, rest in words)
            self._spelled[id(node)] = (texts, [number for number, _ in words]) if is_plain else None
        return self._spelled[id(node)]

    def member_cost(self, number: int | None, label: Label, state: State) -> float:
        """Of the colon, the cheapest value of a property and all that follows."""
        ways = self.after(number, label, state)
        return min((cost_of(self.colon) + value.cost + self.rest_cost(after, False) for value, after in ways), default=NEVER)

    def listed_costs(self, state: State) -> dict[int, float]:
        """For each listed name that may come next, what follows costs."""
        costs = self._listed_costs.get(state)
        if costs is None:
            numbers = [number for number in self.root.below if self.may_come(number, state)]
            costs = self._listed_costs[state] = {number: self.member_cost(number, (), state) for number in numbers}
        return costs

    def name_cost(self, number: int, start: int = 0) -> float:
        """Of the rest of a listed name and its quote."""
        cost = self._name_costs.get((number, start))
        if cost is None:
            text = json.dumps(self.plan.listed[number][start:], ensure_ascii=False).encode()[1:]
            cost = self._name_costs[number, start] = self.reading.measure(text)
        return cost

    def is_complete(self, state: State) -> bool:
        """May the object end here?"""
        seen, count, missing, _ = state
        return not (self.plan.required & ~seen or missing) and count >= self.plan.least

    def more(self, state: State) -> Iterable[Sequence]:
        """One more property, from its name on."""
        return name_at(self, state, b"", self.root, 0)

    def _rest_cost(self, state: State, is_first: bool) -> float:
        seen, count, missing, _ = state
        if self.plan.impossible:
            return NEVER
        if missing:
            return self._searched_cost(state, is_first)
        plan = self.plan
        total, members = 0.0, 0
        for number in _bits(plan.required & ~seen):
            total += self._whole_member(number)
            members += 1
        if total == NEVER:
            return NEVER
        lacking = plan.least - count - members
        if lacking > 0:
            free = (1 << len(plan.listed)) - 1 & ~seen & ~plan.required
            costs = sorted(self._whole_member(number) for number in _bits(free) if plan.available[number])
            other = self._whole_other
            costs = [cost for cost in costs if cost < other][:lacking]
            costs += [other] * (lacking - len(costs))
            total += sum(costs)
            members += lacking
        if plan.most is not None and count + members > plan.most:
            return NEVER
        if not members:
            return total + cost_of(self.empty if is_first else self.end)
        commas = members - 1 if is_first else members
        return total + (cost_of(self.first) if is_first else 0) + commas * cost_of(self.next) + cost_of(self.end)

    def _whole_member(self, number: int) -> float:
        if number not in self._whole:
            self._whole[number] = self.name_cost(number) + cost_of(self.colon) + self._value_of(number, ()).cost
        return self._whole[number]

    @cached_property
    def _whole_other(self) -> float:
        """Of a property that is not listed."""
        plan, cheapest = self.plan, NEVER
        for label in plan.labels:
            scanner = plan.scanner(frozenset({label}))
            name = float(max(map(len, plan.listed), default=0) > 0) if scanner is None else scanner.cost(0)
            cheapest = min(cheapest, name + 1 + cost_of(self.colon) + self.value(plan.goals_by(label)).cost)
        return cheapest

    def _searched_cost(self, state: State, is_first: bool) -> float:
        """Where a property is missing that is not known by name: by properties that are required, or that help."""
        plan, seen = self.plan, state[0]
        required = next(iter(_bits(plan.required & ~seen)), None)
        start = cost_of(self.first if is_first else self.next)
        costs = [
            self.name_cost(number) + self._progress(number, (), state, number != required)
            for number in _bits((1 << len(plan.listed)) - 1 & ~seen)
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
