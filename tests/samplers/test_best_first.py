"""The likeliest prefixes first: exact where nothing is left, proper where something is, and certain of what it says."""

from __future__ import annotations

import math

import pytest
import torch

import locore
from locore.circuits import Circuit
from locore.compilers import compile
from locore.constraints import Count, choice
from locore.kernel.errors import BudgetExceeded, InvalidArgument
from locore.models import Counted, LanguageModel, TableModel
from locore.samplers import BestFirst, Draws, Enumeration
from locore.samplers.best_first import REST
from locore.testing import proper_weighting
from tests.effort import runs, some

LENGTH = 5


def problem(eos: bool = False, concentration: float = 1.0) -> tuple[LanguageModel, Circuit]:
    model = TableModel.random(4, LENGTH, seed=2, eos=eos, concentration=concentration)
    return model, compile(Count(tuple(range(LENGTH)), frozenset({1}), 1, 3), model, LENGTH)


def run(
    model: LanguageModel, circuit: Circuit, num: int = 1000, budget: int | None = None, share: float = 0.01, seed: int = 0
) -> Draws:
    return BestFirst(share)(model, circuit, num, budget, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("eos", [False, True])
def test_it_is_enumeration_where_nothing_is_left(eos):
    model, circuit = problem(eos)
    truth = Enumeration()(model, circuit, 1000, None, torch.Generator().manual_seed(0))
    found = run(model, circuit, share=0.0)
    assert found.info["evidence"] == "exact" and found.info["sequences"] == len(truth.tokens)
    assert sorted(found.tokens.tolist()) == sorted(truth.tokens.tolist())
    torch.testing.assert_close(found.log_weights.logsumexp(0), truth.log_weights.logsumexp(0))


@pytest.mark.parametrize("eos", some([True, False]))
@pytest.mark.parametrize("budget", some([4, 40, 20]))
def test_it_is_proper_whatever_is_left(eos, budget):
    """With the least budget it is masked decoding."""
    model, circuit = problem(eos, concentration=5.0)

    class Budgeted(BestFirst):
        def __call__(self, model, circuit, num_particles, _, generator):
            return super().__call__(model, circuit, num_particles, budget, generator)

    result = proper_weighting(Budgeted(0.01), model, circuit, 6, runs(800), seed=3)
    assert result.holds(1e-6), (result.z, result.estimates, result.truth)


@pytest.mark.parametrize("share", [0.3, 0.05, 0.001])
def test_the_bounds_are_certain_and_as_near_as_was_asked(share):
    model, circuit = problem()
    truth = float(
        Enumeration()(model, circuit, 1000, None, torch.Generator().manual_seed(0)).log_weights.logsumexp(0)
    ) - math.log(Enumeration()(model, circuit, 1000, None, torch.Generator().manual_seed(0)).drawn)
    draws = run(model, circuit, share=share)
    if draws.info.get("evidence") == "exact":
        return
    low, high = draws.info["log_evidence_lower"], draws.info["log_evidence_upper"]
    assert low <= truth <= high and high - low <= math.log1p(share) + 1e-9


@pytest.mark.parametrize("budget", [4, 10, 25, 60])
def test_a_budget_is_kept(budget):
    model, circuit = problem()
    counted = Counted(model)
    run(counted, circuit, budget=budget, share=0.0001)
    assert counted.lm_tokens <= budget


def test_spellings_of_a_few_texts_cost_what_the_texts_cost():
    labels = choice([" happy", " sad", " angry", " afraid"])
    options = {"max_new_tokens": 8, "num_particles": 1000, "seed": 0}
    every = locore.generate("tiny", "She felt very", labels, sampler="exact", **options)
    found = locore.generate("tiny", "She felt very", labels, **options)
    assert found.info["chosen"] == "best-first" and found.info["lm_tokens"] < every.info["lm_tokens"] / 4
    assert found.verdict.level == "trust" and "best-first" in found.report(full=True)
    assert "at most 0." in found.report() and "cannot see" not in found.report(full=True)
    assert found.log_evidence_bounds[0] <= every.log_evidence <= found.log_evidence_bounds[1]
    assert found.log_evidence == pytest.approx(every.log_evidence, abs=0.002)
    truth, law = every.posterior(), found.posterior()
    assert sum(abs(truth.get(text, 0) - law.get(text, 0)) for text in {*truth, *law}) / 2 < 0.002
    assert sum(law.values()) == pytest.approx(1)


def test_a_filter_keeps_the_errors_of_what_is_left():
    found = locore.generate("tiny", "She felt very", choice([" happy", " sad", " angry"]), 8, 0, 100, BestFirst(0.2), seed=1)
    assert found.blocks is not None and len(found.blocks) == REST
    kept = found.where(torch.tensor([text != " sad" for text in found.texts]), "sad")
    assert kept.verdict.level != "not judged"


@pytest.mark.parametrize("seed", range(5))
def test_what_was_drawn_for_nothing_does_not_matter(seed):
    """Only the text's own tokenisation has a probability, and what was not read leads nowhere."""
    options = {"max_new_tokens": 8, "sampler": BestFirst(0.5), "canonical": "only", "seed": seed}
    found = locore.generate("tiny", "She felt very", choice([" happy", " sad", " angry"]), **options)
    assert set(found.texts) <= {" happy", " sad", " angry"} and found.verdict.level != "not judged"


def test_settings_are_checked():
    with pytest.raises(InvalidArgument, match="share"):
        BestFirst(share=1.0)
    model, circuit = problem()
    with pytest.raises(InvalidArgument, match="num_particles"):
        run(model, circuit, num=0)
    with pytest.raises(BudgetExceeded, match="best-first"):
        run(model, circuit, budget=LENGTH - 2)
