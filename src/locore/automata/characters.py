"""What single characters are to a text constraint: whitespace, part of a word, upper or lower case.

Everything is said twice: as plain functions of a text, which the check of a finished text uses, and as tables over all
code points, from which automata are built. Both follow the Unicode version of the running Python.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

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
    known = character.isalnum() or character == "_" or character in JOINERS
    return known or unicodedata.category(character).startswith("M")


def fold(text: str) -> str:
    """The text without the difference of upper and lower case.

    It is `str.lower` of every single character, and ς counts as σ: `str.lower` of a whole text chooses between these two by
    what follows, so that a word would be another word once something is appended to it.
    """
    return "".join(map(str.lower, text)).replace("ς", "σ")


@dataclass(frozen=True)
class Manner:
    """How phrases are compared with a text.

    Attributes:
        words: only occurrences that cut no word count: at neither of their ends do a character of a word inside and one
            outside meet (`is_word_character`). The start and the end of the text cut nothing.
        ignore_case: text and phrases are folded (`fold`) before.
    """

    words: bool = False
    ignore_case: bool = False

    def distinct(self, phrases: Collection[str]) -> list[str]:
        """The phrases as they are searched for, each once, sorted."""
        return sorted({fold(phrase) for phrase in phrases} if self.ignore_case else set(phrases))


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
def folded() -> tuple[Ints, dict[int, str]]:
    """Int32[code points], the one code point that each folds to; and those that fold to several, such as İ."""
    everything, table = every_character(), np.arange(NUM_CODE_POINTS, dtype=np.int32)
    several = {}
    for first in range(0, NUM_CODE_POINTS, _BLOCK):
        block = everything[first : first + _BLOCK]
        if block.lower() == block and "ς" not in block:  # most blocks have no case
            continue
        for point, character in enumerate(block, first):
            result = fold(character)
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
