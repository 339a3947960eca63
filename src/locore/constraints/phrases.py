"""The leaves that look for phrases in the text; `text` has the public functions that make them."""

from __future__ import annotations

from dataclasses import dataclass

from locore.constraints import search
from locore.constraints.base import Json
from locore.constraints.plain import Manner, PlainText, allowed, quoted, told
from locore.constraints.tally import Tally
from locore.constraints.textleaf import TextLeaf

LEAST = 10  # characters of a start or an end that is shown


class PhraseLeaf(TextLeaf):
    """A text leaf with a manner of comparing."""

    words: bool = False
    ignore_case: bool = False

    @property
    def manner(self) -> Manner:
        """How phrases are compared."""
        return Manner(self.words, self.ignore_case)

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
        json = super().json_of(parts)
        if self.at_least != self.at_most:
            return json
        kind, sought, *options = [(name, value) for name, value in json.items() if name not in ("at_least", "at_most")]
        return dict([kind, sought, ("exactly", self.at_least), *options])


@dataclass(frozen=True, eq=False, repr=False)
class Ban(PhraseLeaf):
    """None of `phrases` occurs in the text."""

    kind = "ban"
    phrases: tuple[str, ...]
    words: bool = False
    ignore_case: bool = False

    def bounds(self) -> tuple[int, int | None]:
        """No occurrence."""
        return 0, 0

    def tally(self) -> Tally:
        """Counts occurrences."""
        return search.occurrences(self.phrases, self.manner)

    def number(self, content: bytes) -> int:
        """How many of the phrases occur, by search for each."""
        text = self.read(content)
        return sum(next(text.places(phrase), None) is not None for phrase in self.phrases)

    def reason(self, content: bytes) -> str:
        """Where they occur."""
        found = self.read(content).occurrences(self.phrases)
        return told(found) if found else "none occurs"


@dataclass(frozen=True, eq=False, repr=False)
class Contains(TimesLeaf):
    """`text` occurs between `at_least` and `at_most` times."""

    kind = "contains"
    text: str
    at_least: int = 1
    at_most: int | None = None
    words: bool = False
    ignore_case: bool = False

    def tally(self) -> Tally:
        """Counts occurrences."""
        return search.occurrences([self.text], self.manner)

    def number(self, content: bytes) -> int:
        """How often it occurs, by search."""
        return sum(1 for _ in self.read(content).places(self.text))

    def reason(self, content: bytes) -> str:
        """Where it occurs."""
        found = self.read(content).occurrences([self.text])
        where = told(found) if found else f"{quoted(self.text)} does not occur"
        times = f"{len(found)} time{'' if len(found) == 1 else 's'}, {allowed(*self.bounds())}"
        return where if self.bounds() == (1, None) else f"{times}: {where}"


@dataclass(frozen=True, eq=False, repr=False)
class ContainsInOrder(PhraseLeaf):
    """The strings of `text` occur one after the other without overlap."""

    kind = "contains"
    text: tuple[str, ...]
    words: bool = False
    ignore_case: bool = False

    def tally(self) -> Tally:
        """1 once the last has been found."""
        return search.in_order(self.text, self.manner)

    def number(self, content: bytes) -> int:
        """1 if all are found, each by search behind the one before."""
        return int(len(self._found(content)) == len(self.text))

    def reason(self, content: bytes) -> str:
        """Where they occur, and which does not."""
        found = self._found(content)
        parts = [f"{quoted(text)} at character {place}" for text, place in zip(self.text, found, strict=False)]
        if len(found) < len(self.text):
            missing = f"{quoted(self.text[len(found)])} does not occur"
            parts.append(f"{missing} after that" if found else missing)
        return ", then ".join(parts)

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "contains", "text": [...], "ordered": true}`."""
        return super().json_of(parts) | {"ordered": True}

    def _found(self, content: bytes) -> list[int]:
        text, found, start = self.read(content), [], 0
        for phrase in self.text:
            place = next(text.places(phrase, start), None)
            if place is None:
                break
            found.append(text.before_folding(place))
            start = place + text.length(phrase)
        return found


@dataclass(frozen=True, eq=False, repr=False)
class StartsWith(PhraseLeaf):
    """The text starts with `text`."""

    kind = "starts_with"
    text: str
    words: bool = False
    ignore_case: bool = False

    def tally(self) -> Tally:
        """1 if it does."""
        return search.at_start(self.text, self.manner)

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

    def tally(self) -> Tally:
        """1 if it does."""
        return search.at_end(self.text, self.manner)

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

    def tally(self) -> Tally:
        """1 if it is."""
        return search.whole(self.texts, self.manner)

    def number(self, content: bytes) -> int:
        """1 if it equals one of them."""
        text = self.read(content)
        return int(any(text.is_whole(one) for one in self.texts))

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

    def tally(self) -> Tally:
        """Counts occurrences."""
        return search.occurrences(self.strings, self.manner)

    def number(self, content: bytes) -> int:
        """How often they occur, by search for each."""
        text = self.read(content)
        return sum(1 for string in self.manner.distinct(self.strings) for _ in text.places(string))

    def reason(self, content: bytes) -> str:
        """How often and where they occur."""
        found = self.read(content).occurrences(self.manner.distinct(self.strings))
        where = f": {told(found)}" if found else ""
        return f"{len(found)} occurrence{'' if len(found) == 1 else 's'}, {allowed(*self.bounds())}{where}"
