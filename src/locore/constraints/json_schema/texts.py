"""JSON values as texts: scalars, arrays, objects, and how they may be written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import lru_cache

from locore.automata.regex.language import (
    EMPTY,
    EPSILON,
    Chars,
    CharSet,
    Concat,
    Graph,
    Language,
    concat,
    either,
    literal,
    one_of,
    optional,
    repeat,
)
from locore.errors import BudgetExceeded, InvalidConstraint

WHITESPACE = " \t\n\r"
CHOICES = {"whitespace": ("any", "single", "compact"), "order": ("any", "schema"), "escapes": ("any", "minimal")}


@dataclass(frozen=True)
class Style:
    """How a value may be written; see `json_schema` for the meaning of the choices.

    Raises:
        InvalidConstraint: not one of the choices.
    """

    whitespace: str = "any"
    order: str = "any"
    escapes: str = "any"

    def __post_init__(self) -> None:
        for field in fields(self):
            value, known = getattr(self, field.name), CHOICES[field.name]
            if value not in known:
                raise InvalidConstraint(f"{field.name} of json_schema must be one of {', '.join(known)}; got {value!r}")

    @property
    def space(self) -> Language:
        """What may stand where JSON allows whitespace."""
        if self.whitespace == "any":
            return repeat(one_of(WHITESPACE), 0, None)
        return optional(one_of(" ")) if self.whitespace == "single" else EPSILON

    def separator(self, sign: str) -> Language:
        """A comma or a colon with the whitespace around it."""
        return Concat((self.space, literal(sign), self.space))


SHORT = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
CONTROL = CharSet.of([(0, 0x1F)])
PLANE_0 = CharSet.of([(0, 0xFFFF)])
NOT_RAW = CONTROL | CharSet.from_text('"\\')
HEX = (*"0123456789", "aA", "bB", "cC", "dD", "eE", "fF")
Spans = tuple[tuple[int, int], ...]
Digit = tuple[tuple[Language, ...], tuple[str, ...]]  # what comes before it, and how each of its values is written

ESCAPE = literal("\\u")
SURROGATE = (ESCAPE, one_of("dD"))
QUOTE = literal('"')
DIGIT = one_of("0123456789")
NATURAL = either([literal("0"), Concat((one_of("123456789"), repeat(DIGIT, 0, None)))])
NUMBER = Concat(
    (
        optional(literal("-")),
        NATURAL,
        optional(Concat((literal("."), repeat(DIGIT, 1, None)))),
        optional(Concat((one_of("eE"), optional(one_of("+-")), repeat(DIGIT, 1, None)))),
    )
)


def string_literal(text: str, style: Style) -> Language:
    """A JSON string with this value."""
    return Concat((QUOTE, *(written(CharSet.from_text(one), style.escapes) for one in text), QUOTE))


@lru_cache(maxsize=1024)
def written(chars: CharSet, escapes: str) -> Language:
    """The ways to write one of these characters inside a JSON string.

    Args:
        escapes: "any": as itself, by its short escape, or by the hexadecimal escapes of its UTF-16 code units; "minimal": as
            itself where JSON allows it, otherwise by the short escape if there is one.
    """
    ways: list[Language] = []
    if raw := chars - NOT_RAW:
        ways.append(Chars(raw))
    short = [one for one in SHORT if ord(one) in chars and not (escapes == "minimal" and one == "/")]
    if short:
        ways.append(Concat((literal("\\"), one_of("".join(map(SHORT.__getitem__, short))))))
    return either(ways + (_controls(chars) if escapes == "minimal" else _code_units(chars)))


def _controls(chars: CharSet) -> list[Language]:
    """Control characters without a short escape, as Python's `json.dumps` writes them."""
    coded = (chars & CONTROL) - CharSet.from_text("".join(SHORT))
    digits: list[Digit] = [((literal("\\u00"),), ("0", "1")), ((), tuple("0123456789abcdef"))]
    return [_numbers(coded.ranges, digits)] if coded else []


def _code_units(chars: CharSet) -> list[Language]:
    """Hexadecimal escapes: one of the character itself, or two of its surrogates."""
    ways = []
    if low := chars & PLANE_0:
        ways.append(_numbers(low.ranges, [((ESCAPE,), HEX), ((), HEX), ((), HEX), ((), HEX)]))
    if high := chars - PLANE_0:
        spans = tuple((first - 0x10000, last - 0x10000) for first, last in high.ranges)
        lead: list[Digit] = [(SURROGATE, ("8", "9", "aA", "bB")), ((), HEX), ((), HEX)]
        trail: list[Digit] = [(SURROGATE, ("cC", "dD", "eE", "fF")), ((), HEX), ((), HEX)]
        ways.append(_numbers(spans, lead + trail))
    return ways


def _numbers(spans: Spans, digits: list[Digit]) -> Language:
    """The numbers of `spans`, written digit by digit."""
    if not digits:
        return EPSILON
    (before, values), rest = digits[0], digits[1:]
    size = math.prod(len(letters) for _, letters in rest)
    first_digits: dict[Spans, list[str]] = {}  # those after which the same may follow
    for value, letters in enumerate(values):
        if following := tuple(_cut(spans, value * size, (value + 1) * size - 1)):
            first_digits.setdefault(following, []).append(letters)
    return either(
        [Concat((*before, one_of("".join(first)), _numbers(following, rest))) for following, first in first_digits.items()]
    )


def _cut(spans: Spans, first: int, last: int) -> Iterable[tuple[int, int]]:
    """The part of `spans` between two numbers, counted from the first of them."""
    for low, high in spans:
        if low <= last and high >= first:
            yield max(low, first) - first, min(high, last) - first


def integers(low: int | None, high: int | None) -> Language:
    """The integers of a range, None for no bound, without fraction or exponent; -0 is 0."""
    ways = []
    if high is None or high >= 0:
        ways.append(_naturals(max(low or 0, 0), high))
    if low is None or low <= 0:
        least = 0 if high is None or high >= 0 else -high
        ways.append(Concat((literal("-"), _naturals(least, None if low is None else -low))))
    return either(ways)


def _naturals(low: int, high: int | None) -> Language:
    """Decimal numbers of a range that starts at 0 or above."""
    first, last = str(low), None if high is None else str(high)
    if last is not None and len(first) >= len(last):
        return either(_same_length(first, last) if len(first) == len(last) else [])
    ways = _same_length(first, "9" * len(first))
    if last is None or len(last) - 1 > len(first):
        ways.append(Concat((one_of("123456789"), repeat(DIGIT, len(first), None if last is None else len(last) - 2))))
    if last is not None:
        ways += _same_length("1" + "0" * (len(last) - 1), last)
    return either(ways)


def _same_length(low: str, high: str) -> list[Language]:
    """Numbers of as many digits as both bounds, by the digit at which they first leave a bound."""
    if low > high:
        return []
    same = next((place for place, (a, b) in enumerate(zip(low, high, strict=True)) if a != b), len(low))
    if same == len(low):
        return [literal(low)]
    rest = len(low) - same - 1
    ways = _leaving(low[:same], range(int(low[same]) + 1, int(high[same])), rest)
    ways += [literal(low), literal(high)]
    for place in range(same + 1, len(low)):
        ways += _leaving(low[:place], range(int(low[place]) + 1, 10), len(low) - place - 1)
        ways += _leaving(high[:place], range(int(high[place])), len(low) - place - 1)
    return ways


def _leaving(start: str, digits: range, rest: int) -> list[Language]:
    chosen = "".join(map(str, digits))
    return [concat(literal(start), one_of(chosen), repeat(DIGIT, rest, rest))] if chosen else []


def scalar(value: str | int | float | bool | None, style: Style) -> Language:
    """One value that is no container."""
    if isinstance(value, str):
        return string_literal(value, style)
    if value is None or isinstance(value, bool):
        return literal({None: "null", True: "true", False: "false"}[value])
    text = number_text(value)
    return either([literal("0"), literal("-0")]) if text == "0" else literal(text)


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


def number_text(value: int | float) -> str:
    """A number in decimal notation, without exponent and superfluous zeros; whole floats are integers."""
    return str(int(value)) if value == int(value) else format(Decimal(repr(value)), "f")
