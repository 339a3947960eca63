"""ASAp and AWRS, tested for what they promise: the one in the limit, the other in the mean. False alarm: 1e-6 a test."""

from __future__ import annotations

import math

import pytest
import torch

from locore.compilers import compile
from locore.constraints import Count, Literal
from locore.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.models import Counted, TableModel
from locore.samplers.baselines.asap import ASAp
from locore.samplers.baselines.awrs import AWRS, adaptive_rejection
from locore.samplers.masking import Masking
from locore.testing import enumerate_posterior, proper_weighting
from tests.effort import runs

from .chi_square import p_value

LENGTH = 4
FALSE_ALARM = 1e-6


def problem(eos):
    model = TableModel.random(3, LENGTH, seed=3, eos=eos, concentration=0.7)
    alpha = Count(tuple(range(LENGTH)), frozenset({1}), 1, 2) & ~Literal(2, frozenset({0}))
    return model, compile(alpha, model, LENGTH)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def masked_law(model, circuit, tokens):
    """f64[sequences]: Π_t p(y_t | y_<t) 1[allowed] / Z_t, by hand."""
    log_probs, law = model.log_probs(tokens).double(), torch.ones(len(tokens), dtype=torch.float64)
    states = circuit.reader.initial(len(tokens))
    for position in range(circuit.length):
        allowed = circuit.reader.allowed(position, states)[:, circuit.reader.token_class]
        masked = log_probs[:, position].exp() * allowed
        law *= masked.gather(1, tokens[:, position, None])[:, 0] / masked.sum(-1)
        states = circuit.reader.step(position, states, tokens[:, position])
    return law


# ASAp


@pytest.mark.slow
@pytest.mark.parametrize("eos", [False, True])
def test_asap_begins_as_masking(eos):
    model, circuit = problem(eos)
    truth = enumerate_posterior(model, circuit)
    generator = seeded(1)
    first = [ASAp()(model, circuit, 1, None, generator).tokens[0].tolist() for _ in range(700)]
    assert p_value(first, truth.tokens, masked_law(model, circuit, truth.tokens)) > FALSE_ALARM
    assert p_value(first, truth.tokens, truth.probabilities) < FALSE_ALARM  # which is not p(· | α)


@pytest.mark.parametrize("eos", [False, True])
def test_asap_ends_at_the_conditional(eos):
    """Once the prefixes that matter were visited its approximation is p(α | ·), and its draws are exact."""
    model, circuit = problem(eos)
    truth = enumerate_posterior(model, circuit)
    draws = ASAp()(model, circuit, 700, 1200 * (LENGTH - 1), seeded(2))
    assert draws.info["iterations"] == 1200 and len(draws.tokens) == 700
    assert draws.info["log_evidence_upper"] == pytest.approx(truth.log_evidence, abs=1e-4)
    assert p_value(draws.tokens.tolist(), truth.tokens, truth.probabilities) > FALSE_ALARM


def test_asap_says_that_it_is_biased_and_its_evidence_is_a_bound_that_falls():
    model, circuit = problem(False)
    truth = enumerate_posterior(model, circuit).log_evidence
    uppers = []
    for num in (1, 2, 4, 8, 16, 32):
        draws = ASAp()(model, circuit, num, None, seeded(3))
        assert draws.record.guarantee == "biased" and draws.record.notes
        assert len(draws.tokens) == num and bool(circuit.accepts(draws.tokens).all())
        uppers.append(draws.info["log_evidence_upper"])
    assert uppers == sorted(uppers, reverse=True)
    assert uppers[0] > uppers[-1] >= truth - 1e-12
    assert not proper_weighting(ASAp(), model, circuit, 4, 200, seed=1).holds(FALSE_ALARM)


def test_asap_reads_a_prefix_once_and_keeps_the_budget():
    model, circuit = problem(True)
    counted = Counted(model)
    draws = ASAp()(counted, circuit, 5, 100, seeded(0))
    assert counted.lm_tokens == counted.lm_contexts <= draws.info["nominal_lm_tokens"] <= 100
    assert draws.info["iterations"] == 33 and len(draws.tokens) == 5


def test_asap_goes_around_what_the_model_never_writes():
    model = TableModel([torch.tensor([0.9, 0.1]), torch.tensor([[1.0, 0.0], [0.5, 0.5]])])
    circuit = compile(Literal(1, frozenset({1})), model, 2)
    draws = ASAp()(model, circuit, 30, None, seeded(0))
    assert len(draws.tokens) in (29, 30) and draws.tokens[:, 0].tolist() == [1] * len(draws.tokens)
    assert math.exp(draws.info["log_evidence_upper"]) == pytest.approx(0.05)


# AWRS


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
        runs = [sampler(model, circuit, 8, None, generator).log_weights for _ in range(150)]
        return float(torch.stack([torch.logsumexp(w, 0) - math.log(len(w)) for w in runs]).std())

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
    for sampler in (AWRS(), ASAp()):
        with pytest.raises(BudgetExceeded, match="budget"):
            sampler(model, circuit, 8, 2, seeded(0))
        with pytest.raises(InvalidArgument, match="num_particles"):
            sampler(model, circuit, 0, None, seeded(0))
    with pytest.raises(InvalidArgument, match="accepts"):
        AWRS(accepts=1)(model, circuit, 8, None, seeded(0))
    impossible = TableModel([torch.tensor([1.0, 0.0]), torch.tensor([[0.5, 0.5], [0.5, 0.5]])])
    circuit = compile(Literal(0, frozenset({1})), impossible, 2)
    for sampler in (AWRS(), ASAp()):
        with pytest.raises(ZeroWeights):
            sampler(impossible, circuit, 4, None, seeded(0))
