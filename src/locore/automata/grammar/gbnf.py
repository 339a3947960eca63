r"""Grammars in GBNF, llama.cpp's syntax, straight to productions: a terminal is one character, so there is no lexer.

A rule is `name ::= …`; a sequence goes on in the next line inside parentheses and behind `|` (here also before it). Strings and
classes know the escapes `\n \r \t \\ \" \[ \] \-`, `\xNN`, `\uNNNN` and `\UNNNNNNNN`; `.` is any character, also a line break;
`* + ? {n} {n,} {n,m}` repeat what stands before them, repetitions included. Comments begin with `#`. The reader keeps its own
stack of open parentheses, so that none is too deep.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from locore.automata.grammar.productions import START, Builder, Productions, Symbol, Symbols
from locore.automata.grammar.syntax import Place
from locore.automata.grammar.terminal import Terminal
from locore.automata.regex.language import ANY, FIRST_SURROGATE, LAST_SURROGATE, CharSet
from locore.kernel.errors import InvalidConstraint, UnsupportedKeyword

_NAME = re.compile(r"[\w-]+")
_NUMBER = re.compile(r"[0-9]+")
_BLANK, _BLANK_LINES = re.compile(r"(?:[ \t]|#[^\r\n]*)*"), re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_TOKEN = re.compile(r"!?<[^>\r\n]*>?")
_ESCAPE = re.compile(r"\\(?:x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|(?P<sign>[nrt\\\"\[\]-]))")
_ESCAPES = r"\n \r \t \\ \" \[ \] \- \xNN \uNNNN \UNNNNNNNN"
_SIGNS = {"n": "\n", "r": "\r", "t": "\t"}
_REPETITIONS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_SEQUENCE = "a string, a [class], a name, a group or a dot"


def read_gbnf(text: str) -> Productions:
    """The productions of a grammar in GBNF.

    Raises:
        InvalidConstraint: it is none (the message says where), a name is not defined, there is no rule `root`, or no text ever
            ends.
        UnsupportedKeyword: it speaks of tokens.
        BudgetExceeded: too many repetitions.
    """
    return _Reader(text).productions()


@dataclass
class _Group:
    """What has been read between parentheses, or of a rule.

    Attributes:
        at: where it begins in the text.
        sides: its alternatives.
        last: where in the last alternative the item begins that a repetition would repeat; None: there is none.
    """

    at: int
    sides: list[list[Symbol]] = field(default_factory=lambda: [[]])
    last: int | None = None

    def add(self, symbols: Symbols) -> None:
        """One more item."""
        self.last = len(self.sides[-1])
        self.sides[-1] += symbols


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._built = Builder()
        self._number_of: dict[str, Symbol] = {}
        self._used_at: dict[str, int] = {}
        self._defined: set[str] = set()

    def productions(self) -> Productions:
        """Of all rules."""
        self._skip(lines=True)
        while self._at < len(self._text):
            self._rule()
        if "root" not in self._defined:
            raise InvalidConstraint(
                'the grammar has no rule "root", with which the texts of GBNF begin; name the first rule so'
            )
        for name, at in self._used_at.items():
            if name not in self._defined:
                raise InvalidConstraint(f"the grammar uses {name!r} at {self._place(at)} but does not define it")
        self._built.rules[START].append((self._number_of["root"],))
        return self._built.productions(None, self._number_of)

    def _rule(self) -> None:
        at = self._at
        name = self._match(_NAME)
        if not name:
            self._wrong("the name of a rule (a sequence goes on in the next line inside parentheses or behind | only)")
        self._skip()
        if not self._text.startswith("::=", self._at):
            self._wrong("'::='")
        self._at += 3
        if name in self._defined:
            raise InvalidConstraint(f"the grammar defines {name!r} a second time at {self._place(at)}; join the two with |")
        self._defined.add(name)
        self._skip(lines=True)
        self._built.rules[self._number(name)] += dict.fromkeys(map(tuple, self._alternatives().sides))
        if self._at < len(self._text) and self._sign not in "\r\n":
            self._wrong(f"{_SEQUENCE}, or the end of the line")
        self._skip(lines=True)

    def _alternatives(self) -> _Group:
        """What stands behind `::=`, up to the end of the line or what cannot go on."""
        groups = [_Group(self._at)]
        while self._at < len(self._text):
            group, sign = groups[-1], self._sign
            if sign == "(":
                groups.append(_Group(self._at))
                self._at += 1
                self._skip(lines=True)
                continue
            if sign == ")" and len(groups) > 1:
                self._at += 1
                groups.pop()
                groups[-1].add(self._grouped(group))
            elif (bar := self._bar(len(groups) == 1)) >= 0:
                self._at = bar + 1
                group.sides.append([])
                group.last = None
                self._skip(lines=True)
                continue
            elif sign in _REPETITIONS or sign == "{":
                self._repeat(group)
            elif not self._item(group):
                break
            self._skip(lines=len(groups) > 1)
        if len(groups) > 1:
            self._wrong(f"{_SEQUENCE}, or ')' for the '(' at {self._place(groups[-1].at)},")
        return groups[0]

    def _bar(self, outside: bool) -> int:
        """Where the bar of a next alternative is, outside of parentheses perhaps in the next line; -1 where there is none."""
        at = self._at
        if outside and self._sign in "\r\n":
            blank = _BLANK_LINES.match(self._text, at)
            at = blank.end() if blank else at
        return at if self._text.startswith("|", at) else -1

    def _grouped(self, group: _Group) -> Symbols:
        """The symbols of a group; one with a single way is that way."""
        sides = list(dict.fromkeys(map(tuple, group.sides)))
        return sides[0] if len(sides) == 1 else (self._built.new(sides),)

    def _item(self, group: _Group) -> bool:
        """Read a string, a class, a dot or a name; is there one?"""
        sign = self._sign
        if sign == '"':
            group.add(self._string())
        elif sign == "[":
            group.add((self._letter(self._class()),))
        elif sign == ".":
            self._at += 1
            group.add((self._letter(ANY),))
        elif sign in "<!":
            place = self._place(self._at)
            raise UnsupportedKeyword(
                f"{self._match(_TOKEN) or sign} at {place} of the grammar: tokens (<name>, <[id]>, !<…>) are not supported, "
                'only characters; write those of the token as a string, "<name>", or say with locore.token beside the grammar '
                "where it stands"
            )
        elif name := self._match(_NAME):
            self._used_at.setdefault(name, self._at - len(name))
            group.add((self._number(name),))
        else:
            return False
        return True

    def _number(self, name: str) -> Symbol:
        if name not in self._number_of:
            self._number_of[name] = self._built.new()
        return self._number_of[name]

    def _letter(self, chars: CharSet) -> Symbol:
        return ~self._built.terminal(chars, lambda: Terminal.of_character(chars))

    def _repeat(self, group: _Group) -> None:
        """`*`, `+`, `?` or `{…}`: what it repeats is the last item, with the repetitions that stand behind it already."""
        at, sign = self._at, self._sign
        if group.last is None:
            self._wrong("something to repeat before it")
        self._at += 1
        least, most = _REPETITIONS[sign] if sign != "{" else self._bounds()
        if most is not None and most < least:
            raise InvalidConstraint(f"a repetition of {least} to {most} times at {self._place(at)} of the grammar is none")
        side = group.sides[-1]
        side[group.last :] = self._built.repeated(tuple(side[group.last :]), least, most)

    def _bounds(self) -> tuple[int, int | None]:
        least = self._digits()
        most: int | None = least
        if self._text.startswith(",", self._at):
            self._at += 1
            self._skip()
            most = None if self._text.startswith("}", self._at) else self._digits()
        if not self._text.startswith("}", self._at):
            self._wrong("'}'")
        self._at += 1
        return least, most

    def _digits(self) -> int:
        self._skip()
        digits = self._match(_NUMBER)
        if not digits:
            self._wrong("a number")
        self._skip()
        return int(digits.lstrip("0")[:20] or 0)  # 20 digits are more than any repetition can have

    def _string(self) -> Symbols:
        start, symbols = self._at, []
        self._at += 1
        while not self._text.startswith('"', self._at):
            at = self._at
            code = self._character('"', start)
            if FIRST_SURROGATE <= code <= LAST_SURROGATE:
                raise InvalidConstraint(
                    f"{self._text[at : self._at]} at {self._place(at)} of the grammar is half of a character in UTF-16; write "
                    r"the character itself, or all of it as \UNNNNNNNN"
                )
            symbols.append(self._letter(CharSet.of([(code, code)])))
        self._at += 1
        return tuple(symbols)

    def _class(self) -> CharSet:
        start, ranges = self._at, []
        self._at += 1
        negated = self._text.startswith("^", self._at)
        self._at += negated
        while not self._text.startswith("]", self._at):
            at = self._at
            first = last = self._character("]", start)
            if self._text.startswith("-", self._at) and not self._text.startswith("]", self._at + 1):
                self._at += 1
                last = self._character("]", start)
            if last < first:
                raise InvalidConstraint(
                    f"{self._text[at : self._at]} at {self._place(at)} of the grammar is no range of characters"
                )
            ranges.append((first, last))
        if not ranges:
            raise InvalidConstraint(
                f"the class at {self._place(start)} of the grammar is empty; write \\] for the bracket itself"
            )
        self._at += 1
        chars = CharSet.of(ranges)
        return ~chars if negated else chars

    def _character(self, closing: str, start: int) -> int:
        """The code point of a character or an escape inside of a string or a class."""
        if self._at >= len(self._text):
            raise InvalidConstraint(f"the grammar ends before the {closing} for {self._text[start]} at {self._place(start)}")
        sign = self._text[self._at]
        if sign != "\\":
            self._at += 1
            return ord(sign)
        escape = _ESCAPE.match(self._text, self._at)
        if escape is None:
            shown = self._text[self._at : self._at + 2]
            raise InvalidConstraint(f"{shown} at {self._place(self._at)} of the grammar is no escape; there are: {_ESCAPES}")
        code = int(escape["x"] or escape["u"] or escape["U"] or "0", 16)
        if code not in range(0x110000):
            raise InvalidConstraint(
                f"{escape[0]} at {self._place(self._at)} of the grammar is no character; the last is \\U0010FFFF"
            )
        self._at = escape.end()
        return ord(_SIGNS.get(escape["sign"], escape["sign"])) if escape["sign"] else code

    # The text.

    @property
    def _sign(self) -> str:
        return self._text[self._at]

    def _match(self, pattern: re.Pattern[str]) -> str:
        """Step over what matches here; "" if nothing does."""
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return match[0] if match else ""

    def _skip(self, lines: bool = False) -> None:
        self._match(_BLANK_LINES if lines else _BLANK)

    def _place(self, at: int) -> Place:
        return Place(self._text.count("\n", 0, at) + 1, at - self._text.rfind("\n", 0, at))

    def _wrong(self, wanted: str) -> NoReturn:
        sign = self._text[self._at : self._at + 1]
        shown = "its end" if not sign else "the end of the line" if sign in "\r\n" else repr(sign)
        hint = "; strings stand in double quotes" if sign == "'" else ""
        raise InvalidConstraint(f"the grammar needs {wanted} at {self._place(self._at)}, and there is {shown}{hint}")
