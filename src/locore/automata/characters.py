"""What single characters are to a text constraint: whitespace, part of a word, upper or lower case.

Everything is said twice: as plain functions of a text, which the check of a finished text uses, and as tables over all
code points, from which automata are built. Both follow the Unicode version of the running Python.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Bools = NDArray[np.bool_]

NUM_CODE_POINTS = 0x110000
REPLACEMENT = 0xFFFD  # what a decoder writes for bytes that are no UTF-8
JOINERS = "\u200c\u200d"  # zero-width, inside words of Persian and of Indian scripts
TERMINATORS = ".!?"  # that end a sentence
_BLOCK = 256


def is_word_character(character: str) -> bool:
    r"""A letter, a digit or an underscore as in Python's `\w`, a combining mark, or a joiner.

    The last two are not in `\w`, but belong to the word in which they stand (Unicode Technical Standard 18, annex C).
    """
    is_letter = character.isalnum() or character == "_" or character in JOINERS
    return is_letter or unicodedata.category(character).startswith("M")


def fold(text: str) -> str:
    """The text without the difference of upper and lower case.

    It is `str.lower` of every single character, and ς counts as σ: `str.lower` of a whole text chooses between these two by
    what follows, so that a word would be another word once something is appended to it.
    """
    return "".join(map(str.lower, text)).replace("ς", "σ")


def continues(character: str) -> bool:
    """Does the character belong to the letter before it: a mark, or what composition joins with a letter, as in Hangul?"""
    return unicodedata.combining(character) > 0 or character in joining()


def canonical(text: str, ignore_case: bool = False) -> str:
    """The text with its letters decomposed (Unicode's NFD), and every run of whitespace as one space; folded if asked for."""
    plain = unicodedata.normalize("NFD", text)
    if ignore_case:
        plain = unicodedata.normalize("NFD", fold(plain))
    return re.sub(r"\s+", " ", plain)


@dataclass(frozen=True)
class Manner:
    """How phrases are compared with a text.

    Attributes:
        words: only occurrences that cut no word count: at neither of their ends do a character of a word inside and one
            outside meet (`is_word_character`). The start and the end of the text cut nothing.
        ignore_case: text and phrases are folded (`fold`) before.
        normalise: text and phrases are decomposed, and runs of whitespace are one space (`canonical`); what ends before a
            character that belongs to its last letter (`continues`) does not count.
    """

    words: bool = False
    ignore_case: bool = False
    normalise: bool = False

    def form(self, text: str) -> str:
        """A text or a phrase as it is searched."""
        if self.normalise:
            return canonical(text, self.ignore_case)
        return fold(text) if self.ignore_case else text

    def distinct(self, phrases: Collection[str]) -> list[str]:
        """The phrases as they are searched for, each once, sorted."""
        return sorted(set(map(self.form, phrases)))

    def spellings(self, form: str) -> Iterator[str]:
        """The orders of marks that are canonically equivalent: those of one class (of one place) keep theirs."""
        if not self.normalise:
            yield form
            return
        runs = re.split(f"([{_marks()}]+)", form)
        yield from map("".join, product(*([run] if number % 2 == 0 else _orders(run) for number, run in enumerate(runs))))


def _orders(marks: str) -> list[str]:
    """A run of marks in all orders that mean the same."""
    if not marks:
        return [""]
    first: dict[int, int] = {}
    for place, mark in enumerate(marks):
        first.setdefault(unicodedata.combining(mark), place)
    return [marks[place] + rest for place in first.values() for rest in _orders(marks[:place] + marks[place + 1 :])]


@cache
def _marks() -> str:
    """All characters that reordering moves."""
    return "".join(re.escape(chr(point)) for point in np.flatnonzero(combining_classes()))


@cache
def joining() -> frozenset[str]:
    """Characters that are no marks and yet compose with what stands before them."""
    pairs = [pair.split() for pair in map(unicodedata.decomposition, every_character()) if pair and pair[0] != "<"]
    seconds = {chr(int(pair[1], 16)) for pair in pairs if len(pair) == 2}
    hangul = {*map(chr, range(0x1161, 0x1176)), *map(chr, range(0x11A8, 0x11C3))}
    return frozenset(hangul | {character for character in seconds if not unicodedata.combining(character)})


@cache
def continuing() -> Bools:
    """Bool[code points]: `continues`."""
    table: Bools = combining_classes() > 0
    table[[ord(character) for character in joining()]] = True
    return table


@cache
def combining_classes() -> NDArray[np.uint8]:
    """UInt8[code points]: 0 for all but marks, of which those of one class keep their order."""
    return np.fromiter(map(unicodedata.combining, every_character()), dtype=np.uint8)


@cache
def word_characters() -> Bools:
    """Bool[code points]: `is_word_character`."""
    table = _matching(r"\w+")
    marks = [point for point, kind in enumerate(map(unicodedata.category, every_character())) if kind.startswith("M")]
    table[marks] = True
    table[list(map(ord, JOINERS))] = True
    return table


@cache
def spaces() -> Bools:
    """Bool[code points]: `str.isspace`."""
    return _matching(r"\s+")


@cache
def folded(ignore_case: bool = True, normalise: bool = False) -> tuple[Ints, dict[int, str]]:
    """Int32[code points], the one code point that each is compared as; and those that are several, such as İ."""
    everything, table = every_character(), np.arange(NUM_CODE_POINTS, dtype=np.int32)
    several = {}
    form = Manner(ignore_case=ignore_case, normalise=normalise).form
    for first in range(0, NUM_CODE_POINTS, _BLOCK):
        block = everything[first : first + _BLOCK]
        cased = ignore_case and (block.lower() != block or "ς" in block)
        composed = normalise and (unicodedata.normalize("NFD", block) != block or spaces()[first : first + _BLOCK].any())
        if not cased and not composed:  # most blocks have no case
            continue
        for point, character in enumerate(block, first):
            result = form(character)
            if len(result) == 1:
                table[point] = ord(result)
            else:
                several[point] = result
    return table, several


def _matching(pattern: str) -> Bools:
    table = np.zeros(NUM_CODE_POINTS, dtype=np.bool_)
    for match in re.finditer(pattern, every_character()):
        table[match.start() : match.end()] = True
    return table


@cache
def every_character() -> str:
    """All code points in order, surrogates included."""
    points = np.arange(NUM_CODE_POINTS, dtype="<u4")
    return points.tobytes().decode("utf-32-le", "surrogatepass")
