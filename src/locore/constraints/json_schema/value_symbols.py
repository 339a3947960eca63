"""The texts of values, as symbols of a `Pushdown`: literals, numbers, strings; arrays and objects are in files of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from locore.automata.pushdown import NEVER, Choice, Kind, Literal, Measure, Row, Sequence, Symbol, cost_of
from locore.automata.regex.scanner import DEAD, Scanner
from locore.constraints.json_schema.facts import Fact, Goal
from locore.constraints.json_schema.json_characters import ASCII, BACKSLASH, LEADS, QUOTE, alike, bytes_behind, read_on, ways_on
from locore.constraints.json_schema.scalars import Strings, numbers, strings
from locore.constraints.json_schema.shapes import Shape, Shapes
from locore.constraints.json_schema.style import INDENT, WHITESPACE, Style
from locore.kernel.plugins import cached_property

P = TypeVar("P")
Goals = tuple[Goal, ...]  # each once, in the order of the schema
# "array" and "object": of a reading, what is known of the value, how deep its parts may nest, and how far they are indented.
Containers = Mapping[str, Callable[["Reading", tuple[Fact, ...], int, int], Sequence]]


def joined(goals: Iterable[Goal]) -> Goals:
    """Each once."""
    return tuple(dict.fromkeys(goals))


NUMERALS = b"-0123456789."


class Reading:
    """What the symbols of one schema share.

    Attributes:
        shapes: of its schemas.
        containers: what makes arrays and objects, of which values are made, which are made of values.
        style: how values are written; its whitespace is none that leaves a choice of layouts.
        measure: what a literal piece costs.
        scalars: the reading whose literals, numbers and strings these are; they look alike in all layouts.
    """

    def __init__(
        self, shapes: Shapes, containers: Containers, style: Style, measure: Measure, scalars: Reading | None = None
    ) -> None:
        self.shapes, self.containers, self.style, self.measure = shapes, containers, style, measure
        self.scalars = scalars or self
        self.minimal, self.digits = style.escapes == "minimal", style.integers == "digits"
        self._cached: dict[Hashable, Any] = {}
        self._any = Gap(WHITESPACE.encode())
        self.space = Optional(self.literal(b" "))

    def once(self, key: Hashable, make: Any, *arguments: Any) -> Any:
        """`make(*arguments)`, always the same object for equal keys."""
        if key not in self._cached:
            self._cached[key] = make(*arguments)
        return self._cached[key]

    def plan(self, kind: Callable[[Reading, tuple[Fact, ...]], P], facts: tuple[Fact, ...]) -> P:
        """What facts say of an array or an object, which is the same in all layouts."""
        reading = self.scalars
        plan: P = reading.once((kind, facts), kind, reading, facts)
        return plan

    def literal(self, text: bytes) -> Literal:
        """Exactly these bytes."""
        literal: Literal = self.scalars.once(text, Literal, text, self.measure)
        return literal

    def value(self, goals: Goals, depth: int, level: int) -> Value:
        """A value that meets all of these goals, containers nested so deep at most."""
        level = level if self.style.whitespace == "indent" else 0
        symbol: Value = self.once((Value, goals, depth, level), Value, self, goals, depth, level)
        return symbol

    def gap(self, line: int | None = None, after: str = "") -> Sequence:
        """What stands where whitespace may.

        Args:
            line: of an indented text, how deep the line is that begins here.
            after: the comma or the colon that stands before, if there is one.
        """
        whitespace = self.style.whitespace
        if whitespace == "any":
            return (self._any,)
        if whitespace == "single":
            return (self.space,)
        if whitespace == "indent" and line is not None:
            return (self.literal(b"\n" + b" " * (INDENT * line)),)
        return (self.literal(b" "),) if after and (whitespace == "spaced" or (whitespace, after) == ("indent", ":")) else ()


class Value(Choice):
    """A value that meets some goals."""

    def __init__(self, reading: Reading, goals: Goals, depth: int, level: int) -> None:
        self._reading, self._goals, self._depth, self._level = reading, goals, depth, level

    @cached_property
    def ways(self) -> tuple[Sequence, ...]:
        """By shapes and kinds."""
        ways: dict[Sequence, None] = {}
        for shape in self._reading.shapes.of(self._goals):
            for kind in sorted(shape.kinds):
                if way := self._way(shape, kind):
                    ways[way] = None
        return tuple(way for way in ways if cost_of(way) != NEVER)

    def _way(self, shape: Shape, kind: str) -> Sequence:
        reading, facts = self._reading, shape.of(kind)
        if kind == "number":
            scanner = numbers(frozenset(facts), reading.digits)
            return (number_at(reading.scalars, scanner, 0),)
        if kind == "string":
            return string_of(reading.scalars, facts)
        if kind in ("array", "object"):
            return reading.containers[kind](reading, facts, self._depth - 1, self._level) if self._depth else ()
        return (reading.literal(kind.encode()),)


class Optional(Symbol):
    """A symbol, or nothing, which costs nothing."""

    nullable = True
    cost = 0.0

    def __init__(self, of: Symbol) -> None:
        self._of = of

    @cached_property
    def row(self) -> Row:
        """That of the symbol."""
        return self._of.row


class Gap(Symbol):
    """Any number of these bytes."""

    nullable = True
    cost = 0.0

    def __init__(self, of: bytes) -> None:
        self._of = of

    @cached_property
    def row(self) -> Row:
        """Each of them, and more."""
        return dict.fromkeys(self._of, ((self,),))


# Numbers.


def number_at(reading: Reading, scanner: Scanner, state: int) -> NumberRest:
    """The rest of a number."""
    rest: NumberRest = reading.once((NumberRest, scanner, state), NumberRest, reading, scanner, state)
    return rest


class NumberRest(Symbol):
    """The rest of a number; it ends where something else comes."""

    def __init__(self, reading: Reading, scanner: Scanner, state: int) -> None:
        self._reading, self._scanner, self._state = reading, scanner, state
        self.nullable = scanner.accepting[state]

    @cached_property
    def cost(self) -> float:
        """A token for each digit."""
        return self._scanner.cost(self._state)

    @cached_property
    def row(self) -> Row:
        """By digit, point and sign."""
        row = {}
        for byte in NUMERALS:
            after = self._scanner.after(self._state, byte)
            if after != DEAD:
                row[byte] = ((number_at(self._reading, self._scanner, after),),)
        return row


# Strings.


def string_of(reading: Reading, facts: tuple[Any, ...]) -> Sequence:
    """A string of which these facts hold; () if there is none."""
    words: Strings | None = reading.once((Strings, facts), strings, facts)
    return () if words is None else (reading.literal(b'"'), string_at(reading, words, b"", 0, 0))


def string_at(reading: Reading, strings: Strings, beginning: bytes, state: int, length: int) -> StringRest:
    """The rest of a string behind its first quote.

    Args:
        beginning: what has been read of a character that is not complete.
        state: of the scanner; length: characters so far, as far as they matter.
    """
    if strings.most is None:
        length = min(length, strings.least)
    if beginning and not strings.tells(beginning):
        beginning = alike(beginning, reading.minimal)
    key = StringRest, strings, beginning, state, length
    rest: StringRest = reading.once(key, StringRest, reading, strings, beginning, state, length)
    return rest


class StringRest(Symbol):
    """The rest of a string with its last quote."""

    is_broad = True

    def __init__(self, reading: Reading, strings: Strings, beginning: bytes, state: int, length: int) -> None:
        self._reading, self._strings, self._beginning, self._state, self._length = reading, strings, beginning, state, length
        if not strings.are_words:
            bounds = max(strings.least - length, 0), None if strings.most is None else strings.most - length
            bounds = max(strings.least - length, 0), None if strings.most is None else strings.most - length
            unbounded = self._unbounded if strings.scanner is None else None
            self.kind = Kind((strings.scanner, state, beginning, reading.minimal), *bounds, unbounded)

    @cached_property
    def own_bytes(self) -> Collection[int] | None:
        """Where a scanner says which characters may come, the bytes that they begin with."""
        scanner = self._strings.scanner
        if scanner is None or self._beginning:
            return None
        codes = [code for code in ASCII if scanner.after(self._state, code) != DEAD]
        beyond = scanner.cost_through(self._state, 0x80, 0x10FFFF, 0, None)
        return (*codes, BACKSLASH, QUOTE, *(LEADS if beyond < NEVER else ()))

    def _unbounded(self, least: int) -> StringRest:
        return string_at(self._reading, Strings(None, least, None), self._beginning, 0, 0)

    @cached_property
    def cost(self) -> float:
        """A token for each byte."""
        if not self._beginning:
            return self._to_end(self._state, self._length) + 1
        cheapest = NEVER
        for missing, low, high in ways_on(self._beginning, self._reading.minimal):
            cheapest = min(cheapest, missing + self._through(low, high))
        return cheapest + 1

    def _to_end(self, state: int, length: int) -> float:
        least, most = self._strings.least - length, self._strings.most
        most = None if most is None else most - length
        if most is not None and most < 0:
            return NEVER
        scanner = self._strings.scanner
        return max(least, 0) if scanner is None else scanner.cost(state, least, most)

    def _through(self, low: int, high: int) -> float:
        scanner, length = self._strings.scanner, self._length + 1
        if scanner is None:
            return self._to_end(0, length)
        most = None if self._strings.most is None else self._strings.most - length
        if most is not None and most < 0:
            return NEVER
        return scanner.cost_through(self._state, low, high, self._strings.least - length, most)

    @cached_property
    def row(self) -> Row:
        """Byte by byte; most bytes lead to the same."""
        row: dict[int, tuple[Sequence, ...]] = {}
        by_class: dict[Hashable, tuple[Sequence, ...]] = {}
        for byte in bytes_behind(self._beginning) if self.own_bytes is None else self.own_bytes:
            read = read_on(self._beginning, byte, self._reading.minimal)
            if read is None and (byte != QUOTE or self._beginning):
                continue
            key: Hashable = read  # None: the end
            if isinstance(read, bytes):
                key = read if self._strings.tells(read) else alike(read, self._reading.minimal)
            elif read is not None:
                key = 0 if self._strings.scanner is None else self._strings.scanner.class_of(read)
            if key not in by_class:
                by_class[key] = self.ways_after(byte)
            if by_class[key]:
                row[byte] = by_class[key]
        return row

    def ways_after(self, byte: int) -> tuple[Sequence, ...]:
        """What may come in its place behind one byte."""
        if byte == QUOTE and not self._beginning:
            return ((),) if self._to_end(self._state, self._length) == 0 else ()
        read = read_on(self._beginning, byte, self._reading.minimal)
        return self._after(read) if isinstance(read, int) else () if read is None else self._begun(read)

    def _begun(self, beginning: bytes) -> tuple[Sequence, ...]:
        return self._way(string_at(self._reading, self._strings, beginning, self._state, self._length))

    def _after(self, code: int) -> tuple[Sequence, ...]:
        scanner = self._strings.scanner
        state = 0 if scanner is None else scanner.after(self._state, code)
        if state == DEAD:
            return ()
        return self._way(string_at(self._reading, self._strings, b"", state, self._length + 1))

    def _way(self, symbol: StringRest) -> tuple[Sequence, ...]:
        ways: tuple[Sequence, ...] = self._reading.once(("ways", symbol), lambda: ((symbol,),))  # one object for all bytes
        return ways if symbol.cost != NEVER else ()
