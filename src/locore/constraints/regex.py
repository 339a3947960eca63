"""Regular expressions as constraints: the whole text matches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from locore.constraints.arguments import flag_of, read_flag
from locore.constraints.automaton import Automaton
from locore.constraints.base import Json
from locore.constraints.leaves import AutomatonLeaf
from locore.constraints.regular import byte_automaton
from locore.constraints.regular.ir import Language
from locore.constraints.regular.parse import language_of
from locore.constraints.regular.pattern import Pattern, parse
from locore.constraints.regular.reading import matches_fully
from locore.constraints.sequence import TokenSequence
from locore.constraints.serial import read_string, register
from locore.errors import BudgetExceeded, InvalidConstraint


def regex(pattern: str, ignore_case: bool = False) -> Regex:
    """The whole text matches a regular expression, as `re.fullmatch(pattern, text)` of Python would.

    Supported is all of Python's syntax for strings but back-references, conditional groups, atomic groups, and possessive
    repetitions of more than one character. Text that is not valid UTF-8 never matches. Remember the leading space that a
    continuation usually begins with: `regex(r" ?\\d{4}")`.

    Args:
        pattern: a regular expression in Python's syntax; flags can be written at its start, such as `(?s)`.
        ignore_case: the same as `(?i)` at the start.

    Raises:
        InvalidConstraint: no string, no regular expression of Python, or a construct that is not supported; the message says
            which and where.
    """
    if not isinstance(pattern, str):
        raise InvalidConstraint(f"regex needs a pattern as a string, got {pattern!r}")
    leaf = Regex(pattern, flag_of(ignore_case, "ignore_case", "regex"))
    leaf.language  # noqa: B018  (raises where the pattern is not supported)
    return leaf


@dataclass(frozen=True, eq=False)
class Regex(AutomatonLeaf):
    """The whole text matches `pattern`."""

    over = "bytes"
    pattern: str
    ignore_case: bool = False

    @cached_property
    def parsed(self) -> Pattern:
        """The pattern as Python's parser reads it."""
        return parse(self.pattern, re.IGNORECASE if self.ignore_case else 0)

    @cached_property
    def language(self) -> Language:
        """The strings that match, as an expression."""
        return language_of(self.parsed)

    def automaton(self) -> Automaton:
        """The minimal automaton of the UTF-8 encodings of the strings that match.

        Raises:
            BudgetExceeded: it is too large, or finding it takes too long.
        """
        return self._automaton

    @cached_property
    def _automaton(self) -> Automaton:
        try:
            return byte_automaton(self.language)
        except BudgetExceeded as error:
            shown = repr(self.pattern) if len(self.pattern) <= 80 else f"{self.pattern[:80]!r}…"
            raise BudgetExceeded(
                f"the regular expression {shown} is too large: {error}. Repeat less often, repeat something simpler, or leave "
                "the limit away: {2,} costs far less than {2,5000}, and the number of tokens is a limit already. "
                "limits=Limits(states=...) allows more."
            ) from error

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The decoded text is read with the parser's tree, without an automaton; see `regular.reading`."""
        try:
            text = sequence.text.decode("utf-8")
        except UnicodeDecodeError:
            return False
        return matches_fully(self.parsed, text)

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "regex", "pattern": ...}`."""
        json: Json = {"type": "regex", "pattern": self.pattern}
        return json | {"ignore_case": True} if self.ignore_case else json


register("regex", regex, {"pattern": read_string}, {"ignore_case": read_flag})
