"""Terminals of a grammar as regular languages."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, reduce

from locore.automata.characters import NUM_CODE_POINTS
from locore.automata.grammar.syntax import (
    Choice,
    Common,
    Definitions,
    Expression,
    Imported,
    Interval,
    Literal,
    Name,
    Pattern,
    Place,
    Repeated,
    Sequence,
    names_in,
)
from locore.automata.regex.language import Both, Chars, CharSet, Concat, Language, either, repeat
from locore.automata.regex.parse import language_of
from locore.automata.regex.pattern import parse
from locore.kernel.errors import InvalidConstraint, UnsupportedKeyword

_DIGITS, _EXPONENT = r"[0-9]+", r"[eE][+-]?[0-9]+"
_DECIMAL = r"(?:[0-9]+\.[0-9]*|\.[0-9]+)"
_FLOAT = rf"(?:{_DECIMAL}(?:{_EXPONENT})?|{_DIGITS}{_EXPONENT})"
_NUMBER = rf"(?:{_DIGITS}|{_FLOAT})"
COMMON = {  # as Lark's common.lark has them
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9a-fA-F]",
    "INT": _DIGITS,
    "SIGNED_INT": rf"[+-]?{_DIGITS}",
    "DECIMAL": _DECIMAL,
    "_EXP": _EXPONENT,
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": rf"[+-]?{_FLOAT}",
    "NUMBER": _NUMBER,
    "SIGNED_NUMBER": rf"[+-]?{_NUMBER}",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\.)*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[A-Za-z_][A-Za-z_0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "SH_COMMENT": r"\#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "C_COMMENT": r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/",
    "SQL_COMMENT": r"--[^\n]*",
}
LONGEST_SHOWN = 80  # characters of a pattern, in messages
MAX_LEVELS = 300  # of terminals and what stands in them
AROUND = ("(?=", "(?!", "(?<=", "(?<!", r"\b", r"\B")
CLASS_OPERATORS = ("--", "&&", "~~", "[")  # of Rust's character classes; Python reads them as characters


class Terminals:
    """The languages of the terminals of a grammar, each made once."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._languages: dict[str, Language] = {}
        self._depth: dict[str, int] = {}

    def named(self, name: str, place: Place) -> Language:
        """The language of a terminal.

        Raises:
            InvalidConstraint: there is none of this name, it is defined by itself, or others stand in it too deep.
        """
        if name not in self._languages:
            open_ones: dict[str, Iterator[tuple[Name, int]]] = {}
            self._open(open_ones, name, place)
            while open_ones:
                innermost = next(reversed(open_ones))
                used, _ = next(open_ones[innermost], (None, 0))
                if used is None:
                    self._close(innermost)
                    del open_ones[innermost]
                elif used.name not in self._languages:
                    self._open(open_ones, used.name, used.place)
        return self._languages[name]

    def _open(self, open_ones: dict[str, Iterator[tuple[Name, int]]], name: str, place: Place) -> None:
        """One more terminal inside of those that are open."""
        if name not in self._definitions.terminals:
            if name not in self._definitions.rules:
                raise InvalidConstraint(f"the grammar uses {name!r} at {place} but does not define it")
            raise InvalidConstraint(
                f"the rule {name!r} at {place} of the grammar cannot stand in a terminal, which is made of strings, "
                "regular expressions and other terminals; write the terminal in lowercase"
            )
        if name in open_ones:
            raise InvalidConstraint(f"the terminal {name!r} is defined by itself ({place}); make it a rule, in lowercase")
        open_ones[name] = names_in(self._definitions.terminals[name])

    def _close(self, name: str) -> None:
        """The language of a terminal that has none but known ones in it."""
        expression = self._definitions.terminals[name]
        self._depth[name] = max((levels + self._depth[used.name] for used, levels in names_in(expression)), default=1)
        if self._depth[name] > MAX_LEVELS:
            raise InvalidConstraint(
                f"the terminals of the grammar stand in each other more than {MAX_LEVELS} levels deep (in {name!r}); make some "
                "of them rules, in lowercase"
            )
        self._languages[name] = self.of(expression)

    def of(self, expression: Expression) -> Language:
        """The language of what stands in a terminal."""
        if isinstance(expression, Name):
            return self.named(expression.name, expression.place)
        if isinstance(expression, Imported):
            if expression.name not in COMMON:
                names = ", ".join(sorted(COMMON))
                raise InvalidConstraint(f"common.{expression.name} ({expression.place}) is unknown; there are: {names}")
            return _regex(COMMON[expression.name], "", expression.place)
        if isinstance(expression, Literal):
            return _regex(re.escape(expression.text), "i" if expression.ignore_case else "", expression.place)
        if isinstance(expression, Pattern):
            return _regex(expression.pattern, expression.flags, expression.place)
        if isinstance(expression, Interval):
            return Chars(CharSet.of([(ord(expression.first), ord(expression.last))]))
        if isinstance(expression, Sequence):
            return Concat(tuple(self.of(part) for part in expression.parts))
        if isinstance(expression, Choice):
            return either(self.of(part) for part in expression.parts)
        if isinstance(expression, Common):
            return reduce(Both, [self.of(part) for part in expression.parts])
        assert isinstance(expression, Repeated)
        return repeat(self.of(expression.part), expression.least, expression.most)


def _regex(pattern: str, flags: str, place: Place) -> Language:
    """The language of a regular expression whose classes mean what they mean to Unicode."""
    try:
        return language_of(parse(_portable(pattern, place), _flags(flags)))
    except InvalidConstraint as error:
        shown = pattern if len(pattern) <= LONGEST_SHOWN else f"{pattern[:LONGEST_SHOWN]}…"
        raise InvalidConstraint(f"the regular expression /{shown}/ at {place} of the grammar: {error}") from error


def _flags(flags: str) -> int:
    flag_of = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "u": re.UNICODE}
    return int(reduce(lambda a, b: a | b, (flag_of[flag] for flag in flags), re.NOFLAG))


def _portable(pattern: str, place: Place) -> str:
    """The pattern with `\\d`, `\\s` and `\\w` spelled out, which Python and other engines understand in different ways."""
    result, inside, index = [], False, 0
    while index < len(pattern):
        sign = pattern[index : index + 2] if pattern[index] == "\\" else pattern[index]
        if sign[:1] == "\\" and sign[1:] in tuple("dswDSW"):
            ranges = _spelled(sign[1:])
            result.append(ranges if inside else f"[{ranges}]")
        else:
            if not inside and any(pattern.startswith(around, index) for around in AROUND):
                raise UnsupportedKeyword(
                    f"the regular expression /{pattern}/ at {place} of the grammar looks around itself (?= ?! ?<= ?<! \\b "
                    "\\B), which terminals cannot; say it with & between terminals, or as rules"
                )
            if inside and any(pattern.startswith(operator, index) for operator in CLASS_OPERATORS):
                raise UnsupportedKeyword(
                    f"an operator of character classes at {place} of the grammar: not supported; write the ranges themselves, "
                    "and \\[ for a bracket"
                )
            result.append(sign)
            if sign == "[" and not inside:
                inside = True
                for first in ("^", "]"):  # a bracket right at the start is a character
                    if pattern.startswith(first, index + 1):
                        result.append(first)
                        index += 1
            elif sign == "]":
                inside = False
        index += len(sign)
    return "".join(result)


@cache
def _spelled(letter: str) -> str:
    """The ranges of a class of characters, as they are written between brackets."""
    chars = _class(letter.lower())
    return "".join(rf"\U{first:08X}-\U{last:08X}" for first, last in (chars if letter.islower() else ~chars).ranges)


@cache
def _class(letter: str) -> CharSet:
    """Digits, white space, or characters of words, as Unicode's annex 18 has them."""
    if letter == "s":
        spaces = ((9, 13), (32, 32), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029))
        return CharSet.of((*spaces, (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)))
    if letter == "d":
        return CharSet.of((code, code) for code in range(NUM_CODE_POINTS) if unicodedata.category(chr(code)) == "Nd")
    kinds = {"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Mn", "Mc", "Me", "Nd", "Pc"}
    words = [(code, code) for code in range(NUM_CODE_POINTS) if unicodedata.category(chr(code)) in kinds]
    circled = ((0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))
    return CharSet.of((*words, *circled, (0x200C, 0x200D)))
