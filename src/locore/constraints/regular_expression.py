"""Regular expressions as constraints: the whole text matches."""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass

from locore.automata.composed import as_automaton
from locore.automata.regex import byte_automaton
from locore.automata.regex.backtracking import matches_trying
from locore.automata.regex.dfa import Budget, Dfa
from locore.automata.regex.language import Language
from locore.automata.regex.matching import PatternMachine, few_states
from locore.automata.regex.parse import language_of, memory
from locore.automata.regex.pattern import Pattern, matches_fully, parse
from locore.automata.regex.program import Program, program_of
from locore.constraints.text_leaf import MachineLeaf
from locore.kernel.automata.tables import Automaton
from locore.kernel.constraints.constraint import Json
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.constraints.serial import flag_of, read_flag, read_string, register
from locore.kernel.constraints.tokens import AutomatonLeaf
from locore.kernel.errors import BudgetExceeded, InvalidConstraint
from locore.kernel.plugins import cached_property

FEW_STATES = 500  # of a pattern that is made as a whole


def regex(pattern: str, ignore_case: bool = False) -> Regex | FollowedRegex:
    """The whole text matches a regular expression, as `re.fullmatch(pattern, text)` of Python would.

    Supported is all of Python's syntax for strings, and of other engines named groups, properties, sets, calls of groups,
    conditions on what stands around, and look-behinds of any width (`automata.regex.dialect`). Back-references, conditions on
    groups and groups that call themselves are no regular language: such a pattern is followed as far as a text goes, which
    takes longer (`automata.regex.threads`). Text that is not valid UTF-8 never matches. Remember the leading space that a
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
    try:
        leaf.language  # noqa: B018  (raises where the pattern is not of a regular language)
    except InvalidConstraint as error:
        return _followed(leaf, error)
    return leaf


def _followed(leaf: Regex, error: InvalidConstraint) -> FollowedRegex:
    """The same pattern, where its texts are of no regular language that is known.

    Raises:
        InvalidConstraint: it is no pattern, or one that cannot be followed either.
    """
    followed = FollowedRegex(leaf.pattern, leaf.ignore_case)
    try:
        followed.machine()
    except InvalidConstraint as another:
        needs_it = followed.parsed.calls or memory(followed.parsed.tree) is not None
        raise another if needs_it else error from None
    return followed


@dataclass(frozen=True, eq=False)
class Matching(AutomatonLeaf):
    """The whole text matches `pattern`; what is no UTF-8 matches nothing."""

    is_utf8 = True
    reads = "bytes"
    pattern: str
    ignore_case: bool = False

    @cached_property
    def parsed(self) -> Pattern:
        """The pattern as Python's parser reads it."""
        return parse(self.pattern, re.IGNORECASE if self.ignore_case else 0)

    @abstractmethod
    def matches(self, text: str) -> bool:
        """Does it match a text? Read plainly, without an automaton."""

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The decoded text is read plainly."""
        text = sequence.whole_text
        return text is not None and self.matches(text)

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "regex", "pattern": ...}`."""
        json: Json = {"type": "regex", "pattern": self.pattern}
        return json | {"ignore_case": True} if self.ignore_case else json


@dataclass(frozen=True, eq=False)
class Regex(Matching):
    """The same where the texts are of a regular language."""

    @cached_property
    def language(self) -> Language:
        """The strings that match."""
        return language_of(self.parsed)

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
            shown = repr(self.pattern) if len(self.pattern) <= 80 else f"{self.pattern[:80]!r}…"
            raise BudgetExceeded(
                f"the regular expression {shown} is too large: {error}. Repeat less often, repeat something simpler, or leave "
                "the limit away: {2,} costs far less than {2,5000}, and the number of tokens is a limit already. "
                "limits=Limits(states=...) allows more."
            ) from error

    def matches(self, text: str) -> bool:
        """By the parser's tree; see `automata.regex.pattern`."""
        return matches_fully(self.parsed, text)


@dataclass(frozen=True, eq=False)
class FollowedRegex(Matching, MachineLeaf):
    """The same where it has back-references, conditions on groups, or groups that call themselves."""

    @cached_property
    def _program(self) -> Program:
        return program_of(self.parsed)

    @cached_property
    def _machine(self) -> PatternMachine:
        return PatternMachine(self._program)

    @cached_property
    def _few(self) -> Dfa | None:
        return few_states(self._program, FEW_STATES)

    @property
    def is_small(self) -> bool:
        """Has it few states after all, as where a group has few texts?"""
        return self._few is not None

    @cached_property
    def _automaton(self) -> Automaton:
        return as_automaton(self._machine) if self._few is None else self._few.over_bytes(Budget.in_force())

    def matches(self, text: str) -> bool:
        """By a matcher that tries one way after the other; see `automata.regex.backtracking`.

        Raises:
            BudgetExceeded: there are too many ways.
        """
        return matches_trying(self.parsed, text)


register("regex", regex, {"pattern": read_string}, {"ignore_case": read_flag})
