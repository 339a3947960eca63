"""Law 3, by runs: every sampler that says "proper" has the right mean weight for every sequence. False alarm: 1e-6 a test."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from locore.compilers import compile
from locore.constraints import Count, Literal
from locore.kernel.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.local import Exact, Forward, TopK
from locore.models import Counted, TableModel
from locore.samplers import LocallyConstrainedResampling, Masking, Oversampling, Rejection, sampler_by_name
from locore.testing import proper_weighting
from tests.effort import THOROUGH, runs, some

LENGTH = 3
SAMPLERS = {
    "masked": (Masking(), 4, 1500, None),
    "rejection, stopped by acceptances": (Rejection(), 2, 1500, None),
    "rejection, stopped by either": (Rejection(), 3, 1500, 16),
    "rejection of one": (Rejection(), 1, 1500, None),
    "oversampling": (Oversampling(), 4, 1500, None),
    "lcr, exact": (LocallyConstrainedResampling(Exact()), 8, 400, None),
    "lcr, top-k": (LocallyConstrainedResampling(TopK(k=2, floor=0.3)), 8, 400, None),
    "lcr, forward": (LocallyConstrainedResampling(Forward()), 8, 400, None),
}


def problem(eos):
    # A mild model: with sharp conditionals the weights of LCR have no variance to speak of normal tails with;
    # test_lcr_exact.py sums over all pairs there.
    model = TableModel.random(3, LENGTH, seed=5, eos=eos, concentration=20.0)
    alpha = Count(tuple(range(LENGTH)), frozenset({1}), 1, 2) & ~Literal(2, frozenset({0}))
    return model, compile(alpha, model, LENGTH)


# "Stopped by either" is stopped by acceptances too, and of the exact law of every kernel there are sums in test_lcr_exact.py.
ALSO = {"rejection, stopped by acceptances", "lcr, exact", "lcr, top-k"}


@pytest.mark.parametrize("eos", some([True, False]))
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ALSO)) for name in SAMPLERS])
def test_samplers_weight_properly(name, eos):
    sampler, particles, tries, budget = SAMPLERS[name]
    model, circuit = problem(eos)
    result = proper_weighting(sampler, model, circuit, particles, tries if THOROUGH else 100, budget, seed=11)
    assert result.holds(1e-6), (result.z, result.estimates, result.truth)


def test_the_law_notices_a_wrong_weight():
    """The test can fail: masking without its weight does."""

    def wrong(*args):
        draws = Masking()(*args)
        return replace(draws, log_weights=torch.full_like(draws.log_weights, -1.0))

    model, circuit = problem(True)
    assert not proper_weighting(wrong, model, circuit, 4, 120 if THOROUGH else 60, seed=1).holds(1e-6)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_generator_in_the_same_state_gives_the_same_draws(name):
    sampler, particles, _, budget = SAMPLERS[name]
    model, circuit = problem(True)
    first, second = (sampler(model, circuit, particles + 4, budget and 40, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first.tokens, second.tokens) and torch.equal(first.log_weights, second.log_weights)


def test_masking_spends_what_it_says_and_never_returns_a_violation():
    model, circuit = problem(False)
    counted = Counted(model)
    draws = Masking()(counted, circuit, 50, None, torch.Generator().manual_seed(0))
    assert counted.lm_tokens == 50 * (LENGTH - 1)
    assert circuit.accepts(draws.tokens).all()
    affordable = Masking()(model, circuit, 50, 11, torch.Generator().manual_seed(0))
    assert affordable.drawn == 5


def test_token_scores_are_the_models():
    model, circuit = problem(True)
    for name in ("masked", "rejection", "lcr", "oversampling"):
        draws = sampler_by_name(name)(model, circuit, 8, None, torch.Generator().manual_seed(1))
        torch.testing.assert_close(draws.token_scores, model.token_scores(draws.tokens))


def test_weights_of_masking_without_look_ahead_are_proper_too():
    """An engine that does not know the length: unbiased with its weight, but some sequences never finish."""
    from locore.constraints import contains
    from locore.kernel.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_tokens([b"a", b"b", None], eos_ids=(2,))
    tables = [torch.full((3,) * (t + 1), 1 / 3) for t in range(LENGTH)]
    model = TableModel(tables, eos_ids=(2,), tokenizer=tokenizer)
    circuit = compile(contains("ab"), model, LENGTH)
    sampler = Masking(look_ahead=False)
    assert proper_weighting(sampler, model, circuit, 6, runs(1500), seed=2).holds(1e-6)
    draws = sampler(model, circuit, 400, None, torch.Generator().manual_seed(0))
    assert len(draws.tokens) < draws.drawn == 400


def test_nothing_found_is_an_error_and_not_a_sample():
    model = TableModel([torch.tensor([1.0, 0.0]), torch.tensor([[0.5, 0.5], [0.5, 0.5]])])
    circuit = compile(Literal(0, frozenset({1})), model, 2)
    for name in ("rejection", "oversampling", "masked"):
        with pytest.raises(ZeroWeights):
            sampler_by_name(name)(model, circuit, 4, None, torch.Generator().manual_seed(0))


def test_budgets_that_pay_for_nothing_are_refused_with_the_price():
    model, circuit = problem(False)
    for name in ("masked", "rejection", "oversampling", "lcr"):
        with pytest.raises(BudgetExceeded, match="budget"):
            sampler_by_name(name)(model, circuit, 4, 1, torch.Generator())
    with pytest.raises(BudgetExceeded, match="LM tokens"):
        LocallyConstrainedResampling("exact")(model, circuit, 100, 200, torch.Generator())


@pytest.mark.parametrize("name", ["masked", "rejection", "oversampling", "lcr"])
def test_zero_particles_are_refused(name):
    model, circuit = problem(False)
    with pytest.raises(InvalidArgument, match="num_particles"):
        sampler_by_name(name)(model, circuit, 0, None, torch.Generator())


def test_unknown_names_are_refused():
    with pytest.raises(InvalidArgument, match="masked"):
        sampler_by_name("beam")
    with pytest.raises(InvalidArgument, match="topk"):
        model, circuit = problem(False)
        LocallyConstrainedResampling("bottomk")(model, circuit, 1, None, torch.Generator())


@pytest.mark.slow
def test_evidence_of_rejection_is_unbiased_under_its_stop():
    model, circuit = problem(False)
    truth = math.exp(
        float(
            torch.logsumexp(
                model.score(torch.cartesian_prod(*[torch.arange(3)] * 3))[
                    circuit.accepts(torch.cartesian_prod(*[torch.arange(3)] * 3))
                ],
                0,
            )
        )
    )
    result = proper_weighting(Rejection(), model, circuit, 1, runs(3000), seed=6)
    assert result.truth[-1].item() == pytest.approx(truth)
    assert abs(result.z[-1].item()) < 5
