"""Python functions as constraints: tracing agrees with plain Python on every sequence."""

from __future__ import annotations

import itertools
import pickle

import pytest
from hypothesis import given, settings

from locore.constraints import And, Constant, Count, Literal, Not, ban, constraint, contains, has_text, token
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.errors import BudgetExceeded, InvalidConstraint
from tests.effort import THOROUGH, examples

from .programs import programs
from .strategies import LENGTH, SPECIAL, WORDS, is_padded, sequences


@settings(max_examples=examples(80))
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
    @constraint(max_paths=61)
    def no_five(tokens):
        return not any(one == 5 for one in tokens)

    assert len(list(no_five.at(60).leaves())) == 60
    with pytest.raises(BudgetExceeded, match="61 paths at length 61"):
        no_five.at(61)


def test_loops_without_early_return_exceed_the_budget():
    @constraint(max_paths=500)
    def twice(tokens):
        number = 0
        for one in tokens:
            if one == 5:
                number += 1
        return number == 2

    with pytest.raises(BudgetExceeded, match=r"`twice`.*500 paths.*& \| ~.*\.sum\(\)"):
        twice.at(10)
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

    found = chain.at(1)
    assert has_text(found)  # which is all that is left of the text
    assert all(found.truth(TokenSequence([i], WORDS)) for i in range(WORDS.vocab_size))


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


def test_single_conditions_are_numbers_too():
    @constraint
    def arithmetic(tokens):
        a, b = tokens[0] == 1, tokens[1] == 2
        return 1 - a + 2 * b - b >= 1 and int(a) + 1 == 2 - (a == 0)

    for y in itertools.product(range(3), repeat=2):
        p, q = y[0] == 1, y[1] == 2
        expected = 1 - p + q >= 1 and p + 1 == 2 - (not p)
        assert arithmetic.evaluate(y) == arithmetic.at(2).evaluate(y) == expected


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

    text_or_other = contains("b") | ~token(0, 1)
    assert both.at(2) == token(0, 1) & text_or_other
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

    for y in itertools.islice(itertools.product(range(5), repeat=4), 0, None, 1 if THOROUGH else 7):
        pairs = (1, 2) in itertools.pairwise(y)
        assert view.evaluate(y) == (pairs or y[0] in (1, 2) or y[:-3:-1] == (3, 4))
