"""The exact answers: dynamic programming against enumeration, estimates that must agree, answers that are kept."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from locore_lab.fidelity.drawn import in_families
from locore_lab.fidelity.problems import Problem, chain, markov, open_model
from locore_lab.fidelity.truth import (
    TOP,
    Estimate,
    agreed,
    calculated,
    enumerated,
    find_truth,
    first_tokens,
    most_probable,
    pool_estimates,
)

from locore import ban, contains, ends_with
from locore.compilers import compile
from locore.kernel.errors import LocoreError
from locore.samplers.twist.ngram import prepare
from tests.effort import THOROUGH, examples

LETTERS = '!"#$%'  # the first tokens of every chain
texts = st.text(LETTERS[:3], min_size=1, max_size=2)
constraints = st.one_of(
    texts.map(contains),
    texts.map(ends_with),
    st.lists(texts, min_size=1, max_size=2).map(ban),
    st.tuples(texts, texts).map(lambda pair: contains(pair[0]) & ends_with(pair[1])),
    st.tuples(texts, texts).map(lambda pair: ban([pair[0]]) | contains(pair[1])),
)


def by_hand(model, alpha, length):
    """log p(y) of every sequence that satisfies α: all sequences, scored one by one, α read off the text."""
    every = torch.tensor(list(itertools.product(range(model.vocab_size), repeat=length)))
    keep = torch.tensor([alpha.evaluate(y, model.tokenizer) for y in every.tolist()])
    return every[keep], model.score(every[keep]).double() if keep.any() else torch.zeros(0)


# Dynamic programming


@settings(max_examples=examples(60))
@given(st.integers(2, 5), st.integers(0, 10**6), st.sampled_from([0.1, 1.0]), constraints, st.integers(1, 4))
def test_dynamic_programming_is_enumeration(vocab, seed, peak, alpha, length):
    model = chain(vocab, seed, peak)
    tokens, scores = by_hand(model, alpha, length)
    if not len(tokens):
        return
    circuit = compile(alpha, model, length)
    log_z, first = first_tokens(circuit, model)
    assert log_z == pytest.approx(float(torch.logsumexp(scores, 0)), abs=1e-9)
    exact = torch.zeros(vocab, dtype=torch.float64).index_add_(0, tokens[:, 0], (scores - log_z).exp())
    torch.testing.assert_close(first, exact, rtol=1e-9, atol=1e-12)
    for num in (1, 5, 1000):
        found, merits = most_probable(circuit, model, num)
        assert len(found) == min(num, len(tokens)) == len({tuple(y) for y in found.tolist()})
        torch.testing.assert_close(merits, scores.topk(len(found)).values, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(model.score(found).double(), merits, rtol=1e-9, atol=1e-9)


def test_both_roads_to_an_answer_agree():
    problem = markov("both", 6, 3, contains('!"'), 5)
    model = open_model(problem.model)
    circuit = compile(problem.constraint, model, problem.length)
    first, second = (find(problem, model, circuit) for find in (calculated, enumerated))
    assert first.log_z == pytest.approx(second.log_z)
    assert first.log_probs == pytest.approx(second.log_probs)
    assert {int(v): p for v, p in first.first.items()} == pytest.approx({int(v): p for v, p in second.first.items()})
    assert len(first.top) == TOP and sum(first.top.values()) < 1


def test_what_was_pruned_bounds_what_is_missing():
    problem = markov("pruned", 6, 3, contains('!"'), 5)
    model = open_model(problem.model)
    circuit = compile(problem.constraint, model, problem.length)
    whole = enumerated(problem, model, circuit)
    pruned = enumerated(dataclasses.replace(problem, min_prob=1e-3), model, circuit)
    assert 0 < math.exp(whole.log_z) - math.exp(pruned.log_z) <= pruned.missing


# Estimates that are pooled


def estimate(name, log_mean, relative, runs=16):
    """Estimates with exactly this mean and this relative standard error of the mean."""
    normal = torch.randn(runs, generator=torch.Generator().manual_seed(runs), dtype=torch.float64)
    normal = (normal - normal.mean()) / normal.std()
    return Estimate(name, 1 + relative * math.sqrt(runs) * normal, log_mean)


def test_estimates_that_agree_are_pooled_by_their_precision():
    first, second = estimate("a", -9.0, 0.01), estimate("b", -9.02, 0.02)
    log_z, error, words = agreed([first, second])
    assert error == pytest.approx(1 / math.hypot(1 / 0.01, 1 / 0.02))
    assert log_z == pytest.approx((first.log_mean * 4 + second.log_mean) / 5)
    assert "a -9.0" in words and "16 runs" in words


@pytest.mark.parametrize("gap", [0.07, 1.0, 30.0])
def test_estimates_that_disagree_are_no_answer(gap):
    """The margin is 3 · hypot(.01, .02) = .067."""
    agreed([estimate("a", -9.0, 0.01), estimate("b", -9.0 + 0.06, 0.02)])
    with pytest.raises(LocoreError, match="disagree"):
        agreed([estimate("a", -9.0, 0.01), estimate("b", -9.0 + gap, 0.02)])


def test_the_pooled_answer_is_the_exact_one(tmp_path, monkeypatch):
    """Within 4 of its standard errors (false alarm 6e-5 if normal), and its top sequences are the top ones."""
    monkeypatch.setenv("LOCORE_CACHE", str(tmp_path))
    problem = Problem("pooled", "markov:8:3:0.3", (), contains('!"'), 6, "pooled")
    model = open_model(problem.model)
    circuit = compile(problem.constraint, model, problem.length)
    exact = calculated(problem, model, circuit)
    found = pool_estimates(problem, model, circuit, prepare(model, 2000).table, seed=0, width=300)
    assert 0 < found.log_z_error < 0.1
    assert abs(found.log_z - exact.log_z) < 4 * found.log_z_error
    assert found.tokens[0] == exact.tokens[0]
    assert found.log_probs[:10] == pytest.approx(exact.log_probs[:10], abs=1e-5)


# Answers that are kept


def test_an_answer_is_found_once_and_never_used_for_another_problem(tmp_path):
    problem = markov("kept", 6, 3, contains('!"'), 5)
    model = open_model(problem.model)
    asked = []

    def find(problem):
        circuit = compile(problem.constraint, model, problem.length)

        def pool(problem, model, circuit):
            asked.append(problem.name)
            return calculated(problem, model, circuit)

        return find_truth(problem, model, circuit, [tmp_path / "here", tmp_path / "there"], pool)

    pooled = dataclasses.replace(problem, answer="pooled")
    first = find(pooled)
    assert find(pooled) == first and asked == ["kept"]
    other = find(dataclasses.replace(pooled, constraint=contains("!!")))
    assert asked == ["kept"] * 2
    assert other.log_z != pytest.approx(first.log_z)


# Drawn problems


def test_drawn_problems_depend_on_the_seed_and_on_nothing_else():
    def draw(seed, number=16 if THOROUGH else 8):
        torch.rand(seed + 1)  # the global generator is somewhere else each time
        return {problem.name: problem.to_json() for _, problem in in_families(seed, number, None)}

    first, again, other = draw(0), draw(0), draw(1)
    assert first == again
    assert not first.keys() & other.keys() and list(first.values()) != list(other.values())
    assert all(first[name] == one for name, one in draw(0, 4).items())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_drawn_problems_can_be_satisfied(seed):
    for _, problem in in_families(seed, 8, None):
        model = open_model(problem.model)
        circuit = compile(problem.constraint, model, problem.length)
        log_z, _ = first_tokens(circuit, model)
        assert -200 < log_z < 0
