"""Reasons of an unsatisfiable constraint: small conflicts, checked by enumeration."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from locore.compilers.conflict import conflict_of
from locore.constraints import ban, char_count, choice, conjunction, contains, ends_with, starts_with, token, word_count
from locore.kernel.compilers.problem import Problem
from locore.kernel.errors import BudgetExceeded, Unsatisfiable
from locore.kernel.limits import Limits
from locore.kernel.tokenizer import Tokenizer
from tests.effort import examples

TOKENIZER = Tokenizer.from_tokens([b"a", b"b", b" a", None], eos_ids=[3])
WORDS = st.text("ab ", min_size=1, max_size=2)
LEAVES = st.one_of(
    st.builds(ban, st.lists(WORDS, min_size=1, max_size=3)),
    st.builds(contains, WORDS),
    st.builds(ends_with, WORDS),
    st.builds(starts_with, WORDS),
    st.builds(token, st.integers(0, 1), st.sets(st.integers(0, 3), min_size=1)),
    st.builds(lambda low: word_count(low), st.integers(1, 3)),
    st.builds(lambda a, b: ~(a | b), st.builds(contains, WORDS), st.builds(ends_with, WORDS)),
)


def has_model(problem: Problem) -> bool:
    """By enumeration."""
    sequences = itertools.product(range(problem.tokenizer.vocab_size), repeat=problem.length)
    eos = problem.tokenizer.eos_ids
    return any(
        problem.constraint.evaluate(ids, problem.tokenizer)
        for ids in sequences
        if all(token not in eos for token in ids[: problem.min_length])
    )


def solve(problem: Problem) -> None:
    if problem.length > 5:
        raise BudgetExceeded("too long to enumerate")
    if not has_model(problem):
        raise Unsatisfiable("nothing")


def problem_of(constraint, length=2, min_length=0) -> Problem:
    return Problem(constraint, TOKENIZER, length, min_length, Limits(states=1000))


@settings(max_examples=examples(60))
@given(st.lists(LEAVES, min_size=1, max_size=5), st.integers(0, 2))
def test_conflicts_have_no_model_and_nothing_to_spare(parts, min_length):
    problem = problem_of(conjunction(parts), min_length=min_length)
    assume(not has_model(problem))
    found = conflict_of(problem, solve, seconds=60)
    small = replace(problem, constraint=conjunction(found.parts), min_length=found.min_length)
    assert found.minimal
    assert not has_model(small)
    for left_out in range(len(found.parts)):
        rest = found.parts[:left_out] + found.parts[left_out + 1 :]
        assert not rest or has_model(replace(small, constraint=conjunction(rest)))
    if found.min_length:
        assert has_model(replace(small, min_length=0))
    if found.enough is not None and found.enough <= 5:
        assert has_model(replace(small, length=found.enough))
        assert not found.at_least or not has_model(replace(small, length=found.enough - 1))


def test_a_banned_phrase_is_named_alone():
    found = conflict_of(problem_of(contains("ab") & ban(["x", "b", "y"]) & word_count(1)), solve)
    assert set(found.parts) == {contains("ab"), ban("b")}
    assert (
        str(found)
        == 'contains("ab") and ban(["b"]) cannot hold together, nor would it help to have 4 tokens; weaken one of them.'
    )


@pytest.mark.parametrize(
    ("constraint", "length", "min_length", "message"),
    [
        (contains("abab"), 2, 0, 'contains("abab") cannot hold in 2 tokens; ask for at least 4 tokens, or weaken it'),
        (choice("a"), 2, 2, 'choice(["a"]) and at least 2 tokens cannot hold together'),
        (token(0, 1) & token(0, 2), 2, 0, "token(position=0, in=[1]) and token(position=0, in=[2]) cannot hold together in 2"),
        (~(contains("a") | contains("b")) & contains("b"), 1, 0, 'not contains("b") and contains("b") cannot hold'),
    ],
)
def test_messages(constraint, length, min_length, message):
    problem = problem_of(constraint, length, min_length)
    assert message in str(conflict_of(problem, solve))


def test_what_the_budget_does_not_allow_is_said():
    constraint = conjunction(contains(word) for word in ("aa", "bb", "a", "b"))
    found = conflict_of(problem_of(constraint), solve, seconds=0)
    assert not found.minimal
    assert len(found.parts) == 4
    assert "nor perhaps some of these" in str(found)

    def hopeless(problem: Problem) -> None:
        raise BudgetExceeded("always")

    assert not conflict_of(problem_of(char_count(0, 1) & contains("ab")), hopeless).minimal
