"""LCR's options: mixture weights, several y for each context, merged copies, prices. False alarm: 1e-6 a test."""

from __future__ import annotations

import math

import pytest
import torch

from locore.compilers import compile
from locore.constraints import Count, Literal
from locore.kernel.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.local import Exact, Forward, Lazy, TopK, Window
from locore.models import Counted, TableModel, TopP
from locore.samplers import LocallyConstrainedResampling
from locore.samplers.lcr import BLOCKS
from locore.testing import proper_weighting
from tests.effort import runs, some

LENGTH = 3
OPTIONS = {
    "mixture": {"weights": "mixture"},
    "mixture, 3 for each context": {"weights": "mixture", "per_context": 3},
    "mixture of nucleus drafts": {"weights": "mixture", "draft": "nucleus"},
    "3 for each context": {"per_context": 3},
    "window": {"kernel": Window(w=1, k=3, floor=0.3)},
    "lazy": {"kernel": Lazy(0.4, Forward(floor=0.3))},
    "lazy, 2 for each context": {"kernel": Lazy(0.4, TopK(k=2, floor=0.3)), "per_context": 2},
}


def problem(eos=True):
    model = TableModel.random(3, LENGTH, seed=5, eos=eos, concentration=20.0)
    alpha = Count(tuple(range(LENGTH)), frozenset({1}), 1, 2) & ~Literal(2, frozenset({0}))
    return model, compile(alpha, model, LENGTH)


def sampler_for(options, model):
    options = {"kernel": Forward(), **options}
    if options.get("draft") == "nucleus":
        options["draft"] = TopP(model, 0.5)
    return LocallyConstrainedResampling(**options)


def run(sampler, num=40, budget=None, seed=0, eos=True):
    model, circuit = problem(eos)
    counted = Counted(model)
    draws = sampler(counted, circuit, num, budget, torch.Generator().manual_seed(seed))
    return draws, counted


@pytest.mark.parametrize("eos", some([True, False]))
@pytest.mark.parametrize("name", some(OPTIONS, 6))
def test_every_option_weights_properly(name, eos):
    model, circuit = problem(eos)
    sampler = sampler_for(OPTIONS[name], model)
    # Few nucleus drafts cover little: their weights have a heavy tail, which makes z-scores too large.
    particles = 48 if OPTIONS[name].get("draft") else 8
    result = proper_weighting(sampler, model, circuit, particles, runs(400), seed=11)
    assert result.holds(1e-6), (result.z, result.estimates, result.truth)


@pytest.mark.parametrize("name", OPTIONS)
def test_equal_sequences_are_one_particle_and_nothing_is_lost(name):
    model, _ = problem()
    draws, _ = run(sampler_for(OPTIONS[name], model))
    assert len(draws.tokens) == len(draws.tokens.unique(dim=0)) < 40
    assert draws.record.guarantee == "proper" and draws.info["dependent"]
    assert draws.drawn == len(draws.tokens)  # no weight was zero
    torch.testing.assert_close(draws.token_scores, model.token_scores(draws.tokens))


@pytest.mark.parametrize("per_context", [1, 3])
def test_blocks_of_contexts_average_to_the_evidence(per_context):
    draws, _ = run(LocallyConstrainedResampling("forward", per_context=per_context), num=12 * BLOCKS)
    blocks = torch.tensor(draws.blocks.log_evidence)
    assert len(blocks) == BLOCKS and draws.info["contexts"] == 12 * BLOCKS // per_context
    evidence = torch.logsumexp(draws.log_weights, 0) - math.log(len(draws.tokens))
    torch.testing.assert_close(blocks.exp().mean(), evidence.exp().float())
    assert 1 <= draws.info["ess_before"] <= draws.info["contexts"]


def test_distinct_independent_weights_say_nothing_of_blocks():
    draws, _ = run(LocallyConstrainedResampling("forward"), num=1)
    assert "dependent" not in draws.info and draws.blocks is None


@pytest.mark.parametrize("weights", ["augmented", "mixture"])
def test_every_neighbourhood_is_evaluated_once(weights):
    asked = []

    class Recording(Forward):
        def distributions(self, model, tokens, where=None, forward=None):
            asked.extend(map(tuple, tokens.tolist()))
            return super().distributions(model, tokens, where, forward)

    run(LocallyConstrainedResampling(Recording(), weights=weights, per_context=2), num=60)
    assert len(asked) == len(set(asked)) > 1


@pytest.mark.parametrize("weights", ["augmented", "mixture"])
@pytest.mark.parametrize("kernel", [Forward(), TopK(k=2), Window(w=1, k=2), Lazy(0.2), Exact()])
def test_the_price_is_an_upper_bound_and_budgets_buy_contexts(kernel, weights):
    sampler = LocallyConstrainedResampling(kernel, weights=weights, per_context=2)
    draws, counted = run(sampler, num=12, eos=False)
    assert draws.info["contexts"] == 6 and draws.info["pairs"] == 12
    assert 0 < counted.lm_tokens <= draws.info["price"]
    price = draws.info["price"] // 6
    halved, counted = run(sampler, num=12 if not isinstance(kernel, Exact) else 6, budget=3 * price, eos=False)
    assert halved.info["contexts"] == 3 and counted.lm_tokens <= 3 * price
    with pytest.raises(BudgetExceeded, match="LM tokens"):
        run(sampler, budget=price - 1, eos=False)


@pytest.mark.slow
def test_memory_limits_change_nothing(monkeypatch):
    sampler = LocallyConstrainedResampling("topk", per_context=2)
    whole, _ = run(sampler)
    monkeypatch.setattr("locore.samplers.lcr.KEPT", 0)
    again, _ = run(sampler)
    assert torch.equal(whole.tokens, again.tokens)
    torch.testing.assert_close(whole.log_weights, again.log_weights)
    for weights in ("augmented", "mixture"):
        monkeypatch.setattr("locore.samplers.lcr.TOGETHER", 1)
        model, circuit = problem()
        small = LocallyConstrainedResampling(Lazy(0.2), weights=weights, per_context=2)
        assert proper_weighting(small, model, circuit, 6, runs(400), seed=3).holds(1e-6)


def test_a_lazy_exact_kernel_has_the_exact_kernels_limit():
    with pytest.raises(BudgetExceeded, match="topk"):
        run(LocallyConstrainedResampling(Lazy(0.1, Exact())), num=100, budget=100)


def test_kernels_that_cannot_reach_the_constraint_say_so():
    tables = [torch.tensor([0.8, 0.1, 0.1]), torch.tensor([0.8, 0.1, 0.1]).expand(3, 3)]
    model = TableModel(tables)
    circuit = compile(Literal(0, frozenset({2})), model, 2)
    for weights in ("augmented", "mixture"):
        sampler = LocallyConstrainedResampling(TopK(k=1, floor=0.0), weights=weights)
        with pytest.raises(ZeroWeights, match="floor"):
            sampler(model, circuit, 4, None, torch.Generator().manual_seed(0))


def test_wrong_options_are_refused():
    with pytest.raises(InvalidArgument, match="mixture"):
        LocallyConstrainedResampling(weights="balance")
    with pytest.raises(InvalidArgument, match="per_context"):
        LocallyConstrainedResampling(per_context=0)
