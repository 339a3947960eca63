"""Moves, i-SIR and particle Gibbs leave p(y | α) as it is: by transition matrices where they can be written out, else by
chi-square from exact draws. False alarm: 1e-6 a test.
"""

from __future__ import annotations

import math
import time

import pytest
import torch
from scipy.stats import chisquare

from locore.compilers import compile
from locore.constraints import Count, Literal
from locore.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.local import Exact, Forward, Lazy, TopK, Window
from locore.models import Counted, TableModel, TopP
from locore.samplers import GreedyMasking, LocallyConstrainedResampling, Oversampling, Rejection
from locore.samplers.anytime import Visit, effective_draws, upper_bound
from locore.samplers.isir import IteratedSIR
from locore.samplers.masked import fresh, read
from locore.samplers.mcmc import MarkovChain, moved
from locore.samplers.moves import (
    Regrow,
    WindowMove,
    log_acceptance,
    log_acceptance_of_regrowth,
    window_law,
)
from locore.samplers.neighbourhoods import conditional
from locore.samplers.particle_gibbs import ParticleGibbs
from locore.samplers.swor import WithoutReplacement
from locore.testing import enumerate_posterior, proper_weighting

LENGTH = 3
DRAWS = 20_000
WINDOWS = {
    "1, exact": WindowMove(1, Exact(floor=0.0)),
    "2, exact": WindowMove(2, Exact()),
    "2, top 2": WindowMove(2, TopK(k=2)),
    "3, window": WindowMove(3, Window(w=1, k=2)),
    "9, forward": WindowMove(9, Forward()),
    "2, lazy": WindowMove(2, Lazy(0.3, Forward())),
}
ANYTIME = {
    "i-SIR of 2": IteratedSIR(particles=2),
    "i-SIR of 5": IteratedSIR(particles=5),
    "particle Gibbs of 2": ParticleGibbs(particles=2, ess_threshold=1.0),
    "particle Gibbs of 4": ParticleGibbs(particles=4),
    "particle Gibbs, never resampled": ParticleGibbs(particles=3, ess_threshold=0.0),
}


def problem(eos, seed=7, vocab=3):
    model = TableModel.random(vocab, LENGTH, seed=seed, eos=eos)
    alpha = Count(tuple(range(LENGTH)), frozenset({1}), 1, 2) & ~Literal(2, frozenset({0}))
    circuit = compile(alpha, model, LENGTH)
    return model, circuit, enumerate_posterior(model, circuit)


def indices(tokens, models):
    """Long[num]: which of the models each row is."""
    same = (tokens[:, None] == models[None]).all(-1)
    assert same.any(-1).all(), "a sequence that violates the constraint"
    return same.long().argmax(-1)


def fits(tokens, models, probabilities):
    """Do independent draws have this law? Chi-square, rare sequences together."""
    observed = torch.bincount(indices(tokens, models), minlength=len(models)).double()
    expected = probabilities * len(tokens)
    rare = expected < 10
    assert not observed[expected == 0].any()
    observed = torch.cat([observed[~rare], observed[rare].sum()[None]])
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    keep = expected > 0
    observed, expected = observed[keep], expected[keep]
    return bool(chisquare(observed.numpy(), (expected * observed.sum() / expected.sum()).numpy()).pvalue > 1e-6)


def exact_draws(truth, num, seed):
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.multinomial(truth.probabilities, num, replacement=True, generator=generator)
    return truth.tokens[chosen]


def window_matrix(move, model, circuit, models):
    """f64[models, models]: the probability of each accepted change, by the module's own functions."""
    num, width = len(models), min(move.width, LENGTH)
    log_p = model.score(models)
    total = torch.zeros(num, num, dtype=torch.float64)
    starts = LENGTH - width + 1
    for start in range(starts):
        column = torch.arange(LENGTH)
        window = ((column >= start) & (column < start + width)).expand(num, -1)
        laws = window_law(move.kernel, model, models, window)
        log_q = torch.stack([conditional(circuit, q.expand(num, -1, -1), models) for q in laws])
        log_ratio = log_acceptance(log_p[None], log_p[:, None], log_q, log_q.T)
        reached = log_q > float("-inf")
        total += torch.where(reached, (log_q + log_ratio.clamp_max(0.0)).exp(), 0.0) / starts
    return total


def regrowth_matrix(model, circuit, models):
    """As `window_matrix`."""
    states = read(model, circuit, models)
    num = len(models)
    steps = states.token_scores - states.log_masses
    total = torch.zeros(num, num, dtype=torch.float64)
    for cut in range(LENGTH):
        shared = (models[:, None, :cut] == models[None, :, :cut]).all(-1)
        log_q = steps[:, cut:].sum(-1).expand(num, num)
        for y in range(num):
            row = states.at(torch.full((num,), y))
            log_ratio = log_acceptance_of_regrowth(states, row, torch.full((num,), cut))
            total[y] += torch.where(shared[y], (log_q[y] + log_ratio.clamp_max(0.0)).exp(), 0.0) / LENGTH
    return total


def with_refusals(accepted):
    """The transition matrix: what is not accepted stays."""
    off = accepted - torch.diag(accepted.diagonal())
    return off + torch.diag(1 - off.sum(1))


def check_matrix(accepted, truth):
    """Detailed balance, and so invariance."""
    matrix = with_refusals(accepted)
    assert (matrix >= -1e-12).all()
    flow = truth.probabilities[:, None] * matrix
    torch.testing.assert_close(flow, flow.T, rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(truth.probabilities @ matrix, truth.probabilities)
    return matrix


def check_steps(move, matrix, model, circuit, models):
    """What the move does is what its matrix says."""
    for y in range(0, len(models), max(1, len(models) // 3)):
        states = read(model, circuit, models[y].repeat(DRAWS, 1))
        step = move(model, circuit, states, torch.Generator().manual_seed(y))
        assert fits(step.states.tokens, models, matrix[y].clamp_min(0))
        torch.testing.assert_close(step.states.token_scores, model.token_scores(step.states.tokens))
        changed = (step.states.tokens != states.tokens).any(-1)
        assert torch.equal(changed, step.accepted) and (step.proposed | ~step.accepted).all()


@pytest.mark.parametrize("eos", [False, True])
@pytest.mark.parametrize("name", WINDOWS)
def test_window_moves_are_in_detailed_balance(name, eos):
    model, circuit, truth = problem(eos)
    matrix = check_matrix(window_matrix(WINDOWS[name], model, circuit, truth.tokens), truth)
    check_steps(WINDOWS[name], matrix, model, circuit, truth.tokens)


@pytest.mark.parametrize("eos", [False, True])
def test_regrowth_is_in_detailed_balance_and_reaches_everything(eos):
    model, circuit, truth = problem(eos)
    matrix = check_matrix(regrowth_matrix(model, circuit, truth.tokens), truth)
    assert (matrix > 0).all()
    check_steps(Regrow(), matrix, model, circuit, truth.tokens)


def test_one_token_from_the_exact_kernel_is_gibbs_sampling():
    model, circuit, truth = problem(True)
    states = read(model, circuit, truth.tokens.repeat(50, 1))
    step = WINDOWS["1, exact"](model, circuit, states, torch.Generator().manual_seed(0))
    assert step.proposed.any() and torch.equal(step.proposed, step.accepted)


def test_the_matrix_notices_a_wrong_acceptance():
    """The test can fail: taking every proposal leaves another law."""
    model, circuit, truth = problem(True)
    states = read(model, circuit, exact_draws(truth, DRAWS, 0))
    regrown = fresh(model, circuit.reader, DRAWS, torch.Generator().manual_seed(1))
    assert not fits(regrown.tokens, truth.tokens, truth.probabilities)
    step = Regrow()(model, circuit, states, torch.Generator().manual_seed(1))
    assert fits(step.states.tokens, truth.tokens, truth.probabilities)


def test_moves_keep_a_target_that_excludes_tokens():
    base = TableModel.random(4, LENGTH, seed=3, eos=True)
    model = TopP(base, 0.8)
    circuit = compile(Count(tuple(range(LENGTH)), frozenset({1}), 0, 2), model, LENGTH)
    truth = enumerate_posterior(model, circuit)
    every = (WindowMove(2, TopK(k=2)), WindowMove(1, Exact(floor=0.3)), Regrow())
    states, _ = moved(model, circuit, exact_draws(truth, DRAWS, 0), every, 2, torch.Generator().manual_seed(0))
    assert fits(states.tokens, truth.tokens, truth.probabilities)


@pytest.mark.parametrize("eos", [False, True])
def test_chains_forget_where_they_started(eos):
    model, circuit, truth = problem(eos)
    start = truth.tokens[truth.log_joint.argmin()].repeat(DRAWS, 1)
    moves = (WINDOWS["2, top 2"], Regrow())
    states, acceptance = moved(model, circuit, start, moves, 30, torch.Generator().manual_seed(0))
    assert fits(states.tokens, truth.tokens, truth.probabilities)
    assert all(0 < share <= 1 for share in acceptance.values())


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


@pytest.mark.parametrize(
    "proposal",
    [GreedyMasking(), WithoutReplacement(blocks=2), Oversampling()],
    ids=lambda sampler: sampler.name,
)
def test_any_proper_sampler_proposes(proposal):
    model, circuit, truth = problem(True)
    sampler = IteratedSIR(particles=3, proposal=proposal, proposal_budget=200)
    generator = torch.Generator().manual_seed(1)
    # Pairs (Ẑ, y) of the stationary law, by rejection: these three never say more than 1.
    pairs = [sampler._propose(proposal, model, circuit, generator) for _ in range(2500)]
    pool = Visit(*(torch.cat(column) for column in zip(*pairs, strict=True)))
    assert (pool.log_weight <= 1e-9).all()
    chosen = torch.rand(len(pairs), generator=generator).log() < pool.log_weight
    visit = Visit(pool.tokens[chosen], pool.token_scores[chosen], pool.log_weight[chosen])
    num = len(visit.tokens)
    assert num > 200
    for _ in range(2):
        visit = sampler.iterate(model, circuit, visit, num, generator)
    assert fits(visit.tokens, truth.tokens, truth.probabilities)


STARTS = {
    "masking": MarkovChain(sweeps=2, kernel="forward"),
    "masking, resampled": MarkovChain(sweeps=2, kernel=TopK(k=2), resample=True),
    "without replacement": MarkovChain(sweeps=1, window=1, start=WithoutReplacement()),
    "rejection": MarkovChain(sweeps=1, moves=("regrow",), start=Rejection()),
    "a budget": MarkovChain(start=WithoutReplacement(blocks=2), kernel="forward"),
}


@pytest.mark.parametrize("eos", [False, True])
@pytest.mark.parametrize("name", STARTS)
def test_chains_keep_weights_proper(name, eos):
    model, circuit, _ = problem(eos, seed=5)
    budget = 200 if name == "a budget" else None
    result = proper_weighting(STARTS[name], model, circuit, 8, 300, budget, seed=4)
    assert result.holds(1e-6), (result.z, result.estimates, result.truth)


def run(sampler, num=12, budget=None, seed=0, eos=True):
    model, circuit, _ = problem(eos)
    counted = Counted(model)
    return sampler(counted, circuit, num, budget, torch.Generator().manual_seed(seed)), counted


EVERY = {**STARTS, **ANYTIME, "PIMH": IteratedSIR(particles=4, proposal=GreedyMasking())}


@pytest.mark.parametrize("name", EVERY)
def test_budgets_are_kept_seeds_reproduce_and_scores_are_the_models(name):
    model, circuit, _ = problem(True)
    for budget in (150, 700):
        first, counted = run(EVERY[name], budget=budget)
        second, _ = run(EVERY[name], budget=budget)
        assert torch.equal(first.tokens, second.tokens)
        assert torch.equal(first.log_weights, second.log_weights)
        assert 0 < counted.lm_tokens <= budget and 0 < len(first.tokens) <= 12
        assert circuit.accepts(first.tokens).all()
        torch.testing.assert_close(first.token_scores, model.token_scores(first.tokens))
    with pytest.raises(BudgetExceeded, match="budget"):
        run(EVERY[name], budget=1)
    with pytest.raises(InvalidArgument, match="num_particles"):
        run(EVERY[name], num=0)


@pytest.mark.parametrize("name", STARTS)
def test_moves_leave_the_evidence_of_the_start(name):
    chain = STARTS[name]
    draws, _ = run(chain)
    model, circuit, _ = problem(True)
    start = chain.start(model, circuit, 12, None, torch.Generator().manual_seed(0))

    def evidence(d):
        return float(torch.logsumexp(d.log_weights, 0)) - math.log(len(d.tokens))

    assert evidence(draws) == pytest.approx(evidence(start))
    assert draws.guarantee == "proper" and set(draws.info["acceptance"]) <= {"window", "regrow"}
    assert draws.info.get("block_log_evidence") == start.info.get("block_log_evidence")


def test_a_biased_start_is_asymptotic():
    start = LocallyConstrainedResampling(TopK(k=2, floor=0.0))
    draws, _ = run(MarkovChain(start=start, sweeps=1))
    assert draws.guarantee == "asymptotic" and "biased" in draws.notes[-1]


@pytest.mark.parametrize("name", ANYTIME)
def test_the_evidence_beside_a_chain_is_unbiased(name):
    model, circuit, truth = problem(True, seed=5)
    estimates = [math.exp(float(run_on(ANYTIME[name], model, circuit, seed))) for seed in range(400)]
    values = torch.tensor(estimates)
    z = (values.mean() - math.exp(truth.log_evidence)) / (values.std() / math.sqrt(len(values)))
    assert abs(float(z)) < 5


@pytest.mark.parametrize("name", ANYTIME)
def test_runs_around_an_exact_draw_bound_the_evidence_from_above(name):
    """E[1/Ẑ] = 1/p(α) if the state has the law p(y | α)."""
    model, circuit, truth = problem(True)
    visit = visit_of(model, circuit, exact_draws(truth, DRAWS, 0))
    visit = ANYTIME[name].iterate(model, circuit, visit, DRAWS, torch.Generator().manual_seed(1))
    inverse = (-visit.log_tilted).exp()
    z = (inverse.mean() - math.exp(-truth.log_evidence)) / (inverse.std() / math.sqrt(DRAWS))
    assert abs(float(z)) < 5
    draws, _ = run(ANYTIME[name], num=400)
    low, high = draws.info["log_evidence_bounds"]
    assert low - 1 < truth.log_evidence < high + 1
    assert upper_bound([]) == math.inf


def run_on(sampler, model, circuit, seed):
    return sampler(model, circuit, 4, None, torch.Generator().manual_seed(seed)).log_weights[0]


@pytest.mark.parametrize("name", ANYTIME)
def test_chains_say_how_far_they_are(name):
    draws, _ = run(ANYTIME[name], num=40)
    info = draws.info
    assert draws.guarantee == "asymptotic" and len(draws.tokens) == 40
    assert info["chains"] == 4 and info["iterations"] == 20
    assert len(info["block_log_evidence"]) == 4 and 0 < info["moved"] <= 1
    assert 1 <= info["ess_before"] <= 40 and "limit" in draws.notes[0]


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
    pimh = IteratedSIR(proposal=GreedyMasking())
    for sampler in (MarkovChain(), IteratedSIR(), ParticleGibbs(), pimh):
        with pytest.raises(ZeroWeights):
            sampler(model, circuit, 4, None, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: MarkovChain(moves=()),
        lambda: MarkovChain(moves=("jump",)),
        lambda: MarkovChain(window=5),
        lambda: MarkovChain(sweeps=-1),
        lambda: MarkovChain(kernel=TopK(floor=0.0)),
        lambda: WindowMove(0),
        lambda: IteratedSIR(particles=1),
        lambda: IteratedSIR(burn_in=1.0),
        lambda: ParticleGibbs(chains=0),
        lambda: ParticleGibbs(ess_threshold=2.0),
    ],
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(InvalidArgument):
        wrong()


def test_a_biased_proposal_is_refused():
    biased = LocallyConstrainedResampling(TopK(k=2, floor=0.0))
    with pytest.raises(InvalidArgument, match="proper"):
        run(IteratedSIR(proposal=biased, proposal_budget=500))
