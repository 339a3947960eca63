r"""What other engines write and Python's parser does not know, in Python's words: properties, sets, calls, conditions.

Only patterns that Python refuses are read here, so none changes its meaning. Rewritten are named groups `(?<name>...)`; classes
with properties such as `\p{Lu}` and sets such as `[\w--\d]` and `[\p{L}&&[^\p{Lu}]]`, whose characters the library `regex`
knows (its version 1 behaviour); conditions on what stands around, `(?(?=a)b|c)`; and calls of groups, `(?1)`, `(?&name)`,
`(?R)` with `(?(DEFINE)...)`, each of which becomes a copy of its group; and groups whose numbers begin anew at each way,
`(?|(a)|(b))`. Where a group calls itself, or a copy would ask for what another group has matched, a character that the pattern
does not have stands for the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any

from locore.automata.characters import every_character
from locore.automata.regex.language import CharSet
from locore.kernel.errors import InvalidConstraint

PROPERTY = re.compile(r"\\[pP](?:\{[^{}]*\}|[A-Z])")
SET_OPERATION = re.compile(r"--|&&|\|\||~~")
NAMED = re.compile(r"\(\?P?<(?P<name>[^\W\d]\w*)>")
CALL = re.compile(r"\(\?(?:(?P<number>\d+|R)|(?:&|P>)(?P<name>[^\W\d]\w*))\)")
CONDITION = re.compile(r"\(\?\(\?<?[=!]")
DEFINE, RESET = "(?(DEFINE)", "(?|"
BEGIN = "\\G"  # where a search began, which is the beginning of a whole text
REFERENCE = re.compile(r"\\(?:(?P<number>(?![1-3][0-7][0-7])[1-9]\d?)|g<(?P<other>\w+)>)|\(\?P=(?P<name>\w+)\)")
FOREIGN = PROPERTY, SET_OPERATION, NAMED, CALL, CONDITION, re.compile(r"\(\?\(DEFINE\)|\(\?\||\\G|\\g<")
OTHER_GROUP = re.compile(r"\((?:\?(?:[:>=!]|<[=!]|[a-zA-Z-]+:|[a-zA-Z-]+\)|\(\w+\)))?")
PRIVATE = range(0x100000, 0x10FFFE)  # characters that mean nothing
LONGEST = 100_000  # characters of what is written out


@dataclass
class Group:
    """A group: how it begins, its alternatives, and, for one that can be called, its number."""

    opening: str
    alternatives: list[list[Piece]] = field(default_factory=lambda: [[]])
    number: int | None = None


@dataclass(frozen=True)
class Call:
    """Of a group, by number or name."""

    of: int | str


@dataclass(frozen=True)
class Reference:
    """To what a group has matched, by number or name."""

    to: int | str


@dataclass(frozen=True)
class Condition:
    """`(?(look)yes|no)`."""

    look: Group
    ways: Group


Piece = str | Group | Call | Reference | Condition


class _NeedsCalls(Exception):
    """Calls cannot be written out."""


def as_python(text: str) -> tuple[str, dict[int, int]]:
    """The same pattern as Python writes it, as far as it is known here, and the characters that stand for calls of groups.

    Raises:
        InvalidConstraint: a group that is called and is not there, an unknown property, or what is too long written out.
    """
    if not any(construct.search(text) for construct in FOREIGN):
        return text, {}
    reader = _Reader(text)
    whole = reader.whole()
    if not reader.is_whole:
        return text, {}
    writer = _Writer(reader, whole)
    try:
        return writer.written(whole), {}
    except _NeedsCalls:
        writer = _Writer(reader, whole, unused=(code for code in PRIVATE if chr(code) not in text))
        return writer.written(whole), writer.calls


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self.groups: dict[int | str, Group] = {}
        self.remembers = False  # is it asked anywhere what a group has matched?
        self.is_whole = True  # is every bracket closed?
        self._number = 0

    def whole(self) -> Group:
        """All of it, as group 0."""
        whole = Group("", number=0)
        self.groups[0] = whole
        self._fill(whole)
        return whole

    def _fill(self, group: Group) -> None:
        """Read its alternatives, up to its bracket or the end of the text."""
        before, highest = self._number, 0
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign == ")":
                if group.opening:
                    self._number = max(highest, self._number)
                    return
                self._take(1, group)
            elif sign == "|":
                self._at += 1
                group.alternatives.append([])
                if group.opening == RESET:
                    highest, self._number = max(highest, self._number), before
            elif sign == "\\":
                self._escape(group)
            elif sign == "[":
                self._class(group)
            elif sign == "(":
                group.alternatives[-1].append(self._group())
            else:
                self._take(1, group)

    def _take(self, length: int, group: Group) -> None:
        group.alternatives[-1].append(self._text[self._at : self._at + length])
        self._at += length

    def _escape(self, group: Group) -> None:
        match = PROPERTY.match(self._text, self._at)
        if self._text.startswith(BEGIN, self._at):
            group.alternatives[-1].append(r"\A")
            self._at += 2
        elif REFERENCE.match(self._text, self._at):
            group.alternatives[-1].append(self._reference())
        elif match is None:
            self._take(2, group)
        else:
            group.alternatives[-1].append(_written_class(match[0]))
            self._at = match.end()

    def _class(self, group: Group) -> None:
        end, is_set = _end_of_class(self._text, self._at)
        content = self._text[self._at : end]
        group.alternatives[-1].append(_written_class(content) if is_set else content)
        self._at = end

    def _group(self) -> Piece:
        text, start = self._text, self._at
        if text.startswith("(?#", start):
            self._at = text.find(")", start) % (len(text) + 1) + 1
            return text[start : self._at]
        if REFERENCE.match(text, start):
            return self._reference()
        if text.startswith(RESET, start):
            self._at = start + len(RESET)
            return self._closed(Group(RESET))
        if call := CALL.match(text, start):
            self._at = call.end()
            number = call["number"]
            return Call(call["name"] if number is None else 0 if number == "R" else int(number))
        if CONDITION.match(text, start):
            return self._condition()
        if text.startswith(DEFINE, start):
            self._at = start + len(DEFINE)
            return self._closed(Group(DEFINE))
        if named := NAMED.match(text, start):
            return self._counted(named.end(), named["name"])
        other = OTHER_GROUP.match(text, start)
        opening = other[0] if other else "("
        if opening == "(":
            return self._counted(start + 1, None)
        self._at = start + len(opening)
        self.remembers |= opening.startswith("(?(")
        return opening if opening.endswith(")") and not opening.startswith("(?(") else self._closed(Group(opening))

    def _reference(self) -> Reference:
        reference = REFERENCE.match(self._text, self._at)
        assert reference is not None
        self._at, self.remembers = reference.end(), True
        of = reference["number"] or reference["other"] or reference["name"]
        return Reference(int(of) if of.isdecimal() else of)

    def _counted(self, at: int, name: str | None) -> Group:
        """A group that can be called; of two with one name the first is."""
        self._at = at
        self._number += 1
        is_new = name is not None and name not in self.groups
        group = Group(f"(?P<{name}>" if is_new else "(", number=self._number)
        self.groups.setdefault(self._number, group)
        if is_new:
            self.groups[str(name)] = group
        return self._closed(group)

    def _condition(self) -> Condition:
        self._at += 2  # before the bracket of the look
        look = self._group()
        assert isinstance(look, Group)
        return Condition(look, self._closed(Group("(?:")))

    def _closed(self, group: Group) -> Group:
        self._fill(group)
        self.is_whole &= self._text.startswith(")", self._at)
        self._at += 1
        return group


class _Writer:
    """Args: unused: characters that may stand for calls; without them calls are written out."""

    def __init__(self, reader: _Reader, whole: Group, unused: Iterator[int] | None = None) -> None:
        self._reader, self._whole, self._unused = reader, whole, unused
        self._length = self._counted = 0
        self._written_as: dict[int, list[int]] = {}  # the numbers of a group, as Python counts
        self._stands_for: dict[Any, int] = {}

    @property
    def calls(self) -> dict[int, int]:
        """The characters that stand for calls, and the group that each calls, as Python counts."""
        return {code: self._written_as.get(number, [number])[0] for number, code in self._stands_for.items()}

    def written(self, group: Group) -> str:
        """The group, with a copy of each that it calls."""
        return self._pieces(group, frozenset())

    def _pieces(self, group: Group, inside: frozenset[int], copied: bool = False) -> str:
        """Args: inside: the groups that are being written; copied: without names and numbers, as in a call."""
        if group.opening == DEFINE and self._unused is None and not self._reader.remembers:
            return ""  # its groups are written where they are called, and nobody asks for their numbers
        self._count(len(group.opening) + 1)
        if group.number is not None:
            inside |= {group.number}
            if group.number and not copied:
                self._counted += 1
                self._written_as.setdefault(group.number, []).append(self._counted)
        ways = ["".join([self._piece(piece, inside, copied) for piece in pieces]) for pieces in group.alternatives]
        if group is self._whole and not copied:
            return "|".join(ways)
        if group.opening == DEFINE:  # matches nothing where it stands
            return f"(?:(?!)(?:{'|'.join(ways)})|)"
        opening = "(?:" if group.opening == RESET or (copied and group.number is not None) else group.opening
        return f"{opening}{'|'.join(ways)})"

    def _piece(self, piece: Piece, inside: frozenset[int], copied: bool) -> str:
        if isinstance(piece, str):
            self._count(len(piece))
            return piece
        if isinstance(piece, Group):
            return self._pieces(piece, inside, copied)
        if isinstance(piece, Call):
            return self._call(piece, inside)
        if isinstance(piece, Reference):
            return self._reference(piece)
        return self._condition(piece, inside, copied)

    def _count(self, characters: int) -> None:
        """So many more are written."""
        self._length += characters
        if self._length > LONGEST:
            raise InvalidConstraint(f"a regular expression of more than {LONGEST:,} characters, with its calls written out")

    def _call(self, call: Call, inside: frozenset[int]) -> str:
        group = self._reader.groups.get(call.of)
        if group is None:
            raise InvalidConstraint(f"a regular expression calls the group {call.of!r}, which it does not have")
        if self._unused is not None:
            number = group.number
            if number not in self._stands_for:
                self._stands_for[number] = next(self._unused)
            return f"\\U{self._stands_for[number]:08x}"
        if group.number in inside or self._reader.remembers:
            raise _NeedsCalls
        return self._pieces(group, inside, copied=True)

    def _reference(self, reference: Reference) -> str:
        """The group of that number that matched, where there are several."""
        group = self._reader.groups.get(reference.to)
        number = reference.to if group is None else group.number
        numbers = self._written_as.get(number, [number]) if isinstance(number, int) else []
        if not numbers:
            raise InvalidConstraint(f"a regular expression refers to the group {reference.to!r}, which it does not have")
        written = rf"\{numbers[0]}"
        for other in numbers[1:]:
            written = rf"(?({other})\{other}|{written})"
        return f"(?:{written})"

    def _condition(self, piece: Condition, inside: frozenset[int], copied: bool) -> str:
        look, ways = piece.look, piece.ways.alternatives
        if len(ways) > 2:
            raise InvalidConstraint("a condition in a regular expression has more than two ways: (?(?=a)b|c)")
        sign = look.opening[-1]
        other = look.opening[:-1] + ("!" if sign == "=" else "=")
        written = []
        for number, opening in enumerate((look.opening, other)):
            looked = self._pieces(Group(opening, look.alternatives), inside, copied)
            following = ways[number] if number < len(ways) else []
            written.append(looked + "".join([self._piece(part, inside, copied) for part in following]))
        return f"(?:{'|'.join(written)})"


def _end_of_class(text: str, start: int) -> tuple[int, bool]:
    """Behind a class, and whether it has to be looked up: it has properties or sets in it."""
    at = start + (2 if text.startswith("[^", start) else 1)
    at += text.startswith("]", at)
    nested = _matching_bracket(text, start)
    if nested is not None and (PROPERTY.search(text, start, nested) or SET_OPERATION.search(text, start, nested)):
        return nested, True
    while at < len(text) and text[at] != "]":
        at += 2 if text[at] == "\\" else 1
    return min(at + 1, len(text)), False


def _matching_bracket(text: str, start: int) -> int | None:
    """Behind a class in which `[` begins another one; None if it does not end."""
    depth, at = 0, start
    while at < len(text):
        if text[at] == "[":
            depth += 1
            at += text.startswith("^", at + 1)
            at += text.startswith("]", at + 1)
        elif text[at] == "]":
            depth -= 1
            if not depth:
                return at + 1
        at += 2 if text[at] == "\\" else 1
    return None


@lru_cache(maxsize=256)
def _written_class(text: str) -> str:
    """A class by its ranges."""
    engine: Any = import_module("regex")
    try:
        runs = engine.compile(f"(?V1)(?:{text})+").finditer(every_character())
    except engine.error as error:
        raise InvalidConstraint(f"{text} in a regular expression is no class of characters: {error}") from error
    ranges = CharSet.of((run.start(), run.end() - 1) for run in runs).ranges
    return "[" + "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges) + "]" if ranges else "(?!)"
