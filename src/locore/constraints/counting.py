"""How much text there is: constraints that count words, characters, sentences.

They count in the text as a reader gets it; leaves read bytes that are no UTF-8 as U+FFFD. The text is what the model continues
with, so a first word that only completes a word of the prompt is a word here.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from locore.automata.characters import NUM_CODE_POINTS, TERMINATORS, spaces
from locore.automata.machines import Tally, over_bytes
from locore.constraints.text_leaf import TextLeaf
from locore.kernel.constraints.serial import bounds_of, read_integer, register
from locore.kernel.constraints.spelling import allowed

T = TypeVar("T", bound="Amount")


def word_count(lo: int = 0, hi: int | None = None) -> WordCount:
    """The text has `lo` to `hi` words; a word is a maximal run of characters that are no whitespace, as in `str.split()`.

    Args:
        lo: the lower bound, inclusive.
        hi: the upper bound, inclusive; None: none. At least one bound says something.

    Raises:
        InvalidConstraint: bounds that are negative, contradict each other or say nothing.
    """
    return _between(WordCount, lo, hi)


def char_count(lo: int = 0, hi: int | None = None) -> CharCount:
    """The text has `lo` to `hi` characters: code points of the decoded text, `len(text)`.

    A letter with a combining accent is two; so are many emojis. Arguments and errors as for `word_count`.
    """
    return _between(CharCount, lo, hi)


def sentence_count(lo: int = 0, hi: int | None = None) -> SentenceCount:
    r"""The text has `lo` to `hi` sentences.

    A sentence is a run of text ended by ".", "!" or "?" directly before whitespace or the end of the text. So "Wait... what?!"
    has two and "Pi is 3.14." has one; abbreviations count ("Mr. X came." has two), an unfinished rest does not ("One. Two" has
    one), and neither does a full stop before a closing quotation mark. Arguments and errors as for `word_count`.
    """
    return _between(SentenceCount, lo, hi)


@dataclass(frozen=True, eq=False, repr=False)
class Amount(TextLeaf):
    """Between `lo` and `hi` of something."""

    noun: ClassVar[str]
    lo: int = 0
    hi: int | None = None

    def bounds(self) -> tuple[int, int | None]:
        """Those given."""
        return self.lo, self.hi

    def number(self, content: bytes) -> int:
        """How many there are."""
        return self.number_in(content.decode("utf-8", errors="replace"))

    @abstractmethod
    def number_in(self, text: str) -> int:
        """How many there are in a decoded text."""

    def reason(self, content: bytes) -> str:
        """How many there are, and how many there may be."""
        number = self.number(content)
        return f"{number} {self.noun}{'' if number == 1 else 's'}, {allowed(*self.bounds())}"


@dataclass(frozen=True, eq=False, repr=False)
class WordCount(Amount):
    """Between `lo` and `hi` words."""

    kind = "word_count"
    noun = "word"

    def tally(self) -> Tally:
        """Columns: no whitespace, whitespace. States: between words, inside a word."""
        return _over_bytes(spaces(), table=[[1, 0], [1, 0]], gain=[[1, 0], [0, 0]], final=[0, 0])

    def number_in(self, text: str) -> int:
        """What `str.split` gives."""
        return len(text.split())


@dataclass(frozen=True, eq=False, repr=False)
class CharCount(Amount):
    """Between `lo` and `hi` characters."""

    kind = "char_count"
    noun = "character"

    def tally(self) -> Tally:
        """One column and one state."""
        return _over_bytes(np.zeros(NUM_CODE_POINTS), table=[[0]], gain=[[1]], final=[0])

    def number_in(self, text: str) -> int:
        """Its length."""
        return len(text)


@dataclass(frozen=True, eq=False, repr=False)
class SentenceCount(Amount):
    """Between `lo` and `hi` sentences."""

    kind = "sentence_count"
    noun = "sentence"

    def tally(self) -> Tally:
        """Columns: others, whitespace, ends of sentences. States: anywhere, after an end, which counts if nothing follows."""
        column = spaces().astype(np.int32)
        column[list(map(ord, TERMINATORS))] = 2
        return _over_bytes(column, table=[[0, 0, 1], [0, 0, 1]], gain=[[0, 0, 0], [0, 1, 0]], final=[0, 1])

    def number_in(self, text: str) -> int:
        """Ends of sentences that are not followed by anything but whitespace."""
        return len(re.findall(r"[.!?](?!\S)", text))


def _between(kind: type[T], lo: object, hi: object) -> T:
    return kind(*bounds_of(lo, hi, ("lo", "hi"), kind.kind))


def _over_bytes(column: NDArray[Any], table: list[list[int]], gain: list[list[int]], final: list[int]) -> Tally:
    arrays = (np.array(values, dtype=np.int32) for values in (table, gain, final, column))
    return over_bytes(Tally(*arrays))


for _name, _function in (("word_count", word_count), ("char_count", char_count), ("sentence_count", sentence_count)):
    register(_name, _function, {}, {"lo": read_integer, "hi": read_integer})
