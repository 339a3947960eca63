"""Circuits for any vtree: the same models as left to right, and small where left to right is large."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from locore.compilers import compile
from locore.constraints import Constant, Count, Literal, contains
from locore.kernel.errors import BudgetExceeded, InvalidArgument, InvalidConstraint, Unsatisfiable
from locore.kernel.tokenizer import Tokenizer
from locore.puzzles.sdd.diagrams import run_pysdd
from locore.testing import check
from tests.effort import THOROUGH, examples

from ..circuits import brute_force

pytest.importorskip("pysdd")
ENDS = Tokenizer.integers(4, eos_ids=(3, 2))


def vtrees(positions):
    """Random binary trees over the positions, in random order."""
    if len(positions) == 1:
        return st.just(positions[0])
    cut = st.integers(1, len(positions) - 1)
    return cut.flatmap(lambda k: st.tuples(vtrees(positions[:k]), vtrees(positions[k:])))


@st.composite
def formulas(draw, length, vocab_size):
    def leaf():
        tokens = draw(st.frozensets(st.integers(0, vocab_size - 1), min_size=1, max_size=vocab_size))
        if draw(st.booleans()):
            return Literal(draw(st.integers(0, length - 1)), tokens)
        where = draw(st.sets(st.integers(0, length - 1), min_size=1))
        return Count(tuple(sorted(where)), tokens, draw(st.integers(0, 2)), draw(st.none() | st.integers(0, 2)))

    result = leaf()
    for _ in range(draw(st.integers(0, 3))):
        other = leaf()
        result = draw(st.sampled_from([result & other, result | other, ~result, result ^ other]))
    return result


@settings(max_examples=examples(40), deadline=None)
@given(st.data(), st.sampled_from([3, ENDS]))
def test_any_vtree_has_the_models_of_the_left_to_right_circuit(data, target):
    length, vocab_size = 4, 3 if target == 3 else 4
    alpha = data.draw(formulas(length, vocab_size))
    vtree = data.draw(st.permutations(range(length)).flatmap(vtrees))
    try:
        plain = compile(alpha, target, length, min_length=1)
    except Unsatisfiable:
        with pytest.raises(Unsatisfiable):
            compile(alpha, target, length, min_length=1, vtree=vtree)
        return
    circuit = compile(alpha, target, length, min_length=1, vtree=vtree)
    check(circuit, num_models=16)
    assert circuit.count() == plain.count()
    log_probs = brute_force.random_log_probs(2, length, vocab_size, seed=0, zeros=0.1)
    torch.testing.assert_close(circuit.log_mass(log_probs), plain.log_mass(log_probs))
    every = brute_force.all_sequences(vocab_size, length)
    assert torch.equal(circuit.accepts(every), plain.accepts(every))


def halves(length):
    """y_i is 1 exactly if y_{i + n/2} is."""
    alpha = Constant(True)
    for i in range(length // 2):
        first, second = Literal(i, frozenset({1})), Literal(i + length // 2, frozenset({1}))
        alpha = alpha & ~(first ^ second)
    return alpha


def pairs_vtree(length):
    vtree = None
    for i in reversed(range(length // 2)):
        pair = (i, i + length // 2)
        vtree = pair if vtree is None else (pair, vtree)
    return vtree


def test_equality_of_halves_is_small_with_the_right_vtree():
    """The paper's claim of succinctness (its Section 3.3): exponential left to right, linear over pairs."""
    sizes = [compile(halves(n), 2, n).num_nodes for n in (8, 12, 16)]
    assert sizes[1] > 3 * sizes[0] and sizes[2] > 3 * sizes[1]
    circuit = compile(halves(24), 2, 24, vtree=pairs_vtree(24))
    check(circuit)
    assert circuit.count() == 2**12 and circuit.num_nodes < 100


def told_hidden_bit(n):
    """x of weight c hides x_c; each case (c, x_c) has a variable z, and the z of x's own case holds. Bits x, then z."""
    alpha, positions, one = Constant(False), n, frozenset({1})
    for weight in range(n + 1):
        for hidden in (False, True) if weight else (False,):
            bit = Literal(weight - 1, one) if weight else Constant(False)
            alpha |= Count(tuple(range(n)), one, weight, weight) & (bit if hidden else ~bit) & Literal(positions, one)
            positions += 1
    return alpha, positions


def right_linear(positions):
    *before, tree = positions
    for position in reversed(before):
        tree = (position, tree)
    return tree


def test_the_told_hidden_bit_is_small_for_a_vtree_and_large_left_to_right():
    """A function in the manner of Bova (AAAI 2016), whose ordered diagrams are exponential whatever the order."""
    sizes = {}
    small, large = (16, 20) if THOROUGH else (12, 16)
    for n in (8, small, large):
        alpha, length = told_hidden_bit(n)
        circuit = compile(alpha, 2, length, vtree=(right_linear(range(n)), right_linear(range(n, length))))
        plain = compile(alpha, 2, length)
        assert circuit.count() == plain.count() == 2 ** (3 * n)  # whatever x is, one z of 2n + 1 is decided
        sizes[n] = circuit.num_nodes, plain.num_nodes
    check(circuit)
    grown = [after / before for before, after in zip(sizes[small], sizes[large], strict=True)]
    assert grown[0] < (large / small) ** 3 < 2.5 < grown[1]


@pytest.mark.parametrize(
    ("alpha", "vtree", "error", "words"),
    [
        (Literal(0, frozenset({1})), (0, 1), InvalidArgument, "each position"),
        (Literal(0, frozenset({1})), (0, (1, 1)), InvalidArgument, "each position"),
        (Literal(0, frozenset({1})), (0, 1, 2), InvalidArgument, "pair"),
        (Literal(0, frozenset({1})) & Literal(0, frozenset({0})), (0, (1, 2)), Unsatisfiable, "no sequence"),
    ],
)
def test_bad_vtrees_are_named(alpha, vtree, error, words):
    with pytest.raises(error, match=words):
        compile(alpha, 3, 3, vtree=vtree)


def test_text_has_no_vtree():
    tokenizer = Tokenizer.from_tokens([b"a", b"b"])
    with pytest.raises(InvalidConstraint, match="left to right"):
        compile(contains("ab"), tokenizer, 2, vtree=(0, 1))


def test_a_deadline_ends_what_cannot_be_interrupted():
    formula = [["lit", 1]]
    with pytest.raises(BudgetExceeded, match="did not finish"):
        run_pysdd(formula, ["vtree 1", "L 0 1"], deadline=0.001)


def test_a_crash_is_an_error_and_not_the_end_of_the_process():
    with pytest.raises(BudgetExceeded, match="failed"):
        run_pysdd([["lit", 99]], ["vtree 1", "L 0 1"], deadline=30)
