"""Law 1: every query of a circuit equals enumeration, for random layered automata."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from locore.circuits import Circuit, TableReader, downward
from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.testing import check
from tests.effort import THOROUGH, examples

from . import brute_force


def layered(rows, final, token_class):
    """A circuit from Int32[states, classes] rows for each position."""
    live, flags = [np.array(final)], np.array(final)
    for row in reversed(rows):
        flags = ((row >= 0) & flags[np.maximum(row, 0)]).any(1)
        live.append(flags)
    reader = TableReader(
        torch.tensor(token_class), tuple(torch.tensor(r) for r in rows), tuple(torch.tensor(f) for f in reversed(live)), 0
    )
    return Circuit(reader)


def models_of(rows, final, token_class, length):
    models = []
    for y in brute_force.all_sequences(len(token_class), length).tolist():
        state = 0
        for i, token in enumerate(y):
            state = rows[i][state, token_class[token]] if state >= 0 else -1
        if state >= 0 and final[state]:
            models.append(y)
    return torch.tensor(models, dtype=torch.long).reshape(-1, length)


@st.composite
def machines(draw):
    """Random layered automata with empty classes excluded, one class of several tokens included."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    length, classes = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    token_class = np.concatenate([np.arange(classes), rng.integers(0, classes, draw(st.integers(0, 2)))])
    sizes = [1, *rng.integers(1, 4, length)]
    rows = [
        np.where(rng.random((a, classes)) < 0.3, -1, rng.integers(0, b, (a, classes))).astype(np.int32)
        for a, b in itertools.pairwise(sizes)
    ]
    final = rng.random(sizes[-1]) < 0.7
    return rows, final, token_class.tolist()


def weight_of(log_probs, tokens):
    return log_probs.gather(-1, tokens[..., None]).squeeze(-1).sum(-1)


@settings(max_examples=examples(80), deadline=None)
@given(machines(), st.integers(0, 10**6), st.sampled_from([30.0, 300.0, 3000.0]))
def test_masses_far_below_the_smallest_number_are_exact(machine, seed, scale):
    """Weights over thousands of nats underflow in plain numbers; log space takes over, row by row."""
    rows, final, token_class = machine
    circuit = layered(rows, final, token_class)
    models = models_of(rows, final, token_class, len(rows))
    log_probs = scale * brute_force.random_log_probs(6, len(rows), len(token_class), seed, 0.1)
    truth = brute_force.log_mass(log_probs, models)
    torch.testing.assert_close(circuit.log_mass(log_probs), truth, rtol=1e-10, atol=1e-9)
    by_position = circuit.log_mass(lambda position: log_probs[:, position])
    torch.testing.assert_close(by_position, circuit.log_mass(log_probs), rtol=0, atol=0)
    log_probs, truth = log_probs[truth > float("-inf")], truth[truth > float("-inf")]
    assume(len(truth) > 0)
    tokens, log_prob, log_mass = circuit.sample_with_mass(log_probs, seed=seed)
    torch.testing.assert_close(log_mass, truth, rtol=1e-10, atol=1e-9)
    torch.testing.assert_close(log_prob, weight_of(log_probs, tokens) - truth, rtol=1e-9, atol=1e-8)
    assert {tuple(y) for y in tokens.tolist()} <= {tuple(m) for m in models.tolist()}
    expected = brute_force.marginals(log_probs, models)
    torch.testing.assert_close(circuit.marginals(log_probs), expected, rtol=1e-9, atol=1e-8)


@settings(max_examples=examples(150), deadline=None)
@given(machines(), st.integers(0, 10**6), st.sampled_from([0.0, 0.2]))
def test_all_queries_equal_enumeration(machine, seed, zeros):
    rows, final, token_class = machine
    length = len(rows)
    circuit = layered(rows, final, token_class)
    models = models_of(rows, final, token_class, length)
    log_probs = brute_force.random_log_probs(3, length, len(token_class), seed, zeros)
    check(circuit)
    assert circuit.count() == len(models)
    truth = brute_force.log_mass(log_probs, models)
    torch.testing.assert_close(circuit.log_mass(log_probs), truth, rtol=1e-10, atol=1e-10)
    keep = truth > float("-inf")
    if not keep.all():
        with pytest.raises(ZeroWeights):
            circuit.sample(log_probs, seed=0)
    assume(bool(keep.any()))
    log_probs = log_probs[keep]
    torch.testing.assert_close(circuit.marginals(log_probs), brute_force.marginals(log_probs, models), rtol=1e-9, atol=1e-9)
    tokens, log_prob = circuit.most_probable(log_probs)
    best = brute_force.weights(log_probs, models).amax(-1)
    torch.testing.assert_close(log_prob + truth[keep], best)
    torch.testing.assert_close(weight_of(log_probs, tokens), best)
    drawn, log_prob = circuit.sample(log_probs, seed=seed)
    member = {tuple(m) for m in models.tolist()}
    assert all(tuple(y) in member for y in drawn.tolist())
    torch.testing.assert_close(log_prob, weight_of(log_probs, drawn) - truth[keep])


@settings(max_examples=examples(60), deadline=None)
@given(machines(), st.data())
def test_allowed_tokens_are_those_that_can_be_completed(machine, data):
    rows, final, token_class = machine
    length = len(rows)
    circuit = layered(rows, final, token_class)
    models = models_of(rows, final, token_class, length).tolist()
    time = data.draw(st.integers(0, length - 1))
    prefix = data.draw(st.lists(st.integers(0, len(token_class) - 1), min_size=time, max_size=time))
    truth = [any(m[:time] == prefix and m[time] == v for m in models) for v in range(len(token_class))]
    rows_of = torch.tensor([prefix], dtype=torch.long).reshape(1, time)
    assert circuit.allowed(rows_of[0]).tolist() == truth
    assert downward.allowed_by_conditioning(circuit.chain, rows_of)[0].tolist() == truth


@pytest.mark.parametrize("cached", [64, 2**17])
def test_samples_follow_the_conditional_distribution(monkeypatch, cached):
    """Chi-square against enumeration, however few tokens are looked at together; a false alarm in 1e6 runs."""
    from scipy.stats import chisquare

    monkeypatch.setattr(downward, "CACHED", cached)
    rng = np.random.default_rng(5)
    rows = [rng.integers(-1, 3, (a, 3)).astype(np.int32) for a in (1, 3, 3)]
    circuit = layered(rows, np.array([True, False, True]), [0, 1, 2, 2])
    models = models_of(rows, [True, False, True], [0, 1, 2, 2], 3)
    log_probs = brute_force.random_log_probs(1, 3, 4, seed=1)
    draws = 40_000 if THOROUGH else 5_000
    tokens, _ = circuit.sample(log_probs.expand(draws, -1, -1), seed=3)
    weights = torch.softmax(brute_force.weights(log_probs, models)[0], -1)
    index = {tuple(m): k for k, m in enumerate(models.tolist())}
    seen = np.bincount([index[tuple(y)] for y in tokens.tolist()], minlength=len(models))
    common = weights.numpy() * draws > 5
    expected = np.append(weights.numpy()[common], weights.numpy()[~common].sum()) * draws
    observed = np.append(seen[common], seen[~common].sum())
    if expected[-1] == 0:
        expected, observed = expected[:-1], observed[:-1]
    assert len(expected) > 5
    assert chisquare(observed, expected).pvalue > 1e-6


def test_far_apart_masses_do_not_vanish():
    """A model 5,000 nats below another one keeps its mass when the other is forbidden."""
    rows = [np.array([[0, -1]], dtype=np.int32)] * 4
    circuit = layered(rows, np.array([True]), [0, 1])
    log_probs = torch.zeros(1, 4, 2, dtype=torch.float64)
    log_probs[..., 0] = -1250.0
    assert circuit.log_mass(log_probs).item() == -5000.0
    assert circuit.marginals(log_probs)[0, 0].tolist() == [0.0, float("-inf")]


def test_seeds_reproduce_and_differ():
    circuit = layered([np.array([[0, 0, 0]], dtype=np.int32)] * 6, np.array([True]), [0, 1, 2])
    log_probs = torch.zeros(8, 6, 3, dtype=torch.float64)
    first, _ = circuit.sample(log_probs, seed=7)
    assert torch.equal(first, circuit.sample(log_probs, seed=7)[0])
    assert not torch.equal(first, circuit.sample(log_probs, seed=8)[0])


@pytest.mark.parametrize("shape", [(4, 3), (1, 3, 3), (1, 4, 2)])
def test_wrong_shapes_are_refused(shape):
    circuit = layered([np.array([[0, 0, 0]], dtype=np.int32)] * 4, np.array([True]), [0, 1, 2])
    with pytest.raises(InvalidArgument, match="shape"):
        circuit.log_mass(torch.zeros(shape))


@pytest.mark.parametrize("shape", [(4,), (1, 3), (2, 0), (1, 5), (1, 4, 1)])
def test_sequences_of_another_length_are_refused(shape):
    circuit = layered([np.array([[0, 0, 0]], dtype=np.int32)] * 4, np.array([True]), [0, 1, 2])
    with pytest.raises(InvalidArgument, match="shape"):
        circuit.accepts(torch.zeros(shape).long())
    assert circuit.accepts(torch.zeros(0, 4).long()).tolist() == []


def test_nan_is_refused():
    circuit = layered([np.array([[0, 0]], dtype=np.int32)], np.array([True]), [0, 1])
    with pytest.raises(InvalidArgument, match="NaN"):
        circuit.log_mass(torch.full((1, 1, 2), float("nan")))


@pytest.mark.parametrize("ids", [[9], [-1], [0.5]])
def test_impossible_token_ids_are_refused(ids):
    circuit = layered([np.array([[0, 0]], dtype=np.int32)] * 2, np.array([True]), [0, 1])
    with pytest.raises(InvalidArgument, match="token ids"):
        circuit.allowed(ids)
    assert circuit.allowed([0]).tolist() == [True, True]
