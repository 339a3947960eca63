"""Moves leave p(y | α) as it is, by their transition matrices; chains keep the weights of their starts. False alarm: 1e-6."""

from __future__ import annotations

import math

import pytest
import torch
from locore_lab.baselines.mcmc import (
    MarkovChain,
    Regrow,
    WindowMove,
    log_acceptance,
    log_acceptance_of_regrowth,
    moved,
    window_law,
)

from locore.compilers import compile
from locore.constraints import Count, Literal
from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.local import Exact, Forward, Lazy, TopK, Window
from locore.models import TableModel, TopP
from locore.samplers import LocallyConstrainedResampling, Rejection, WithoutReplacement
from locore.samplers.lcr import conditional
from locore.samplers.masking import read, regrown
from locore.testing import enumerate_posterior, proper_weighting
from tests.effort import runs, some

from .chains import DRAWS, LENGTH, check_budgets_seeds_and_scores, check_matrix, exact_draws, fits, problem, run

WINDOWS = {
    "1, exact": WindowMove(1, Exact(floor=0.0)),
    "2, exact": WindowMove(2, Exact()),
    "2, top 2": WindowMove(2, TopK(k=2)),
    "3, window": WindowMove(3, Window(w=1, k=2)),
    "9, forward": WindowMove(9, Forward()),
    "2, lazy": WindowMove(2, Lazy(0.3, Forward())),
}
STARTS = {
    "masking": MarkovChain(sweeps=2, kernel="forward"),
    "masking, resampled": MarkovChain(sweeps=2, kernel=TopK(k=2), resample=True),
    "without replacement": MarkovChain(sweeps=1, window=1, start=WithoutReplacement()),
    "rejection": MarkovChain(sweeps=1, moves=("regrow",), start=Rejection()),
    "a budget": MarkovChain(start=WithoutReplacement(blocks=2), kernel="forward"),
}


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


def check_steps(move, matrix, model, circuit, models):
    """What the move does is what its matrix says."""
    for y in range(0, len(models), max(1, len(models) // 3)):
        states = read(model, circuit, models[y].repeat(DRAWS, 1))
        step = move(model, circuit, states, torch.Generator().manual_seed(y))
        assert fits(step.states.tokens, models, matrix[y].clamp_min(0))
        torch.testing.assert_close(step.states.token_scores, model.token_scores(step.states.tokens))
        changed = (step.states.tokens != states.tokens).any(-1)
        assert torch.equal(changed, step.accepted) and (step.proposed | ~step.accepted).all()


@pytest.mark.parametrize("eos", some([True, False]))
@pytest.mark.parametrize("name", some(WINDOWS, 4))
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
    nothing = torch.zeros(DRAWS, circuit.length, dtype=torch.long)
    masked = regrown(model, circuit.reader, nothing, nothing[:, 0], torch.Generator().manual_seed(1))
    assert not fits(masked.tokens, truth.tokens, truth.probabilities)
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


@pytest.mark.slow
@pytest.mark.parametrize("eos", [False, True])
def test_chains_forget_where_they_started(eos):
    model, circuit, truth = problem(eos)
    start = truth.tokens[truth.log_joint.argmin()].repeat(DRAWS, 1)
    moves = (WINDOWS["2, top 2"], Regrow())
    states, acceptance = moved(model, circuit, start, moves, 30, torch.Generator().manual_seed(0))
    assert fits(states.tokens, truth.tokens, truth.probabilities)
    assert all(0 < share <= 1 for share in acceptance.values())


@pytest.mark.parametrize("eos", some([True, False]))
@pytest.mark.parametrize("name", some(STARTS))
def test_chains_keep_weights_proper(name, eos):
    model, circuit, _ = problem(eos, seed=5)
    budget = 200 if name == "a budget" else None
    result = proper_weighting(STARTS[name], model, circuit, 8, runs(300), budget, seed=4)
    assert result.holds(1e-6), (result.z, result.estimates, result.truth)


@pytest.mark.parametrize("name", STARTS)
def test_budgets_are_kept_seeds_reproduce_and_scores_are_the_models(name):
    check_budgets_seeds_and_scores(STARTS[name])


@pytest.mark.parametrize("name", STARTS)
def test_moves_leave_the_evidence_of_the_start(name):
    chain = STARTS[name]
    draws, _ = run(chain)
    model, circuit, _ = problem(True)
    start = chain.start(model, circuit, 12, None, torch.Generator().manual_seed(0))

    def evidence(d):
        return float(torch.logsumexp(d.log_weights, 0)) - math.log(len(d.tokens))

    assert evidence(draws) == pytest.approx(evidence(start))
    assert draws.record.guarantee == "proper" and set(draws.info["acceptance"]) <= {"window", "regrow"}
    assert (draws.blocks and draws.blocks.log_evidence) == (start.blocks and start.blocks.log_evidence)


def test_a_biased_start_is_asymptotic():
    start = LocallyConstrainedResampling(TopK(k=2, floor=0.0))
    draws, _ = run(MarkovChain(start=start, sweeps=1))
    assert draws.record.guarantee == "asymptotic" and "biased" in draws.record.notes[-1]


def test_impossible_constraints_raise():
    model = TableModel([torch.tensor([1.0, 0.0]), torch.tensor([[0.5, 0.5], [0.5, 0.5]])])
    circuit = compile(Literal(0, frozenset({1})), model, 2)
    for sampler in (MarkovChain(), MarkovChain(start=WithoutReplacement())):
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
    ],
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(InvalidArgument):
        wrong()
