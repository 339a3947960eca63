"""Random regular expressions, and texts that they match or nearly match."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import strategies as st

CHARACTERS = "abckK\u017f\u00e9\u0301\u05d0\u0663_1 \n\0\U0001f600"  # long s, combining accent, alef, Arabic three, NUL, emoji
TEXTS = st.text(st.sampled_from(CHARACTERS), max_size=7)
WORDS_OF_ONE = ["a", "b", "c", "k", "K", "\u00e9", "\\n", "_", "\\u017f", "\U0001f600", " ", "\\x00", "\u05d0"]
CLASSES = [
    ".",
    r"\w",
    r"\W",
    r"\d",
    r"\D",
    r"\s",
    r"\S",
    "[ab]",
    "[^a]",
    "[a-c]",
    r"[^\W\d]",
    "[\u0300-\u036f]",
    "[^\\n]",
    "[-\\]]",
]
ANCHORS = ["^", "$", r"\b", r"\B", r"\A", r"\Z"]
REPEATS = ["*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "{,2}", "{0}"]
FLAGS = [re.NOFLAG, re.IGNORECASE, re.DOTALL, re.MULTILINE, re.ASCII, re.IGNORECASE | re.ASCII]


def fixed_width():
    """What may stand in a look-behind."""
    one = st.sampled_from(WORDS_OF_ONE + CLASSES)
    same_width = st.tuples(one, one).map(lambda two: f"(?:{two[0]}|{two[1]})")
    return st.lists(one | same_width | st.sampled_from(ANCHORS) | one.map("(?={})".format), min_size=1, max_size=3).map("".join)


def _larger(inner):
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        inner.map("({})".format),
        inner.map("(?P<name>{})".format),
        st.tuples(inner, st.sampled_from(REPEATS), st.sampled_from(["", "?"])).map(lambda p: f"(?:{p[0]}){p[1]}{p[2]}"),
        st.tuples(st.sampled_from("=!"), inner).map(lambda p: f"(?{p[0]}{p[1]})"),
        st.tuples(st.sampled_from("=!"), fixed_width()).map(lambda p: f"(?<{p[0]}{p[1]})"),
        st.tuples(st.sampled_from(["i", "s", "m", "a", "i-s", "-i", "im"]), inner).map(lambda p: f"(?{p[0]}:{p[1]})"),
    )


def patterns():
    """Patterns over the syntax that is supported; a few are not accepted by Python itself, or refused."""
    possessive = st.tuples(st.sampled_from(WORDS_OF_ONE + CLASSES), st.sampled_from(REPEATS)).map(lambda p: f"{p[0]}{p[1]}+")
    atoms = st.sampled_from(WORDS_OF_ONE + CLASSES + ANCHORS) | possessive
    return st.recursive(atoms, _larger, max_leaves=10)


def plain_patterns():
    """Patterns without anchors and look-around, for which texts that match are easily made."""
    atoms = st.sampled_from(WORDS_OF_ONE + CLASSES)
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
            st.tuples(inner, st.sampled_from(REPEATS)).map(lambda p: f"(?:{p[0]}){p[1]}"),
        ),
        max_leaves=8,
    )


def accepted_strings(automaton, generator, number, longest=40):
    """Byte strings that an automaton accepts: random walks that turn towards acceptance after a while."""
    distance = distances(automaton)
    bytes_of = {}
    for byte in range(256):
        bytes_of.setdefault(automaton.column.get(byte, automaton.default), []).append(byte)
    if distance[automaton.start] == np.inf:
        return
    for _ in range(number):
        state, string, patience = automaton.start, bytearray(), generator.integers(0, longest)
        while not (automaton.accepting[state] and (generator.random() < 0.2 or len(string) > patience)):
            targets = distance[automaton.table[state]]
            fit = targets < (np.inf if len(string) < patience else distance[state])
            if not fit.any():
                break
            column = int(generator.choice(np.flatnonzero(fit)))
            string.append(int(generator.choice(bytes_of[column])))
            state = automaton.table[state, column]
        if automaton.accepting[state]:
            yield bytes(string)


def distances(automaton):
    """For each state the length of the shortest accepted string."""
    distance = np.where(automaton.accepting, 0.0, np.inf)
    while True:
        shorter = np.minimum(distance, distance[automaton.table].min(axis=1) + 1)
        if (shorter == distance).all():
            return distance
        distance = shorter
