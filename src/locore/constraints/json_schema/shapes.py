"""Formulas as alternatives: a *shape* is a set of kinds of values, and facts that hold of them all together.

Negations are carried inwards to the facts, whose opposites are formulas themselves; what a value's parts have to meet stays a
set of goals and is only looked at when a text gets there. So `allOf`, `anyOf`, `oneOf`, `not` and `if` are exact, and cost what
they say. Where `unevaluatedProperties` or `unevaluatedItems` ask which schemas were valid, the alternatives tell all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from locore.constraints.json_schema.documents import Node
from locore.constraints.json_schema.facts import (
    TRUE,
    TYPES,
    All,
    Fact,
    Formula,
    Goal,
    Has,
    Items,
    Kinds,
    Member,
    Names,
    Negation,
    NumberIn,
    Some,
    StringIn,
    Union,
    Valid,
)
from locore.constraints.json_schema.rules import Rules, either, with_, without
from locore.kernel.errors import BudgetExceeded, InvalidConstraint

MOST_SHAPES = 4_000  # of one place
STEPS_A_SHAPE = 10  # pairs that are joined in all, for each shape allowed
APART = 64  # facts of pairs that are looked at cost as much as joining a pair
MOST_UNTAGGED = 60  # of a union that a tag tells apart, without it
MOST_DEEP = 64  # references in one place


@dataclass(frozen=True)
class Shape:
    """One alternative.

    Attributes:
        kinds: of the value.
        facts: that hold of it, each once, in the order of the schema.
    """

    kinds: frozenset[str]
    facts: tuple[Fact, ...] = ()

    def with_(self, other: Shape) -> Shape | None:
        """Both at once; None where no value can be."""
        kinds = self.kinds & other.kinds
        if not kinds:
            return None
        facts = dict.fromkeys(fact for fact in (*self.facts, *other.facts) if fact.kind in kinds)
        both = _without_contradictions(Shape(kinds, tuple(facts)))
        return both if both.kinds else None

    def of(self, kind: str) -> tuple[Fact, ...]:
        """The facts about one kind."""
        return tuple(fact for fact in self.facts if fact.kind == kind)


ANYTHING = Shape(TYPES)


@dataclass(frozen=True)
class Evaluated:
    """Which properties and items of a value keywords have evaluated.

    Attributes:
        names, patterns: of properties; `all_names`: all.
        items: so many first ones, None for all; `held`: those that meet one of these goals.
    """

    names: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()
    all_names: bool = False
    items: int | None = 0
    held: tuple[Goal, ...] = ()

    def with_(self, other: Evaluated) -> Evaluated:
        """Both."""
        items = None if self.items is None or other.items is None else max(self.items, other.items)
        return Evaluated(
            self.names | other.names,
            self.patterns | other.patterns,
            self.all_names or other.all_names,
            items,
            tuple(dict.fromkeys((*self.held, *other.held))),
        )


NOTHING = Evaluated()
Way = tuple[Formula, Evaluated]  # an alternative, and what it has evaluated


class Shapes:
    """The alternatives of goals, each set of goals once."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._of_goals: dict[tuple[Goal, ...], tuple[Shape, ...]] = {}
        self._of: dict[Goal, tuple[Shape, ...]] = {}
        self._open: list[Node] = []
        self._steps, self._most = 0, MOST_SHAPES
        self.left_out: list[str] = []  # what is valid, and is left out all the same

    def of(self, goals: tuple[Goal, ...]) -> tuple[Shape, ...]:
        """The alternatives in which a value meets all of these goals.

        Raises:
            BudgetExceeded: too many.
            InvalidConstraint: a schema refers to itself in the same place.
        """
        if goals not in self._of_goals:
            shapes: tuple[Shape, ...] = (ANYTHING,)
            for goal in goals:
                shapes = self._joined(shapes, self.of_one(goal))
            self._of_goals[goals] = shapes
        return self._of_goals[goals]

    def of_one(self, goal: Goal) -> tuple[Shape, ...]:
        """The alternatives of one goal."""
        if goal not in self._of:
            self._of[goal] = self._expanded(goal.formula, goal.wanted)
        return self._of[goal]

    def _expanded(self, formula: Formula, wanted: bool) -> tuple[Shape, ...]:
        if isinstance(formula, Negation):
            return self._expanded(formula.of, not wanted)
        if isinstance(formula, Kinds):
            kinds = formula.kinds if wanted else TYPES - formula.kinds
            return (Shape(kinds),) if kinds else ()
        if isinstance(formula, Valid):
            return self._valid(formula.node, wanted)
        if isinstance(formula, Union):
            return self._union(formula) if wanted else self._no_union(formula)
        if isinstance(formula, All | Some):
            if isinstance(formula, All) == wanted:
                return self._all(formula.of, wanted)
            shapes: dict[Shape, None] = {}
            for part in formula.of:
                shapes.update(dict.fromkeys(self._expanded(part, wanted)))
                self._check(len(shapes))
            return tuple(shapes)
        return (Shape(TYPES, (formula,)),) if wanted else self._expanded(formula.denied(), True)

    def _all(self, parts: tuple[Formula, ...], wanted: bool) -> tuple[Shape, ...]:
        """All parts, or (not wanted) the negations of all."""
        shapes: tuple[Shape, ...] = (ANYTHING,)
        late: list[Formula] = []
        for part in parts:
            if isinstance(part, Negation) and wanted:
                late.append(part)
            else:
                shapes = self._joined(shapes, self._expanded(part, wanted))
        for part in late:
            shapes = self._without(shapes, part)
        return shapes

    def _union(self, union: Union) -> tuple[Shape, ...]:
        """By the tag where there is one, without looking at what keeps the others from being valid; and what has none."""
        if not (union.just_one or union.demanded):
            return self._expanded(Some(union.of), True)
        has = with_(union.tag)
        ways: dict[Shape, None] = {}
        for valid in union.of:
            ways.update(dict.fromkeys(self._all((has, valid), True)))
            self._check(len(ways))
        if not union.demanded:
            ways.update(dict.fromkeys(self._untagged(union)))
        return tuple(ways)

    def _untagged(self, union: Union) -> tuple[Shape, ...]:
        """The alternatives of a union without its tag; where there are too many, none of them, which is remarked."""
        parts = self.untagged(union)
        most, steps = self._most, self._steps
        self._most, self._steps = min(most, MOST_UNTAGGED), 0
        try:
            shapes = self._all((Negation(with_(union.tag)), either(list(parts), union.just_one)), True)
            for shape in shapes:
                self._look_into(shape)
            return shapes
        except BudgetExceeded:
            place = self._open[-1].pointer if self._open else ""
            self.left_out.append(f"{place or 'the top'} without {union.tag!r}")
            return ()
        finally:
            self._most, self._steps = most, steps

    def _look_into(self, shape: Shape) -> None:
        """Raise `BudgetExceeded` here rather than where a text gets to a property."""
        goals: dict[str, dict[Goal, None]] = {}
        for fact in shape.facts:
            if isinstance(fact, Member) and fact.names.name is not None:
                goals.setdefault(fact.names.name, {})[fact.goal] = None
        for same_name in goals.values():
            self.of(tuple(same_name))

    def untagged(self, union: Union) -> tuple[Valid, ...]:
        """The schemas of a union that can be valid for values without its tag."""
        lacks = Negation(with_(union.tag))
        return tuple(valid for valid in union.of if self._all((lacks, valid), True))

    def _no_union(self, union: Union) -> tuple[Shape, ...]:
        """None is valid, or too many are: by the tag that schema which it means is not."""
        has, lacks = with_(union.tag), Negation(with_(union.tag))
        tag = Names(union.tag)
        others = [Member(tag, Goal(values, wanted=False)) for values in union.values]
        ways = dict.fromkeys(self._all((has, *others), True))
        for valid, values in zip(union.of, union.values, strict=True):
            ways.update(dict.fromkeys(self._all((has, Member(tag, Goal(values)), Negation(valid)), True)))
            self._check(len(ways))
        ways.update(dict.fromkeys(self._all((lacks, Negation(either(list(union.of), union.just_one))), True)))
        return tuple(ways)

    def _without(self, shapes: tuple[Shape, ...], negation: Formula) -> tuple[Shape, ...]:
        """Those for which a negation holds: as they are where no value of both can be, which is most of the time."""
        assert isinstance(negation, Negation)
        unwanted = self._expanded(negation.of, True)
        self._steps += sum(8 + len(shape.facts) for shape in shapes) * len(unwanted) // APART
        self._check(self._steps // STEPS_A_SHAPE)
        apart: list[Shape] = []
        near: list[Shape] = []
        for shape in shapes:
            (apart if all(self._are_apart(shape, other) for other in unwanted) else near).append(shape)
        return (*apart, *self._joined(near, self._expanded(negation.of, False))) if near else tuple(apart)

    def _are_apart(self, shape: Shape, other: Shape) -> bool:
        """Can no value have both shapes? As far as that is plain to see: by kinds, named scalars, and properties of both."""
        both = shape.with_(other)
        if both is None:
            return True
        if both.kinds != {"object"}:
            return False
        has = {fact.name for fact in both.facts if isinstance(fact, Has) and fact.wanted}
        goals: dict[str, dict[Goal, None]] = {}
        for fact in both.facts:
            if isinstance(fact, Member) and fact.names.name in has:
                goals.setdefault(fact.names.name, {})[fact.goal] = None
            elif isinstance(fact, Member) and self._excludes(fact, has):
                return True
        return any(len(same_name) > 1 and not self.of(tuple(same_name)) for same_name in goals.values())

    def _excludes(self, fact: Member, names: set[str]) -> bool:
        """Is an object closed, and not for all of these names?"""
        is_wide = fact.names.others and not fact.names.patterns and not names <= fact.names.but
        return is_wide and not self.of((fact.goal,))

    def _joined(self, left: Iterable[Shape], right: tuple[Shape, ...]) -> tuple[Shape, ...]:
        if right == (ANYTHING,):
            return tuple(left)
        shapes: dict[Shape, None] = {}
        left = tuple(left)
        self._steps += len(left) * len(right)
        self._check(max(len(left), len(right), self._steps // STEPS_A_SHAPE))
        for a, b in product(left, right):
            both = a.with_(b)
            if both is not None:
                shapes[both] = None
                self._check(len(shapes))
        return tuple(shapes)

    def _valid(self, node: Node, wanted: bool) -> tuple[Shape, ...]:
        if node not in self._open and len(self._open) > MOST_DEEP:
            raise InvalidConstraint(
                f"keywords of a JSON schema that look at the same value stand in each other more than {MOST_DEEP} deep, at "
                f"{node.pointer}; leave out those that hold one schema only"
            )
        if node in self._open:
            raise InvalidConstraint(
                f"a JSON schema refers to itself without going into a value, at {node.pointer or 'the top'}, which says "
                "nothing; refer to it from properties or items"
            )
        key = Goal(Valid(node), wanted)
        if key in self._of:
            return self._of[key]
        self._open.append(node)
        try:
            formula = self._rules.formula(node)
            parts = self._rules.parts(node)
            if parts.unevaluated_items is not None or parts.unevaluated_names is not None:
                formula = Some(tuple(way for way, _ in self._tracked(node)))
            self._of[key] = self._expanded(formula, wanted)
        finally:
            self._open.pop()
        return self._of[key]

    def _check(self, number: int) -> None:
        if number > self._most:
            place = self._open[-1].pointer if self._open else ""
            raise BudgetExceeded(
                f"the JSON schema has more than {MOST_SHAPES:,} alternatives at {place or 'the top'}, once oneOf, not and if "
                "are written out; say fewer, or use anyOf where no two can be valid at once; objects of oneOf that have a "
                "property whose const or enum tells them apart cost nothing"
            )

    # What has been evaluated.

    def _tracked(self, node: Node) -> list[Way]:
        """The alternatives of a schema that say which of the schemas in its place are valid, with what these have evaluated."""
        if isinstance(node.content, bool):
            return [(TRUE, NOTHING)] if node.content else []
        parts = self._rules.parts(node)
        own = Evaluated(frozenset(parts.names), frozenset(parts.patterns), parts.all_names, parts.items, tuple(parts.held))
        ways: list[Way] = [(All(tuple(parts.own)), own)]
        for inner in parts.every:
            ways = self._both(ways, self._tracked(inner))
        for just_one, nodes in parts.unions:
            ways = self._both(ways, self._tracked_union(node, nodes, just_one))
        if parts.unwanted is not None:
            ways = self._both(ways, [(Negation(Valid(parts.unwanted)), NOTHING)])
        if parts.branch is not None:
            test, then, otherwise = parts.branch
            always: list[Way] = [(TRUE, NOTHING)]
            yes = self._both(self._tracked(test), always if then is None else self._tracked(then))
            no = always if otherwise is None else self._tracked(otherwise)
            ways = self._both(ways, [*yes, *self._both([(Negation(Valid(test)), NOTHING)], no)])
        for name, given in parts.given.items():
            ways = self._both(ways, [(without(name), NOTHING), *self._both([(with_(name), NOTHING)], self._tracked(given))])
        return [self._closed(node, way) for way in ways]

    def _tracked_union(self, node: Node, nodes: list[Node], just_one: bool) -> list[Way]:
        ways: list[Way] = []
        union = self._rules.union(node, just_one, nodes)
        if union is not None:
            for inner in nodes:
                ways += self._both([(with_(union.tag), NOTHING)], self._tracked(inner))
            left = [valid.node for valid in self.untagged(union)]  # also where the tag is demanded: these may be negated
            return ways + self._both([(Negation(with_(union.tag)), NOTHING)], self._tracked_ways(left, just_one))
        return self._tracked_ways(nodes, just_one)

    def _tracked_ways(self, nodes: list[Node], just_one: bool) -> list[Way]:
        all_ways: list[Way] = []
        for valid in product((True, False), repeat=len(nodes)):
            if sum(valid) == 1 or (sum(valid) and not just_one):
                ways: list[Way] = [(TRUE, NOTHING)]
                for is_valid, inner in zip(valid, nodes, strict=True):
                    ways = self._both(ways, self._tracked(inner) if is_valid else [(Negation(Valid(inner)), NOTHING)])
                all_ways += ways
            self._check(len(all_ways))
        return all_ways

    def _both(self, left: list[Way], right: list[Way]) -> list[Way]:
        self._check(len(left) * len(right))
        return [(All((a, b)), seen.with_(other)) for (a, seen), (b, other) in product(left, right)]

    def _closed(self, node: Node, way: Way) -> Way:
        """With what a schema says of properties and items that nothing has evaluated."""
        formula, seen = way
        parts = self._rules.parts(node)
        more: list[Formula] = []
        if parts.unevaluated_names is not None:
            if not seen.all_names:
                names = Names(patterns=seen.patterns, others=True, but=seen.names)
                more.append(Member(names, Goal(Valid(parts.unevaluated_names))))
            seen = seen.with_(Evaluated(all_names=True))
        if parts.unevaluated_items is not None:
            if seen.items is not None:
                ways = tuple(goal.formula for goal in seen.held)
                goal = Goal(Some((*ways, Valid(parts.unevaluated_items))) if ways else Valid(parts.unevaluated_items))
                more.append(Items(seen.items, None, goal))
            seen = seen.with_(Evaluated(items=None))
        return (All((formula, *more)) if more else formula), seen


def _without_contradictions(shape: Shape) -> Shape:
    """Without kinds that the facts leave no value, as far as that is plain to see: by the values that are named."""
    empty = set()
    for kind in ("string", "number"):
        named = [
            fact.strings if isinstance(fact, StringIn) else fact.numbers
            for fact in shape.facts
            if isinstance(fact, StringIn | NumberIn) and fact.wanted and fact.kind == kind
        ]
        others = [
            fact.strings if isinstance(fact, StringIn) else fact.numbers
            for fact in shape.facts
            if isinstance(fact, StringIn | NumberIn) and not fact.wanted and fact.kind == kind
        ]
        if named and not frozenset.intersection(*named).difference(*others):
            empty.add(kind)
    has = {fact.name: fact.wanted for fact in shape.facts if isinstance(fact, Has)}
    if any(has[fact.name] != fact.wanted for fact in shape.facts if isinstance(fact, Has)):
        empty.add("object")
    if not empty:
        return shape
    return Shape(shape.kinds - empty, tuple(fact for fact in shape.facts if fact.kind not in empty))


__all__ = ["ANYTHING", "Shape", "Shapes"]
