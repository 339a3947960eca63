r"""What other engines write and Python's parser does not know, in Python's words: properties, sets, calls, conditions.

Only patterns that Python refuses are read here, so none changes its meaning. Rewritten are named groups `(?<name>...)`; classes
with properties such as `\p{Lu}` and sets such as `[\w--\d]` and `[\p{L}&&[^\p{Lu}]]`, whose characters the library `regex`
knows (its version 1 behaviour); conditions on what stands around, `(?(?=a)b|c)`; and calls of groups, `(?1)`, `(?&name)`,
`(?R)` with `(?(DEFINE)...)`, each of which becomes a copy of its group. A group that calls itself has no regular language.
"""

from __future__ import annotations

import re
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
DEFINE = "(?(DEFINE)"
FOREIGN = (PROPERTY, SET_OPERATION, NAMED, CALL, CONDITION, re.compile(re.escape(DEFINE)))
OTHER_GROUP = re.compile(r"\((?:\?(?:[:>=!]|<[=!]|[a-zA-Z-]+:|P=\w+\)|[a-zA-Z-]+\)|\(\w+\)))?")
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
class Condition:
    """`(?(look)yes|no)`."""

    look: Group
    ways: Group


Piece = str | Group | Call | Condition


def as_python(text: str) -> str:
    """The same pattern as Python writes it, as far as it is known here.

    Raises:
        InvalidConstraint: a group that calls itself or is not there, an unknown property, or what is too long written out.
    """
    if not any(construct.search(text) for construct in FOREIGN):
        return text
    reader = _Reader(text)
    whole = reader.whole()
    return _Writer(reader, whole).written(whole) if reader.is_whole else text


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self.groups: dict[int | str, Group] = {}
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
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign == ")":
                if group.opening:
                    return
                self._take(1, group)
            elif sign == "|":
                self._at += 1
                group.alternatives.append([])
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
        found = PROPERTY.match(self._text, self._at)
        if found is None:
            self._take(2, group)
        else:
            group.alternatives[-1].append(_written_class(found[0]))
            self._at = found.end()

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
        if found := CALL.match(text, start):
            self._at = found.end()
            number = found["number"]
            return Call(found["name"] if number is None else 0 if number == "R" else int(number))
        if CONDITION.match(text, start):
            return self._condition()
        if text.startswith(DEFINE, start):
            self._at = start + len(DEFINE)
            self._closed(Group(DEFINE))
            return ""
        if found := NAMED.match(text, start):
            return self._counted(found.end(), found["name"])
        found = OTHER_GROUP.match(text, start)
        opening = found[0] if found else "("
        if opening == "(":
            return self._counted(start + 1, None)
        self._at = start + len(opening)
        return opening if opening.endswith(")") and not opening.startswith("(?(") else self._closed(Group(opening))

    def _counted(self, at: int, name: str | None) -> Group:
        """A group that can be called; of two with one name the first is."""
        self._at = at
        self._number += 1
        is_new = name is not None and name not in self.groups
        group = Group(f"(?P<{name}>" if is_new else "(", number=self._number)
        self.groups[self._number] = group
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
    def __init__(self, reader: _Reader, whole: Group) -> None:
        self._reader, self._whole = reader, whole
        self._length = 0

    def written(self, group: Group) -> str:
        """The group, with a copy of each that it calls."""
        return self._pieces(group, frozenset())

    def _pieces(self, group: Group, inside: frozenset[int], copied: bool = False) -> str:
        """Args: inside: the groups that are being written; copied: without names and numbers, as in a call."""
        self._count(len(group.opening) + 1)
        if group.number is not None:
            inside |= {group.number}
        ways = ["".join([self._piece(piece, inside, copied) for piece in pieces]) for pieces in group.alternatives]
        if group is self._whole and not copied:
            return "|".join(ways)
        opening = "(?:" if copied and group.number is not None else group.opening
        return f"{opening}{'|'.join(ways)})"

    def _piece(self, piece: Piece, inside: frozenset[int], copied: bool) -> str:
        if isinstance(piece, str):
            self._count(len(piece))
            return piece
        if isinstance(piece, Group):
            return self._pieces(piece, inside, copied)
        if isinstance(piece, Call):
            return self._pieces(self._called(piece, inside), inside, copied=True)
        return self._condition(piece, inside, copied)

    def _count(self, characters: int) -> None:
        """So many more are written."""
        self._length += characters
        if self._length > LONGEST:
            raise InvalidConstraint(f"a regular expression of more than {LONGEST:,} characters, with its calls written out")

    def _called(self, call: Call, inside: frozenset[int]) -> Group:
        group = self._reader.groups.get(call.of)
        if group is None:
            raise InvalidConstraint(f"a regular expression calls the group {call.of!r}, which it does not have")
        if group.number in inside:
            raise InvalidConstraint(
                f"a regular expression in which the group {call.of!r} calls itself has no regular language; use a grammar"
            )
        return group

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
