"""Laws of masked SMC and its parts. False alarm: 1e-6 a test."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from locore.compilers import compile
from locore.constraints import Count, Literal
from locore.kernel.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.kernel.samplers.smc import Population, SequentialMonteCarlo, systematic
from locore.models import Counted, TableModel
from locore.testing import enumerate_posterior, proper_weighting
from tests.effort import THOROUGH, examples, runs, some

LENGTH = 4
SAMPLERS = {
    "smc": SequentialMonteCarlo(),
    "smc, one block": SequentialMonteCarlo(blocks=1),
    "smc, resampled at every step": SequentialMonteCarlo(ess_threshold=1.0, blocks=2),
    "masked IS": SequentialMonteCarlo(ess_threshold=0.0),
}


def problem(eos):
    model = TableModel.random(4, LENGTH, seed=3, eos=eos, concentration=0.7)
    alpha = Count(tuple(range(LENGTH)), frozenset({1}), 1, 2) & ~Literal(2, frozenset({0}))
    return model, compile(alpha, model, LENGTH)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("eos", some([True, False]))
@pytest.mark.parametrize("name", SAMPLERS)
def test_weights_are_proper(name, eos):
    model, circuit = problem(eos)
    result = proper_weighting(SAMPLERS[name], model, circuit, 12, runs(250), seed=4)
    assert result.holds(1e-6), (result.z, result.estimates, result.truth)


@pytest.mark.slow
def test_the_law_notices_resampling_that_forgets_the_weights():
    """The test can fail: without the weights of before the resampling, the mean is wrong."""

    def forgetful(*args):
        draws = SequentialMonteCarlo(ess_threshold=1.0)(*args)
        return replace(draws, log_weights=torch.full_like(draws.log_weights, -1.0))

    model, circuit = problem(True)
    assert not proper_weighting(forgetful, model, circuit, 12, 300, seed=4).holds(1e-6)


def test_blocks_are_unbiased_alone_and_do_not_move_together():
    model, circuit = problem(False)
    truth = math.exp(enumerate_posterior(model, circuit).log_evidence)
    runs, generator = 400 if THOROUGH else 60, seeded(1)
    sampler = SequentialMonteCarlo(ess_threshold=0.9, blocks=2)
    found = [sampler(model, circuit, 12, None, generator).blocks.log_evidence for _ in range(runs)]
    assert all(len(blocks) == 2 for blocks in found)
    evidence = torch.tensor(found, dtype=torch.float64).exp()
    z = (evidence.mean(0) - truth) / (evidence.std(0) / math.sqrt(runs))
    assert bool((z.abs() < 5.2).all()), z
    assert abs(float(torch.corrcoef(evidence.T)[0, 1])) < 5.0 / math.sqrt(runs)


def test_the_evidence_is_the_mean_of_the_blocks():
    model, circuit = problem(True)
    draws = SequentialMonteCarlo()(model, circuit, 40, None, seeded(0))
    mean = torch.logsumexp(torch.tensor(draws.blocks.log_evidence, dtype=torch.float64), 0) - math.log(4)
    found = torch.logsumexp(draws.log_weights, 0) - math.log(len(draws.tokens))
    assert float(found) == pytest.approx(float(mean), abs=1e-12)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.floats(-30, 0) | st.just(-math.inf), min_size=1, max_size=20), st.integers(1, 30), st.floats(0, 0.999))
def test_systematic_resampling_rounds_the_expected_numbers(logs, num, uniform):
    logs = torch.tensor([*logs, 0.0], dtype=torch.float64)
    counts = torch.bincount(systematic(logs, num, uniform), minlength=len(logs))
    expected = num * torch.softmax(logs, 0)
    assert counts.sum() == num
    assert bool((counts[logs == -math.inf] == 0).all())
    assert bool((counts >= (expected - 1e-9).floor()).all()) and bool((counts <= (expected + 1e-9).ceil()).all())


def test_systematic_resampling_is_unbiased():
    """Integrated over the only uniform number."""
    logs = torch.tensor([0.5, -1.0, -2.0, 0.1, -4.0], dtype=torch.float64)
    grid = 4000
    hits = [torch.bincount(systematic(logs, 3, (k + 0.5) / grid), minlength=5) for k in range(grid)]
    mean = torch.stack(hits).double().mean(0)
    torch.testing.assert_close(mean, 3 * torch.softmax(logs, 0), rtol=0, atol=3e-3)


def test_resampling_keeps_the_evidence_of_each_block_and_touches_only_uneven_ones():
    start = Population.start(4, 2)
    before = start.weighted(torch.tensor([0.0, -9.0, -9.0, -9.0, 0.0, -0.1, 0.0, -0.1], dtype=torch.float64))
    after = before.resampled(0.5, seeded(0))
    for block in (0, 1):
        own, now = before.log_weights[before.block == block], after.log_weights[after.block == block]
        assert float(torch.logsumexp(now, 0)) == pytest.approx(float(torch.logsumexp(own, 0)), abs=1e-12)
    assert len(set(after.log_weights[after.block == 0].tolist())) == 1
    assert torch.equal(after.log_weights[after.block == 1], before.log_weights[before.block == 1])


def test_equal_prefixes_are_read_once_and_the_moves_are_told():
    model, circuit = problem(False)
    counted = Counted(model)
    draws = SequentialMonteCarlo()(counted, circuit, 200, None, seeded(0))
    assert counted.lm_tokens == counted.lm_contexts <= 4 + 4**2 + 4**3
    assert draws.info["nominal_lm_tokens"] == 200 * (LENGTH - 1)


def test_ended_texts_ask_for_nothing():
    model = TableModel([torch.tensor([0.0, 1.0]), torch.full((2, 2), 0.5)], eos_ids=(1,))
    circuit = compile(Count((0, 1), frozenset({0}), 0, 2), model, 2)
    draws = SequentialMonteCarlo(blocks=1)(model, circuit, 5, None, seeded(0))
    assert draws.tokens.tolist() == [[1, 1]] and draws.info["nominal_lm_tokens"] == 0


@pytest.mark.parametrize("budget, width", [(12, 1), (23, 1), (120, 10)])
def test_the_budget_bounds_the_moves(budget, width):
    model, circuit = problem(False)
    draws = SequentialMonteCarlo()(model, circuit, 8, budget, seeded(0))
    assert draws.info["nominal_lm_tokens"] == width * 4 * (LENGTH - 1) <= budget


@pytest.mark.parametrize("name", SAMPLERS)
def test_seeds_reproduce_and_scores_are_the_models(name):
    model, circuit = problem(True)
    first, second = (SAMPLERS[name](model, circuit, 16, None, seeded(9)) for _ in range(2))
    assert torch.equal(first.tokens, second.tokens) and torch.equal(first.log_weights, second.log_weights)
    torch.testing.assert_close(first.token_scores, model.token_scores(first.tokens))
    assert bool(circuit.accepts(first.tokens).all()) and first.record.guarantee == "proper"


def test_particles_that_die_count_as_zero():
    """After 0 the model never writes what α asks for, but the mask cannot know."""
    model = TableModel([torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 0.0], [0.5, 0.5]])])
    circuit = compile(Literal(1, frozenset({1})), model, 2)
    for threshold in (0.0, 1.0):
        sampler = SequentialMonteCarlo(threshold, blocks=2)
        assert proper_weighting(sampler, model, circuit, 4, runs(300), seed=5).holds(1e-6)
    impossible = TableModel([torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])])
    with pytest.raises(ZeroWeights):
        SequentialMonteCarlo()(impossible, circuit, 8, None, seeded(0))


def test_names_and_errors():
    assert SequentialMonteCarlo().name == "smc" and SequentialMonteCarlo(0.0).name == "masked-is"
    model, circuit = problem(False)
    with pytest.raises(InvalidArgument, match="ess_threshold"):
        SequentialMonteCarlo(1.5)(model, circuit, 8, None, seeded(0))
    with pytest.raises(InvalidArgument, match="num_particles"):
        SequentialMonteCarlo()(model, circuit, 0, None, seeded(0))
    with pytest.raises(InvalidArgument, match="blocks"):
        SequentialMonteCarlo(blocks=0)(model, circuit, 8, None, seeded(0))
    with pytest.raises(BudgetExceeded, match="budget"):
        SequentialMonteCarlo()(model, circuit, 8, 11, seeded(0))
