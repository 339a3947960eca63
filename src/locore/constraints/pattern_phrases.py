r"""Patterns: regular expressions that are looked for anywhere in a text, wherever a phrase may stand.

`contains(pattern(r"\[\d\]"))` holds where `re.search` finds a match. A pattern sees the whole text around it, so that `^`, `$`,
`\b` and look-arounds mean what they mean there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from locore.automata.regex.language import Language, literal
from locore.automata.regex.parse import language_of
from locore.automata.regex.pattern import Pattern as Parsed
from locore.automata.regex.pattern import ends_of, is_lazy, matches_in, parse
from locore.constraints.ready import READY
from locore.kernel.constraints.constraint import Json
from locore.kernel.constraints.serial import described, flag_of, read_flag, read_string, share
from locore.kernel.constraints.spelling import called
from locore.kernel.errors import InvalidConstraint, UnsupportedKeyword
from locore.kernel.plugins import cached_property

FIELDS = ("regex", "ignore_case", "name")


@dataclass(frozen=True, repr=False)
class Pattern:
    """What `pattern` makes: any text that matches, where a phrase may stand.

    Attributes:
        regex: in Python's syntax.
        ignore_case: in upper or in lower case.
        name: of a ready one.
    """

    regex: str
    ignore_case: bool = False
    name: str | None = None

    @cached_property
    def parsed(self) -> Parsed:
        """As Python's parser reads it."""
        return parse(self.regex, re.IGNORECASE if self.ignore_case else 0)

    @cached_property
    def language(self) -> Language:
        """The strings that match."""
        return language_of(self.parsed)

    def matches(self, text: str) -> list[tuple[int, int]]:
        """Beginning and end of each match in a text, read plainly: the leftmost, the longest, without overlap."""
        return list(matches_in(self.parsed, text))

    def ends(self, text: str, starts: set[int]) -> set[int]:
        """Where matches end that begin at one of these places, read plainly."""
        return set(ends_of(self.parsed, text, starts))

    def without_case(self) -> Pattern:
        """The same in upper and in lower case."""
        return replace(self, ignore_case=True)

    def to_json(self) -> Json:
        """`{"type": "pattern", "regex": ...}`, or `{"type": "pattern", "name": ...}`."""
        json: Json = {"type": "pattern", "regex": self.regex} if self.name is None else {"type": "pattern", "name": self.name}
        return json | {"ignore_case": True} if self.ignore_case else json

    def __repr__(self) -> str:
        return called(self.to_json())

    def __reduce__(self) -> tuple[Any, ...]:
        return Pattern, (self.regex, self.ignore_case, self.name)


Phrase = str | Pattern  # what can be looked for


def pattern(regex: str | None = None, ignore_case: bool = False, *, name: str | None = None) -> Pattern:
    r"""Any text that matches a regular expression, to be looked for: in `contains`, `ban`, `count`, `starts_with`, `ends_with`.

    `ban(pattern(r" not .{1,25} but"))` bans what `re.search` finds, and lists may mix patterns and strings. What a match has
    around it is the whole text: `\b`, `^` and look-arounds mean what they mean there. The syntax is that of `regex`.

    Args:
        regex: in Python's syntax; it must not match the empty text, which occurs everywhere.
        ignore_case: the same as `(?i)` at the start.
        name: of a ready pattern, in the place of `regex`: "email", "url", … or that of a script; see `locore.patterns`.

    Raises:
        InvalidConstraint: both or neither of `regex` and `name`, no regular expression of Python, a construct that is not
            supported, one that may match the empty text, or a name that is not known.
    """
    flag = flag_of(ignore_case, "ignore_case", "pattern")
    if (regex is None) == (name is None):
        raise InvalidConstraint('pattern needs a regular expression, or the name of a ready one: name="email"; not both')
    if name is not None:
        if name not in READY:
            raise InvalidConstraint(f"there is no ready pattern {name!r}; there are {', '.join(READY)}")
        return Pattern(READY[name], flag, name)
    if not isinstance(regex, str):
        raise InvalidConstraint(f"pattern needs a regular expression as a string, got {regex!r}")
    expression = Pattern(regex, flag)
    if not expression.parsed.tree.getwidth()[0]:
        raise InvalidConstraint(
            f"the pattern {regex!r} may match the empty text, which occurs in every text; let it match a character at least, "
            "such as with + for *"
        )
    expression.language  # noqa: B018  (raises where it is not supported)
    return expression


def as_language(phrase: Phrase) -> Language:
    """The texts that a phrase stands for."""
    return literal(phrase) if isinstance(phrase, str) else phrase.language


def check_countable(phrases: tuple[Pattern, ...]) -> None:
    """`InvalidConstraint` where the longest match is not what a pattern asks for."""
    for phrase in phrases:
        if is_lazy(phrase.parsed.tree):
            raise InvalidConstraint(
                f"{phrase!r} has a short repetition such as .*?, and of the matches that begin at one place the longest is "
                'counted; say what the match must not hold instead, such as "[^"]*" for ".*?"'
            )


_PATTERN: Json = {
    "type": "object",
    "properties": {
        "type": {"const": "pattern"},
        "regex": {"type": "string"},
        "ignore_case": {"type": "boolean"},
        "name": {"enum": list(READY)},
    },
    "required": ["type"],
    "oneOf": [{"required": ["regex"]}, {"required": ["name"]}],
    "additionalProperties": False,
}
PHRASE_SCHEMA: Json = {"anyOf": [{"type": "string"}, share("Pattern", _PATTERN)]}


@described(PHRASE_SCHEMA)
def read_phrase(value: Any, path: str) -> Phrase:
    """A string, or a pattern."""
    if not isinstance(value, dict):
        return read_string(value, path)
    if value.get("type") != "pattern":
        raise InvalidConstraint(f'{path} must be a string, or {{"type": "pattern", "regex": ...}}, got {value!r}')
    for field in value:
        if field not in FIELDS and field != "type":
            raise UnsupportedKeyword(f"a pattern has no field {field!r} (at {path}); its fields are: {', '.join(FIELDS)}")
    try:
        return pattern(
            None if "regex" not in value else read_string(value["regex"], f"{path}.regex"),
            read_flag(value.get("ignore_case", False), f"{path}.ignore_case"),
            name=None if "name" not in value else read_string(value["name"], f"{path}.name"),
        )
    except InvalidConstraint as error:
        raise InvalidConstraint(f"{error} (at {path})") from error
