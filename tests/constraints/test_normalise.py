"""normalise=True: canonically equivalent letters and any white space, against `unicodedata.normalize` and plain search."""

from __future__ import annotations

import random
import re
import sys
import unicodedata
from functools import cache

import pytest

import locore
from locore import ban, choice, contains, count, ends_with, from_json, starts_with
from locore.automata.characters import canonical, folded, is_word_character
from locore.kernel.errors import BudgetExceeded, InvalidConstraint

from ..effort import THOROUGH, some
from .texts import BROKEN, BYTES, holds

LETTERS = ["a", "e", "n", "I", "ï", "É", "ậ", "ç", "Å", "\u212b", "가", "각", "\u1100", "s", "Σ", "ς", "İ", ".", "x", "\u1161"]
MARKS = ["\u0301", "\u0308", "\u0302", "\u0323", "\u0327", "\u11a8", "\u0345"]
SPACES = [" ", "  ", "\u00a0", "\n", "\u3000 ", "\t"]
MANNERS = [{"words": w, "ignore_case": i, "normalise": True} for w in (False, True) for i in (False, True)]


@cache
def followers():
    """All that is not the first character of some decomposition."""
    parts = (unicodedata.normalize("NFD", chr(point))[1:] for point in range(sys.maxunicode + 1))
    return {character for part in parts for character in part}


def plain(text, ignore_case):
    """As both are compared."""
    text = unicodedata.normalize("NFD", text)
    if ignore_case:
        text = unicodedata.normalize("NFD", "".join(map(str.lower, text)).replace("ς", "σ"))
    return re.sub(r"\s+", " ", text)


def places(text, phrase, words, ignore_case, normalise=True):
    """Where it occurs: starts and ends in the normalised text."""
    text, phrase = plain(text, ignore_case), plain(phrase, ignore_case)
    found = []
    for start in range(len(text)):
        end = start + len(phrase)
        edges = [edge for edge in (start, end) if 0 < edge < len(text)]
        cuts = words and any(is_word_character(text[edge - 1]) and is_word_character(text[edge]) for edge in edges)
        follows = end < len(text) and (unicodedata.combining(text[end]) or text[end] in followers())
        if text.startswith(phrase, start) and not cuts and not follows:
            found.append((start, end))
    return found


def a_phrase(rng):
    """Whole letters first."""
    first = rng.choice(LETTERS[:-1])
    return first + "".join(rng.choice([*LETTERS, *MARKS, *SPACES[:1]]) for _ in range(rng.randint(0, 3)))


def a_variant(rng, phrase):
    """The same written otherwise."""
    text = unicodedata.normalize(rng.choice(["NFC", "NFD"]), phrase)
    text = "".join(unicodedata.normalize(rng.choice(["NFC", "NFD"]), one) for one in text)
    runs = re.split(r"([\u0300-\u036f]{2,})", text)
    text = "".join(run if number % 2 == 0 else shuffled(rng, run) for number, run in enumerate(runs))
    return re.sub(r"\s+", lambda _: rng.choice(SPACES), text)


def shuffled(rng, run):
    """Marks of different classes in another order."""
    marks = list(run)
    rng.shuffle(marks)
    return "".join(marks)


def a_text(rng, phrases):
    """Full of the phrases, and of what is nearly one."""
    pieces = [*LETTERS, *MARKS, *SPACES, *(a_variant(rng, phrase) for phrase in phrases for _ in range(8))]
    return "".join(rng.choice(pieces) for _ in range(rng.randint(0, 6)))


@pytest.mark.parametrize("manner", some(MANNERS), ids=str)
def test_phrases_are_found_however_they_are_written(manner):
    rng = random.Random(str(manner))
    flags = {name: value for name, value in manner.items() if name != "words"}
    seen = 0
    for _ in range(150 if THOROUGH else 1):
        one, two = a_phrase(rng), a_phrase(rng)
        numbers = {k: count([one], exactly=k, **manner) for k in range(3)}
        leaves = [ban([one, two], **manner), contains([one, two], ordered=True, **manner), starts_with(one, **manner)]
        leaves += [ends_with(one, **manner), choice([one, two], **flags), *numbers.values()]
        automata = [leaf.automaton() for leaf in leaves]
        for _ in range(40):
            text = a_text(rng, [one, two])
            first, second = (places(text, phrase, **manner) for phrase in (one, two))
            whole = plain(text, manner["ignore_case"])
            seen += bool(first)
            expected = [
                not first and not second,
                bool(first) and any(start >= first[0][1] for start, _ in second),
                any(start == 0 for start, _ in first),
                any(end == len(whole) for _, end in first),
                whole in [plain(phrase, manner["ignore_case"]) for phrase in (one, two)],
                *(len(first) == k for k in numbers),
            ]
            for leaf, automaton, truth in zip(leaves, automata, expected, strict=True):
                assert holds(leaf, text.encode()) == truth, (leaf, text)
                assert automaton.accepts(text.encode()) == truth, (leaf, text)
                for form in ("NFC", "NFD"):
                    assert automaton.accepts(unicodedata.normalize(form, text).encode()) == truth, (leaf, text)
        for leaf in leaves:
            assert from_json(leaf.to_json()) == leaf and leaf.to_json()["normalise"] is True
    assert seen > (10 if THOROUGH else 2)


def test_broken_bytes_and_normalised_text():
    leaf = contains("é ï", normalise=True)
    automaton = leaf.automaton()
    for broken in BROKEN:
        for text in (
            "é ï".encode() + broken,
            broken + b"e\xcc\x81\n \xc3\xaf",
            b"\xc3\xa9 " + broken + b"\xc3\xaf",
            b"e" + broken,
        ):
            assert automaton.accepts(text) == holds(leaf, text)


def test_every_code_point_is_compared_in_its_form():
    """In `make test` every one of the first plane and of those that are compatible with others, and one in 50 of the rest."""
    every = [*range(0x10000), *range(0x10000, sys.maxunicode + 1, 1 if THOROUGH else 50), *range(0x2F800, 0x2FA20)]
    for ignore_case in (False, True):
        table, several = folded(ignore_case, True)
        for point in every:
            form = several.get(point, chr(table[point]))
            assert form == plain(chr(point), ignore_case) == canonical(form, ignore_case)


@pytest.mark.parametrize(
    "text, place",
    [("A nai\u0308ve plan", 2), ("A naïve  plan", 2), ("A\u00a0naïve\nplan.", 2), ("nai\u0308 nai\u0308ve\u00a0\u2003plan", 5)],
)
def test_a_ban_is_not_passed_by_writing_it_otherwise(text, place):
    assert not locore.holds(ban("naïve plan", normalise=True), text, BYTES)
    assert locore.holds(ban("naïve plan"), text, BYTES) or text.startswith("A\u00a0naïve plan")
    assert f"at character {place}" in locore.explain(ban("naïve plan", normalise=True), text, BYTES).reason


def test_letters_are_whole():
    for text in ("café", "cafe\u0301", "naïf"):
        assert locore.holds(ban(["cafe", "nai"], normalise=True), text, BYTES)
    assert not locore.holds(ban("papá", normalise=True), "papa\u0301", BYTES)
    with pytest.raises(InvalidConstraint, match="begins with a mark"):
        ban("\u0301a", normalise=True)
    with pytest.raises(InvalidConstraint, match="normalise of ban must be True or False"):
        ban("a", normalise="NFC")
    with pytest.raises(InvalidConstraint, match="normalise need level"):
        ban("a", level="tokens", normalise=True)


def test_too_many_orders_of_marks_are_an_error():
    with pytest.raises(BudgetExceeded, match="spellings"):
        ban("ậ" * 20, normalise=True).automaton()
