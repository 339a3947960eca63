"""Arrays and objects as JSON texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from locore.constraints.json_schema.scalars import string_literal
from locore.constraints.json_schema.style import Style
from locore.constraints.regular.ir import EMPTY, EPSILON, Concat, Graph, Language, either, literal, repeat
from locore.errors import BudgetExceeded

MAX_MEMBERS = 12  # in any order: there are 2**12 sets of them


@dataclass(frozen=True)
class Property:
    """A property of an object: its name, its value, and whether it must be there."""

    name: str
    value: Language
    required: bool


def array(item: Language, least: int, most: int | None, style: Style) -> Language:
    """Arrays of between `least` and `most` (None: any number of) items."""
    comma = style.separator(",")
    if most == 0:
        items: list[Language] = []
    elif most is None:  # one copy of the item, however often it is repeated
        any_number = Graph(2, ((0, item, 1), (1, comma, 0)), frozenset([1]))
        before = max(least - 1, 0)
        items = [Concat((repeat(Concat((item, comma)), before, before), any_number))]
    else:
        items = [Concat((item, repeat(Concat((comma, item)), max(least - 1, 0), most - 1)))]
    return EMPTY if most is not None and most < least else _enclosed("[]", items, least == 0, style)


def tuple_(items: Sequence[Language], style: Style) -> Language:
    """Arrays of just these items in this order."""
    comma = style.separator(",")
    parts = [part for item in items for part in (comma, item)][1:]
    return _enclosed("[]", [Concat(tuple(parts))] if parts else [], not parts, style)


def array_of_distinct(values: Sequence[Language], least: int, most: int | None, style: Style) -> Language:
    """Arrays of items that are each one of `values` and of which no two are equal."""
    largest = len(values) if most is None else min(most, len(values))
    items = _in_any_order(values, largest, lambda chosen: least <= chosen.bit_count() <= largest, style)
    return _enclosed("[]", [items], least == 0, style)


def object_(properties: Sequence[Property], style: Style) -> Language:
    """Objects with these properties and no others, none of them twice."""
    required = sum(1 << number for number, one in enumerate(properties) if one.required)
    members = [Concat((string_literal(one.name, style), style.separator(":"), one.value)) for one in properties]
    if style.order == "schema":
        inside = _in_given_order(members, [one.required for one in properties], style)
    else:
        inside = _in_any_order(members, len(members), lambda chosen: chosen & required == required, style)
    return _enclosed("{}", [inside], required == 0, style)


def _enclosed(brackets: str, contents: list[Language], may_be_empty: bool, style: Style) -> Language:
    """What an array or an object holds, in its brackets; `contents` are not empty."""
    opening, closing = map(literal, brackets)
    ways: list[Language] = [Concat((opening, style.space, inside, style.space, closing)) for inside in contents]
    if may_be_empty:
        ways.append(Concat((opening, style.space, closing)))
    return either(ways)


def _in_any_order(members: Sequence[Language], largest: int, complete: Callable[[int], bool], style: Style) -> Language:
    """Some of `members`, at least one and at most `largest`, none twice, so that the set of them is `complete`.

    A state is the set of members so far, as bits.
    """
    if len(members) > MAX_MEMBERS:
        raise BudgetExceeded(
            f"{len(members)} members in any order have 2**{len(members)} subsets, and an automaton has to remember "
            f"which one it has seen (at most 2**{MAX_MEMBERS}); "
            'for properties pass order="schema", for items leave uniqueItems away'
        )
    comma = style.separator(",")
    following = [Concat((comma, member)) for member in members]
    edges: list[tuple[int, Language, int]] = []
    for chosen in range(1 << len(members)):
        if chosen.bit_count() < largest:
            labels = following if chosen else members
            edges += [(chosen, label, chosen | 1 << number) for number, label in enumerate(labels) if not chosen >> number & 1]
    final = frozenset(chosen for chosen in range(1, 1 << len(members)) if complete(chosen))
    return Graph(1 << len(members), tuple(edges), final)


def _in_given_order(members: Sequence[Language], required: Sequence[bool], style: Style) -> Language:
    """At least one of `members`, in their order, all required ones among them.

    Three states for each member that is next: nothing came before; something did; it is written now.
    """
    comma = style.separator(",")
    edges: list[tuple[int, Language, int]] = []
    for number, member in enumerate(members):
        first, later, now = range(3 * number, 3 * number + 3)
        edges += [(first, EPSILON, now), (later, comma, now), (now, member, later + 3)]
        if not required[number]:
            edges += [(first, EPSILON, first + 3), (later, EPSILON, later + 3)]
    return Graph(3 * len(members) + 2, tuple(edges), frozenset([3 * len(members) + 1]))
