"""i-SIR and particle Gibbs leave p(y | α) as it is: by chi-square from exact draws, and by a matrix. False alarm: 1e-6."""

from __future__ import annotations

import math
import time

import pytest
import torch
from locore_lab.baselines.chains import IteratedSIR, ParticleGibbs, Visit, effective_draws, upper_bound

from locore.compilers import compile
from locore.constraints import Literal
from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.models import TableModel
from locore.samplers.masking import read
from tests.effort import runs, some

from .chains import DRAWS, check_budgets_seeds_and_scores, check_matrix, exact_draws, fits, problem, run

ANYTIME = {
    "i-SIR of 2": IteratedSIR(particles=2),
    "i-SIR of 5": IteratedSIR(particles=5),
    "particle Gibbs of 2": ParticleGibbs(particles=2, ess_threshold=1.0),
    "particle Gibbs of 4": ParticleGibbs(particles=4),
    "particle Gibbs, never resampled": ParticleGibbs(particles=3, ess_threshold=0.0),
}


def visit_of(model, circuit, tokens):
    states = read(model, circuit, tokens)
    return Visit(tokens, states.token_scores, states.log_weight)


@pytest.mark.parametrize("eos", [False, True])
@pytest.mark.parametrize("name", ANYTIME)
def test_iterations_keep_the_posterior(name, eos):
    model, circuit, truth = problem(eos)
    visit = visit_of(model, circuit, exact_draws(truth, DRAWS, 0))
    generator = torch.Generator().manual_seed(1)
    for _ in range(2):
        visit = ANYTIME[name].iterate(model, circuit, visit, DRAWS, generator)
    assert fits(visit.tokens, truth.tokens, truth.probabilities)
    torch.testing.assert_close(visit.token_scores, model.token_scores(visit.tokens))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ANYTIME if "Gibbs of 2" not in name])  # which forgets slowly
def test_iterations_forget_where_they_started(name):
    model, circuit, truth = problem(True)
    visit = visit_of(model, circuit, truth.tokens[truth.log_joint.argmin()].repeat(DRAWS, 1))
    generator = torch.Generator().manual_seed(1)
    for _ in range(40):
        visit = ANYTIME[name].iterate(model, circuit, visit, DRAWS, generator)
    assert fits(visit.tokens, truth.tokens, truth.probabilities)


def test_isir_of_two_is_what_its_formula_says():
    """K(y, y') = q(y') w(y') / (w(y) + w(y')), which is in detailed balance."""
    model, circuit, truth = problem(True)
    states = read(model, circuit, truth.tokens)
    weights = states.log_weight.exp()
    proposal = (states.log_prob - states.log_weight).exp()
    accepted = proposal * weights / (weights[:, None] + weights)
    matrix = check_matrix(accepted, truth)
    for y in (0, len(truth.tokens) // 2):
        visit = visit_of(model, circuit, truth.tokens[y].repeat(DRAWS, 1))
        visit = ANYTIME["i-SIR of 2"].iterate(model, circuit, visit, DRAWS, torch.Generator().manual_seed(y))
        assert fits(visit.tokens, truth.tokens, matrix[y].clamp_min(0))


@pytest.mark.parametrize("name", ANYTIME)
def test_budgets_are_kept_seeds_reproduce_and_scores_are_the_models(name):
    check_budgets_seeds_and_scores(ANYTIME[name])


@pytest.mark.parametrize("name", some(ANYTIME))
def test_the_evidence_beside_a_chain_is_unbiased(name):
    model, circuit, truth = problem(True, seed=5)
    estimates = [math.exp(float(run_on(ANYTIME[name], model, circuit, seed))) for seed in range(runs(400))]
    values = torch.tensor(estimates)
    z = (values.mean() - math.exp(truth.log_evidence)) / (values.std() / math.sqrt(len(values)))
    assert abs(float(z)) < 5


@pytest.mark.parametrize("name", some(ANYTIME))
def test_runs_around_an_exact_draw_bound_the_evidence_from_above(name):
    """E[1/Ẑ] = 1/p(α) if the state has the law p(y | α)."""
    model, circuit, truth = problem(True)
    visit = visit_of(model, circuit, exact_draws(truth, DRAWS, 0))
    visit = ANYTIME[name].iterate(model, circuit, visit, DRAWS, torch.Generator().manual_seed(1))
    inverse = (-visit.log_tilted).exp()
    z = (inverse.mean() - math.exp(-truth.log_evidence)) / (inverse.std() / math.sqrt(DRAWS))
    assert abs(float(z)) < 5
    draws, _ = run(ANYTIME[name], num=400)
    low, high = draws.info["log_evidence_bracket"]
    assert low - 1 < truth.log_evidence < high + 1
    assert upper_bound([]) == math.inf


def run_on(sampler, model, circuit, seed):
    return sampler(model, circuit, 4, None, torch.Generator().manual_seed(seed)).log_weights[0]


@pytest.mark.parametrize("name", ANYTIME)
def test_chains_say_how_far_they_are(name):
    draws, _ = run(ANYTIME[name], num=40)
    info = draws.info
    assert draws.record.guarantee == "asymptotic" and len(draws.tokens) == 40
    assert info["chains"] == 4 and info["iterations"] == 20
    assert len(draws.blocks) == 4 and 0 < info["moved"] <= 1
    assert 1 <= info["ess_before"] <= 40 and "limit" in draws.record.notes[0]


def test_time_stops_a_chain():
    for sampler in (IteratedSIR(seconds=0.2), ParticleGibbs(seconds=0.2)):
        start = time.perf_counter()
        draws, _ = run(sampler, num=10**6)
        assert 0.2 <= time.perf_counter() - start < 20
        assert draws.info["iterations"] > 1 and len(draws.tokens) < 10**6
        few, _ = run(sampler, num=3, budget=200)
        assert few.info["iterations"] <= 200 // (4 * 16 * 2) + 1


def test_effective_draws_count_what_is_new():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4, 2000, generator=generator, dtype=torch.float64)
    assert 6000 < effective_draws(noise) <= 8000
    sticky = noise[:, ::10].repeat_interleave(10, 1)
    assert effective_draws(sticky) < 1600
    apart = noise + 10 * torch.arange(4)[:, None]
    assert effective_draws(apart) < 10
    assert effective_draws(torch.zeros(4, 100)) == 1


def test_impossible_constraints_raise():
    model = TableModel([torch.tensor([1.0, 0.0]), torch.tensor([[0.5, 0.5], [0.5, 0.5]])])
    circuit = compile(Literal(0, frozenset({1})), model, 2)
    for sampler in (IteratedSIR(), ParticleGibbs()):
        with pytest.raises(ZeroWeights):
            sampler(model, circuit, 4, None, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: IteratedSIR(particles=1),
        lambda: IteratedSIR(burn_in=1.0),
        lambda: ParticleGibbs(chains=0),
        lambda: ParticleGibbs(ess_threshold=2.0),
    ],
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(InvalidArgument):
        wrong()
