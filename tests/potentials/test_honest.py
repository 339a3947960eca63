"""What runs say of a product is true: certain bounds always, intervals as often as they say, and "trust" where it is deserved.

The problems are drawn at random (`locore bench rewards`), and every sum is known by reading all sequences.
"""

from __future__ import annotations

import math

import pytest
import torch
from locore_lab.bench.rewards import FAMILIES, SAMPLERS, drawn, measured, together
from scipy import stats

import locore
from locore import ban, choice, contains, potential
from locore.kernel.errors import ZeroWeights
from locore.kernel.tokenizer import Tokenizer
from locore.models import TableModel
from locore.samplers import BY_NAME
from tests.effort import THOROUGH, some

FALSE_ALARM = 1e-6
NUMBER = 48 if THOROUGH else 8
BRIEF = ("auto", "rejection")


@pytest.fixture(scope="module")
def tallies():
    sizes = (1, 4, 6, 16, 64) if THOROUGH else (6,)
    return measured(drawn(NUMBER, seed=7), SAMPLERS if THOROUGH else BRIEF, sizes)


def test_certain_bounds_are_never_wrong_and_only_what_is_exact_is_a_point(tallies):
    for name, tally in together(tallies, 1).items():
        assert tally.wrong_bounds == 0, name
        assert tally.points == 0, name


@pytest.mark.parametrize("place", [0, 1, None])
def test_intervals_hold_as_often_as_they_say(tallies, place):
    """In nine runs of ten, by family, by sampler, and in all."""
    for name, tally in together(tallies, place).items():
        missed = tally.intervals - tally.covered
        assert missed <= stats.binom.ppf(1 - FALSE_ALARM, tally.intervals, 0.1), (name, missed, tally.intervals)


def test_trust_is_deserved(tallies):
    for name, tally in together(tallies, 0).items():
        assert tally.off <= stats.binom.ppf(1 - FALSE_ALARM, tally.trusted, 0.02), (name, tally.off, tally.trusted)


def test_the_problems_are_of_all_kinds():
    assert {problem.family for problem in drawn(len(FAMILIES), seed=3)} == set(FAMILIES)


def table(names, length, seed, concentration=0.5):
    tokenizer = Tokenizer.from_tokens([*names, None], eos_ids=[len(names)])
    drawn = TableModel.random(len(names) + 1, length, seed=seed, eos=True, concentration=concentration)
    return TableModel(drawn._tables, tokenizer=tokenizer)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("log_phi", [2.0, -1.0])
def test_rejection_bounds_what_a_potential_is_worth(log_phi, seed):
    """A factor that is always e² has the normaliser e²·p(α), which is no probability."""
    model = table(["a", "b", "ab", " "], 4, seed=1)
    alpha = ban("bb")
    truth = locore.generate(model, "", alpha, 4, sampler="exact", num_particles=10_000, ending="eos").log_evidence + log_phi
    factor = potential(lambda texts: [log_phi] * len(texts), bound=max(log_phi, 0.5))
    p = locore.generate(model, "", alpha * factor, 4, sampler="rejection", seed=seed, ending="eos", num_particles=16)
    low, high = p.log_evidence_bounds
    assert low <= truth <= high
    low, high = p.log_evidence_bounds_95
    assert low < high and p.verdict.level == "trust"


def test_best_first_judges_the_texts_that_it_weighs():
    """The interval is that of the estimate: of all texts found, not of those that p let through before φ was known."""
    model = table(["a", "b", "ab", "c ", "c"], 3, seed=2)
    target = ban("c ") * potential(lambda texts: [0.5 * text.count("a") for text in texts])
    truth = locore.generate(model, "", target, 3, sampler="exact", num_particles=10_000, ending="eos").log_evidence
    for seed in range(6):
        p = locore.generate(model, "", target, 3, sampler="best-first", num_particles=4, seed=seed, ending="eos")
        low, high = p.log_evidence_interval
        assert low - 1e-9 <= truth <= high + 1e-9 and len(p) <= 4
        assert p.log_evidence == pytest.approx(truth, abs=0.01)


@pytest.mark.parametrize(
    ("sampler", "number"), some([("smc", 6), ("smc", 32), ("cars", 4), ("ars", 4), ("oversampling", 4)], 2, several=True)
)
def test_no_spread_among_few_draws_is_not_no_error(sampler, number):
    model = table(["a", "b", "ab", " ", "c"], 4, seed=1)
    target = choice(["a", "ab"]) * potential(lambda texts: [1.0] * len(texts), bound=1.0)
    truth = locore.generate(model, "", target, 4, sampler="exact", num_particles=10_000, ending="eos").log_evidence
    runs = held = 0
    for seed in range(20):
        try:
            p = locore.generate(model, "", target, 4, sampler=sampler, num_particles=number, seed=seed, ending="eos")
        except ZeroWeights:
            continue
        low, high = p.log_evidence_interval
        sure = p.log_evidence_bounds
        assert high - low > 1e-9 or sure[1] - sure[0] < 1e-6
        runs, held = runs + 1, held + (low - 1e-9 <= truth <= high + 1e-9)
    assert held >= stats.binom.ppf(FALSE_ALARM, runs, 0.9)


@pytest.mark.parametrize("bound", [8.0, None])
def test_a_rare_reward_that_was_not_found_is_not_trusted(bound):
    """p(" sun") is .0015 there, so that log Z is 1.7; no text that is likely to be asked about has it."""
    model = locore.load("tiny")
    reward = potential(lambda texts: [8.0 * (" sun" in text) for text in texts], bound=bound)
    p = locore.generate(model, "The weather is", reward, 6, seed=0)
    if any(" sun" in text for text in p.texts):
        pytest.skip("this run has found it")
    low, high = p.log_evidence_interval
    assert low <= 1.7 <= high and p.verdict.level != "trust"
    assert "bonus" in p.report() and "bound" in p.report()


def test_equal_answers_say_nothing_without_a_bound():
    model = table(["a", "b", "ab", " "], 4, seed=1)
    told = locore.generate(model, "", potential(lambda texts: [0.0] * len(texts)), 4, sampler="masked", seed=0, ending="eos")
    assert told.log_evidence_interval[1] == math.inf and told.verdict.level == "rough" and "the same" in told.report()
    bounded = potential(lambda texts: [0.0] * len(texts), bound=0.0)
    known = locore.generate(model, "", bounded, 4, sampler="masked", seed=0, num_particles=64, ending="eos")
    assert known.log_evidence_interval[1] < 0.2 and known.verdict.level == "trust"


def test_all_texts_of_blocks_are_weighed():
    """What was thinned before φ was known is weighed all the same, so the estimate is the mean of the blocks."""
    model = table(["a", "b", "ab", " ", "c"], 4, seed=5)
    factor = potential(lambda texts: [2.0 * text.count("a") for text in texts], bound=8.0)
    for name in ("swor", "twisted", "smc", "lcr", "best-first"):
        p = locore.generate(model, "", contains("a") * factor, 4, sampler=BY_NAME[name], num_particles=24, seed=0, ending="eos")
        if p.blocks is not None:
            mean = torch.logsumexp(torch.tensor(p.blocks.log_evidence), 0) - math.log(len(p.blocks))
            assert p.log_mean_weight == pytest.approx(float(mean), abs=1e-6), name
