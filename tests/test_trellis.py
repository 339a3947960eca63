"""A trellis has the models of its circuit as its paths."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from locore import Tokenizer, choice, compile, regex, token
from locore.circuits.draw import trellis_of
from locore.kernel.errors import BudgetExceeded, InvalidArgument, Unsatisfiable
from tests.effort import examples
from tests.test_draw import LENGTH, VOCAB, formulas


def paths(circuit) -> int:
    """Paths through the trellis, each arc as often as it has tokens."""
    trellis, sizes = trellis_of(circuit), circuit.token_class.bincount().tolist()
    ways = dict.fromkeys(trellis.columns[0], 1)
    for column, arcs in zip(trellis.columns[1:], trellis.arcs, strict=True):
        ways = {
            state: sum(ways[arc.source] * sum(sizes[c] for c in arc.classes) for arc in arcs if arc.target == state)
            for state in column
        }
    return sum(ways.values())


@settings(max_examples=examples(60), deadline=None)
@given(formulas)
def test_the_paths_are_the_models(formula):
    try:
        circuit = compile(formula, VOCAB, LENGTH)
    except Unsatisfiable:
        return
    assert paths(circuit) == circuit.count()
    trellis = trellis_of(circuit)
    for arcs in trellis.arcs:
        assert len({(arc.source, arc.target) for arc in arcs}) == len(arcs)


def test_a_text_has_a_trellis_too():
    words = Tokenizer.from_tokens(["a", "b", "ab", "end"], eos_ids=[3])
    circuit = compile(choice(["ab", "abab"]) | regex("b*"), words, 4)
    assert paths(circuit) == circuit.count()


def test_what_is_too_large_is_refused():
    circuit = compile(choice(["ab", "ba"]), Tokenizer.from_tokens(["a", "b", "end"], eos_ids=[2]), 3)
    size = sum(map(len, trellis_of(circuit).arcs))
    assert sum(map(len, trellis_of(circuit, max_arcs=size).arcs)) == size
    with pytest.raises(BudgetExceeded, match="arcs"):
        trellis_of(circuit, max_arcs=size - 1)


def test_without_a_reading_there_is_none():
    pytest.importorskip("pysdd", reason="needs the extra sdd")
    circuit = compile(token(0, 1) | token(2, 1), VOCAB, LENGTH, vtree=[[0, 2], [1, 3]])
    with pytest.raises(InvalidArgument, match="left to right"):
        trellis_of(circuit)
