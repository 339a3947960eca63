"""Automata agree with plain string search, and minimal ones are minimal."""

from __future__ import annotations

import functools
import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from locore.constraints import ban, char_count, contains, ends_with
from locore.kernel.automata.tables import Automaton, aho_corasick, minimise, product, product_of

PATTERNS = st.lists(st.binary(max_size=4).map(lambda b: bytes(97 + x % 2 for x in b)), max_size=4)
STRINGS = st.text("abc", max_size=10).map(str.encode)


@st.composite
def automata(draw):
    states, columns = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    entries = st.integers(0, states - 1)
    table = [[draw(entries) for _ in range(columns)] for _ in range(states)]
    accepting = [draw(st.booleans()) for _ in range(states)]
    return Automaton(
        np.array(table, dtype=np.int32),
        np.array(accepting),
        {symbol: symbol for symbol in range(columns - 1)},
        default=columns - 1,
        start=draw(entries),
    )


@given(PATTERNS, st.lists(STRINGS, max_size=20))
def test_search_agrees_with_that_of_python(patterns, strings):
    found = aho_corasick(patterns)
    for string in strings:
        assert found.accepts(string) == any(p in string for p in patterns)
        assert found.complement().accepts(string) != found.accepts(string)


def test_overlapping_patterns():
    found = aho_corasick([b"aab", b"abab", b"ba"])
    for size in range(8):
        for symbols in itertools.product(b"abx", repeat=size):
            string = bytes(symbols)
            assert found.accepts(string) == any(p in string for p in (b"aab", b"abab", b"ba"))


@given(automata())
def test_minimise_keeps_the_language_with_the_fewest_states(automaton):
    small = minimise(automaton)
    symbols = range(automaton.table.shape[1])  # the last one is unknown and reads `default`
    strings = [s for size in range(6) for s in itertools.product(symbols, repeat=size)]
    assert all(small.accepts(string) == automaton.accepts(string) for string in strings)
    assert small.num_states == myhill_nerode_classes(automaton)
    assert small.start == 0


def myhill_nerode_classes(automaton):
    """Reachable states told apart by the pairs that some symbol leads to pairs told apart."""
    reachable = {automaton.start}
    for _ in range(automaton.num_states):
        reachable |= {int(t) for s in reachable for t in automaton.table[s]}
    accepting, table = automaton.accepting, automaton.table
    pairs = list(itertools.product(range(automaton.num_states), repeat=2))
    apart = {(p, q) for p, q in pairs if accepting[p] != accepting[q]}
    for _ in pairs:
        apart |= {(p, q) for p, q in pairs if any((int(a), int(b)) in apart for a, b in zip(table[p], table[q], strict=True))}
    return len({frozenset(q for q in reachable if (p, q) not in apart) for p in reachable})


def test_symbols_without_a_column_read_the_default():
    automaton = aho_corasick([[70_000, 5]])
    assert automaton.accepts([1, 70_000, 5, 1])
    assert not automaton.accepts([70_000, 1, 5])
    assert automaton.table.shape[1] == 3


def test_a_thousand_phrases_and_variants_that_contain_them():
    words = ["".join(letters) for letters in itertools.product("abcdefgh", "aeiou", "lmnr", "xyz")]
    phrases = [variant.encode() for word in words for variant in (word, " " + word)]
    automaton = minimise(aho_corasick(phrases))
    assert automaton.accepts(b"nothing so far, then: gelx.")
    assert not automaton.accepts(b"gelgelgal")
    plain = minimise(aho_corasick(word.encode() for word in words))
    assert automaton.num_states == plain.num_states < len(phrases)


def test_a_product_of_many_is_that_of_two_after_two():
    """Whatever comes first: the same texts, and as few states."""
    automata = [leaf.automaton() for leaf in (char_count(1, 9), contains("ab"), ban("c"), contains("d"), ends_with("a"))]
    for conjunctive in (True, False):
        one = product_of(automata, conjunctive)
        other = functools.reduce(lambda a, b: product(a, b, conjunctive), automata)
        assert one.num_states == other.num_states == minimise(one).num_states
        for text in itertools.product(b"abcd", repeat=5):
            decide = all if conjunctive else any
            assert one.accepts(text) == other.accepts(text) == decide(a.accepts(text) for a in automata)
