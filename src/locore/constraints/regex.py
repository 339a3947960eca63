"""Regular expressions as constraints: the whole text matches."""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass

from locore.automata.regex import byte_automaton
from locore.automata.regex.language import Language
from locore.automata.regex.parse import language_of
from locore.automata.regex.pattern import Pattern, matches_fully, parse
from locore.kernel.automata.tables import Automaton
from locore.kernel.constraints.base import Json
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.constraints.serial import flag_of, read_flag, read_string, register
from locore.kernel.constraints.tokens import AutomatonLeaf
from locore.kernel.errors import BudgetExceeded, InvalidConstraint
from locore.kernel.plugins import cached_property


def regex(pattern: str, ignore_case: bool = False) -> Regex:
    """The whole text matches a regular expression, as `re.fullmatch(pattern, text)` of Python would.

    Supported is all of Python's syntax for strings but back-references, conditions on groups, and atomic groups of something
    that may end in many places; and of other engines named groups, properties, sets, calls of groups, conditions on what
    stands around, and look-behinds of any width (`automata.regex.dialect`). Text that is not valid UTF-8 never
    matches. Remember the leading space that a continuation usually begins with: `regex(r" ?\\d{4}")`.

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


class LanguageLeaf(AutomatonLeaf):
    """The whole text is of a regular language; what is no UTF-8 is of none."""

    is_utf8 = True
    reads = "bytes"

    @property
    @abstractmethod
    def language(self) -> Language:
        """The texts, as an expression."""

    @abstractmethod
    def matches(self, text: str) -> bool:
        """Is it one of the texts? Read plainly, without an automaton."""

    @abstractmethod
    def too_large(self) -> tuple[str, str]:
        """What is too large where the automaton is, and what to do about it."""

    def automaton(self) -> Automaton:
        """The minimal automaton of the UTF-8 encodings of the texts.

        Raises:
            BudgetExceeded: it is too large, or finding it takes too long.
        """
        return self._automaton

    @cached_property
    def _automaton(self) -> Automaton:
        try:
            return byte_automaton(self.language)
        except BudgetExceeded as error:
            what, remedy = self.too_large()
            raise BudgetExceeded(f"{what} is too large: {error}. {remedy} limits=Limits(states=...) allows more.") from error

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The decoded text is read plainly."""
        text = sequence.whole_text
        return text is not None and self.matches(text)


@dataclass(frozen=True, eq=False)
class Regex(LanguageLeaf):
    """The whole text matches `pattern`."""

    pattern: str
    ignore_case: bool = False

    @cached_property
    def parsed(self) -> Pattern:
        """The pattern as Python's parser reads it."""
        return parse(self.pattern, re.IGNORECASE if self.ignore_case else 0)

    @cached_property
    def language(self) -> Language:
        """The strings that match."""
        return language_of(self.parsed)

    def matches(self, text: str) -> bool:
        """By the parser's tree; see `automata.regex.pattern`."""
        return matches_fully(self.parsed, text)

    def too_large(self) -> tuple[str, str]:
        """The pattern, and cheaper ones."""
        shown = repr(self.pattern) if len(self.pattern) <= 80 else f"{self.pattern[:80]!r}…"
        return f"the regular expression {shown}", (
            "Repeat less often, repeat something simpler, or leave the limit away: {2,} costs far less than {2,5000}, and the "
            "number of tokens is a limit already."
        )

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "regex", "pattern": ...}`."""
        json: Json = {"type": "regex", "pattern": self.pattern}
        return json | {"ignore_case": True} if self.ignore_case else json


register("regex", regex, {"pattern": read_string}, {"ignore_case": read_flag})
