"""Total variation, its noise, and the test of the evidence: against hand calculation, dense computation and statistics."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from locore_lab.fidelity.measures import evidence, first_token_tv, merged, noise_floor, summarise, total_variation
from locore_lab.fidelity.runs import Chunk
from locore_lab.fidelity.truth import TOP

from lab_tests.fidelity.laws import chunk_of, drawn_chunks, scores_of, truth_of

SEQUENCES = [(i, j) for i in range(3) for j in range(3)]


def zipf(size):
    weights = [1 / (k + 1) for k in range(size)]
    return {(k, 0): w / sum(weights) for k, w in enumerate(weights)}


# Total variation


def test_total_variation_by_hand():
    exact = {(0, 0): 0.5, (0, 1): 0.3, (1, 0): 0.2}
    measured = {(0, 0): 0.25, (0, 1): 0.75}
    found = total_variation(chunk_of(measured, runs=4), truth_of(exact), scores_of(exact))
    assert found == pytest.approx(0.45)  # .25 and .2 too little, .45 too much


def test_a_run_that_returns_nothing_is_wrong():
    exact = {(0, 0): 0.5, (1, 0): 0.5}
    half = chunk_of({(0, 0): 0.25, (1, 0): 0.25}, runs=4, failed=2)
    assert total_variation(half, truth_of(exact), scores_of(exact)) == pytest.approx(0.5)
    assert first_token_tv(half, truth_of(exact)) == pytest.approx(0.5)
    assert first_token_tv(chunk_of(exact), truth_of(exact)) == pytest.approx(0)


def test_what_violates_the_constraint_is_wrong_even_among_rare_sequences():
    """Violating sequences are not "other": the truth has mass there, they have none."""
    exact = {(k, 0): 0.5 / TOP for k in range(TOP)} | {(TOP + k, 0): 0.5 / 400 for k in range(400)}
    measured = {(k, 0): 0.5 / TOP for k in range(TOP)}
    chunk = chunk_of(measured, runs=2)
    chunk.violating = 1.0
    assert total_variation(chunk, truth_of(exact), scores_of(exact)) == pytest.approx(0.5)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=9, max_size=9), st.integers(0, 5))
def test_total_variation_is_the_dense_one(weights, failed):
    """With fewer sequences than are compared, nothing is hidden in "other"."""
    exact = [a + 1e-3 for a, _ in weights]
    measured = [b for _, b in weights]
    exact = {y: a / sum(exact) for y, a in zip(SEQUENCES, exact, strict=True)}
    runs = failed + 3
    share = 3 / runs if sum(measured) else 0.0
    failed = failed if sum(measured) else runs
    law = {y: share * b / (sum(measured) or 1) for y, b in zip(SEQUENCES, measured, strict=True) if b}
    dense = 0.5 * (sum(abs(law.get(y, 0.0) - exact[y]) for y in SEQUENCES) + failed / runs)
    found = total_variation(chunk_of(law, runs, failed), truth_of(exact), scores_of(exact))
    assert found == pytest.approx(dense, abs=1e-9)


@given(st.integers(0, 10**6))
def test_total_variation_on_the_top_is_a_lower_bound(seed):
    """Rare sequences are one cell, so what is measured never exceeds the distance of the whole laws."""
    generator = torch.Generator().manual_seed(seed)
    laws = torch.rand(2, 300, generator=generator, dtype=torch.float64) ** 4
    exact, measured = ({(k, 0): p for k, p in enumerate((row / row.sum()).tolist())} for row in laws)
    dense = 0.5 * sum(abs(exact[y] - measured[y]) for y in exact)
    found = total_variation(chunk_of(measured), truth_of(exact), scores_of(exact))
    assert 0 < found <= dense + 1e-12


# Noise


@pytest.mark.parametrize(("size", "draws"), [(5, 4), (5, 64), (30, 4), (30, 64), (1000, 1), (1000, 8), (1000, 64)])
def test_the_noise_is_what_chance_gives_to_perfect_draws(size, draws):
    """Between 0.8 and 1.4 times the true noise, whether sequences come up often or hardly ever.

    Both means are over 40 repetitions; four standard errors of their ratio are allowed on top (false alarm 1e-4 a case).
    """
    exact = zipf(size)
    truth, score = truth_of(exact), scores_of(exact)
    generator = torch.Generator().manual_seed(size + draws)
    pairs = []
    for _ in range(40):
        chunks = drawn_chunks(exact, 16, draws, generator)
        pairs.append((noise_floor(chunks, truth), total_variation(merged(chunks), truth, score)))
    noise, real = torch.tensor(pairs, dtype=torch.float64).unbind(1)
    ratio = float(noise.mean() / real.mean())
    error = ratio * math.hypot(noise.std() / noise.mean(), real.std() / real.mean()) / math.sqrt(40)
    assert 0.8 - 4 * error < ratio < 1.4 + 4 * error


def test_a_sampler_that_never_varies_has_no_noise():
    law = {(0, 0): 0.9, (1, 0): 0.1}
    assert noise_floor([chunk_of(law, 3) for _ in range(16)], truth_of({(0, 0): 0.5, (1, 0): 0.5})) == pytest.approx(0)


def test_runs_that_fail_by_chance_are_noise():
    law = {(0, 0): 1.0}
    chunks = [chunk_of(law), chunk_of({}, failed=1)] * 8
    assert 0.05 < noise_floor(chunks, truth_of(law)) < 0.3


# Evidence


def estimates(mean, spread, runs, seed):
    """Logs of unbiased estimates of exp(mean), log-normal."""
    normal = torch.randn(runs, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (mean - spread**2 / 2 + spread * normal).tolist()


def test_the_evidence_of_right_estimates_is_accepted_at_the_stated_rate():
    """3 standard errors: 0.27 % of right estimates are refused. 2,000 trials: more than 18 with probability 3e-6."""
    truth = truth_of({(0, 0): 1.0}, log_z=-9.0)
    refused = sum(not evidence(estimates(-9.0, 0.1, 400, seed), truth)["unbiased"] for seed in range(2000))
    assert refused <= 18


def test_a_biased_estimate_is_refused():
    """10 % too much at a standard error of 0.5 %."""
    truth = truth_of({(0, 0): 1.0}, log_z=-9.0)
    for factor in (0.9, 1.1):
        assert evidence(estimates(-9.0 + math.log(factor), 0.1, 400, 1), truth)["unbiased"] is False


def test_a_constant_estimate_must_be_the_right_one():
    """Nothing varies, so only rounding of the arithmetic is forgiven."""
    truth = truth_of({(0, 0): 1.0}, log_z=-9.0)
    assert evidence([-9.0 + 1e-7] * 32, truth)["unbiased"] is True
    assert evidence([-8.99] * 32, truth)["unbiased"] is False
    assert evidence([0.0] * 32, truth)["unbiased"] is False


def test_what_is_not_known_of_the_evidence_is_not_said():
    truth = truth_of({(0, 0): 1.0}, log_z=-9.0)
    assert evidence([-9.0], truth)["unbiased"] is None  # one run has no standard error
    assert evidence([-math.inf] * 8, truth)["unbiased"] is None  # rejection that never hit is unbiased all the same
    assert evidence([], truth)["unbiased"] is None


def test_an_uncertain_truth_widens_the_margin():
    estimate = [-9.0 + 0.02] * 32
    assert evidence(estimate, truth_of({(0, 0): 1.0}, log_z=-9.0))["unbiased"] is False
    assert evidence(estimate, truth_of({(0, 0): 1.0}, log_z=-9.0, error=0.01))["unbiased"] is True
    assert evidence(estimate, truth_of({(0, 0): 1.0}, log_z=-9.0, missing=math.exp(-9) * 0.03))["unbiased"] is True


def test_rmse_by_hand_and_its_error():
    truth = truth_of({(0, 0): 1.0}, log_z=-9.0)
    found = evidence([-9.3, -8.7, -9.4, -8.6], truth)
    assert found["rmse"] == pytest.approx(math.sqrt(0.125))
    assert found["mean_log_error"] == pytest.approx(0)
    # MSE .125 has the standard error sd(.09, .09, .16, .16)/2; the delta method for the root.
    assert found["rmse_error"] == pytest.approx(0.0202073 / (2 * math.sqrt(0.125)), rel=1e-4)


def test_rmse_counts_a_run_that_returned_nothing_as_one_that_knows_nothing():
    truth = truth_of({(0, 0): 1.0}, log_z=-9.0)
    found = evidence([-9.0, -math.inf, -9.0, -math.inf], truth)
    assert found["rmse"] == pytest.approx(9 / math.sqrt(2))  # Ẑ = 1 is what everybody knows
    assert found["mean_log_error"] == pytest.approx(0)  # over the others


@pytest.mark.parametrize("shift", [-2000.0, 0.0])
def test_evidence_far_below_what_floats_hold(shift):
    truth = truth_of({(0, 0): 1.0}, log_z=-9.0 + shift)
    assert evidence(estimates(-9.0 + shift, 0.1, 400, 3), truth)["unbiased"] is True
    assert evidence(estimates(-8.0 + shift, 0.1, 400, 3), truth)["unbiased"] is False


# All columns


def test_no_total_variation_where_the_top_sequences_are_a_small_part():
    flat = {(k, 0): 1 / 5000 for k in range(5000)}
    generator = torch.Generator().manual_seed(0)
    chunks = drawn_chunks(flat, 16, 4, generator)
    for chunk in chunks:
        chunk.log_z = [-1.0] * 4
    row = summarise(chunks, truth_of(flat, log_z=-1.0), scores_of(flat, -1.0))
    assert row["tv"] is None
    assert row["rmse"] == pytest.approx(0, abs=1e-9)
    assert row["truth_covered"] == pytest.approx(0.02)


def test_perfect_draws_are_within_noise_and_wrong_ones_are_not():
    exact = zipf(20)
    wrong = {y: exact[z] for y, z in zip(exact, reversed(exact), strict=True)}
    generator = torch.Generator().manual_seed(5)
    right, other = (
        summarise(drawn_chunks(law, 16, 64, generator), truth_of(exact), scores_of(exact)) for law in (exact, wrong)
    )
    assert right["tv"] < 2 * right["noise"]
    assert other["tv"] > 5 * other["noise"]


def test_a_truth_that_misses_much_gives_no_total_variation():
    chunks = [Chunk(runs=1, log_z=[0.0], law={(0,): 1.0}, first={0: 1.0}) for _ in range(16)]
    for missing, known in ((0.005, True), (0.02, False)):
        row = summarise(chunks, truth_of({(0,): 1.0}, missing=missing), lambda tokens: torch.zeros(len(tokens)).double())
        assert (row["tv"] is not None) is known
