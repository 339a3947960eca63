"""The leaves that look for phrases in the text, and the plain search without automata that is their independent check.

`text` has the public functions that make them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from unicodedata import combining

from locore.automata import phrase_search
from locore.automata.characters import Manner, continues, fold, is_word_character
from locore.automata.machines import Tally
from locore.constraints.text_leaf import TextLeaf
from locore.kernel.constraints.constraint import Constraint, Json
from locore.kernel.constraints.spelling import allowed, quoted, with_exactly
from locore.kernel.plugins import cached_property

SHOWN = 3  # places that a reason names
LEAST = 10  # characters of a start or an end that is shown


@dataclass(frozen=True)
class Occurrence:
    """A phrase, as the user wrote it, and the character of the text at which it begins, from 0."""

    place: int
    phrase: str


class PlainText:
    """A text in which phrases are searched for.

    Args:
        content: its bytes; what is no UTF-8 reads as U+FFFD.
        manner: how to compare.

    Attributes:
        original: the text.
        searched: the text in which phrases are sought, folded if case is ignored.
    """

    def __init__(self, content: bytes, manner: Manner) -> None:
        self.manner = manner
        self.original = content.decode("utf-8", errors="replace")
        self.searched = manner.form(self.original)

    def places(self, phrase: str, start: int = 0) -> Iterator[int]:
        """Where a phrase occurs in `searched`, from `start` on; occurrences may overlap."""
        sought = self.manner.form(phrase)
        place = self.searched.find(sought, start)
        while place >= 0:
            end = place + len(sought)
            cuts_word = self.manner.words and (self._cuts(place) or self._cuts(end))
            cuts_letter = self.manner.normalise and end < len(self.searched) and continues(self.searched[end])
            if not cuts_word and not cuts_letter:
                yield place
            place = self.searched.find(sought, place + 1)

    def has(self, phrase: str) -> bool:
        """Does it occur? That it does not is seen without a generator."""
        return self.manner.form(phrase) in self.searched and next(self.places(phrase), None) is not None

    def occurrences(self, phrases: Iterable[str]) -> list[Occurrence]:
        """Where phrases occur in `original`, in order."""
        occurrences = [Occurrence(self.before_folding(place), phrase) for phrase in phrases for place in self.places(phrase)]
        return sorted(occurrences, key=lambda occurrence: occurrence.place)

    def before_folding(self, place: int) -> int:
        """The character of `original` that a character of `searched` comes from; a few fold to several."""
        if self.manner.normalise:
            return self._origins[place]
        if not self.manner.ignore_case:
            return place
        origin = (index for index, character in enumerate(self.original) for _ in fold(character))
        return next(islice(origin, place, None))

    @cached_property
    def _origins(self) -> list[int]:
        """For each character of `searched` the one of `original` that it comes from: decomposed, marks sorted, runs joined."""
        pieces = [(char, index) for index, character in enumerate(self.original) for char in self.manner.form(character)]
        start = 0
        for end in range(len(pieces) + 1):
            if end == len(pieces) or not combining(pieces[end][0]):
                pieces[start:end] = sorted(pieces[start:end], key=lambda piece: combining(piece[0]))
                start = end + 1
        return [index for place, (char, index) in enumerate(pieces) if char != " " or not place or pieces[place - 1][0] != " "]

    def begun(self, phrase: str) -> int | None:
        """Where a phrase begins that the text may end within; None where it does not."""
        sought = self.manner.form(phrase)
        for length in range(min(len(sought) - 1, len(self.searched)), 0, -1):
            place = len(self.searched) - length
            if self.searched.endswith(sought[:length]) and not (self.manner.words and self._cuts(place)):
                return place
        return None

    def length(self, phrase: str) -> int:
        """How many characters of `searched` a phrase takes."""
        return len(self.manner.form(phrase))

    def is_whole(self, phrase: str) -> bool:
        """Is the phrase the whole text?"""
        return self.searched == self.manner.form(phrase)

    def _cuts(self, place: int) -> bool:
        """Do two characters of a word meet here?"""
        inside = 0 < place < len(self.searched)
        return inside and is_word_character(self.searched[place - 1]) and is_word_character(self.searched[place])


def listed(occurrences: list[Occurrence]) -> str:
    """Some places in words, such as `"hate" occurs at character 12, "awful" at 30 and 2 more`."""
    first, *others = occurrences
    parts = [f"{quoted(first.phrase)} occurs at character {first.place}"]
    parts += [f"{quoted(other.phrase)} at {other.place}" for other in others[: SHOWN - 1]]
    more = len(occurrences) - SHOWN
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")


def listed_beginnings(begun: list[Occurrence]) -> str:
    """The furthest in words, such as `"not a cat" begins at character 12`."""
    parts = [f"{quoted(occurrence.phrase)} begins at character {occurrence.place}" for occurrence in begun[:SHOWN]]
    more = len(begun) - SHOWN
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")


class PhraseLeaf(TextLeaf):
    """A text leaf with a manner of comparing."""

    words: bool = False
    ignore_case: bool = False
    normalise: bool = False

    @property
    def manner(self) -> Manner:
        """How phrases are compared."""
        return Manner(self.words, self.ignore_case, self.normalise)

    def read(self, content: bytes) -> PlainText:
        """A text to search in."""
        return PlainText(content, self.manner)


class TimesLeaf(PhraseLeaf):
    """A phrase leaf with a number of times."""

    at_least: int
    at_most: int | None

    def bounds(self) -> tuple[int, int | None]:
        """Those given."""
        return self.at_least, self.at_most

    def json_of(self, parts: list[Json]) -> Json:
        """`exactly` stands for two equal bounds."""
        return with_exactly(super().json_of(parts), self.at_least, self.at_most)


@dataclass(frozen=True, eq=False, repr=False)
class Ban(PhraseLeaf):
    """None of `phrases` occurs in the text."""

    kind = "ban"
    phrases: tuple[str, ...]
    words: bool = False
    ignore_case: bool = False
    normalise: bool = False

    def bounds(self) -> tuple[int, int | None]:
        """No occurrence."""
        return 0, 0

    def conjuncts(self) -> list[Constraint]:
        """A ban of each phrase."""
        return [replace(self, phrases=(phrase,)) for phrase in self.phrases]

    def merged(self, other: Constraint) -> Constraint | None:
        """Of all phrases, which are searched at once."""
        if not isinstance(other, Ban) or replace(other, phrases=()) != replace(self, phrases=()):
            return None
        return replace(self, phrases=(*self.phrases, *other.phrases))

    def tally(self) -> Tally:
        """Counts occurrences."""
        return phrase_search.occurrences(self.phrases, self.manner)

    def number(self, content: bytes) -> int:
        """How many of the phrases occur, by search for each."""
        return sum(map(self.read(content).has, self.phrases))

    def reason(self, content: bytes) -> str:
        """Where they occur."""
        occurrences = self.read(content).occurrences(self.phrases)
        return listed(occurrences) if occurrences else "none occurs"

    def begun(self, text: str) -> list[Occurrence]:
        """The phrases that a text ends within, those first of which most has been said."""
        read = self.read(text.encode())
        starts = [(read.begun(phrase), phrase) for phrase in self.phrases]
        begun = [Occurrence(read.before_folding(place), phrase) for place, phrase in starts if place is not None]
        return sorted(begun, key=lambda occurrence: occurrence.place)


@dataclass(frozen=True, eq=False, repr=False)
class Contains(TimesLeaf):
    """`text` occurs between `at_least` and `at_most` times."""

    kind = "contains"
    text: str
    at_least: int = 1
    at_most: int | None = None
    words: bool = False
    ignore_case: bool = False
    normalise: bool = False

    def tally(self) -> Tally:
        """Counts occurrences."""
        return phrase_search.occurrences([self.text], self.manner)

    def number(self, content: bytes) -> int:
        """How often it occurs, by search."""
        return sum(1 for _ in self.read(content).places(self.text))

    def reason(self, content: bytes) -> str:
        """Where it occurs."""
        occurrences = self.read(content).occurrences([self.text])
        where = listed(occurrences) if occurrences else f"{quoted(self.text)} does not occur"
        times = f"{len(occurrences)} time{'' if len(occurrences) == 1 else 's'}, {allowed(*self.bounds())}"
        return where if self.bounds() == (1, None) else f"{times}: {where}"


@dataclass(frozen=True, eq=False, repr=False)
class ContainsInOrder(PhraseLeaf):
    """The strings of `text` occur one after the other without overlap."""

    kind = "contains"
    text: tuple[str, ...]
    words: bool = False
    ignore_case: bool = False
    normalise: bool = False

    def tally(self) -> Tally:
        """1 once the last has been found."""
        return phrase_search.in_order(self.text, self.manner)

    def number(self, content: bytes) -> int:
        """1 if all are found, each by search behind the one before."""
        return int(len(self._places(content)) == len(self.text))

    def reason(self, content: bytes) -> str:
        """Where they occur, and which does not."""
        places = self._places(content)
        parts = [f"{quoted(text)} at character {place}" for text, place in zip(self.text, places, strict=False)]
        if len(places) < len(self.text):
            missing = f"{quoted(self.text[len(places)])} does not occur"
            parts.append(f"{missing} after that" if places else missing)
        return ", then ".join(parts)

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "contains", "text": [...], "ordered": true}`."""
        return super().json_of(parts) | {"ordered": True}

    def _places(self, content: bytes) -> list[int]:
        text, places, start = self.read(content), [], 0
        for phrase in self.text:
            place = next(text.places(phrase, start), None)
            if place is None:
                break
            places.append(text.before_folding(place))
            start = place + text.length(phrase)
        return places


@dataclass(frozen=True, eq=False, repr=False)
class StartsWith(PhraseLeaf):
    """The text starts with `text`."""

    kind = "starts_with"
    text: str
    words: bool = False
    ignore_case: bool = False
    normalise: bool = False

    def tally(self) -> Tally:
        """1 if it does."""
        return phrase_search.at_start(self.text, self.manner)

    def number(self, content: bytes) -> int:
        """1 if the first place where it occurs is the start."""
        return int(next(self.read(content).places(self.text), None) == 0)

    def reason(self, content: bytes) -> str:
        """How the text starts, a little further than asked."""
        return f"the text starts with {quoted(self.read(content).original[: max(LEAST, len(self.text) + 2)])}"


@dataclass(frozen=True, eq=False, repr=False)
class EndsWith(PhraseLeaf):
    """The text ends with `text`."""

    kind = "ends_with"
    text: str
    words: bool = False
    ignore_case: bool = False
    normalise: bool = False

    def tally(self) -> Tally:
        """1 if it does."""
        return phrase_search.at_end(self.text, self.manner)

    def number(self, content: bytes) -> int:
        """1 if the last place where it occurs is the end."""
        text = self.read(content)
        return int(any(place + text.length(self.text) == len(text.searched) for place in text.places(self.text)))

    def reason(self, content: bytes) -> str:
        """How the text ends, a little further than asked."""
        return f"the text ends with {quoted(self.read(content).original[-max(LEAST, len(self.text) + 2) :])}"


@dataclass(frozen=True, eq=False, repr=False)
class Choice(PhraseLeaf):
    """The whole text is one of `texts`."""

    kind = "choice"
    texts: tuple[str, ...]
    ignore_case: bool = False
    normalise: bool = False

    def tally(self) -> Tally:
        """1 if it is."""
        return phrase_search.whole(self.texts, self.manner)

    def number(self, content: bytes) -> int:
        """1 if it equals one of them."""
        text = self.read(content)
        return int(any(text.is_whole(choice) for choice in self.texts))

    def reason(self, content: bytes) -> str:
        """The text."""
        among = "is" if self.number(content) else "is not"
        return f"{quoted(self.read(content).original)} {among} one of the texts"


@dataclass(frozen=True, eq=False, repr=False)
class CountStrings(TimesLeaf):
    """`strings` occur between `at_least` and `at_most` times, all together."""

    kind = "count"
    strings: tuple[str, ...]
    at_least: int = 0
    at_most: int | None = None
    words: bool = False
    ignore_case: bool = False
    normalise: bool = False

    def tally(self) -> Tally:
        """Counts occurrences."""
        return phrase_search.occurrences(self.strings, self.manner)

    def number(self, content: bytes) -> int:
        """How often they occur, by search for each."""
        text = self.read(content)
        return sum(1 for string in self.manner.distinct(self.strings) for _ in text.places(string))

    def reason(self, content: bytes) -> str:
        """How often and where they occur."""
        occurrences = self.read(content).occurrences(self.manner.distinct(self.strings))
        where = f": {listed(occurrences)}" if occurrences else ""
        return f"{len(occurrences)} occurrence{'' if len(occurrences) == 1 else 's'}, {allowed(*self.bounds())}{where}"
