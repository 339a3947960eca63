"""Grammars in Lark's syntax: from the text to rules and terminals as trees, with the place of whatever is wrong.

The dialect is llguidance's, without what says more than which texts there are (attributes in brackets, special tokens) and
without grammars of other kinds inside (`%json`, `%regex`, `@name`). Rules are lowercase, terminals uppercase; strings are
JSON's, with an `i` behind them to ignore case; comments start with `//` or `#`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from locore.kernel.errors import InvalidConstraint, UnsupportedKeyword

MANY = None  # no upper bound of a repetition
MAX_BRACKETS = 50  # in brackets; llguidance takes about 30
TEMPLATES = "write out the rule for each use; templates (rules with parameters) are Lark's own and not known here"


@dataclass(frozen=True)
class Place:
    """Where something stands in a grammar, from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class Expression:
    """Base of what stands behind a colon."""

    def spelled(self) -> str:
        """What messages call it."""
        return "a terminal"


@dataclass(frozen=True)
class Name(Expression):
    """A rule or a terminal."""

    name: str
    place: Place

    def spelled(self) -> str:
        """The name."""
        return self.name


@dataclass(frozen=True)
class Literal(Expression):
    """A string."""

    text: str
    ignore_case: bool
    place: Place

    def spelled(self) -> str:
        """As it is written."""
        return json.dumps(self.text, ensure_ascii=False) + "i" * self.ignore_case


@dataclass(frozen=True)
class Pattern(Expression):
    """A regular expression between slashes, and the flags behind it."""

    pattern: str
    flags: str
    place: Place

    def spelled(self) -> str:
        """As it is written."""
        return f"/{self.pattern}/{self.flags}"


@dataclass(frozen=True)
class Interval(Expression):
    """A character between two others, which count."""

    first: str
    last: str


@dataclass(frozen=True)
class Sequence(Expression):
    """One after the other; none: the empty text."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Choice(Expression):
    """One of several."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Common(Expression):
    """Each of several at once; in terminals only."""

    parts: tuple[Expression, ...]
    place: Place


@dataclass(frozen=True)
class Repeated(Expression):
    """Between `least` and `most` times, one after the other."""

    part: Expression
    least: int
    most: int | None


@dataclass(frozen=True)
class Imported(Expression):
    """A terminal of Lark's `common` library."""

    name: str
    place: Place


@dataclass(frozen=True)
class Definitions:
    """A grammar as it is written.

    Attributes:
        rules, terminals: what each name stands for.
        ignored: what may stand between terminals.
    """

    rules: dict[str, Expression]
    terminals: dict[str, Expression]
    ignored: tuple[Expression, ...]


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    place: Place


_KINDS = {
    "space": r"[ \t]+|(?://|\#)[^\n]*",
    "newline": r"(?:\r?\n)+[ \t]*",
    "directive": r"%[a-z]+",
    "rule": r"!?[_?]?[a-z][_a-z0-9\-]*",
    "terminal": r"_?[A-Z][_A-Z0-9\-]*",
    "string": r'"(?:\\.|[^"\\\n])*"i?',
    "regex": r"/(?:\\.|[^/\\])+/[a-z]*",
    "arrow": r"->",
    "dots": r"\.\.",
    "number": r"[+-]?[0-9]+",
    "special": r"<[^<>\s]+>",
    "reference": r"@[a-zA-Z0-9_\-]+|@[{}]",
    "sign": r"[:,.(){}\[\]~|=&+*?]",
    "other": r".",
}
_TOKEN = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _KINDS.items()), re.DOTALL)
_ENDS = {"newline", "arrow", "end"}
_CLOSING = {"|", ")", "]", "}", "&"}
_REPETITIONS = {"*": (0, MANY), "+": (1, MANY), "?": (0, 1)}
_FLAGS = set("imsux")


def definitions_of(text: str) -> Definitions:
    """The rules and terminals of a grammar in Lark's syntax.

    Raises:
        InvalidConstraint: it is none; the message says where.
        UnsupportedKeyword: it uses what is not supported here.
    """
    return _Parser(text).definitions()


def names_in(expression: Expression, levels: int = 1) -> Iterator[tuple[Name, int]]:
    """The rules and terminals that an expression uses, from left to right, and how many levels deep each stands in it."""
    if isinstance(expression, Name):
        yield expression, levels
    parts = (expression.part,) if isinstance(expression, Repeated) else getattr(expression, "parts", ())
    for part in parts:
        yield from names_in(part, levels + 1)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [token for token in _tokens(text) if token.kind != "space"]
        self._next = self._open = 0
        self._rules: dict[str, Expression] = {}
        self._terminals: dict[str, Expression] = {}
        self._ignored: list[Expression] = []

    def definitions(self) -> Definitions:
        while self._here.kind != "end":
            if self._here.kind == "newline":
                self._next += 1
            elif self._here.kind == "directive":
                self._directive()
            elif self._here.kind in ("rule", "terminal"):
                self._definition()
            else:
                self._wrong("a rule, a terminal, %import or %ignore")
        return Definitions(self._rules, self._terminals, tuple(self._ignored))

    def _definition(self) -> None:
        name = self._take()
        defined = self._rules if name.kind == "rule" else self._terminals
        if self._here.text == "{":
            self._unsupported(f"the template {name.text!r}", TEMPLATES, name.place)
        if self._here.text == "[":
            self._unsupported(f"attributes of {name.text!r}", "leave them away; only the texts of a grammar matter")
        self._expect(":")
        self._define(defined, name, self._choice())

    def _define(self, defined: dict[str, Expression], name: _Token, expression: Expression) -> None:
        plain = name.text.lstrip("!?")
        if plain in defined:
            raise InvalidConstraint(f"the grammar defines {plain!r} a second time at {name.place}; join the two with |")
        defined[plain] = expression

    def _directive(self) -> None:
        directive = self._take()
        if directive.text == "%ignore":
            self._ignored.append(self._choice())
        elif directive.text == "%import":
            self._import()
        elif [token.text for token in self._tokens[self._next - 1 : self._next + 2]] == ["%llguidance", "{", "}"]:
            self._next += 2  # it says that what follows is a grammar, and no more
        else:
            self._next -= 1
            self._unsupported(f"{directive.text}", "a grammar here has rules, terminals, %import common.NAME and %ignore")

    def _import(self) -> None:
        place = self._here.place
        path = [self._take().text]
        while self._here.text == ".":
            self._next += 1
            path.append(self._take().text)
        if path[0] != "common":
            raise UnsupportedKeyword(f"%import knows 'common' only, not {path[0]!r} ({place}); write the terminal itself")
        if self._here.text == "(":
            self._next += 1
            while self._here.text != ")":
                name = self._take()
                self._define(self._terminals, name, Imported(name.text, name.place))
                if self._here.text == ",":
                    self._next += 1
            self._next += 1
            return
        alias = _Token("terminal", path[-1], place)
        if self._here.kind == "arrow":
            self._next += 1
            alias = self._take()
        self._define(self._terminals, alias, Imported(path[-1], place))

    def _choice(self) -> Expression:
        parts = [self._alternative()]
        while self._goes_on():
            parts.append(self._alternative())
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _goes_on(self) -> bool:
        """Step over the bar of a next alternative, which may stand on a new line."""
        skipped = 1 if self._here.kind == "newline" else 0
        if self._tokens[min(self._next + skipped, len(self._tokens) - 1)].text != "|":
            return False
        self._next += skipped + 1
        return True

    def _alternative(self) -> Expression:
        place = self._here.place
        parts = [self._sequence()]
        while self._here.text == "&":
            self._next += 1
            parts.append(self._sequence())
        if self._here.kind == "arrow":
            self._next += 2  # the name of an alternative says nothing about texts
        return parts[0] if len(parts) == 1 else Common(tuple(parts), place)

    def _sequence(self) -> Expression:
        parts = []
        while self._here.kind not in _ENDS and self._here.text not in _CLOSING:
            parts.append(self._repeated())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self) -> Expression:
        part, sign = self._atom(), self._here
        if sign.text in _REPETITIONS:
            self._next += 1
            return Repeated(part, *_REPETITIONS[sign.text])
        if sign.text == "~":
            self._next += 1
            least = self._number()
            most: int | None = least
            if self._here.kind == "dots":
                self._next += 1
                most = self._number()
        elif sign.text == "{":
            self._next += 1
            if isinstance(part, Name) and self._here.kind != "number" and self._here.text != ",":
                self._unsupported(f"a use of the template {part.name!r}", TEMPLATES, part.place)
            least, most = self._bounds()
        else:
            return part
        if least < 0 or (most is not None and most < least):
            raise InvalidConstraint(f"a repetition of {least} to {most} times at {sign.place} of the grammar is none")
        return Repeated(part, least, most)

    def _bounds(self) -> tuple[int, int | None]:
        least = 0 if self._here.text == "," else self._number()
        most: int | None = least
        if self._here.text == ",":
            self._next += 1
            most = MANY if self._here.text == "}" else self._number()
        self._expect("}")
        return least, most

    def _atom(self) -> Expression:
        token = self._take()
        if token.text in ("(", "["):
            self._open += 1
            if self._open > MAX_BRACKETS:
                raise InvalidConstraint(
                    f"the grammar has brackets nested deeper than {MAX_BRACKETS} at {token.place}; give inner ones rules of "
                    "their own"
                )
            inner = self._choice()
            self._open -= 1
            self._expect(")" if token.text == "(" else "]")
            return inner if token.text == "(" else Repeated(inner, 0, 1)
        if token.kind in ("rule", "terminal"):
            return Name(token.text.lstrip("!?"), token.place)
        if token.kind == "string":
            return self._string(token)
        if token.kind == "regex":
            pattern, flags = token.text[1:].rsplit("/", 1)
            if set(flags) - _FLAGS:
                raise UnsupportedKeyword(f"the flags {flags!r} at {token.place} of the grammar are not all of i, m, s, u and x")
            return Pattern(pattern, flags, token.place)
        self._next -= 1
        if token.kind in ("special", "reference", "directive") or token.text == "~":
            self._unsupported(token.text, "write it as rules, or combine constraints with & | ~ and locore.after")
        self._wrong("a string, a /regular expression/, a name or a group")

    def _string(self, token: _Token) -> Expression:
        first = _unquoted(token)
        if self._here.kind != "dots":
            return Literal(first, token.text.endswith("i"), token.place)
        self._next += 1
        last = _unquoted(self._take("string"))
        if len(first) != 1 or len(last) != 1 or first > last:
            raise InvalidConstraint(f"{first!r}..{last!r} at {token.place} of the grammar is no range of characters")
        return Interval(first, last)

    # Tokens.

    @property
    def _here(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, kind: str | None = None) -> _Token:
        token = self._here
        if token.kind == "end" or (kind is not None and token.kind != kind):
            self._wrong(f"a {kind}" if kind else "more")
        self._next += 1
        return token

    def _number(self) -> int:
        return int(self._take("number").text)

    def _expect(self, sign: str) -> None:
        if self._here.text != sign:
            self._wrong(repr(sign))
        self._next += 1

    def _wrong(self, wanted: str) -> NoReturn:
        token = self._here
        shown = "its end" if token.kind == "end" else "the end of the line" if token.kind == "newline" else repr(token.text)
        raise InvalidConstraint(f"the grammar needs {wanted} at {token.place}, and there is {shown}")

    def _unsupported(self, what: str, remedy: str, place: Place | None = None) -> NoReturn:
        raise UnsupportedKeyword(f"{what} at {place or self._here.place} of the grammar: not supported; {remedy}")


def _tokens(text: str) -> list[_Token]:
    tokens, line, start = [], 1, 0
    for match in _TOKEN.finditer(text):
        place = Place(line, match.start() - start + 1)
        tokens.append(_Token(str(match.lastgroup), match.group(), place))
        breaks = match.group().count("\n")
        if breaks:
            line += breaks
            start = match.start() + match.group().rindex("\n") + 1
    tokens.append(_Token("end", "", Place(line, len(text) - start + 1)))
    return tokens


def _unquoted(token: _Token) -> str:
    """The string that a token spells."""
    try:
        text = str(json.loads(token.text.removesuffix("i")))
        text.encode()
    except ValueError as error:
        raise InvalidConstraint(f"{token.text} at {token.place} of the grammar is no string of JSON: {error}") from error
    return text
