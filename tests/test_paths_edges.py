"""Simple paths over edge indicators: counts that are known, brute force on random graphs, and bad input."""

from __future__ import annotations

import itertools
import json
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import locore
from locore.compilers.compile import compile_and_tell
from locore.compilers.stored import forget
from locore.constraints import Literal
from locore.kernel.errors import BudgetExceeded, InvalidConstraint, Unsatisfiable
from locore.kernel.tokenizer import Tokenizer
from locore.models import TableModel
from locore.puzzles.paths import SimplePath
from locore.puzzles.paths.frontier import Frontier, _distinct, path_layers
from locore.testing import check
from tests.circuits import brute_force
from tests.effort import examples
from tests.paths import all_paths, graphs

DIGITS = Tokenizer.from_tokens(["0", "1", "x", None, None], eos_ids=[3, 4])


def corner_path(rows, columns, neighbours=4):
    """The path of a grid from its upper left to its lower right cell, and how many edges there are."""
    edges = locore.grid(rows, columns, neighbours)
    return locore.simple_path(edges, (0, 0), (rows - 1, columns - 1)), len(edges)


def compiled(path, length, target=2, **options):
    return locore.compile(path, target, length, use_cache=False, **options)


# OEIS A007764 (rook's moves) and A140518 (king's moves).
@pytest.mark.parametrize(
    ("neighbours", "counts"), [(4, [2, 12, 184, 8512, 1262816, 575780564, 789360053252]), (8, [5, 235, 96371, 447544629])]
)
def test_known_numbers_of_paths_of_square_grids(neighbours, counts):
    for side, number in enumerate(counts, 2):
        assert compiled(*corner_path(side, side, neighbours)).count() == number


@pytest.mark.slow
def test_the_grid_of_the_paper_is_compiled_exactly():
    circuit = compiled(*corner_path(12, 12))
    assert circuit.count() == 182413291514248049241470885236
    assert circuit.num_nodes < 6_700_000
    tokens, _ = circuit.sample(torch.zeros(4, circuit.length, 2), seed=0)
    assert all(corner_path(12, 12)[0].evaluate(y) for y in tokens.tolist())


@settings(max_examples=examples(60))
@given(graphs())
def test_the_models_are_the_simple_paths(graph):
    edges = graph[0]
    path, paths = locore.simple_path(*graph), all_paths(*graph)
    circuit = compiled(path, len(edges))
    everything = brute_force.all_sequences(2, len(edges))
    accepted = circuit.accepts(everything)
    assert {tuple(y) for y in everything[accepted].tolist()} == paths
    assert {y for y in itertools.product((0, 1), repeat=len(edges)) if path.evaluate(y)} == paths
    assert circuit.count() == len(paths)
    check(circuit, num_models=16)


@settings(max_examples=examples(30))
@given(graphs(), st.integers(0, 1000))
def test_masses_and_marginals(graph, seed):
    circuit = compiled(locore.simple_path(*graph), len(graph[0]))
    models = torch.tensor(sorted(all_paths(*graph)))
    log_probs = brute_force.random_log_probs(3, circuit.length, 2, seed)
    torch.testing.assert_close(circuit.log_mass(log_probs), brute_force.log_mass(log_probs, models))
    torch.testing.assert_close(circuit.marginals(log_probs), brute_force.marginals(log_probs, models))


@settings(max_examples=examples(30))
@given(graphs())
def test_the_layers_are_minimal(graph):
    """No two states have the same future, and every state can be reached and can finish."""
    layers = path_layers(Frontier.of(*graph))
    after = [True]
    for layer, following in zip(layers, [*layers[1:], None], strict=True):
        assert len(np.unique(layer, axis=0)) == len(layer)
        assert (layer >= 0).any(1).all()
        reached = {int(target) for row in layer[after] for target in row if target >= 0}
        after = [state in reached for state in range(1 if following is None else len(following))]
        assert all(after)


@settings(max_examples=examples(30))
@given(graphs(), st.data())
def test_known_edges_are_fixed_before_compiling(graph, data):
    edges = graph[0]
    places = data.draw(st.lists(st.integers(0, len(edges) - 1), max_size=3))
    literals = [Literal(place, frozenset({data.draw(st.integers(0, 1))})) for place in places]
    literals = [~literal if data.draw(st.booleans()) else literal for literal in literals]
    constraint = locore.simple_path(*graph)
    for literal in literals:
        constraint &= literal
    expected = {y for y in all_paths(*graph) if all(literal.evaluate(y) for literal in literals)}
    try:
        circuit = compiled(constraint, len(edges))
    except Unsatisfiable:
        assert not expected
        return
    everything = brute_force.all_sequences(2, len(edges))
    assert {tuple(y) for y in everything[circuit.accepts(everything)].tolist()} == expected


def combinations(first, second, edges):
    """Constraints that need more than the compiler of one path."""
    middle = Literal(len(edges) // 2, frozenset({1}))
    few = locore.count_tokens(1, range(len(edges)), at_most=2)
    return [
        ~first,
        first & second,
        first | second,
        first & ~second,
        first ^ (second & middle),
        first & few,
        first | few,
        ~first & ~few & middle,
        middle >> first,
    ]


@settings(max_examples=examples(25))
@given(graphs(most_vertices=5, most_edges=7), st.integers(0, 8))
def test_paths_combine_with_everything(graph, which):
    edges, source, target = graph
    other = next((vertex for edge in edges for vertex in edge if vertex not in (source, target)), None)
    constraint = locore.simple_path(*graph)
    second = locore.simple_path(edges, target, source)
    if other is not None and all_paths(edges, source, other):
        second = locore.simple_path(edges, source, other)
    combined = combinations(constraint, second, edges)[which]
    everything = brute_force.all_sequences(2, len(edges))
    expected = torch.tensor([combined.evaluate(y) for y in everything.tolist()])
    try:
        circuit = compiled(combined, len(edges))
    except Unsatisfiable:
        assert not bool(expected.any())
        return
    assert torch.equal(circuit.accepts(everything), expected)
    check(circuit, num_models=16)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path & locore.ban(["11"]),
        lambda path: path | locore.contains("111"),
        lambda path: ~path & locore.ends_with("1"),
        lambda path: path & locore.contains("x"),
    ],
)
def test_paths_combine_with_text(make):
    """Also where texts end, before the last edge and after it."""
    combined = make(locore.simple_path(locore.grid(2, 2), (0, 0), (1, 1)))
    everything = brute_force.all_sequences(5, 6)
    bound = combined.at(6).bind(DIGITS)
    expected = torch.tensor([bound.evaluate(y, DIGITS) for y in everything.tolist()])
    assert bool(expected.any())
    assert torch.equal(compiled(combined, 6, DIGITS).accepts(everything), expected)


def test_paths_in_python_functions():
    edges = locore.grid(2, 3)
    path = locore.simple_path(edges, (0, 0), (1, 2))

    @locore.constraint
    def short(tokens):
        return path and (tokens == 1).sum() <= 3

    circuit = compiled(short, len(edges))
    assert circuit.count() == sum(sum(y) <= 3 for y in all_paths(edges, (0, 0), (1, 2))) == 3


@pytest.mark.parametrize(("length", "min_length"), [(4, 0), (6, 0), (6, 6), (6, 5), (6, 2)])
def test_later_positions_hold_anything_and_texts_may_end_there(length, min_length):
    path = locore.simple_path(locore.grid(2, 2), (0, 0), (1, 1)).bind(DIGITS)
    circuit = compiled(path, length, DIGITS, min_length=min_length)
    everything = brute_force.all_sequences(5, length)

    def is_model(y):
        end = next((i for i, token in enumerate(y) if token in DIGITS.eos_ids), length)
        return end >= min_length and path.evaluate(y, DIGITS)

    expected = torch.tensor([is_model(y) for y in everything.tolist()])
    assert 0 < int(expected.sum()) == circuit.count()
    assert torch.equal(circuit.accepts(everything), expected)
    check(circuit, num_models=64)


def test_tokens_that_spell_digits_are_found():
    twice = Tokenizer.from_tokens(["1", "0", "0", "00"])
    assert locore.simple_path([(1, 2)], 1, 2).bind(twice).symbols == (frozenset({1, 2}), frozenset({0}))
    square = locore.simple_path(locore.grid(2, 2), (0, 0), (1, 1))
    assert compiled(square, 4, twice).count() == 2 * 2**2  # two ids for each of two absent edges
    assert compiled(square, 4, Tokenizer.integers(3, eos_ids=[2])).count() == 2
    named = locore.simple_path(locore.grid(2, 2), (0, 0), (1, 1), tokens=(7, [5, 6]))
    assert compiled(named, 4, 8).count() == 2 * 2**2


def test_the_order_of_edges_changes_the_size_and_not_the_number_of_paths():
    """A shuffled grid has a frontier so wide that a state needs several machine words."""
    edges = locore.grid(3, 8)
    shuffled = random.Random(0).sample(edges, len(edges))
    assert Frontier.of(shuffled, (0, 0), (2, 7)).width > 15 > Frontier.of(edges, (0, 0), (2, 7)).width
    circuits = [compiled(locore.simple_path(order, (0, 0), (2, 7)), len(order)) for order in (edges, shuffled)]
    assert circuits[0].count() == circuits[1].count()
    assert circuits[0].num_nodes < circuits[1].num_nodes
    assert Frontier.of(locore.grid(8, 3), (0, 0), (7, 2)).width == Frontier.of(edges, (0, 0), (2, 7)).width


@pytest.mark.parametrize("slots", [3, 15, 16, 40])
def test_states_are_told_apart_by_all_their_slots(slots):
    generator = np.random.default_rng(slots)
    mates = generator.choice([*range(slots), 255], size=(slots, 60)).astype(np.uint8)
    mates = np.concatenate([mates, mates[:, ::2]], axis=1)
    distinct, which = _distinct(mates)
    assert distinct.shape[1] == len({column.tobytes() for column in mates.T})
    assert (distinct[:, which] == mates).all()


def test_a_graph_that_is_too_wide_is_refused_with_the_edge_that_was_reached():
    path, length = corner_path(12, 12, 8)
    with pytest.raises(BudgetExceeded, match=r"after \d+ of 506 edges with [\d,]+ states in reach, needs [\d,]+ nodes.*moves"):
        compiled(path, length, limits=locore.Limits(nodes=100_000))
    with pytest.raises(BudgetExceeded, match="seconds"):
        compiled(path, length, limits=locore.Limits(seconds=1e-3))


SQUARE = [(1, 2), (2, 3), (3, 4), (4, 1)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], 1, 2), "without edges"),
        ((7, 1, 2), "list of edges"),
        (("ab", "a", "b"), "list of edges"),
        (([(1, 2, 3)], 1, 2), "edge 0 .*pair"),
        (([(1, 2), "23"], 1, 2), "edge 1 .*pair"),
        (([(1, [2])], 1, 2), "edge 0 .*hashable"),
        (([*SQUARE, (3, 3)], 1, 3), "edge 4 .*loop"),
        (([*SQUARE, (2, 1)], 1, 3), "edges 0 and 4 .*once"),
        ((SQUARE, 1, 9), "target 9 .*no vertex"),
        ((SQUARE, 0, 1), "source 0 .*no vertex"),
        ((SQUARE, [1], 2), r"source \[1\] .*no vertex"),
        ((SQUARE, 2, 2), "both 2"),
        (([*SQUARE, (5, 6)], 1, 6), "not connected: from 1 4 of 6 vertices"),
        ((SQUARE, 1, 3, (0, 0)), "nothing in common"),
        ((SQUARE, 1, 3, (0, [])), "two sets"),
        ((SQUARE, 1, 3, "01"), "pair"),
        ((SQUARE, 1, 3, (0, 1, 2)), "pair"),
        ((SQUARE, 1, 3, (0, -1)), "start at 0"),
    ],
)
def test_bad_graphs_are_refused(arguments, message):
    with pytest.raises(InvalidConstraint, match=message):
        locore.simple_path(*arguments)


def test_what_does_not_fit_a_vocabulary_or_a_length_is_refused():
    path = locore.simple_path(SQUARE, 1, 3)
    for target, length, message in [
        (2, 3, "4 edges, a position each, but the sequence has 3"),
        (5, 4, "5 bare ids.*tokens="),
        (Tokenizer.from_tokens(["0", "2"]), 4, 'spells "1".*tokens='),
    ]:
        with pytest.raises(InvalidConstraint, match=message):
            compiled(path, length, target)
    with pytest.raises(InvalidConstraint, match="ends the text"):
        compiled(locore.simple_path(SQUARE, 1, 3, tokens=(3, 0)), 4, DIGITS)
    with pytest.raises(InvalidConstraint, match="outside the vocabulary"):
        compiled(locore.simple_path(SQUARE, 1, 3, tokens=(0, 2)), 4)
    with pytest.raises(Unsatisfiable, match="simple_path"):
        compiled(path & Literal(0, frozenset({1})) & Literal(3, frozenset({1})), 4)
    for wrong in ({"rows": 0, "columns": 2}, {"rows": 2, "columns": 2, "neighbours": 6}, {"rows": 2.5, "columns": 2}):
        with pytest.raises(InvalidConstraint, match="grid"):
            locore.grid(**wrong)


@settings(max_examples=examples(30))
@given(graphs(), st.sampled_from([None, (0, 1), ([4, 5], [2])]))
def test_json(graph, tokens):
    path = locore.simple_path(*graph, tokens)
    form = json.loads(json.dumps(path.to_json()))
    assert locore.from_json(form) == path
    assert hash(locore.from_json(form)) == hash(path)


def test_vertices_that_json_has_no_words_for_become_numbers():
    named = locore.simple_path([(1.5, "b"), ("b", None)], 1.5, None)
    assert named.to_json() == {"type": "simple_path", "graph": [[0, 1], [1, 2]], "source": 0, "target": 2}
    assert locore.from_json(named.to_json()) == locore.simple_path([(0, 1), (1, 2)], 0, 2)


@pytest.mark.parametrize("field", [{"graph": [[1]]}, {"graph": [[1, 2.5]]}, {"source": None}, {"tokens": 1}, {"graph": {}}])
def test_bad_json_names_the_place(field):
    form = locore.simple_path(SQUARE, 1, 3).to_json() | field
    with pytest.raises(InvalidConstraint, match=next(iter(field))):
        locore.from_json(form)


def test_explanations():
    path = locore.simple_path(SQUARE, 1, 3)
    reasons = {
        "1100": "a path of 2 edges",
        "1001": "2 present edges meet at 1",
        "0000": "no edge at the source 1",
        "1000": "ends at 2",
        "11x0": "token 2 is 2, which says neither",
    }
    for text, reason in reasons.items():
        explanation = locore.explain(path, text, DIGITS)
        assert reason in explanation.reason
        assert explanation.holds == (text == "1100")
    apart = locore.simple_path([(1, 2), (3, 4), (4, 5), (5, 3)], 1, 2)
    assert "3 present edges are not on the path" in locore.explain(apart, "1111", DIGITS).reason


def test_circuits_are_remembered():
    path, length = corner_path(9, 9)
    origins = []
    for turn in range(3):
        told = compile_and_tell(path, 2, length)
        origins.append(told.origin)
        assert told.circuit.count() == 3266598486981642
        if turn == 1:
            forget()
    assert origins == ["compiled", "memory", "disk"]


def test_paths_are_sampled_through_the_library():
    edges = locore.grid(2, 3)
    path, paths = locore.simple_path(edges, (0, 0), (1, 2)), sorted(all_paths(edges, (0, 0), (1, 2)))
    model = TableModel.random(2, len(edges), seed=3)
    truth = dict(zip(paths, model.score(torch.tensor(paths)).tolist(), strict=True))
    for sampler in ("exact", "swor", "auto"):
        particles = locore.generate(model, [], path, len(edges), num_particles=100, sampler=sampler, seed=0)
        found = dict(zip(map(tuple, particles.tokens.tolist()), particles.log_weights.tolist(), strict=True))
        assert found.keys() == truth.keys()
        assert particles.log_evidence == pytest.approx(float(torch.tensor(list(truth.values())).logsumexp(0)))


def test_equal_paths_are_equal():
    assert locore.simple_path(SQUARE, 1, 3) == SimplePath(tuple(SQUARE), 1, 3)
    assert locore.simple_path(SQUARE, 1, 3) != locore.simple_path(SQUARE, 1, 2)
