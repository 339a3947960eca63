"""Boolean algebra of constraints: meaning, simplification, equality, walks."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from locore.compilers import compile
from locore.constraints import (
    And,
    Constant,
    Count,
    Literal,
    Not,
    Or,
    ban,
    check_vocabulary,
    conjunction,
    contains,
    contains_tokens,
    count_tokens,
    disjunction,
    from_json,
    has_text,
    if_then_else,
    token,
)
from locore.kernel.errors import InvalidArgument, InvalidConstraint
from tests.effort import THOROUGH, examples

from .strategies import SPECIAL, WORDS, constraints, is_padded, sequences

A, B, C = token(0, 1), token(1, [1, 2]), contains("ab")


def models(constraint):
    return [ids for ids in sequences() if constraint.evaluate(ids, WORDS)]


@settings(max_examples=40 if THOROUGH else 5)
@given(constraints(), constraints())
def test_operations_mean_what_they_say_on_every_sequence(a, b):
    for ids in sequences():
        padded = is_padded(ids)
        p, q = a.evaluate(ids, WORDS), b.evaluate(ids, WORDS)
        assert padded or not (p or q)
        assert (a & b).evaluate(ids, WORDS) == (p and q)
        assert (a | b).evaluate(ids, WORDS) == (p or q)
        assert (~a).evaluate(ids, WORDS) == (padded and not p)
        assert (a >> b).evaluate(ids, WORDS) == (padded and (q or not p))
        assert (a ^ b).evaluate(ids, WORDS) == (p != q)
        assert if_then_else(a, b, ~b).evaluate(ids, WORDS) == (padded and p == q)


@settings(max_examples=40 if THOROUGH else 5)
@given(constraints(), constraints())
def test_de_morgan(a, b):
    assert models(~(a & b)) == models(~a | ~b)
    assert models(~(a | b)) == models(~a & ~b)


@settings(max_examples=examples(40))
@given(constraints())
def test_smart_constructors_keep_the_meaning_of_raw_nodes(a):
    for raw in (And((a, Or((a, Constant(False))))), Or((Not(Not(a)), And(())))):
        simplified = raw.transform(lambda leaf: leaf).rebuilt(list(raw.children()))
        assert models(simplified) == models(raw)


@given(constraints())
def test_equal_by_structure_after_pickling(a):
    copy = pickle.loads(pickle.dumps(a))
    assert copy == a and hash(copy) == hash(a)
    assert a.at(3).bind(WORDS) == copy.at(3).bind(WORDS)


def test_the_hash_of_a_string_does_not_travel_between_processes():
    hash(C)
    code = (
        "import pickle, sys; from locore.constraints import contains;"
        "c = pickle.load(sys.stdin.buffer); assert {c: 1}[contains('ab')] == 1"
    )
    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(C), check=True)


def test_flattened_in_the_users_order_without_repetitions():
    assert A & B & C == And((A, B, C)) == conjunction([A, And((B, A)), C])
    assert (C | A) | (B | A) == Or((C, A, B)) == disjunction([C, A, B])
    assert list((C & ~A & B).leaves()) == [C, A, B]
    assert list((A & (A | B)).leaves()) == [A, B]


def test_constants_and_contradictions_resolve():
    yes, no = Constant(True), Constant(False)
    assert A & True == A == A | False == np.True_ & A == ~~A == A & A
    assert A & no == no == A & ~A and A | yes == yes == A | ~A
    assert (A >> no, True >> A, A ^ True) == (~A, A, ~A)
    assert conjunction([]) == yes and disjunction([]) == no
    assert if_then_else(A, B, B) == B and token(0, []) == no


def test_no_truth_value_and_no_arithmetic_outside_a_function():
    with pytest.raises(InvalidConstraint, match=r"& \| ~ >>.*@constraint"):
        bool(A)
    with pytest.raises(InvalidConstraint, match="@constraint"):
        _ = A and B
    with pytest.raises(InvalidConstraint, match="count_tokens"):
        sum([A, B])
    with pytest.raises(TypeError):
        A & "text"


def test_positions_and_ids_are_checked():
    with pytest.raises(InvalidConstraint, match=r"position 3 .* 3 tokens"):
        (A | token(3, 1)).at(3)
    with pytest.raises(InvalidConstraint, match=r"position 2 .* 2 tokens"):
        count_tokens(1, [0, 2]).at(2)
    with pytest.raises(InvalidConstraint, match="position 1"):
        token(1, 1).evaluate([0], WORDS)
    with pytest.raises(InvalidArgument, match="length"):
        A.at(0)
    with pytest.raises(InvalidArgument, match="token 9 at position 1"):
        A.evaluate([0, 9], WORDS)
    for constraint in (token(0, 9), count_tokens(9, [0]), ~contains_tokens([[1, 9]])):
        check_vocabulary(constraint, 10)
        with pytest.raises(InvalidConstraint, match=r"token id 9 .* 9 tokens"):
            check_vocabulary(constraint, 9)


@pytest.mark.parametrize("wrong", ["a", True, 1.5, None, [1, "b"], -1, [np.True_]])
def test_what_is_no_token_id(wrong):
    with pytest.raises(InvalidConstraint, match="token"):
        token(0, wrong)


def test_token_ids_of_numpy():
    assert token(np.int64(1), np.array([2, 3])) == Literal(1, frozenset({2, 3}))
    assert token(0, np.int32(2)) == token(0, 2)


def test_wrong_counts_and_sequences():
    for arguments in ((1, [0, 0]), (1, [-1]), (1, 0), (1, [0], "2"), (1, [0], 0, 1.5)):
        with pytest.raises(InvalidConstraint, match="count_tokens"):
            count_tokens(*arguments)
    for sequences_ in ([], [[]], [5, 6], 5, [["a"]]):
        with pytest.raises(InvalidConstraint, match="contains_tokens"):
            contains_tokens(sequences_)
    assert count_tokens(1, [0, 1], at_most=1) == Count((0, 1), frozenset({1}), 0, 1)


def test_text_leaves_forbid_special_tokens_once_for_the_whole_expression():
    a, special, eos = 0, 2, 4
    assert not has_text(A) and has_text(A | ~C)
    assert token(0, special).evaluate([special, a, eos], SPECIAL)
    for constraint in (C, ~C, token(0, special) | C, ban("b") & token(0, special)):
        assert not constraint.evaluate([special, a, eos], SPECIAL)
    assert (~C).evaluate([a, eos, eos], SPECIAL)


@pytest.mark.parametrize(
    "always",
    [
        lambda text: A | ~A | text,
        lambda text: text | ~text,
        lambda text: Constant(True) | text,
        lambda text: text | (A >> A),
        lambda text: (A & ~A & text) | B | ~B,
        lambda text: ~(A & ~A & text),
        lambda text: if_then_else(text, Constant(True), Constant(True)),
    ],
)
def test_simplification_keeps_the_rule_on_special_tokens(always):
    """Each of them is always true, and speaks about text: what it allows are the sequences without a special token."""
    expression, length = always(contains("c")), 2
    traced = expression.at(length)
    circuit = compile(traced, SPECIAL, length)
    every = list(itertools.product(range(SPECIAL.vocab_size), repeat=length))
    either = contains("c"), ~contains("c")
    plain = {y for y in every if any(one.evaluate(y, SPECIAL) for one in either)}
    assert 0 < len(plain) < sum(Constant(True).evaluate(y, SPECIAL) for y in every)
    assert {y for y in every if traced.evaluate(y, SPECIAL)} == plain
    assert {y for y in every if bool(circuit.accepts(torch.tensor([y]))[0])} == plain
    assert from_json(traced.to_json()).at(length) == traced


def test_only_padding_follows_the_end():
    for constraint in (Constant(True), ~C, ~token(0, 1)):
        assert constraint.evaluate([0, 3, 4], SPECIAL)  # any end, then the padding
        assert not constraint.evaluate([0, 4, 3], SPECIAL)
        assert not constraint.evaluate([0, 4, 0], SPECIAL)


def test_text_needs_a_tokenizer_and_tokens_do_not():
    assert token(0, 7).evaluate([7, 7])
    with pytest.raises(InvalidConstraint, match="tokenizer"):
        C.evaluate([0, 1])


def test_deep_and_shared_expressions_are_walked_in_linear_time():
    def parity():
        odd = Constant(False)
        for position in range(150):
            odd = odd ^ token(position, 1)
        return odd

    odd, again = parity(), parity()
    assert odd.evaluate([1] * 149 + [0]) and not odd.evaluate([1] * 150)
    assert odd == again and odd.at(150) is odd and len(list(odd.leaves())) == 150
    assert len(repr(odd)) < 2000
    with pytest.raises(InvalidConstraint, match="JSON"):
        odd.to_json()


def test_importing_constraints_does_not_import_torch():
    code = "import sys, locore.constraints; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_to_join_has_a_name():
    assert (repr(And(())), repr(Or(()))) == ("And()", "Or()")
