"""Law 1 for constraints that compare positions: circuits have exactly the models of the plain reading, also in mixtures."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from locore.compilers import compile
from locore.constraints import Not, conjunction, contains, count_tokens, ends_with, regex, token
from locore.kernel.errors import Unsatisfiable
from locore.kernel.tokenizer import Tokenizer
from locore.puzzles.combinatorial import all_different, all_equal, at_least, at_most, digit_sum, exactly, permutation, token_sum
from locore.testing import check
from tests.effort import examples

from .circuits import brute_force

LENGTH = 4
# Two spellings of 1, a token of two characters, a special one, and two ends.
SMALL = Tokenizer.from_tokens([b"1", b"2", b"1", b"2x", None, None, None], eos_ids=(5, 6))
BARE = Tokenizer.integers(4)
POSITIONS = st.lists(st.integers(0, LENGTH - 1), min_size=2, max_size=LENGTH, unique=True)


def groups(vocab_size):
    """Disjoint groups of ids, or none."""
    labels = st.lists(st.integers(0, 3), min_size=vocab_size, max_size=vocab_size)

    def cut(numbers):
        found = [[t for t, number in enumerate(numbers) if number == g] for g in range(3)]
        return [group for group in found if group] or None

    return st.none() | labels.map(cut)


def comparisons(vocab_size):
    ids = st.integers(0, vocab_size - 1)
    weights = st.none() | st.lists(st.integers(-2, 2), min_size=LENGTH, max_size=LENGTH)
    bounds = st.tuples(st.integers(-3, 4), st.integers(0, 5)).map(lambda b: {"at_least": b[0], "at_most": b[0] + b[1]})
    sides = bounds | st.integers(-2, 8).map(lambda b: {"at_least": b}) | st.integers(-2, 8).map(lambda b: {"total": b})

    def cut(weights, positions):
        return weights and weights[: len(positions)]

    return st.one_of(
        st.builds(all_different, POSITIONS, groups(vocab_size)),
        st.builds(all_equal, POSITIONS, groups(vocab_size)),
        POSITIONS.flatmap(lambda p: st.lists(ids, min_size=len(p), max_size=len(p)).map(lambda t: permutation(p, t))),
        st.builds(lambda p, b, w: digit_sum(p, weights=cut(w, p), **b), POSITIONS, sides, weights),
        st.builds(
            lambda p, v, b, w: token_sum(p, v, weights=cut(w, p), **b),
            POSITIONS,
            st.dictionaries(ids, st.integers(-2, 3), min_size=1),
            sides,
            weights,
        ),
    )


def simple(vocab_size):
    tokens = st.sets(st.integers(0, vocab_size - 1), min_size=1)
    literal = st.builds(token, st.integers(0, LENGTH - 1), tokens)
    count = st.builds(lambda t, p, low, more: count_tokens(t, p, low, low + more), tokens, POSITIONS, *[st.integers(0, 2)] * 2)
    return st.one_of(literal, literal.map(lambda c: ~c), count)


def expressions(vocab_size, text):
    leaves = [comparisons(vocab_size), simple(vocab_size)]
    if text:
        words = st.text("12x", min_size=1, max_size=2)
        leaves += [st.builds(contains, words), st.builds(ends_with, words), st.just(regex("[12]*x?"))]
    return st.recursive(
        st.one_of(*leaves),
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(lambda a: ~a, inner),
            st.builds(
                lambda k, of: k(1, of), st.sampled_from([exactly, at_least, at_most]), st.lists(inner, min_size=1, max_size=3)
            ),
        ),
        max_leaves=4,
    )


def conjunctions(vocab_size):
    return st.builds(
        lambda first, others, literals: conjunction([first, *others, *literals]),
        comparisons(vocab_size),
        st.lists(comparisons(vocab_size), max_size=2),
        st.lists(simple(vocab_size), max_size=3),
    )


def models_of(alpha, tokenizer):
    every = brute_force.all_sequences(tokenizer.vocab_size, LENGTH)
    return every, torch.tensor([alpha.evaluate(y, tokenizer) for y in every.tolist()])


def assert_law(alpha, tokenizer, min_length=0, **options):
    every, holds = models_of(alpha, tokenizer)
    if tokenizer.eos_ids:
        ended = torch.isin(every, torch.tensor(tokenizer.eos_ids))
        holds &= ~ended[:, :min_length].any(1)
    try:
        circuit = compile(alpha, tokenizer, LENGTH, min_length=min_length, use_cache=False, **options)
    except Unsatisfiable:
        assert not holds.any()
        return None
    assert circuit.count() == int(holds.sum())
    assert torch.equal(circuit.accepts(every), holds)
    check(circuit, num_models=32)
    log_probs = brute_force.random_log_probs(2, LENGTH, tokenizer.vocab_size, seed=1, zeros=0.1)
    mass = brute_force.log_mass(log_probs, every[holds])
    torch.testing.assert_close(circuit.log_mass(log_probs), mass)
    return circuit


@settings(max_examples=examples(80))
@given(conjunctions(SMALL.vocab_size), st.integers(0, 2))
def test_conjunctions_with_ends_and_special_tokens(alpha, min_length):
    assert_law(alpha, SMALL, min_length)


@settings(max_examples=examples(150))
@given(conjunctions(BARE.vocab_size))
def test_conjunctions_over_bare_ids(alpha):
    circuit = assert_law(alpha, BARE)
    if circuit is not None:
        assert_reader_law(circuit)


@settings(max_examples=examples(80))
@given(expressions(SMALL.vocab_size, text=True))
def test_mixtures_with_text(alpha):
    assert_law(alpha, SMALL)


@settings(max_examples=examples(60))
@given(expressions(BARE.vocab_size, text=False))
def test_mixtures_over_bare_ids(alpha):
    assert_law(alpha, BARE)
    assert_law(Not(alpha), BARE)


@pytest.mark.skipif(importlib.util.find_spec("pysdd") is None, reason="needs the extra sdd")
@settings(max_examples=examples(15))
@given(conjunctions(BARE.vocab_size))
def test_all_compilers_agree(alpha):
    assert_law(alpha, BARE, vtree=((0, 3), (1, 2)))


def assert_reader_law(circuit):
    """What may come after a prefix is what some model has there, and equal states have equal futures."""
    every = brute_force.all_sequences(circuit.vocab_size, LENGTH)
    models = every[circuit.accepts(every)]
    reader = circuit.reader
    for time in range(LENGTH):
        for prefix in brute_force.all_sequences(circuit.vocab_size, time) if time else torch.zeros(1, 0, dtype=torch.long):
            begun = models[(models[:, :time] == prefix).all(1)]
            expected = torch.zeros(circuit.vocab_size, dtype=torch.bool)
            expected[begun[:, time]] = True
            assert torch.equal(circuit.allowed(prefix), expected)
    table_states, lazy_states = reader.initial(len(every)), reader.initial(len(every))
    for position in range(LENGTH):
        column = circuit.token_class[every[:, position]]
        after = reader.rows[position][table_states.clamp_min(0), column].long()
        table_states = torch.where(table_states < 0, table_states, after)
        lazy_states = reader.step(position, lazy_states, every[:, position])
        assert torch.equal(table_states, lazy_states)
        assert len(reader.live[position + 1]) > int(lazy_states.max())
    assert torch.equal(reader.accepting(lazy_states), circuit.accepts(every))
