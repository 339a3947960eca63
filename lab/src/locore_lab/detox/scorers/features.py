"""Hashed features of texts, for `LocalScorer`: numbers of words, of pieces of words and of pairs of words.

Only hashes leave this module, so that a model over them ships no list of words. The hash is CRC-32 (zlib) of UTF-8 bytes,
the same on every machine and in every Python process.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

LONGEST_WORD = 40  # characters; longer ones are cut into several words
SHORTEST_PIECE, LONGEST_PIECE = 2, 5

# A word may hold signs that stand for letters ("sh*t", "a$$", "@ss"); every other sign is a word of its own.
_WORD = re.compile(r"[^\W_]+(?:['’*@$#!_-]+[^\W_]+)*[*$]*|[@$*]+[^\W_]+|\S")
_INVISIBLE = dict.fromkeys([0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFE0F, 0xFEFF])
_LOOKALIKES = str.maketrans("@$013457!|", "asoieastii")
_REPEATED = re.compile(r"(.)\1+")


def words_of(text: str) -> list[str]:
    """Words and single signs of a text, in lower case; compatibility forms (NFKC) and invisible signs are undone first."""
    text = unicodedata.normalize("NFKC", text.translate(_INVISIBLE)).casefold()
    found = _WORD.findall(text)
    return [word[cut : cut + LONGEST_WORD] for word in found for cut in range(0, len(word), LONGEST_WORD)]


def skeleton(word: str) -> str:
    """A word with signs read as the letters they look like and repeated letters joined: "$hiiit" and "shit" agree."""
    return _REPEATED.sub(r"\1", word.translate(_LOOKALIKES))


def hashed(text: str) -> int:
    """A number in [0, 2³²) that stands for a string; lone surrogates count as they are."""
    return crc32(text.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=1 << 16)
def ids_of_word(word: str) -> Ids:
    """Int[num] of one word: itself, its skeleton, and every piece of 2 to 5 characters with the ends marked."""
    marked = f"<{word}>"
    pieces = [
        marked[start : start + size]
        for size in range(SHORTEST_PIECE, LONGEST_PIECE + 1)
        for start in range(len(marked) - size + 1)
        if size < len(marked)
    ]
    names = [f"w {word}", f"s {skeleton(word)}", *(f"c {piece}" for piece in pieces)]
    return np.unique(np.array([hashed(name) for name in names], dtype=np.int64))


@lru_cache(maxsize=1 << 16)
def id_of_pair(first: str, second: str) -> int:
    """The number of two words that follow each other."""
    return hashed(f"p {first} {second}")


def ids_of_text(words: Sequence[str]) -> Ids:
    """Int[num], sorted and without repeats: everything in the words, pairs and the ends of the text included."""
    ends = ["^", *words, "$"]
    pairs = np.array([id_of_pair(*pair) for pair in pairwise(ends)], dtype=np.int64)
    return np.unique(np.concatenate([pairs, *(ids_of_word(word) for word in dict.fromkeys(words))]))
