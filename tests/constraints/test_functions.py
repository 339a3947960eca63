"""Python functions as constraints: tracing agrees with plain Python on every sequence."""

from __future__ import annotations

import itertools
import operator
import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locore.constraints import (
    And,
    Constant,
    Count,
    Literal,
    Not,
    ban,
    constraint,
    contains,
    has_text,
    token,
)
from locore.errors import BudgetExceeded, InvalidConstraint

from .strategies import IDS, LENGTH, POSITIONS, TEXTS, WORDS, is_padded, sequences

COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


# --- random programs: each node is (run on the view, truth on a list of ids)


def literals():
    ids = st.lists(IDS, max_size=3)
    spans = st.lists(IDS, min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda i, v: (lambda t: t[i] == v, lambda y: y[i] == v), POSITIONS, IDS),
        st.builds(lambda i, v: (lambda t: v != t[-i - 1], lambda y: v != y[-i - 1]), POSITIONS, IDS),
        st.builds(lambda i, v: (lambda t: t(i, v), lambda y: y[i] == v), POSITIONS, IDS),
        st.builds(lambda i, v: (lambda t: t(i, v), lambda y: y[i : i + len(v)] == v), POSITIONS, spans),
        st.builds(lambda i, v: (lambda t: t[i].isin(v), lambda y: y[i] in v), POSITIONS, ids),
        st.builds(lambda i, v: (lambda t: t[i] in v, lambda y: y[i] in v), POSITIONS, ids),
        st.builds(lambda i, v: (lambda t: v in t[i:], lambda y: v in y[i:]), POSITIONS, IDS),
        st.builds(lambda v: (lambda t: t.isin(v).any(), lambda y: any(x in v for x in y)), ids),
        st.builds(lambda v: (lambda t: (t != v).all(), lambda y: v not in y), IDS),
        st.builds(lambda s: (lambda t: contains(s), lambda y: s.encode() in WORDS.text_bytes(y)), TEXTS),
    )


def counts():
    def compared(make, plain, compare, bound):
        return (lambda t: compare(make(t), bound), lambda y: compare(plain(y), bound))

    def weighted(ids, weights):
        def make(t):
            return 1 - sum(w * (x == v) for x, v, w in zip(t, ids, weights, strict=False))

        return make

    return st.one_of(
        st.builds(
            lambda v, c, k: compared(lambda t: (t == v).sum(), lambda y: y.count(v), c, k),
            IDS,
            st.sampled_from(COMPARISONS),
            st.integers(-1, 4),
        ),
        st.builds(
            lambda v, c, k: compared(lambda t: sum(x != v for x in t[1:]), lambda y: 2 - y[1:].count(v), c, k),
            IDS,
            st.sampled_from(COMPARISONS),
            st.integers(-1, 3),
        ),
        st.builds(
            lambda v, w, c, k: compared(weighted(v, w), weighted(v, w), c, k),
            st.lists(IDS, min_size=1, max_size=3),
            st.lists(st.integers(-2, 2), min_size=1, max_size=3),
            st.sampled_from(COMPARISONS),
            st.integers(-3, 3),
        ),
    )


def programs():
    def both(run, *parts):
        """The same Python code on the view and on plain values."""
        runs, truths = [p[0] for p in parts], [p[1] for p in parts]
        return lambda t: run(t, *runs), lambda y: bool(run(y, *truths))

    def grown(inner):
        return st.one_of(
            st.builds(lambda a: both(lambda t, a: not a(t), a), inner),
            st.builds(lambda a, b: both(lambda t, a, b: a(t) and b(t), a, b), inner, inner),
            st.builds(lambda a, b: both(lambda t, a, b: a(t) or b(t), a, b), inner, inner),
            st.builds(lambda a, b: both(lambda t, a, b: a(t) & b(t), a, b), inner, inner),
            st.builds(lambda a, b: both(lambda t, a, b: a(t) | b(t), a, b), inner, inner),
            st.builds(lambda a, b: both(lambda t, a, b: a(t) == b(t), a, b), inner, inner),
            st.builds(lambda a, b: both(lambda t, a, b: a(t) != b(t), a, b), inner, inner),
            st.builds(
                lambda a, b, c: both(lambda t, a, b, c: b(t) if a(t) else c(t), a, b, c),
                inner,
                inner,
                inner,
            ),
            st.builds(
                lambda a, b: both(lambda t, a, b: all(x(t) for x in (a, b)), a, b), inner, inner
            ),
            st.builds(
                lambda a, b: both(lambda t, a, b: any([a(t), b(t), b(t)]), a, b), inner, inner
            ),
        )

    return st.recursive(literals() | counts(), grown, max_leaves=6)


@settings(max_examples=80)
@given(programs())
def test_traced_functions_agree_with_plain_python_on_every_sequence(program):
    run, truth = program
    function = constraint(run)
    traced = function.at(LENGTH)
    for ids in sequences():
        expected = is_padded(ids) and truth(list(ids))
        assert traced.evaluate(ids, WORDS) == expected
        assert function.evaluate(ids, WORDS) == expected  # without tracing


# --- the paper's listing


def test_the_listing_of_the_paper_as_printed():
    class Tokenizer:
        @staticmethod
        def tokenize(text):
            return {" hate": [7]}[text]

    seq_len = 6

    @constraint(max_paths=seq_len + 1)
    def no_hate(tokens):
        idx = Tokenizer.tokenize(" hate")
        α = True
        for i in range(seq_len):
            α = α and not tokens(i, idx)
        return α

    expected = And(tuple(Not(Literal(i, frozenset({7}))) for i in range(seq_len)))
    assert no_hate.at(seq_len) == expected
    assert not no_hate.evaluate([1, 2, 3, 7, 4, 5]) and no_hate.evaluate([1] * 6)


def test_early_returns_take_one_path_more_than_there_are_tests():
    @constraint(max_paths=201)
    def no_five(tokens):
        return not any(one == 5 for one in tokens)

    assert len(list(no_five.at(200).leaves())) == 200
    with pytest.raises(BudgetExceeded, match="201 paths at length 201"):
        no_five.at(201)


def test_loops_without_early_return_exceed_the_budget():
    @constraint
    def twice(tokens):
        number = 0
        for one in tokens:
            if one == 5:
                number += 1
        return number == 2

    with pytest.raises(BudgetExceeded, match=r"`twice`.*10000 paths.*& \| ~.*\.sum\(\)"):
        twice.at(20)
    models = [y for y in itertools.product(range(6), repeat=3) if y.count(5) == 2]
    assert [y for y in itertools.product(range(6), repeat=3) if twice.at(3).evaluate(y)] == models


def test_answers_that_follow_open_no_path():
    @constraint(max_paths=3)
    def chain(tokens):
        if tokens[0] == 1:
            assert not tokens[0].isin([2, 3]) and tokens[0].isin([1, 2])
            return True
        assert tokens[0] != 1
        return bool(contains("a")) == bool(contains("a"))

    assert chain.at(1) == Constant(True)


# --- forms of counts


def test_sums_become_counts():
    def traced(function):
        return constraint(function).at(4)

    everywhere = (0, 1, 2, 3)
    assert traced(lambda t: (t == 5).sum() == 2) == Count(everywhere, frozenset({5}), 2, 2)
    assert traced(lambda t: sum(x == 5 for x in t) > 2) == Count(everywhere, frozenset({5}), 3)
    assert traced(lambda t: (t[1:3] != 5).sum() >= 1) == Count((1, 2), frozenset({5}), 0, 1)
    assert traced(lambda t: t.isin([5, 6]).sum() < 1) == Count(everywhere, frozenset({5, 6}), 0, 0)
    assert traced(lambda t: (t == 5).sum() <= 4) == Constant(True)
    assert traced(lambda t: 5 - (t == 5).sum() < 1) == Constant(False)
    assert traced(lambda t: (t == 5).sum()[0:0] if False else np.True_) == Constant(True)


def test_sums_of_many_different_weights_are_refused():
    @constraint
    def heavy(tokens):
        return sum(2**i * (one == 1) for i, one in enumerate(tokens)) == 77

    with pytest.raises(BudgetExceeded, match="partial sums"):
        heavy.at(40)


# --- mixing


def test_functions_are_constraints_and_can_be_called_by_others():
    @constraint
    def starts(tokens):
        """Starts with one."""
        return tokens[0] == 1

    @constraint
    def both(tokens):
        return starts(tokens) and (contains("b") | ~starts)

    assert both.at(2) == And((token(0, 1), contains("b")))
    assert (starts & ban("a")).at(2) == token(0, 1) & ban("a")
    assert starts.__name__ == "starts" and starts.__doc__ == "Starts with one."
    assert has_text(both.at(2))
    with pytest.raises(InvalidConstraint, match=r"`both`.*c\.at\(n\)"):
        has_text(both)


@constraint
def module_level(tokens):
    return tokens[0] == 1


def test_pickling_a_decorated_function():
    assert pickle.loads(pickle.dumps(module_level & ban("a"))) == module_level & ban("a")


def test_special_tokens_count_for_functions_that_speak_of_text():
    from .strategies import SPECIAL

    @constraint
    def either(tokens):
        return tokens[0] == 2 or contains("a")

    for ids in sequences(SPECIAL, 2):
        assert either.evaluate(ids, SPECIAL) == either.at(2).evaluate(ids, SPECIAL)
    assert not either.evaluate([2, 0], SPECIAL)


def test_the_view_is_a_sequence():
    @constraint
    def view(tokens):
        assert len(tokens) == 4 and len(tokens[1:]) == 3 and tokens and not tokens[4:]
        assert len(list(tokens[::-1])) == len(tokens == 1) == 4
        pairs = [(a == 1) & (b == 2) for a, b in itertools.pairwise(tokens)]
        vector = (tokens == 1) | ~(tokens != 2)
        return any(pairs) or (vector & True)[0] or tokens[::-1](0, [3, 4])

    for y in itertools.product(range(5), repeat=4):
        pairs = (1, 2) in itertools.pairwise(y)
        assert view.evaluate(y) == (pairs or y[0] in (1, 2) or y[:-3:-1] == (3, 4))


# --- errors


def test_values_that_are_not_boolean():
    for result in (None, 1, "yes", [True], 0.5):
        with pytest.raises(InvalidConstraint, match=rf"`<lambda>` returned .*{type(result).__name__}"):
            constraint(lambda tokens, result=result: result).at(2)
    with pytest.raises(InvalidConstraint, match="a count"):
        constraint(lambda tokens: (tokens == 1).sum()).at(2)
    for result in (True, np.False_, contains("a"), module_level):
        constraint(lambda tokens, result=result: result).at(2)
    with pytest.raises(InvalidConstraint, match="decorates"):
        constraint(5)


def test_reading_past_the_end():
    def far(tokens):
        return tokens[0] == 1 or tokens[5] == 1

    with pytest.raises(InvalidConstraint, match=r"`far` reads position 5 of 4 tokens"):
        constraint(far).at(4)
    with pytest.raises(InvalidConstraint, match=r"position -5 of 4"):
        constraint(lambda tokens: tokens(-5, 1)).at(4)
    assert constraint(lambda tokens: tokens(3, [1, 2])).at(4) == Constant(False)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda t: bool(t[0]), "as a truth value"),
        (lambda t: t[0] == t[1], "tokens with each other"),
        (lambda t: t[0] in {1, 2}, "isin"),
        (lambda t: t[0] == [1, 2], "isin"),
        (lambda t: t[0] == "a", "isin"),
        (lambda t: t[0] == True, "integer"),  # noqa: E712
        (lambda t: t["a"] == 1, "position"),
        (lambda t: t(0, []), "empty"),
        (lambda t: t(0, -3), "-3"),
        (lambda t: bool(t == 1), r"\.any"),
        (lambda t: (t == 1) & (t[1:] == 1), "equal slices"),
        (lambda t: (t == 1).sum() > 0.5, "0.5"),
        (lambda t: t(0, 1) == "a", "'a'"),
    ],
)
def test_misuse_is_explained(function, message):
    with pytest.raises(InvalidConstraint, match=message):
        constraint(function).at(3)


def test_errors_of_the_users_code_pass_through():
    with pytest.raises(ZeroDivisionError):
        constraint(lambda tokens: 1 // 0).at(2)
    with pytest.raises(InvalidConstraint, match="outside of"):
        constraint(lambda tokens: 1 // 0).at(2) if False else sum([token(0, 1)])


def test_functions_that_change_their_mind_are_refused():
    generator = random.Random(0)

    @constraint
    def fickle(tokens):
        return all(tokens[generator.randrange(5)] == 1 for _ in range(5))

    @constraint
    def shrinking(tokens, seen=[]):  # noqa: B006
        seen.append(0)
        return all(tokens[i] != 1 for i in range(4 - len(seen)))

    for function in (fickle, shrinking):
        with pytest.raises(InvalidConstraint, match="asked other questions"):
            function.at(5)


def test_a_failed_trace_leaves_no_trace():
    with pytest.raises(ZeroDivisionError):
        constraint(lambda tokens: tokens[0] == 1 and 1 // 0).at(2)
    with pytest.raises(InvalidConstraint, match="before the tokens are known"):
        bool(token(0, 1))
