"""Laws of all constraints on the text: automaton, plain reading and regular expressions agree, on any bytes."""

from __future__ import annotations

import itertools
import json
import re
import unicodedata

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import locore
from locore.automata.characters import Manner, fold, folded, is_word_character, spaces, word_characters
from locore.automata.machines import bounded, minimised, pushed
from locore.automata.phrase_search import occurrences
from locore.constraints import ban, char_count, contains, count, from_json, minimise
from locore.kernel.automata.tables import number_rows, reachable
from locore.kernel.errors import Unsatisfiable
from locore.kernel.tokenizer import Tokenizer
from tests.effort import THOROUGH, examples

from .texts import BROKEN, CHARACTERS, FLAGS, PHRASES, bounds, contents, holds, leaves

MANNERS = st.builds(Manner, FLAGS, FLAGS)
# Bytes at which the rules of UTF-8 change.
EDGES = bytes.fromhex("00 41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")


@settings(max_examples=examples(150))
@given(st.data())
def test_automata_agree_with_the_plain_reading(data):
    leaf = data.draw(leaves())
    automaton = leaf.automaton()
    for content in data.draw(st.lists(contents(leaf), min_size=5, max_size=15)):
        assert automaton.accepts(content) == holds(leaf, content), (leaf, content)


@given(leaves())
def test_automata_are_complete_and_small(leaf):
    """Nothing unreachable, no two columns alike; what counts to one or nothing is minimal."""
    automaton = leaf.automaton()
    assert len(reachable(automaton.table)[0]) == automaton.num_states
    assert ((automaton.table >= 0) & (automaton.table < automaton.num_states)).all()
    low, high = leaf.bounds()
    if (low, high) in ((1, None), (0, 0)):
        assert minimise(automaton).num_states == automaton.num_states


@given(leaves())
def test_json_round_trip(leaf):
    form = json.loads(json.dumps(leaf.to_json()))
    assert from_json(form) == leaf
    assert hash(from_json(form)) == hash(leaf)


@given(st.data())
def test_not_contains_is_ban(data):
    phrase, words, ignore_case = data.draw(PHRASES), data.draw(FLAGS), data.draw(FLAGS)
    banned, contained = (make(phrase, words=words, ignore_case=ignore_case) for make in (ban, contains))
    content = data.draw(contents(banned))
    assert holds(~contained, content) == holds(banned, content)
    assert contained.automaton().complement().accepts(content) == holds(banned, content)


# Every sequence of a small vocabulary with cut characters: what compiles is what holds.

CUT = Tokenizer.from_tokens([b"a", b" ", b".", "é".encode()[:1], "é".encode()[1:], b"A", "\u3000".encode(), None], eos_ids=[7])


@settings(max_examples=60 if THOROUGH else 5)
@given(leaves(st.text("aAé .\ufffd", min_size=1, max_size=2)))
def test_circuits_have_the_models_of_the_plain_reading(leaf):
    length = 3
    sequences = itertools.product(range(CUT.vocab_size), repeat=length)
    number = sum(leaf.evaluate(ids, CUT) for ids in sequences)
    try:
        assert locore.compile(leaf, CUT, length).count() == number
    except Unsatisfiable:
        assert number == 0


# Against regular expressions, which know no combining marks and no joiners.


@given(st.text(st.sampled_from([c for c in CHARACTERS if c not in "\u0301\u200d"]), max_size=8), st.data())
def test_words_are_those_of_regular_expressions(text, data):
    start = data.draw(st.integers(0, max(0, len(text) - 1)))
    phrase = text[start : start + data.draw(st.integers(1, 3))] or "a"
    free, closed = r"(?:(?<!\w)|(?!\w))", r"(?:(?!\w)|(?<!\w))"
    found = [m.start() for m in re.finditer(f"{free}(?={re.escape(phrase)}{closed})", text)]
    assert holds(count([phrase], exactly=len(found), words=True), text.encode())
    assert holds(ban([phrase], words=True), text.encode()) == (not found)


@given(st.text(max_size=8), st.text(min_size=1, max_size=2))
def test_ignoring_case_is_lower_where_no_sigma_is(text, phrase):
    assume(not set("Σς") & {*text, *phrase})
    leaf = contains(phrase, ignore_case=True)
    assert holds(leaf, text.encode()) == (phrase.lower() in text.lower())
    assert leaf.automaton().accepts(text.encode()) == (phrase.lower() in text.lower())


@given(st.text(), st.text())
def test_folding_is_letter_by_letter(first, second):
    assert fold(first + second) == fold(first) + fold(second)
    assert fold(fold(first)) == fold(first)


def test_tables_say_what_the_functions_say():
    """On all code points; in `make test` on every one of the first two planes and one in 50 of the others."""
    table, several = folded()
    words, blanks = word_characters(), spaces()
    for point in (*range(0x20000), *range(0x20000, 0x110000, 1 if THOROUGH else 50)):
        character = chr(point)
        assert words[point] == is_word_character(character)
        assert blanks[point] == character.isspace()
        assert several.get(point, chr(table[point])) == fold(character)


def test_words_are_those_of_python_and_marks():
    marks = [c for c in map(chr, range(0x110000)) if unicodedata.category(c).startswith("M")]
    assert all(map(is_word_character, marks))
    others = [c for c in map(chr, range(0x3000)) if not unicodedata.category(c).startswith("M") and c not in "\u200c\u200d"]
    assert all(is_word_character(c) == bool(re.match(r"\w", c)) for c in others)


# Decoding.


@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_short_strings_at_the_edges_of_utf8(size):
    length = {number: char_count(number, number).automaton() for number in range(size + 1)}
    broken = {number: contains("\ufffd", exactly=number).automaton() for number in range(size + 1)}
    for symbols in itertools.product(EDGES, repeat=size):
        text = bytes(symbols).decode("utf-8", errors="replace")
        assert [n for n, automaton in length.items() if automaton.accepts(symbols)] == [len(text)]
        assert [n for n, automaton in broken.items() if automaton.accepts(symbols)] == [text.count("\ufffd")]


@given(st.lists(st.sampled_from([*BROKEN, b"\xe2\x80", b"\x94", b"\xf0", b"\x9f\x98\x80", b"a"]), max_size=6).map(b"".join))
def test_phrases_are_found_behind_and_before_broken_bytes(content):
    leaf = count(["a", "—", "😀"], exactly=2)
    text = content.decode("utf-8", errors="replace")
    found = sum(map(text.count, ("a", "—", "😀"))) == 2
    assert holds(leaf, content) == leaf.automaton().accepts(content) == found


# The machines that count.


@given(st.lists(PHRASES, min_size=1, max_size=3), MANNERS, bounds(), st.data())
def test_machines_may_be_made_smaller(phrases, manner, limits, data):
    tally = occurrences(phrases, manner)
    small = minimised(pushed(tally))
    automaton = bounded(tally, *limits)
    assert len(small.table) <= len(tally.table)
    for content in data.draw(st.lists(contents(ban(phrases)), max_size=5)):
        number = tally.count(content)
        assert small.count(content) == number
        assert automaton.accepts(content) == (limits[0] <= number and (limits[1] is None or number <= limits[1]))


@given(st.lists(st.lists(st.integers(-2, 2), min_size=2, max_size=2), min_size=1, max_size=20))
def test_equal_rows_have_equal_numbers(rows):
    numbers, first = number_rows(np.array(rows, dtype=np.int32))
    assert all((rows[i] == rows[j]) == (numbers[i] == numbers[j]) for i in range(len(rows)) for j in range(len(rows)))
    assert [rows.index(rows[i]) for i in first] == first.tolist() == sorted(first.tolist())
