"""Plain search in a finished text, character by character and without automata: the independent check, and its reasons."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from locore.constraints.characters import fold, is_word_character

SHOWN = 3  # places that a reason names
WIDTH = 40  # characters of a quotation


@dataclass(frozen=True)
class Manner:
    """How phrases are compared with a text.

    Attributes:
        words: only occurrences that cut no word count: at neither of their ends do a character of a word inside and one
            outside meet (`characters.is_word_character`). The start and the end of the text cut nothing.
        ignore_case: text and phrases are folded (`characters.fold`) before.
    """

    words: bool = False
    ignore_case: bool = False

    def distinct(self, phrases: Collection[str]) -> list[str]:
        """The phrases as they are searched for, each once, sorted."""
        return sorted({fold(phrase) for phrase in phrases} if self.ignore_case else set(phrases))


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
        self.searched = self._folded(self.original)

    def places(self, phrase: str, start: int = 0) -> Iterator[int]:
        """Where a phrase occurs in `searched`, from `start` on; occurrences may overlap."""
        sought = self._folded(phrase)
        place = self.searched.find(sought, start)
        while place >= 0:
            if not (self.manner.words and (self._cuts(place) or self._cuts(place + len(sought)))):
                yield place
            place = self.searched.find(sought, place + 1)

    def occurrences(self, phrases: Iterable[str]) -> list[Occurrence]:
        """Where phrases occur in `original`, in order."""
        found = [Occurrence(self.before_folding(place), phrase) for phrase in phrases for place in self.places(phrase)]
        return sorted(found, key=lambda occurrence: occurrence.place)

    def before_folding(self, place: int) -> int:
        """The character of `original` that a character of `searched` comes from; a few fold to several."""
        if not self.manner.ignore_case:
            return place
        origin = (index for index, character in enumerate(self.original) for _ in fold(character))
        return next(islice(origin, place, None))

    def length(self, phrase: str) -> int:
        """How many characters of `searched` a phrase takes."""
        return len(self._folded(phrase))

    def is_whole(self, phrase: str) -> bool:
        """Is the phrase the whole text?"""
        return self.searched == self._folded(phrase)

    def _folded(self, text: str) -> str:
        return fold(text) if self.manner.ignore_case else text

    def _cuts(self, place: int) -> bool:
        """Do two characters of a word meet here?"""
        inside = 0 < place < len(self.searched)
        return inside and is_word_character(self.searched[place - 1]) and is_word_character(self.searched[place])


def quoted(text: str) -> str:
    """A text in quotes with line breaks and the like escaped; long ones are shortened."""
    return json.dumps(text if len(text) <= WIDTH else text[: WIDTH - 1] + "…", ensure_ascii=False)


def told(occurrences: list[Occurrence]) -> str:
    """Some places in words, such as `"hate" occurs at character 12, "awful" at 30 and 2 more`."""
    first, *others = occurrences
    parts = [f"{quoted(first.phrase)} occurs at character {first.place}"]
    parts += [f"{quoted(one.phrase)} at {one.place}" for one in others[: SHOWN - 1]]
    more = len(occurrences) - SHOWN
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")


def allowed(low: int, high: int | None) -> str:
    """Bounds in words."""
    if high is None:
        return f"at least {low}"
    if low in (0, high):
        return f"{'exactly' if low == high else 'at most'} {high}"
    return f"between {low} and {high}"
