"""Draws by a near model, weighed by the model itself: they have its law, whatever the near one says."""

from __future__ import annotations

import math

import pytest
import torch

from locore import contains, generate
from locore.compilers import compile
from locore.constraints import Constant, Count
from locore.kernel.errors import TimedOut, ZeroWeights
from locore.models import Counted, TableModel
from locore.models.following import Biased
from locore.models.wrappers import Tempered, TopK
from locore.samplers import sampler_by_name
from locore.samplers.auto import Auto
from locore.samplers.without_replacement import WithoutReplacement
from locore.testing import proper_weighting
from tests.effort import runs, some

LENGTH = 3
FALSE_ALARM = 1e-6
SAMPLERS = {"swor": 4, "twisted": 6}


class Steered(TableModel):
    """A table with another one near it."""

    other: TableModel

    @property
    def near(self):
        return self.other


def steered(eos=True, far=0.6, seed=5, length=LENGTH):
    """A model, and near it the same mixed with something else."""
    model = Steered.random(3, length, seed=seed, eos=eos, concentration=20.0)
    noise = TableModel.random(3, length, seed=seed + 1, eos=eos, concentration=2.0)
    tables = [(1 - far) * mine + far * its for mine, its in zip(model._tables, noise._tables, strict=True)]
    model.other = TableModel(tables, model.tokenizer.eos_ids)
    return model


def some_of(length=LENGTH):
    return Count(tuple(range(length)), frozenset({1}), 1, 2)


@pytest.mark.parametrize("eos", some([True, False]))
@pytest.mark.parametrize("name", SAMPLERS)
def test_weights_are_proper_for_the_model_itself(name, eos):
    model = steered(eos)
    result = proper_weighting(
        sampler_by_name(name), model, compile(some_of(), model, LENGTH), SAMPLERS[name], runs(400), seed=7
    )
    assert result.holds(FALSE_ALARM), (result.z, result.estimates, result.truth)


def test_the_law_notices_weights_of_the_near_model():
    """The test can fail."""
    model = steered()
    circuit = compile(some_of(), model, LENGTH)

    def wrong(_, *args):
        return sampler_by_name("swor")(model.other, *args)

    assert not proper_weighting(wrong, model, circuit, 4, runs(400), seed=7).holds(FALSE_ALARM)


@pytest.mark.parametrize("name", ["swor", "twisted", "auto"])
def test_what_comes_back_is_the_models(name):
    """Scores, and bounds that hold: what was certain of the near model is not of this one."""
    model, length = steered(far=0.9, length=6), 6
    circuit = compile(some_of(length), model, length)
    truth = float(torch.tensor([model.score(y[None]) for y in circuit_texts(circuit)]).logsumexp(0))
    for seed in range(20):
        draws = sampler_by_name(name)(model, circuit, 8, 40, torch.Generator().manual_seed(seed))
        torch.testing.assert_close(draws.token_scores, model.token_scores(draws.tokens))
        low, high = draws.log_evidence_bounds
        assert low <= truth + 1e-9 and truth <= high + 1e-9
        if draws.blocks is not None and draws.blocks.token_scores is not None:
            torch.testing.assert_close(draws.blocks.token_scores, model.token_scores(draws.blocks.tokens))


def circuit_texts(circuit):
    every = torch.cartesian_prod(*[torch.arange(3)] * circuit.length)
    return every[circuit.accepts(every)]


@pytest.mark.parametrize("particles", [1, 2, 3, 100])
def test_the_error_covers_what_the_two_differ_by(particles):
    """Of a constraint that is always true the near model alone would know p(α) = 1 to the last digit."""
    model, length, inside = steered(far=0.3, length=8), 8, 0
    circuit = compile(Constant(True), model, length)
    for seed in range(200):
        draws = sampler_by_name("swor")(model, circuit, particles, None, torch.Generator().manual_seed(seed))
        assert draws.log_evidence_error > 0
        inside += abs(draws.log_mean_weight) <= 2.6 * draws.log_evidence_error
    assert inside >= 180  # of 198 in the mean


def test_nothing_is_counted_twice():
    model = steered(length=6)
    circuit = compile(some_of(6), model, 6)
    counted, plain = Counted(model), Counted(model.other)
    draws, alone = (
        sampler_by_name("swor")(each, circuit, 8, 40, torch.Generator().manual_seed(0)) for each in (counted, plain)
    )
    assert torch.equal(draws.tokens, alone.tokens)
    assert (counted.lm_tokens, counted.lm_contexts) == (plain.lm_tokens, plain.lm_contexts) and counted.lm_tokens <= 40
    assert counted.passes == plain.passes + 1


def test_a_change_is_that_of_the_near_model_too_but_where_it_cuts():
    model = steered()
    tokens = circuit_texts(compile(Constant(True), model, LENGTH))
    changed = Tempered(Biased(model, {1: 1.5}), 0.5)
    near = changed.near
    torch.testing.assert_close(near.token_scores(tokens), Tempered(Biased(model.other, {1: 1.5}), 0.5).token_scores(tokens))
    assert TopK(model, 2).near is None and Tempered(TopK(model, 2), 0.5).near is None and model.other.near is None


def test_what_the_near_model_left_is_not_said_of_the_model(monkeypatch):
    model = steered()
    circuit = compile(some_of(), model, LENGTH)

    def finds_nothing(log_most):
        error = ZeroWeights("p(α) is at most 0.1")
        error.log_most = log_most
        return lambda *_: (_ for _ in ()).throw(error)

    for asked, log_most, said in ((model, -2.0, 0.0), (model.other, -2.0, -2.0), (model, -math.inf, -math.inf)):
        monkeypatch.setattr(WithoutReplacement, "_drawn", finds_nothing(log_most))
        with pytest.raises(ZeroWeights) as found:
            WithoutReplacement()(asked, circuit, 1, None, torch.Generator())
        assert found.value.log_most == said and ("at most" in str(found.value)) == (said != 0.0)


def test_what_was_drawn_is_weighed_when_the_time_is_up(monkeypatch):
    model = steered(length=6)
    circuit = compile(some_of(6), model, 6)
    expected = WithoutReplacement()(model, circuit, 8, 40, torch.Generator().manual_seed(0))
    said, scores = [], model.token_scores

    def late(tokens):
        if not said:
            said.append(True)
            raise TimedOut("the time is up")
        return scores(tokens)

    monkeypatch.setattr(model, "token_scores", late)
    draws = WithoutReplacement()(model, circuit, 8, 40, torch.Generator().manual_seed(0))
    assert said and torch.equal(draws.log_weights, expected.log_weights)


def test_auto_draws_by_it_and_the_report_says_so():
    model = steered(far=0.2, length=8)
    particles = Auto()(model, compile(some_of(8), model, 8), 8, 60, torch.Generator().manual_seed(1))
    assert particles.info["chosen"] == "twisted"
    (note,) = [note for note in particles.record.notes if "weighed by the model itself" in note]
    assert note.startswith("drawn by a copy") and not math.isnan(particles.log_evidence_error)


def test_generate_with_a_copy_in_16_bits():
    from locore import load

    model = load("tiny", steer_dtype=torch.bfloat16)
    assert model.info.dtype == "float32; a copy in bfloat16 draws" and model.info.dtype in str(model.info)
    found = generate(model, "Once upon a time", contains(" dog"), max_new_tokens=12, budget=400, seed=3)
    assert any("a copy in 16 bits" in note for note in found.record.notes)
    assert all(" dog" in text for text in found.texts)
