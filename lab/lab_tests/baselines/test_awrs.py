"""AWRS, tested for what it promises in the mean. False alarm: 1e-6 a test."""

from __future__ import annotations

import math

import pytest
import torch
from locore_lab.baselines.awrs import AWRS, adaptive_rejection

from locore.compilers import compile
from locore.constraints import Count, Literal
from locore.kernel.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.models import Counted, TableModel
from locore.samplers import Masking
from locore.testing import proper_weighting
from tests.effort import THOROUGH, runs

LENGTH = 4
FALSE_ALARM = 1e-6


def problem(eos):
    model = TableModel.random(3, LENGTH, seed=3, eos=eos, concentration=0.7)
    alpha = Count(tuple(range(LENGTH)), frozenset({1}), 1, 2) & ~Literal(2, frozenset({0}))
    return model, compile(alpha, model, LENGTH)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("accepts", [2, 4])
def test_one_step_of_awrs_is_a_masked_draw_with_an_independent_unbiased_mass(accepts):
    probs = torch.tensor([0.45, 0.2, 0.15, 0.1, 0.06, 0.04], dtype=torch.float64)
    allowed = torch.tensor([False, True, False, False, True, True])
    runs = 8000
    token, log_mass, checks = adaptive_rejection(probs.log().expand(runs, -1), allowed.expand(runs, -1), accepts, seeded(1))
    mass = log_mass.exp()
    for v in range(len(probs)):
        weighted = mass * (token == v)
        want = float(probs[v]) if allowed[v] else 0.0
        assert abs(float(weighted.mean()) - want) <= 5 * float(weighted.std()) / math.sqrt(runs)
        share = float((token == v).double().mean())
        want = float(probs[v] / probs[allowed].sum()) if allowed[v] else 0.0
        assert abs(share - want) <= 5 * math.sqrt(want * (1 - want) / runs)
    assert int(checks.min()) == accepts and int(checks.max()) == accepts + 3


def test_more_accepts_tell_more_of_the_mask():
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64).log().expand(4000, -1)
    allowed = torch.tensor([False, True, False, True]).expand(4000, -1)
    spreads = [float(adaptive_rejection(probs, allowed, accepts, seeded(2))[1].exp().std()) for accepts in (2, 4, 16)]
    assert spreads[0] > 1.2 * spreads[1] > 1.2**2 * spreads[2]


def test_a_step_knows_rows_without_mass_and_rows_that_may_do_anything():
    log_probs = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64).log()
    allowed = torch.tensor([[False, True, True], [False, True, True], [True, True, True]])
    token, log_mass, checks = adaptive_rejection(log_probs, allowed, 2, seeded(0))
    assert log_mass[0] == -math.inf and token[1] == 1
    assert float(log_mass[2]) == pytest.approx(0.0, abs=1e-11) and int(checks[2]) == 2


@pytest.mark.parametrize("eos", [False, True])
@pytest.mark.parametrize("sampler", [AWRS(), AWRS(ess_threshold=0.0, blocks=1), AWRS(1.0, accepts=4, blocks=2)], ids=str)
def test_awrs_weights_properly(sampler, eos):
    model, circuit = problem(eos)
    result = proper_weighting(sampler, model, circuit, 12, runs(200), seed=6)
    assert result.holds(FALSE_ALARM), (result.z, result.estimates, result.truth)


def test_awrs_is_noisier_than_the_mask_that_is_known():
    model, circuit = problem(False)

    def spread(sampler):
        generator = seeded(4)
        found = [sampler(model, circuit, 8, None, generator).log_weights for _ in range(150 if THOROUGH else 100)]
        return float(torch.stack([torch.logsumexp(w, 0) - math.log(len(w)) for w in found]).std())

    assert spread(AWRS(ess_threshold=0.0)) > spread(Masking())


def test_awrs_seeds_budgets_scores_and_errors():
    model, circuit = problem(True)
    first, second = (AWRS()(model, circuit, 16, None, seeded(9)) for _ in range(2))
    assert torch.equal(first.tokens, second.tokens) and torch.equal(first.log_weights, second.log_weights)
    torch.testing.assert_close(first.token_scores, model.token_scores(first.tokens))
    assert bool(circuit.accepts(first.tokens).all()) and first.info["constraint_checks"] >= 2 * 16 * LENGTH
    counted = Counted(model)
    draws = AWRS()(counted, circuit, 8, 120, seeded(0))
    assert counted.lm_tokens <= draws.info["nominal_lm_tokens"] <= 120
    with pytest.raises(BudgetExceeded, match="budget"):
        AWRS()(model, circuit, 8, 2, seeded(0))
    with pytest.raises(InvalidArgument, match="num_particles"):
        AWRS()(model, circuit, 0, None, seeded(0))
    with pytest.raises(InvalidArgument, match="accepts"):
        AWRS(accepts=1)(model, circuit, 8, None, seeded(0))
    impossible = TableModel([torch.tensor([1.0, 0.0]), torch.tensor([[0.5, 0.5], [0.5, 0.5]])])
    circuit = compile(Literal(0, frozenset({1})), impossible, 2)
    with pytest.raises(ZeroWeights):
        AWRS()(impossible, circuit, 4, None, seeded(0))
