"""Laws of foresight: whatever it says, no expectation changes. By sums over all outcomes, or with a false alarm of 1e-6."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch

from locore.compilers import compile
from locore.constraints import Count
from locore.kernel.samplers.rounds import abreast
from locore.kernel.samplers.sampler import Prefixes
from locore.kernel.samplers.smc import Population
from locore.models import TableModel
from locore.samplers import SequentialMonteCarlo, WithoutReplacement, swor
from locore.samplers.ahead import Children, Product, product
from locore.samplers.twist.lookahead import look_ahead
from locore.samplers.without_replacement import Trial
from locore.testing import enumerate_posterior, proper_weighting
from tests.effort import THOROUGH, runs, some
from tests.samplers.one_round import one_round
from tests.samplers.test_learning import assert_proper, exact_law, seen_of

FALSE_ALARM = 1e-6


class Whim:
    """Says of each prefix what a hash of it says, up to so many nats either way."""

    def __init__(self, seed, nats):
        self.seed, self.nats = seed, nats

    def of(self, prefixes):
        said = [hash((self.seed, *y)) % 10_007 / 10_006 for y in prefixes.tokens.tolist()]
        return self.nats * (2 * torch.tensor(said, dtype=torch.float64) - 1)


class Adversary:
    """Knows how much is to come, and says the contrary."""

    def __init__(self, model, circuit):
        truth = enumerate_posterior(model, circuit)
        self.mass = {}
        for y, joint in zip(truth.tokens.tolist(), truth.log_joint.exp().tolist(), strict=True):
            for end in range(len(y) + 1):
                self.mass[tuple(y[:end])] = self.mass.get(tuple(y[:end]), 0.0) + joint

    def of(self, prefixes):
        known = [self.mass[tuple(y)] for y in prefixes.tokens.tolist()]
        return -torch.tensor(known, dtype=torch.float64).log() + 2 * prefixes.log_mass


class ByToken(Whim):
    """A whim about each next token, and one about some of them that counts instead."""

    def after(self, prefixes, weights, share):
        generator = torch.Generator().manual_seed(self.seed + prefixes.position)
        states, vocab = torch.unique(prefixes.states), prefixes.model.vocab_size
        by_state = self.nats * torch.rand(len(states), vocab, generator=generator)
        row = torch.arange(len(prefixes))
        token = torch.randint(vocab, (len(row),), generator=generator)
        return Children(self.of(prefixes), by_state, (row, token, self.nats * torch.rand(len(row), generator=generator)))


class OneStep:
    """How much of the next token is allowed: it reads the model."""

    def of(self, prefixes):
        return torch.zeros(len(prefixes)) if prefixes.are_complete else prefixes.masked().logsumexp(-1)


def problem(eos=False, length=3):
    model = TableModel.random(3, length, seed=11, eos=eos, concentration=0.7)
    return model, compile(Count(tuple(range(length)), frozenset({1}), 1, 2), model, length)


def foresight(kind, model, circuit):
    return {
        "whim": lambda: Whim(3, 2.0),
        "strong whim": lambda: Whim(4, 12.0),
        "adversary": lambda: Adversary(model, circuit),
        "by token": lambda: ByToken(5, 3.0),
        "one step": OneStep,
        "both": lambda: Product(look_ahead(seen_of("upside down", model, 3).table(), circuit.reader), Whim(6, 2.0)),
    }[kind]()


KINDS = ["whim", "strong whim", "adversary", "by token", "both", "one step"]


@pytest.mark.parametrize(
    ("kind", "eos"),  # where texts end there are a quarter of the outcomes
    [*itertools.product(KINDS, [True]), *(pytest.param(kind, False, marks=pytest.mark.slow) for kind in KINDS)],
)
def test_selection_by_any_foresight_is_exactly_proper(monkeypatch, kind, eos):
    """The sum over everything that a round can draw."""
    model, circuit = problem(eos)
    ahead = foresight(kind, model, circuit)
    expected, total = exact_law(
        monkeypatch, lambda: one_round(model, circuit.reader, swor.Size(2, wanted=1), torch.Generator(), ahead)
    )
    assert_proper(expected, total, model, circuit)


# Standard scores need many rare outcomes: what misleads by twelve nats shows its few in the exact law above.
@pytest.mark.parametrize(
    ("threshold", "kind"), some(itertools.product([0.0, 0.5, 1.0], ["whim", "adversary", "both", "one step"]), several=True)
)
def test_particles_weighted_by_any_foresight_are_proper(kind, threshold):
    model, circuit = problem(threshold == 0.5)
    sampler = SequentialMonteCarlo(threshold, blocks=2, ahead=foresight(kind, model, circuit))
    result = proper_weighting(sampler, model, circuit, 8, runs(400), seed=5)
    assert result.holds(FALSE_ALARM), (result.z, result.estimates, result.truth)


@pytest.mark.parametrize("kind", some(["both", "whim", "adversary", "one step"], 4))
def test_blocks_selected_by_any_foresight_are_proper(kind):
    model, circuit = problem(True)
    sampler = WithoutReplacement(blocks=2, ahead=foresight(kind, model, circuit))
    result = proper_weighting(sampler, model, circuit, 4, runs(400), seed=6)
    assert result.holds(FALSE_ALARM), (result.z, result.estimates, result.truth)


def test_the_law_notices_a_foresight_that_stays_in_the_weights(monkeypatch):
    monkeypatch.setattr(Population, "unsteered", lambda particles: replace(particles, worth=torch.zeros_like(particles.worth)))
    model, circuit = problem()
    result = proper_weighting(SequentialMonteCarlo(ahead=Whim(3, 2.0)), model, circuit, 16, 100 if THOROUGH else 50, seed=5)
    assert not result.holds(FALSE_ALARM)


def test_without_resampling_foresight_changes_nothing():
    model, circuit = problem()
    plain, steered = (
        SequentialMonteCarlo(0.0, ahead=ahead)(model, circuit, 12, None, torch.Generator().manual_seed(2))
        for ahead in (None, Whim(3, 5.0))
    )
    assert torch.equal(plain.tokens, steered.tokens)
    torch.testing.assert_close(plain.log_weights, steered.log_weights)


def test_a_right_foresight_is_seen_to_be_right():
    """Where the mass to go is known, what it foretells does not change."""
    model, circuit = problem()
    known = Adversary(model, circuit)

    class Right:
        def of(self, prefixes):
            return torch.tensor([known.mass[tuple(y)] for y in prefixes.tokens.tolist()]).double().log() - prefixes.log_mass

    trial = Trial()
    abreast([trial.walk(model, circuit.reader, 27, torch.Generator())])
    steps = trial.steps(Right())
    assert steps.foreseen < 1e-4 < steps.plain


@pytest.mark.parametrize("eos", [False, True])
def test_prefixes_say_what_the_model_says_of_them(eos):
    """Whatever was read before, and whatever is left of that."""
    model, circuit = problem(eos, length=4)
    whole = Prefixes.start(model, circuit.reader, 2)
    for tokens in ([0, 1], [1, 2]):
        assert_as_read(whole.at(torch.tensor([1, 1, 0])))
        whole = whole.extended(None, torch.tensor(tokens))
    for prefixes in (whole, whole.at(torch.tensor([True, False]))):  # the second was not read, the first is below
        assert_as_read(prefixes)
        assert_as_read(prefixes.forgotten())
        chosen = prefixes.at(torch.tensor([len(prefixes) - 1, 0, 0]))
        assert_as_read(chosen)
        assert_as_read(chosen.at(torch.tensor([0, 2])).extended(torch.tensor([1, 0, 1]), torch.tensor([0, 1, 2])))
        assert_as_read(chosen.forgotten().extended(None, torch.tensor([1, 0, 2])))


def assert_as_read(prefixes):
    truth = prefixes.model.log_probs(torch.nn.functional.pad(prefixes.tokens, (0, 1)))[:, -1]
    torch.testing.assert_close(prefixes.log_probs, truth)


def test_a_product_is_the_sum_of_logs():
    model, circuit = problem()
    prefixes = Prefixes.start(model, circuit.reader)
    prefixes = prefixes.extended(torch.zeros(2, dtype=torch.long), torch.tensor([0, 1]))
    first, second = Whim(1, 1.0), ByToken(2, 1.0)
    both = product(first, second)
    assert both.of(prefixes).tolist() == pytest.approx((first.of(prefixes) + second.of(prefixes)).tolist())
    assert product(None, second) is second and product(first, None) is first and product(None, None) is None
    weights = torch.zeros(2, dtype=torch.float64)
    children, own = both.after(prefixes, weights, 0.1), second.after(prefixes, weights, 0.1)
    assert torch.equal(children.by_state, own.by_state)
    raised = children.by_prefix - own.by_prefix  # a share of the mean is added to what a prefix alone is worth
    assert (raised >= first.of(prefixes)).all() and float(raised.max()) < math.log(1.5) + 1.0
