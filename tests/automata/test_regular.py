"""Regular languages: expressions, their automata over characters and over bytes, and the Boolean operations agree."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locore.automata.regex import Budget, byte_automaton
from locore.automata.regex.determinise import determinise
from locore.automata.regex.language import (
    ANY,
    ANYTHING,
    EMPTY,
    EPSILON,
    Ahead,
    Behind,
    Both,
    Chars,
    CharSet,
    Complement,
    Concat,
    Either,
    Graph,
    Repeat,
    Rewritten,
    literal,
    one_of,
    partition,
    repeat,
)
from locore.kernel.automata.tables import equivalent_states, minimise
from locore.kernel.errors import BudgetExceeded, InvalidConstraint
from tests.effort import examples

from .test_automaton import automata

ALPHABET = "ab\u00e9"
STRINGS = ["".join(letters) for size in range(5) for letters in itertools.product(ALPHABET, repeat=size)]
SPANS = st.lists(
    st.tuples(st.integers(0, 0x10FFFF), st.integers(0, 40)).map(lambda p: (p[0], min(sum(p), 0x10FFFF))), max_size=4
)
EDGES = [0xD7FE, 0xD7FF, 0xD800, 0xDFFF, 0xE000, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x10FFFF]


def _strings_of(language):
    """The strings of at most four letters of the alphabet, by the definition of each operation."""
    match language:
        case Chars(chars):
            return {one for one in ALPHABET if ord(one) in chars}
        case Concat(parts):
            found = {""}
            for part in parts:
                found = {x + y for x in found for y in _strings_of(part) if len(x + y) <= 4}
            return found
        case Either(parts):
            return set().union(*map(_strings_of, parts))
        case Repeat(part, least, most):
            powers = [{""}]
            for _ in range(least + 5 if most is None else most):
                powers.append({x + y for x in powers[-1] for y in _strings_of(part) if len(x + y) <= 4})
            return set().union(*powers[least:])
        case Both(left, right):
            return _strings_of(left) & _strings_of(right)
        case Complement(part):
            return set(STRINGS) - _strings_of(part)
        case Rewritten(part, _):
            return {"".join(map(_twice, string)) for string in _strings_of(part) if len("".join(map(_twice, string))) <= 4}
    raise TypeError(language)


def _twice(letter):
    return letter * 2 if letter == "a" else letter


def _write_twice(chars):
    """Another way to write: `a` as `aa`."""
    kept = chars - CharSet.from_text("a")
    return Either((*([literal("aa")] if ord("a") in chars else []), *([Chars(kept)] if kept else [])))


def languages():
    letters = st.sampled_from([one_of("a"), one_of("ab"), one_of("\u00e9"), Chars(ANY), EPSILON, EMPTY])
    return st.recursive(
        letters,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(tuple).map(Concat),
            st.lists(inner, max_size=3).map(tuple).map(Either),
            st.builds(Repeat, inner, st.integers(0, 2), st.none() | st.integers(2, 3)),
            st.builds(repeat, inner, st.integers(0, 2), st.none() | st.integers(2, 3)),
            st.builds(Both, inner, inner),
            st.builds(Complement, inner),
            st.builds(Rewritten, inner, st.just(_write_twice)),
        ),
        max_leaves=6,
    )


@settings(max_examples=examples(300))
@given(languages())
def test_automata_accept_the_strings_of_the_expression(language):
    wanted = _strings_of(language)
    dfa, automaton = determinise(language, Budget()), byte_automaton(language)
    for string in STRINGS:
        assert dfa.accepts(string) == (string in wanted), string
        assert automaton.accepts(string.encode()) == (string in wanted), string
    assert automaton.num_states == minimise(automaton).num_states
    for junk in (b"\xff", b"\xed\xa0\x80", b"a\xc1\x81", b"\xc3"):  # also for a complement
        assert not automaton.accepts(junk)


NESTED = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))


@given(NESTED)
def test_a_repetition_of_a_repetition(numbers):
    """`repeat` may write it as one, for the same strings."""
    least, more, outer_least, outer_more = numbers
    inner = Repeat(one_of("a"), least, least + more)
    merged = determinise(repeat(inner, outer_least, outer_least + outer_more), Budget())
    plain = determinise(Repeat(inner, outer_least, outer_least + outer_more), Budget())
    for length in range(40):
        assert merged.accepts("a" * length) == plain.accepts("a" * length)


@given(SPANS, SPANS)
def test_sets_of_characters(left, right):
    first, second = CharSet.of(left), CharSet.of(right)
    codes = {code for span in left + right for end in span for code in (end - 1, end, end + 1)} | set(EDGES)
    for code in codes:
        is_character = 0 <= code < 0x110000 and not 0xD800 <= code < 0xE000
        in_first = is_character and any(low <= code <= high for low, high in left)
        in_second = is_character and any(low <= code <= high for low, high in right)
        assert (code in first) == in_first
        assert (code in first | second) == (in_first or in_second)
        assert (code in first & second) == (in_first and in_second)
        assert (code in first - second) == (in_first and not in_second)
        assert (code in ~first) == (is_character and not in_first)
    classes, members = partition([first, second])
    for chars, its_classes in zip((first, second), members, strict=True):
        assert CharSet.of(span for number in its_classes for span in classes.sets[number].ranges) == chars


@given(automata())
def test_equivalent_states_are_those_that_accept_the_same_strings(automaton):
    blocks, _ = equivalent_states(automaton.table, automaton.accepting)
    columns = range(automaton.table.shape[1])
    strings = [
        s for size in range(6) for s in itertools.product(columns, repeat=size)
    ]  # at most 6 states, so these tell them apart

    def answers(state):
        for string in strings:
            place = state
            for column in string:
                place = automaton.table[place, column]
            yield bool(automaton.accepting[place])

    rows = [tuple(answers(state)) for state in range(automaton.num_states)]
    for p, q in itertools.combinations(range(automaton.num_states), 2):
        assert (blocks[p] == blocks[q]) == (rows[p] == rows[q])


def test_long_chains_and_large_blocks():
    """Thousands of rounds, and blocks of which the smaller part is the one that is not affected."""
    generator = np.random.default_rng(0)
    for states in (2000, 500):
        table = np.minimum(np.arange(states)[:, None] + np.array([1, 2, 3]), states - 1)
        table[generator.random(table.shape) < 0.02] = states - 1
        accepting = np.zeros(states, dtype=np.bool_)
        accepting[-5:-1] = True
        blocks, _ = equivalent_states(table.astype(np.int32), accepting)
        rows = {
            (int(block), bool(flag), *blocks[row].tolist()) for block, flag, row in zip(blocks, accepting, table, strict=True)
        }
        assert len(rows) == len(set(blocks.tolist()))  # states of a block agree, and lead to the same blocks


def test_graphs():
    """a, then any number of b, or é on the way."""
    graph = Graph(3, ((0, one_of("a"), 1), (1, one_of("b"), 1), (1, EPSILON, 2), (0, literal("\u00e9"), 2)), frozenset([2]))
    automaton = byte_automaton(Concat((graph, graph)))
    for text, wanted in [("aab", True), ("abba", True), ("\u00e9\u00e9", True), ("a", False), ("\u00e9b", False), ("", False)]:
        assert automaton.accepts(text.encode()) == wanted
    assert not byte_automaton(Graph(1, (), frozenset())).accepting.any()


def test_look_around_reaches_out_of_its_part_but_not_out_of_both():
    before_b = Concat((one_of("a"), Ahead(one_of("b"), negative=False)))
    assert byte_automaton(Concat((before_b, one_of("ab")))).accepts(b"ab")
    assert not byte_automaton(Concat((Both(before_b, ANYTHING), one_of("ab")))).accepts(b"ab")


def test_a_look_behind_that_looks_ahead_too_far():
    ahead = Behind(Concat((one_of("a"), Ahead(one_of("b"), negative=False))), negative=False)
    with pytest.raises(InvalidConstraint, match="reads past its end"):
        byte_automaton(Concat((one_of("a"), ahead, one_of("b"))))


@pytest.mark.parametrize("kind", ["positions", "states", "byte_states", "moves"])
def test_every_budget_ends_the_work(kind):
    language = repeat(Chars(ANY), 0, 50)
    byte_automaton(language)
    with pytest.raises(BudgetExceeded, match=r"needs more than 20 |takes too long"):
        byte_automaton(language, Budget(**{kind: 20}))
