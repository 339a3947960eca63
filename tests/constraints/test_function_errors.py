"""Python functions that are no constraints: each error says what was wrong and what to do."""

from __future__ import annotations

import copy
import json
import math
import random

import numpy as np
import pytest

from locore.constraints import Constant, constraint, contains, token
from locore.kernel.errors import InvalidConstraint
from locore.kernel.tokenizer import Tokenizer


def test_values_that_are_not_boolean():
    for result in (None, 1, "yes", [True], 0.5):
        with pytest.raises(InvalidConstraint, match=rf"`<lambda>` returned .*{type(result).__name__}"):
            constraint(lambda tokens, result=result: result).at(2)
    with pytest.raises(InvalidConstraint, match="a count"):
        constraint(lambda tokens: (tokens == 1).sum()).at(2)
    for result in (True, np.False_, contains("a"), token(0, 1)):
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
        (lambda t: t[0] == "a", r"ids; take them from model\.tokenizer\.encode"),
        (lambda t: bytes([int(t[0])]) == b"a", "as a number.*contains, regex"),
        (lambda t: [False, True][t[0]], "as a number"),
        (lambda t: t[0] > 5, "orders.*isin"),
        (lambda t: t[0] <= 5, "orders.*isin"),
        (lambda t: t[0] == True, "integer"),  # noqa: E712
        (lambda t: t["a"] == 1, "position"),
        (lambda t: t(0, []), "empty"),
        (lambda t: t(0, -3), "-3"),
        (lambda t: bool(t == 1), r"\.any"),
        (lambda t: (t == 1) & (t[1:] == 1), "equal slices"),
        (lambda t: (t == 1).sum() > 0.5, "0.5"),
        (lambda t: t(0, 1) == "a", "'a'"),
        (lambda text: len(text.split()) < 3, r"asks the tokens for \.split.*token ids, not a text.*contains, ban, regex"),
        (lambda text: text.lower().startswith("a"), r"\.lower"),
        (lambda text: "a" in str(text), r"as a string.*token ids, not a text"),
        (lambda text: f"{text}" == "a", "as a string"),
        (lambda text: text[0].isalpha(), r"one token for \.isalpha"),
        (lambda text: str(text[0]) == "a", "one token as a string"),
    ],
)
def test_misuse_is_explained(function, message):
    with pytest.raises(InvalidConstraint, match=message):
        constraint(function).at(3)


def test_misuse_is_explained_when_finished_tokens_are_read():
    """By the plain reading, too: no circuit comes first."""
    with pytest.raises(InvalidConstraint, match="not a text"):
        constraint(lambda text: text.endswith("a")).evaluate([1, 2], Tokenizer.integers(3))


def test_the_tokens_answer_the_protocols_of_python():
    """What asks first whether something is there gets an answer."""

    def plain(tokens):
        assert not hasattr(tokens, "text")
        assert getattr(tokens[0], "text", None) is None
        assert "TokensView" in repr(tokens)
        assert copy.copy(tokens)[0] is not None
        return tokens[0] == 1

    assert constraint(plain).at(2) == token(0, 1).at(2)


def test_errors_of_the_users_code_are_named_and_kept_as_the_cause():
    @constraint
    def divides(tokens):
        return 1 // 0

    with pytest.raises(InvalidConstraint, match=r"`divides` raised ZeroDivisionError: .* \(at 2 tokens\)") as raised:
        divides.at(2)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    tokenizer = Tokenizer.from_tokens(["a", "b", None], eos_ids=[2])
    for tokens, known, where in [([0, 1, 2], tokenizer, r"the text 'ab'"), ([0, 1], None, r"the tokens \[0, 1\]")]:
        asked = iter([True])  # when it is traced, and then no more

        @constraint
        def ends(tokens, asked=asked):
            return next(asked)

        with pytest.raises(InvalidConstraint, match=rf"`ends` raised StopIteration: .*\(on {where}\)"):
            ends.evaluate(tokens, known)


SLIPS = [
    lambda tokens: sum(tokens) < 9,
    lambda tokens: tokens[0] + 1 == 3,
    lambda tokens: 2 - tokens[0],
    lambda tokens: tokens[0] % 2 == 0,
    lambda tokens: 2 ** tokens[0] > 3,
    lambda tokens: -tokens[0] < 2,
    lambda tokens: abs(tokens[0]) < 2,
    lambda tokens: float(tokens[0]) < 2,
    lambda tokens: tokens[0] // tokens[1] == 1,
    lambda tokens: max(tokens) == 2,
    lambda tokens: sorted(tokens) == tokens,
    lambda tokens: {1, 2} & set(tokens),
    lambda tokens: tokens[0] in {1, 2},
    lambda tokens: [1, 2][tokens[0]] == 1,
    lambda tokens: range(tokens[0]),
    lambda tokens: tokens + 1,
    lambda tokens: tokens["a"] == 1,
    lambda tokens: tokens[0][0] == 1,
    lambda tokens: tokens[0] @ tokens[1],
    lambda tokens: tokens[0] << 1,
    lambda tokens: tokens.undefined,
    lambda tokens: math.exp(tokens[0]) < 2,
    lambda tokens: round(tokens[0]) == 2,
    lambda tokens: undefined,  # noqa: F821
    lambda tokens: json.loads(tokens),
    lambda tokens: None,
    lambda tokens: len(tokens),
    lambda: True,
]


@pytest.mark.parametrize("number", range(len(SLIPS)))
def test_slips_end_in_an_error_that_names_the_function(number):
    """Whatever Python itself would say of them, before the tokens are known and afterwards."""
    function = SLIPS[number]
    for ask in (lambda c: c.at(3), lambda c: c.evaluate([0, 1, 2], None)):
        with pytest.raises(InvalidConstraint, match="`<lambda>`"):
            ask(constraint(function))


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
    with pytest.raises(InvalidConstraint, match="ZeroDivisionError"):
        constraint(lambda tokens: tokens[0] == 1 and 1 // 0).at(2)
    with pytest.raises(InvalidConstraint, match="before the tokens are known"):
        bool(token(0, 1))
