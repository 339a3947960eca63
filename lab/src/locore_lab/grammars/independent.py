"""Which texts are sentences, by Lark's own parsers, which share nothing with Locore.

Earley's, with every length of every terminal, reads a grammar as a grammar of characters. The LALR parser, which SynCode and
Outlines' first grammars are for, has a lexer, and does not take every grammar.

GBNF has no lexer. It is written in Lark's syntax here: each rule gets a name in lowercase, each class is a regular expression
of one character. This reading of GBNF is not Locore's, nor llguidance's.
"""

from __future__ import annotations

import re

import lark
from lark.exceptions import LarkError

_TOKENS = re.compile(
    r"""(?P<blank>\s+|\#[^\n]*)
      | (?P<string>"(?:\\.|[^"\\])*")
      | (?P<chars>\[(?:\\.|[^\]\\])*\])
      | (?P<define>[\w-]+\s*::=)
      | (?P<name>[\w-]+)
      | (?P<times>\{\s*\d+\s*(?:,\s*\d*\s*)?\})
      | (?P<sign>[()|*+?.])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|(.)", re.DOTALL)
_MEANING = {"n": "\n", "r": "\r", "t": "\t"}


class Independent:
    """Lark's reading of a grammar.

    Args:
        text: in Lark's syntax.
    """

    def __init__(self, text: str) -> None:
        # The forest is all that is needed: no tree is chosen in it.
        self._earley = lark.Lark(text, parser="earley", lexer="dynamic_complete", ambiguity="forest")
        self._lalr: lark.Lark | None
        try:
            self._lalr = lark.Lark(text, parser="lalr", lexer="contextual")
        except LarkError:  # it is not of that kind
            self._lalr = None

    @classmethod
    def of_gbnf(cls, text: str) -> Independent:
        """Of a grammar in GBNF; the lexer of LALR is not what is meant then."""
        made = cls(lark_of(text))
        made._lalr = None
        return made

    def earley(self, text: str) -> bool:
        """Is the text a sentence?"""
        return _takes(self._earley, text)

    def lalr(self, text: str) -> bool | None:
        """The same by the LALR parser; None if there is none."""
        return None if self._lalr is None else _takes(self._lalr, text)


def _takes(parser: lark.Lark, text: str) -> bool:
    try:
        parser.parse(text)
    except LarkError:
        return False
    return True


def lark_of(gbnf: str) -> str:
    """A grammar in GBNF, in Lark's syntax."""
    rules: list[list[str]] = []
    place = 0
    while place < len(gbnf):
        found = _TOKENS.match(gbnf, place)
        if found is None:
            raise ValueError(f"no GBNF: {gbnf[place : place + 20]!r}")
        place = found.end()
        kind, part = str(found.lastgroup), found[0]
        if kind == "define":
            rules.append([f"{_rule(part.removesuffix('::=').strip())}:"])
        elif kind != "blank":
            rules[-1].append(_written(kind, part))
    return "\n".join(["start: r_root", *(" ".join(rule) for rule in rules)])


def _written(kind: str, part: str) -> str:
    if kind == "string":
        return f"({' '.join(_class([(code, code)]) for code in _codes(part[1:-1]))})"
    if kind == "chars":
        negated = part.startswith("[^")
        return _class(_ranges(part[1 + negated : -1]), negated)
    if kind == "name":
        return _rule(part)
    if kind == "times":
        least, comma, most = (each.strip() for each in part[1:-1].partition(","))
        if comma and not most:
            raise ValueError(f"{part} has no counterpart in Lark's syntax")
        return f"~{least}..{most}" if comma else f"~{least}"
    return r"/[\s\S]/" if part == "." else part


def _rule(name: str) -> str:
    """A name in lowercase, of its own for each name."""
    return "r_" + "".join(sign if sign.islower() or sign.isdigit() else f"_{ord(sign):x}_" for sign in name)


def _codes(text: str) -> list[int]:
    """Code points of what stands in a string, or in a class without ranges."""
    found = []
    for short, middle, long, escaped, plain in _ESCAPE.findall(text):
        code = short or middle or long
        found.append(int(code, 16) if code else ord(_MEANING.get(escaped, escaped) or plain))
    return found


def _ranges(text: str) -> list[tuple[int, int]]:
    found = []
    for first, last in re.findall(r"(\\x..|\\u....|\\U........|\\.|.)(?:-(\\x..|\\u....|\\U........|\\.|.))?", text, re.DOTALL):
        (low,), (high,) = _codes(first), _codes(last or first)
        found.append((low, high))
    return found


def _class(ranges: list[tuple[int, int]], negated: bool = False) -> str:
    inside = "".join(f"{_sign(low)}-{_sign(high)}" for low, high in ranges)
    return f"/[{'^' * negated}{inside}]/"


def _sign(code: int) -> str:
    """A character within a class. Lark turns escapes such as \\u005d into the character before it reads the expression."""
    sign = chr(code)
    if sign.isascii() and sign.isalnum():
        return sign
    return f"\\{sign}" if sign.isascii() and sign.isprintable() and sign != " " else rf"\U{code:08x}"
