"""Drawings of circuits say the same as the circuits."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locore import Tokenizer, choice, compile, token
from locore.circuits.draw import gates_of, to_dot
from locore.constraints import Constant, conjunction, disjunction, negation
from locore.errors import BudgetExceeded, InvalidArgument, Unsatisfiable
from tests.effort import examples

VOCAB, LENGTH = 5, 4
literals = st.builds(token, st.integers(0, LENGTH - 1), st.sets(st.integers(0, VOCAB - 1), min_size=1, max_size=3))
formulas = st.recursive(
    literals,
    lambda inner: st.lists(inner, min_size=2, max_size=3).flatmap(
        lambda parts: st.sampled_from([conjunction(parts), disjunction(parts), negation(parts[0])])
    ),
    max_leaves=8,
)


def count(circuit) -> int:
    """Models of the drawn gates: sums at OR, products at AND, numbers of tokens at leaves."""
    gates, root = gates_of(circuit)
    sizes = circuit.token_class.bincount().tolist()
    values = []
    for gate in gates:
        below = [values[child] for child in gate.children]
        product = 1
        for value in below:
            product *= value
        leaf = sum(sizes[number] for number in gate.classes)
        values.append({"or": sum(below), "and": product, "leaf": leaf, "true": 1, "false": 0}[gate.kind])
    return values[root]


@settings(max_examples=examples(60), deadline=None)
@given(formulas)
def test_a_drawing_has_the_models_of_its_circuit(formula):
    try:
        circuit = compile(formula, VOCAB, LENGTH)
    except Unsatisfiable:
        return
    assert count(circuit) == circuit.count()


def test_a_drawing_spells_its_tokens():
    words = Tokenizer.from_tokens(["I", " say", ' "', "\\", "\n", "end"], eos_ids=[5])
    circuit = compile(choice(["I say", "I\\\n"]), words, 3)
    dot = to_dot(circuit, words)
    assert count(circuit) == circuit.count() == 2
    for spelled in (r"\"I\"", r"\" say\"", r"\"\\\\\"", r"\"\\n\"", "end of text"):
        assert spelled in dot
    assert_graphviz(dot)


def test_sets_are_spelled_by_the_smaller_side():
    circuit = compile(token(0, [1, 2]) & negation(token(1, 3)), 5, 3)
    dot = to_dot(circuit)
    for label in ("y[0]: token 1, token 2", "y[1]: any but token 3", "y[2]: any token"):
        assert f'"{label}"' in dot
    assert_graphviz(dot)


def test_long_sets_are_shortened():
    assert "token 5 and 14 more" in to_dot(compile(token(0, range(20)), 50, 1))


def test_large_circuits_are_refused():
    with pytest.raises(BudgetExceeded, match=r"nodes, too many for a drawing \(at most 400\).*fewer tokens"):
        to_dot(compile(Constant(True), 3, 500))
    with pytest.raises(InvalidArgument, match="5 tokens, the tokenizer has 3"):
        to_dot(compile(Constant(True), 5, 2), Tokenizer.integers(3))


def assert_graphviz(dot: str) -> None:
    """Every line is one that Graphviz knows, and every edge joins nodes that are declared."""
    head, *lines, last = dot.strip().split("\n")
    assert (head, last) == ("digraph circuit {", "}")
    nodes = {match[1] for line in lines if (match := re.fullmatch(r'  (n\d+) \[label="(?:[^"\\]|\\.)*", [^"]*\];', line))}
    edges = [match.groups() for line in lines if (match := re.fullmatch(r"  (n\d+) -> (n\d+);", line))]
    assert len(lines) == 1 + len(nodes) + len(edges)
    assert all(end in nodes for edge in edges for end in edge)
