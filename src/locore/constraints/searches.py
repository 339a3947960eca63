"""The leaves that look for patterns in the text, and the plain search without automata that is their independent check.

`text` has the public functions that make them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from locore.automata import phrase_search
from locore.automata.byte_machine import ByteMachine
from locore.automata.characters import Manner
from locore.automata.composed import as_automaton
from locore.automata.regex.bytewise import Counted, OverBytes
from locore.automata.regex.dfa import Budget
from locore.automata.regex.language import either
from locore.automata.regex.searching import CharMachine, Matches, Search, anywhere
from locore.constraints.pattern_phrases import Pattern, Phrase, as_language
from locore.constraints.phrases import LEAST, Occurrence, PlainText, listed
from locore.constraints.text_leaf import MachineLeaf
from locore.kernel.automata.tables import Automaton
from locore.kernel.constraints.constraint import Json
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.constraints.serial import form_of
from locore.kernel.constraints.spelling import allowed, called, cut, quoted, with_exactly
from locore.kernel.errors import BudgetExceeded
from locore.kernel.plugins import cached_property

LONGEST = 80  # characters of a leaf in an error
SMALL, SMALL_BYTES = 1_000, 10_000  # states, over characters and bytes, of an automaton that is made as a whole in a moment


class PatternLeaf(MachineLeaf):
    """A text leaf with patterns; a kind is a frozen dataclass whose fields are the parameters of the function that makes it."""

    is_utf8 = True
    kind: ClassVar[str]

    @abstractmethod
    def _decider(self) -> CharMachine[Any] | Counted:
        """A machine that decides it, over characters, or, of several patterns, over bytes."""

    @abstractmethod
    def holds_in(self, text: str) -> bool:
        """Does it hold? Read plainly."""

    @abstractmethod
    def reason(self, text: str) -> str:
        """What was found, in words."""

    @cached_property
    def _machine(self) -> ByteMachine:
        """States are made as texts go."""
        decider = self._written_out()
        return OverBytes(decider) if isinstance(decider, CharMachine) else decider

    def _written_out(self) -> CharMachine[Any] | Counted:
        try:
            return self._decider()
        except BudgetExceeded as error:
            raise BudgetExceeded(
                f"{cut(repr(self), LONGEST)} is too large: {error}. Repeat less often, or leave the limit away: {{2,}} costs "
                "far less than {2,5000}. limits=Limits(states=...) allows more."
            ) from error

    @cached_property
    def _small(self) -> Automaton | None:
        decider = self._written_out()
        try:
            if isinstance(decider, Counted):
                return as_automaton(decider, SMALL)
            whole = decider.whole(SMALL)
            return None if whole is None else whole.over_bytes(replace(Budget.in_force(), byte_states=SMALL_BYTES))
        except BudgetExceeded:
            return None

    @property
    def is_small(self) -> bool:
        """Has it few enough states to make them all?"""
        return self._small is not None

    @cached_property
    def _automaton(self) -> Automaton:
        return as_automaton(self.machine()) if self._small is None else self._small

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The decoded text is read plainly; of what is no UTF-8 nothing holds."""
        text = sequence.whole_text
        return text is not None and self.holds_in(text)

    def why(self, sequence: TokenSequence) -> str:
        """What was found in the text of a sequence."""
        return self.reason(sequence.text.decode("utf-8", errors="replace"))

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": kind, field: value, ...}` without the fields that have their default value."""
        return form_of(self, _written)

    def __repr__(self) -> str:
        return called(self.json_of([]))


def _written(value: Any) -> Any:
    return value.to_json() if isinstance(value, Pattern) else value


def found_in(patterns: tuple[Pattern, ...], text: str) -> list[Occurrence]:
    """What matches in a text, and where."""
    occurrences = [Occurrence(start, text[start:end]) for pattern in patterns for start, end in pattern.matches(text)]
    return sorted(occurrences, key=lambda occurrence: occurrence.place)


def _occurs(pattern: Pattern, text: str) -> bool:
    return bool(pattern.ends(text, set(range(len(text)))))


@dataclass(frozen=True, eq=False, repr=False)
class BanPatterns(PatternLeaf):
    """None of `phrases`, which are patterns, matches anywhere."""

    kind = "ban"
    phrases: tuple[Pattern, ...]

    def _decider(self) -> CharMachine[Any] | Counted:
        return Search(anywhere(either(phrase.language for phrase in self.phrases)), absent=True)

    def holds_in(self, text: str) -> bool:
        """Each is looked for at every place."""
        return not any(_occurs(phrase, text) for phrase in self.phrases)

    def reason(self, text: str) -> str:
        """Where there are matches."""
        occurrences = found_in(self.phrases, text)
        return listed(occurrences) if occurrences else "none matches"

    def begun(self, text: str) -> list[Occurrence]:
        """The patterns that a text ends within, those first that have begun first."""
        places = [(Search(phrase.language).begun(text), phrase.regex) for phrase in self.phrases]
        begun = [Occurrence(place, regex) for place, regex in places if place is not None]
        return sorted(begun, key=lambda occurrence: occurrence.place)


@dataclass(frozen=True, eq=False, repr=False)
class ContainsInOrderPatterns(PatternLeaf):
    """Patterns and strings occur one after the other without overlap."""

    kind = "contains"
    text: tuple[Phrase, ...]

    def _decider(self) -> CharMachine[Any] | Counted:
        return Search(anywhere(*map(as_language, self.text)))

    def _ends(self, text: str) -> list[int]:
        """Where each ends at the earliest, behind those before it."""
        ends: list[int] = []
        for phrase in self.text:
            start = ends[-1] if ends else 0
            if isinstance(phrase, Pattern):
                end = min(phrase.ends(text, set(range(start, len(text)))), default=None)
            else:
                place = text.find(phrase, start)
                end = None if place < 0 else place + len(phrase)
            if end is None:
                break
            ends.append(end)
        return ends

    def holds_in(self, text: str) -> bool:
        """Each is looked for behind the one before."""
        return len(self._ends(text)) == len(self.text)

    def reason(self, text: str) -> str:
        """Where they end, and which is not there."""
        ends = self._ends(text)
        parts = [f"{_shown(phrase)} ends before character {end}" for phrase, end in zip(self.text, ends, strict=False)]
        if len(ends) < len(self.text):
            parts.append(f"{_shown(self.text[len(ends)])} does not occur{' after that' if ends else ''}")
        return ", then ".join(parts)

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "contains", "text": [...], "ordered": true}`."""
        return super().json_of(parts) | {"ordered": True}


def _shown(phrase: Phrase) -> str:
    return quoted(phrase) if isinstance(phrase, str) else repr(phrase)


class EndPattern(PatternLeaf):
    """A pattern matches at one end of the text."""

    text: Pattern


@dataclass(frozen=True, eq=False, repr=False)
class StartsWithPattern(EndPattern):
    """A match begins at the start."""

    kind = "starts_with"
    text: Pattern

    def _decider(self) -> CharMachine[Any] | Counted:
        return Search(self.text.language)

    def holds_in(self, text: str) -> bool:
        """It is looked for there."""
        return bool(self.text.ends(text, {0}))

    def reason(self, text: str) -> str:
        """What matches, or how the text starts."""
        ends = self.text.ends(text, {0})
        start = text[: max(ends)] if ends else text[:LEAST]
        return f"the text starts with {quoted(start)}"


@dataclass(frozen=True, eq=False, repr=False)
class EndsWithPattern(EndPattern):
    """A match ends at the end."""

    kind = "ends_with"
    text: Pattern

    def _decider(self) -> CharMachine[Any] | Counted:
        return Search(anywhere(self.text.language), open_end=False)

    def holds_in(self, text: str) -> bool:
        """It is looked for at every place."""
        return len(text) in self.text.ends(text, set(range(len(text))))

    def reason(self, text: str) -> str:
        """What matches, or how the text ends."""
        starts = (start for start in range(len(text)) if len(text) in self.text.ends(text, {start}))
        return f"the text ends with {quoted(text[next(starts, max(0, len(text) - LEAST)) :])}"


class TimesPatterns(PatternLeaf):
    """Matches of patterns, and occurrences of strings, are counted, all together."""

    at_least: int
    at_most: int | None

    @property
    def sought(self) -> tuple[Phrase, ...]:
        """What is counted."""
        raise NotImplementedError

    @property
    def manner(self) -> Manner:
        """How strings are compared."""
        return Manner()

    @property
    def _patterns(self) -> tuple[Pattern, ...]:
        return tuple(phrase for phrase in self.sought if isinstance(phrase, Pattern))

    @property
    def _strings(self) -> tuple[str, ...]:
        return tuple(phrase for phrase in self.sought if isinstance(phrase, str))

    def _decider(self) -> CharMachine[Any] | Counted:
        strings, low, high = self._strings, self.at_least, self.at_most
        if (low, high) in ((1, None), (0, 0)) and not strings:  # a match is one, however far it goes
            every = either(pattern.language for pattern in self._patterns)
            return Search(anywhere(every), absent=not low)
        tally = phrase_search.occurrences(strings, self.manner) if strings else None
        counters = [Matches(pattern.language, low, high) for pattern in self._patterns]
        return counters[0] if len(counters) == 1 and tally is None else Counted(counters, tally, low, high)

    def occurrences(self, text: str) -> list[Occurrence]:
        """Matches and occurrences, in order."""
        plain = PlainText(text.encode(), self.manner)
        strings = plain.occurrences(self.manner.distinct(self._strings))
        return sorted([*found_in(self._patterns, text), *strings], key=lambda occurrence: occurrence.place)

    def holds_in(self, text: str) -> bool:
        """They are counted."""
        number = len(self.occurrences(text))
        return self.at_least <= number and (self.at_most is None or number <= self.at_most)

    def reason(self, text: str) -> str:
        """How many there are, and where."""
        occurrences = self.occurrences(text)
        where = f": {listed(occurrences)}" if occurrences else ""
        return f"{len(occurrences)} match{'' if len(occurrences) == 1 else 'es'}, {allowed(self.at_least, self.at_most)}{where}"

    def json_of(self, parts: list[Json]) -> Json:
        """`exactly` stands for two equal bounds."""
        return with_exactly(super().json_of(parts), self.at_least, self.at_most)


@dataclass(frozen=True, eq=False, repr=False)
class ContainsPattern(TimesPatterns):
    """`text` matches between `at_least` and `at_most` times."""

    kind = "contains"
    text: Pattern
    at_least: int = 1
    at_most: int | None = None

    @property
    def sought(self) -> tuple[Phrase, ...]:
        """The pattern."""
        return (self.text,)


@dataclass(frozen=True, eq=False, repr=False)
class CountPatterns(TimesPatterns):
    """`strings`, some of them patterns, match or occur between `at_least` and `at_most` times, all together."""

    kind = "count"
    strings: tuple[Phrase, ...]
    at_least: int = 0
    at_most: int | None = None
    ignore_case: bool = False

    @property
    def sought(self) -> tuple[Phrase, ...]:
        """All of them."""
        return self.strings

    @property
    def manner(self) -> Manner:
        """How strings are compared."""
        return Manner(ignore_case=self.ignore_case)


__all__ = ["BanPatterns", "ContainsInOrderPatterns", "ContainsPattern", "CountPatterns", "EndsWithPattern", "StartsWithPattern"]
