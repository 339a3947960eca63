"""Laws 1 and 5: a compiled circuit has exactly the models that the plain reading of the constraint has."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import locore
from locore.compilers import compile
from locore.compilers.compile import _problem
from locore.constraints import Constant, Count, Literal, TokenPhrases, ban, choice, constraint, contains, ends_with, token
from locore.kernel.compilers import ways
from locore.kernel.errors import BudgetExceeded, InvalidArgument, InvalidConstraint, Unsatisfiable
from locore.kernel.limits import Limits
from locore.kernel.tokenizer import Tokenizer
from locore.testing import check
from tests.effort import examples

from ..circuits import brute_force

TOKENIZER = Tokenizer.from_tokens([b"a", b"b", b"ab", None, None, None], eos_ids=(4, 5))
ENDLESS = Tokenizer.from_tokens([b"a", b"b", b"ba"], eos_ids=())
SPECIAL = 3


def leaves(length, vocab_size):
    tokens = st.frozensets(st.integers(0, vocab_size - 1), min_size=1, max_size=3)
    position = st.integers(0, length - 1)
    words = st.text("ab", min_size=1, max_size=3)
    bounds = st.tuples(st.integers(0, length), st.none() | st.integers(0, length))
    return st.one_of(
        st.builds(Literal, position, tokens),
        st.builds(lambda where, t, b: Count(tuple(sorted(where)), t, *b), st.sets(position, min_size=1), tokens, bounds),
        st.builds(ban, st.lists(words, min_size=1, max_size=3)),
        st.builds(contains, words),
        st.builds(ends_with, words),
        st.builds(choice, st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4)),
        st.builds(
            lambda s: TokenPhrases(tuple(s)),
            st.lists(st.lists(st.integers(0, vocab_size - 1), min_size=1, max_size=2).map(tuple), min_size=1, max_size=2),
        ),
        st.just(Constant(True)),
    )


def expressions(length, vocab_size):
    return st.recursive(
        leaves(length, vocab_size),
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(lambda a: ~a, inner),
        ),
        max_leaves=5,
    )


def models_of(alpha, tokenizer, length, min_length=0):
    """Every sequence that satisfies α by the plain reading."""
    bound = alpha.at(length).bind(tokenizer)
    models = []
    for y in brute_force.all_sequences(tokenizer.vocab_size, length).tolist():
        early = any(token in tokenizer.eos_ids for token in y[:min_length])
        if not early and bound.evaluate(y, tokenizer):
            models.append(y)
    return torch.tensor(models, dtype=torch.long).reshape(-1, length)


def assert_same_models(alpha, tokenizer, length, min_length=0):
    models = models_of(alpha, tokenizer, length, min_length)
    if not len(models):
        with pytest.raises(Unsatisfiable):
            compile(alpha, tokenizer, length, min_length=min_length)
        return
    circuit = compile(alpha, tokenizer, length, min_length=min_length)
    check(circuit, num_models=32)
    assert circuit.count() == len(models)
    log_probs = brute_force.random_log_probs(2, length, tokenizer.vocab_size, seed=1)
    truth = brute_force.log_mass(log_probs, models)
    torch.testing.assert_close(circuit.log_mass(log_probs), truth)
    torch.testing.assert_close(circuit.log_mass(torch.zeros_like(log_probs))[0].exp().item(), float(len(models)))


@settings(max_examples=examples(200), deadline=None)
@given(st.data(), st.integers(1, 4), st.integers(0, 2))
def test_any_mixture_has_the_models_of_its_plain_reading(data, length, min_length):
    alpha = data.draw(expressions(length, TOKENIZER.vocab_size))
    assert_same_models(alpha, TOKENIZER, length, min(min_length, length))


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), st.integers(1, 5))
def test_vocabulary_without_an_end(data, length):
    assert_same_models(data.draw(expressions(length, ENDLESS.vocab_size)), ENDLESS, length)


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.integers(1, 4))
def test_sampled_and_allowed_tokens_hold(data, length):
    alpha = data.draw(expressions(length, TOKENIZER.vocab_size))
    models = models_of(alpha, TOKENIZER, length).tolist()
    if not models:
        return
    circuit = compile(alpha, TOKENIZER, length)
    log_probs = brute_force.random_log_probs(16, length, TOKENIZER.vocab_size, seed=2)
    tokens, _ = circuit.sample(log_probs, seed=4)
    assert all(y in models for y in tokens.tolist())
    prefix = tokens[0, : data.draw(st.integers(0, length - 1))]
    time = len(prefix)
    truth = [any(m[:time] == prefix.tolist() and m[time] == v for m in models) for v in range(6)]
    assert circuit.allowed(prefix).tolist() == truth


def test_integers_without_an_end_count_every_sequence():
    assert compile(Constant(True), 5, 30).count() == 5**30


def test_multiple_ends_pad_with_the_first():
    circuit = compile(Constant(True), TOKENIZER, 2)
    models = models_of(Constant(True), TOKENIZER, 2).tolist()
    assert circuit.count() == len(models)
    assert [5, 4] in models and [4, 5] not in models and [5, 5] not in models


def test_negated_text_is_the_ban_of_it_and_neither_has_special_tokens():
    first, second = compile(~contains("ab"), TOKENIZER, 4), compile(ban(["ab"]), TOKENIZER, 4)
    assert first.count() == second.count()
    assert not first.allowed(torch.tensor([], dtype=torch.long))[SPECIAL]


def test_one_table_of_rows_serves_all_positions():
    circuit = compile(ban(["aba", "bb"]), TOKENIZER, 12, min_length=3)
    assert len({id(block) for block in circuit.chain.blocks}) == 2  # before and after the text may end
    assert len({id(rows) for rows in circuit.reader.rows}) == 2


def test_paper_listing_compiles_as_printed():
    Tokenizer_, seq_len = TOKENIZER, 5

    @constraint
    def no_hate(tokens):
        Tokenizer = Tokenizer_
        idx = Tokenizer.tokenize("ab")
        α = True
        for i in range(seq_len):
            α = α and not tokens(i, idx)
        return α

    assert_same_models(no_hate, TOKENIZER, seq_len)


def test_figure_2_of_the_paper():
    """Three positions of three words, no "hate": 0.48 with the leaves as printed, 0.60 with the last column normalised."""

    @constraint
    def no_hate(tokens):
        return not any(token == 0 for token in tokens[1:2])

    circuit = compile(no_hate, 3, 3)
    check(circuit)
    printed = torch.tensor([[[0.6, 0.2, 0.2], [0.4, 0.5, 0.1], [0.3, 0.3, 0.2]]]).double()
    assert circuit.log_mass(printed.log()).exp().item() == pytest.approx(0.48)
    normalised = printed / printed.sum(-1, keepdim=True)
    assert circuit.log_mass(normalised.log()).exp().item() == pytest.approx(0.60)


@pytest.mark.parametrize(
    ("alpha", "length", "error", "words"),
    [
        (contains("ab"), 0, InvalidArgument, "at least 1"),
        (contains("zzz"), 3, Unsatisfiable, "no sequence of 3 tokens"),
        (Literal(7, frozenset({1})), 3, InvalidConstraint, "position 7"),
        (Literal(0, frozenset({99})), 3, InvalidConstraint, "99"),
        ("ab", 3, InvalidConstraint, "@constraint"),
    ],
)
def test_bad_input_is_named(alpha, length, error, words):
    with pytest.raises(error, match=words):
        compile(alpha, TOKENIZER, length)


def test_too_many_states_are_refused_with_a_remedy():
    @constraint
    def halves_agree(tokens):
        half = len(tokens) // 2
        return all((tokens[i] == 0) == (tokens[i + half] == 0) for i in range(half))

    equal = Constant(True)
    for i in range(10):
        a, b = Literal(i, frozenset({0})), Literal(i + 10, frozenset({0}))
        equal = equal & ((a & b) | (~a & ~b))
    with pytest.raises(BudgetExceeded, match="vtree"):
        compile(equal, 2, 20, limits=Limits(states=500))


FAR_AND_NEAR = {
    "phrases": ban(["ab"]) & contains("b"),
    "far": locore.char_count(hi=400) & contains("ab") & ban(["ba"]),
    "grammar": locore.grammar('start: "a" start "b" | "ab"'),
    "grammar and far": locore.grammar('start: "a" start "b" | "ab"') & locore.char_count(hi=400),
    "ids": token(0, [1]) | token(1, [2]),
}


@pytest.mark.parametrize("name", FAR_AND_NEAR)
def test_ways_that_register_exclude_each_other(name):
    """So it does not matter which of them was imported first."""
    tokenizer = Tokenizer.from_tokens([bytes([byte]) for byte in range(256)] + [None], eos_ids=(256,))
    problem = _problem(FAR_AND_NEAR[name], tokenizer, 40).of_whole_characters()
    answers = [way for way in ways.ways()[0] if way(problem) is not None]
    assert len(answers) == (0 if name in ("phrases", "ids") else 1)


def test_a_way_that_registers_is_asked_and_need_not_answer():
    asked = []
    ways.register(asked.append)
    try:
        circuit = compile(token(0, [1]), 3, 2, use_cache=False)
    finally:
        ways.WAYS.pop()
    assert len(asked) == 1 and circuit.count() == 3
