"""Drawings of circuits say the same as the circuits."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import locore
from locore import Tokenizer, choice, compile, token
from locore.circuits import reached
from locore.circuits.draw import SHOWN_NODES, gates_of
from locore.constraints import Constant, conjunction, disjunction, negation
from locore.kernel.constraints.structure import postorder
from locore.kernel.errors import BudgetExceeded, InvalidArgument, Unsatisfiable
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
    gates, root = gates_of(circuit.chain)
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
    dot = circuit.dot(words)
    assert count(circuit) == circuit.count() == 2
    for spelled in (r"\"I\"", r"\" say\"", r"\"\\\\\"", r"\"\\n\"", "end of text"):
        assert spelled in dot
    assert_graphviz(dot)


def test_sets_are_spelled_by_the_smaller_side():
    circuit = compile(token(0, [1, 2]) & negation(token(1, 3)), 5, 3)
    dot = circuit.dot()
    for label in ("y[0]: token 1, token 2", "y[1]: any but token 3", "y[2]: any token"):
        assert f'"{label}"' in dot
    assert_graphviz(dot)


def test_long_sets_are_shortened():
    assert "token 5 and 14 more" in compile(token(0, range(20)), 50, 1).dot()


def test_large_circuits_are_refused():
    with pytest.raises(BudgetExceeded, match=r"nodes, too many for a drawing \(at most 400\).*fewer tokens"):
        compile(Constant(True), 3, 500).dot()
    with pytest.raises(InvalidArgument, match="5 tokens, the tokenizer has 3"):
        compile(Constant(True), 5, 2).dot(Tokenizer.integers(3))


def test_what_is_read_on_demand_is_drawn_where_it_is_small(monkeypatch):
    lists = locore.grammar('start: "(" start ")" | "b"')
    tokens = Tokenizer.from_tokens(["(", ")", "b"])
    circuit = compile(lists, tokens, 5)
    assert count(circuit) == circuit.count() == 1 and "svg" in circuit._repr_svg_()
    monkeypatch.setattr(reached, "MOST_STATES", 4)
    circuit = compile(lists, tokens, 5)
    assert circuit._repr_svg_() is None
    with pytest.raises(BudgetExceeded, match="no mass, count, drawing"):
        circuit.dot()


def shown(svg: str) -> tuple[Counter[str], int]:
    """How often each label is shown, and how many lines; well-formed, nothing loaded, all boxes inside and apart."""
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    boxes = [[float(box.attrib[name]) for name in ("x", "y", "width", "height")] for box in root.iter(f"{space}rect")]
    for x, y, w, h in boxes:
        assert left <= x and top <= y and x + w <= left + width and y + h <= top + height
    for one, other in itertools.combinations(boxes, 2):
        assert one[1] != other[1] or one[0] + one[2] <= other[0] or other[0] + other[2] <= one[0]
    assert "href" not in svg and "<script" not in svg
    return Counter(title.text or "" for title in root.iter(f"{space}title")), len(list(root.iter(f"{space}line")))


@settings(max_examples=examples(60), deadline=None)
@given(formulas)
def test_a_notebook_shows_the_boxes_of_the_drawing(formula):
    """As many boxes and lines, with the same labels, as for Graphviz; of the circuit, and of the formula."""
    try:
        circuit = compile(formula, VOCAB, LENGTH)
    except Unsatisfiable:
        return
    svg, dot = circuit._repr_svg_(), circuit.dot()
    if svg is None:
        assert circuit.num_nodes > SHOWN_NODES
    else:
        labels, lines = shown(svg)
        assert labels == Counter(re.findall(r'\[label="([^"]*)"', dot)) and lines == dot.count(" -> ")
    if formula.children():
        labels, _ = shown(formula._repr_svg_())
        parts = set(postorder(formula))
        assert sum(labels.values()) == len(parts)
        assert all(labels[leaf.label] for leaf in formula.leaves())
    else:
        assert formula._repr_svg_() is None


def test_a_python_function_is_shown_as_what_it_computes():
    @locore.constraint
    def careful(tokens):
        return tokens[0] == 1 and not any(token == 2 for token in tokens[1:])

    labels, _ = shown(careful._repr_svg_())
    assert labels["careful, of 4 tokens"] == labels["AND"] == 1
    assert all(labels[said] == 1 for said in ("y[0]: token 1", "y[1]: token 2", "y[2]: token 2", "y[3]: token 2"))
    assert shown(careful.at(6)._repr_svg_())[0].total() > labels.total() - 1

    @locore.constraint
    def far(tokens):
        return tokens[11] == 1

    assert shown(far._repr_svg_())[0]["far, of 16 tokens"] == 1

    @locore.constraint
    def never(tokens):
        return tokens[99] == 1

    assert never._repr_svg_() is None


def test_labels_are_text():
    labels, _ = shown((locore.ban(["<script>&\"'"]) & locore.contains("ok"))._repr_svg_())
    assert any("<script>" in label for label in labels)


def assert_graphviz(dot: str) -> None:
    """Every line is one that Graphviz knows, and every edge joins nodes that are declared."""
    head, *lines, last = dot.strip().split("\n")
    assert (head, last) == ("digraph circuit {", "}")
    nodes = {match[1] for line in lines if (match := re.fullmatch(r'  (n\d+) \[label="(?:[^"\\]|\\.)*", [^"]*\];', line))}
    edges = [match.groups() for line in lines if (match := re.fullmatch(r"  (n\d+) -> (n\d+);", line))]
    assert len(lines) == 1 + len(nodes) + len(edges)
    assert all(end in nodes for edge in edges for end in edge)
