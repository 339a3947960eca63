"""Bounds of a probability are theorems: their confidence is summed over every outcome, not estimated."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from locore.kernel.evidence.blocks import relative_error
from locore.kernel.evidence.bounds import CAPITAL, CONFIDENCE, betting_bounds, binomial_bounds
from tests.effort import THOROUGH, some

TAIL = (1 - CONFIDENCE) / 2


@given(st.integers(1, 3000), st.data())
def test_counted_draws_have_the_interval_of_clopper_and_pearson(drawn, data):
    accepted = data.draw(st.integers(1, drawn))
    low, high = binomial_bounds(accepted, drawn, stopped=False)
    theirs = stats.binomtest(accepted, drawn).proportion_ci(CONFIDENCE, "exact")
    assert math.exp(low) == pytest.approx(theirs.low, rel=1e-6) and math.exp(high) == pytest.approx(theirs.high, rel=1e-6)


@given(st.integers(2, 2**60))
def test_one_of_very_many_draws_has_a_lower_bound(drawn):
    """P(at least one) = 1 − (1 − p)^n, which is the tail at the bound and no more."""
    low, high = binomial_bounds(1, drawn, stopped=False)
    assert low == pytest.approx(math.log(-math.expm1(math.log1p(-TAIL) / drawn)), abs=1e-9)
    assert high >= math.log(1 / drawn)


@pytest.mark.parametrize("p", some([0.003, 0.04, 0.2, 0.5, 0.77, 0.98]))
@pytest.mark.parametrize(("wanted", "most"), [(1, 6), (3, 12), (4, 40), (8, 200)])
def test_the_interval_holds_for_runs_that_stop_either_way(p, wanted, most):
    """Until `wanted` are accepted or `most` are drawn: the probability of all outcomes whose interval misses p, exactly. An
    outcome without any acceptance is no result."""
    missed = {"low": 0.0, "high": 0.0}
    outcomes = [(k, most, False, stats.binom.pmf(k, most, p)) for k in range(1, wanted)]
    for last in range(wanted, most + 1):
        outcomes.append((wanted, last, True, p * stats.binom.pmf(wanted - 1, last - 1, p)))
    for accepted, drawn, stopped, probability in outcomes:
        low, high = binomial_bounds(accepted, drawn, stopped)
        missed["low"] += probability * (low > math.log(p) + 1e-9)
        missed["high"] += probability * (high < math.log(p) - 1e-9)
    assert sum(probability for *_, probability in outcomes) == pytest.approx(1 - (1 - p) ** most)
    assert max(missed.values()) <= TAIL + 1e-12


LAWS = {  # values of a weight and their probabilities
    "draws of the model": ([0.0, 1.0], [0.8, 0.2]),
    "rare and large": ([0.001, 0.9], [0.97, 0.03]),
    "rarer still": ([0.0, 0.999], [0.999, 0.001]),
    "mild": ([0.2, 0.3, 0.4], [0.3, 0.4, 0.3]),
}


def outcomes_of(law, num):
    values, probabilities = LAWS[law]
    for indices in itertools.product(range(len(values)), repeat=num):
        weights = torch.tensor([values[i] for i in indices], dtype=torch.float64)
        yield weights.log(), math.prod(probabilities[i] for i in indices)


@pytest.mark.parametrize("num", [1, 2, 5 if THOROUGH else 4])
@pytest.mark.parametrize("law", LAWS)
def test_bets_are_lost_as_rarely_as_they_say(law, num):
    values, probabilities = LAWS[law]
    truth = math.log(sum(v * q for v, q in zip(values, probabilities, strict=True)))
    cap = torch.tensor(max(values), dtype=torch.float64).log()
    missed = [0.0, 0.0, 0.0]
    for log_weights, probability in outcomes_of(law, num):
        low, high = betting_bounds(log_weights, cap)
        missed[0] += probability * (low > truth)
        missed[1] += probability * (high < truth)
        missed[2] += probability * (betting_bounds(log_weights)[0] > truth)
    assert missed[0] <= TAIL and missed[1] <= TAIL and missed[2] <= 2 * TAIL


@pytest.mark.slow
@pytest.mark.parametrize("law", ["draws of the model", "rare and large"])
def test_stopping_when_it_looks_best_does_not_help(law):
    """The bounds hold at all times at once, so also at the worst moment; caps may differ from weight to weight."""
    values, probabilities = LAWS[law]
    truth = math.log(sum(v * q for v, q in zip(values, probabilities, strict=True)))
    caps = torch.tensor([1.0, 1.5, 1.0, 3.0, 1.2, 1.0, 1.0], dtype=torch.float64).log()
    missed = [0.0, 0.0]
    for log_weights, probability in outcomes_of(law, len(caps)):
        bounds = [betting_bounds(log_weights[:n], caps[:n]) for n in range(1, len(caps) + 1)]
        missed[0] += probability * any(low > truth for low, _ in bounds)
        missed[1] += probability * any(high < truth for _, high in bounds)
    assert max(missed) <= TAIL


def test_one_weight_gives_markovs_inequality():
    """With stakes λ of parts π the capital after one weight is Σ π(1 − λ + λ·w/z): between Markov's and half of it."""
    low, high = betting_bounds(torch.tensor([-3.0]))
    assert -3.0 + math.log((1 - CONFIDENCE) * float(CAPITAL[0])) < low < -3.0 + math.log(1 - CONFIDENCE)
    assert high == 0.0


@given(st.lists(st.floats(-60, -1), min_size=1, max_size=30), st.floats(-500, 0.5))
def test_bounds_follow_the_scale_of_the_weights(logs, shift):
    weights = torch.tensor(logs, dtype=torch.float64)
    assert betting_bounds(weights + shift)[0] == pytest.approx(betting_bounds(weights)[0] + shift, abs=1e-6)


def test_many_even_weights_leave_little_doubt():
    """Bounds that are always wide would pass all of the above."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(2000, generator=generator, dtype=torch.float64)
    low, high = betting_bounds(weights.log(), torch.tensor(0.0))
    assert math.log(0.5) - 0.12 < low < math.log(0.5) < high < math.log(0.5) + 0.12
    none = torch.full((1000,), -math.inf)
    low, high = betting_bounds(none, torch.tensor(0.0))
    assert low == -math.inf and high < math.log(0.01)  # about the rule of three


def test_relative_error_is_that_of_the_mean():
    assert relative_error([0.0, 0.0, 0.0]) == 0.0
    assert relative_error([math.log(1), math.log(3)]) == pytest.approx(math.sqrt(2) / 2 / math.sqrt(2))
    assert relative_error([-1e9, 0.0]) == pytest.approx(1.0)
    assert math.isnan(relative_error([0.0]))
