"""Verdicts follow what is known to be wrong, the worst of it first, and the report says why."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from locore_lab.baselines import ASAp
from scipy import stats

import locore
from locore import choice, contains
from locore.evidence import Particles, Record
from locore.kernel.evidence.blocks import Blocks
from locore.kernel.evidence.pareto import LARGE_K
from locore.kernel.evidence.verdict import LEVELS
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel
from locore.samplers import BY_NAME

TOKENIZER = Tokenizer.from_tokens([b"a", b"b", b"ab", b" ", None, None], eos_ids=(5,))


@pytest.fixture(scope="module")
def model():
    transition = torch.softmax(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)), -1).double()
    return MarkovModel(torch.full((6,), 1 / 6).double(), transition, eos_ids=(5,), tokenizer=TOKENIZER)


def particles(log_weights, tokens=None, token_scores=None, blocks=None, **known):
    logs = torch.as_tensor(log_weights, dtype=torch.float64)
    tokens = torch.zeros(len(logs), 2, dtype=torch.long) if tokens is None else tokens
    blocks = None if blocks is None else Blocks(tuple(blocks))
    return Particles(tokens, logs, token_scores, Record(blocks=blocks, **known), tokenizer=TOKENIZER)


def headline(p):
    """The judgement and its reason."""
    first, _, why = p.report().splitlines()[:3]
    assert first.startswith(f"Texts: {p.verdict.level}; ") and why.startswith("Why: ")
    return f"{p.verdict.level}; {why.removeprefix('Why: ')}"


def quantiles(k, num):
    """Weights of a Pareto law without its chance."""
    return np.log(stats.genpareto.ppf((np.arange(num) + 0.5) / num, k) + 0.1) - 5


def test_a_heavy_tail_is_never_trusted_however_many_effective_samples():
    heavy, light = particles(quantiles(0.8, 10_000)), particles(quantiles(0.1, 10_000))
    assert heavy.ess > 60  # nothing else is wrong with them
    assert heavy.pareto_k > LARGE_K and heavy.verdict.level == "rough" and "Pareto k̂" in headline(heavy)
    assert light.pareto_k < 0.5 and light.verdict.level == "trust"
    assert f"Pareto k̂ {light.pareto_k:.2f}" in light.report(full=True)


@given(st.floats(0.05, 2.5), st.integers(20, 400), st.integers(0, 10_000))
def test_trust_means_that_no_tail_was_seen(k, num, seed):
    p = particles(np.log(stats.genpareto.rvs(k, size=num, random_state=np.random.default_rng(seed))))
    assert p.verdict.level != "trust" or not p.pareto_k > LARGE_K
    assert num >= 25 or math.isnan(p.pareto_k)


@pytest.mark.parametrize(
    "known",
    [
        {"blocks": [0.0, 0.01, -0.01, 0.02]},
        {"independent": False},
        {"guarantee": "asymptotic"},
        {"evidence": "exact", "sequences": 5000},
    ],
)
def test_the_tail_of_dependent_weights_means_nothing(known):
    assert math.isnan(particles(quantiles(0.9, 2000), **known).pareto_k)


def test_a_resampled_set_keeps_what_was_known_of_its_source():
    source = particles(quantiles(0.9, 2000), token_scores=torch.full((2000, 2), -4.0).double())
    drawn = source.resample(50, seed=0)
    assert drawn.pareto_k == source.pareto_k and drawn.verdict.level == source.verdict.level == "rough"
    assert drawn.log_evidence_bounds == source.log_evidence_bounds
    assert drawn.log_evidence_bounds_95 == source.log_evidence_bounds_95


@pytest.mark.parametrize(("estimate", "level"), [(-1.0, "trust"), (-1.05, "trust"), (-1.3, "rough"), (-2.0, "do not trust")])
def test_an_estimate_below_what_was_found_is_known_to_be_wrong(estimate, level):
    scores = torch.tensor([[-1.0, 0.0]]).double().expand(400, 2)  # one text of probability 1/e
    p = particles([estimate] * 400, token_scores=scores)
    assert p.log_evidence_bounds == (-1.0, 0.0)
    assert p.verdict.level == level
    assert ("sequences that are known" in headline(p)) == (level != "trust")


def test_an_estimate_above_what_is_possible_is_known_to_be_wrong():
    assert particles([-1.0] * 400, bounds=(-math.inf, -0.95)).verdict.level == "trust"
    p = particles([-1.0] * 400, bounds=(-math.inf, -3.0))
    assert p.verdict.level == "do not trust" and "p(α) is at most 0.05" in headline(p)


def test_what_is_certain_is_what_the_report_says():
    scores = torch.tensor([[-1.0, 0.0]]).double().expand(64, 2)  # one text of probability 1/e
    known = particles([-1.2] * 64, token_scores=scores, bounds=(-math.inf, -1.0))
    assert "p(α): 0.37, exactly." in known.report()
    assert "exactly" not in particles([-1.0] * 64).report()  # equal weights are no certainty
    assert known.log_evidence_interval == pytest.approx((-1.0, -1.0))


def test_nothing_is_out_of_sight_where_bounds_close():
    scores = torch.tensor([[-9.0, 0.0]]).double().expand(64, 2)
    apart = particles([-9.0] * 64, token_scores=scores)
    closed = particles([-9.0] * 64, token_scores=scores, bounds=(-math.inf, -8.95))
    assert (apart.verdict.level, closed.verdict.level) == ("rough", "trust")
    assert "rare" in headline(apart)


def test_exact_draws_are_counted_and_not_called_out_of_sight():
    few, many = (particles([-9.0] * num, exact_draws=True, drawn=10_000) for num in (5, 40))
    assert headline(many).startswith("trust; 40 exact draws")
    # Few draws say little, but each is as good as a draw can be: there is nothing in them to distrust.
    assert headline(few).startswith("trust; 5 exact draws") and "too few for averages" in headline(few)
    assert headline(particles([0.0], exact_draws=True, drawn=1)).startswith("trust; 1 exact draw of")
    assert headline(many.resample(3, seed=0)).startswith("trust; 40 exact draws")


@pytest.mark.parametrize("number", [1, 2, 4, 8, 30, 200])
@pytest.mark.parametrize("sampler", ["rejection", "cars"])
def test_trust_in_exact_draws_is_no_trust_in_the_evidence(model, sampler, number):
    """Where Z may be off by more than half a nat, its line says so beside "trust"."""
    p = locore.generate(model, "", contains("ab"), 3, num_particles=number, sampler=sampler, seed=number)
    low, high = p.log_evidence_interval
    rough = max(high - p.log_evidence, p.log_evidence - low) > 0.5
    assert p.verdict.level == "trust" and p.record.exact_draws
    assert ("known only roughly" in p.report()) == rough and (rough or number > 4)


def test_reasons_of_zero_weights_add_up_and_refusals_join_them():
    p = particles([0.0] * 80, drawn=100, zeros={"the model forbids it": 0.2})
    kept = p.where(torch.arange(80) < 60, "not canonical").where(torch.arange(60) < 30, "too long")
    assert kept.info["zero_weights"] == pytest.approx(
        {"the model forbids it": 0.2, "not canonical (refused)": 0.2, "too long (refused)": 0.3}
    )
    assert kept.log_evidence == pytest.approx(math.log(30 / 80))
    assert "70.0% of the weights were zero: 20.0% the model forbids it, 20.0% not canonical (refused), 30" in kept.report(
        full=True
    )


def test_what_is_known_of_the_constraint_is_forgotten_for_more_than_the_constraint():
    p = particles([-1.2] * 80, interval=(-2.0, -1.0), likely=(-2.0, -1.0), bounds=(-1.5, -0.5))
    assert p.log_evidence_interval == (-2.0, -1.0) and p.log_evidence_bounds == (-1.5, -0.5)
    kept = p.where(torch.arange(80) < 1, "it was the first")
    assert kept.log_evidence_bounds == (-math.inf, -0.5)  # an upper bound of α bounds less as well
    assert kept.log_evidence_bounds_95 == (-math.inf, -0.5)
    assert kept.log_evidence_interval[0] < -3


def test_refusing_some_of_a_thinned_enumeration_is_no_longer_exact(model):
    alpha = contains("ab")
    whole = locore.generate(model, "", alpha, 3, num_particles=1000, sampler="exact")
    thinned = locore.generate(model, "", alpha, 3, num_particles=12, sampler="exact", seed=0)
    keep = torch.arange(len(thinned)) % 3 > 0
    kept = thinned.where(keep, "a condition of one's own")
    assert kept.verdict.level == "not judged" and str(kept.info["sequences"]) in headline(kept)
    low, high = kept.log_evidence_bounds
    assert low <= whole.log_evidence <= high


@pytest.mark.parametrize("mode", ["only", "alpha"])
@pytest.mark.parametrize("sampler", ["exact", "swor", "twisted", "best-first", "smc"])
def test_what_is_not_canonical_is_refused_before_anything_is_thinned(model, mode, sampler):
    """So every run is judged, and one of few particles knows as much of p(α) as one of many."""
    alpha = contains("ab")
    whole = locore.generate(model, "", alpha, 3, num_particles=1000, sampler="exact", canonical=mode)
    assert whole.info["refused"]
    for number in (1, 4, 12):
        p = locore.generate(model, "", alpha, 3, num_particles=number, sampler=sampler, canonical=mode, seed=number, budget=600)
        assert p.verdict.level != "not judged"
        low, high = p.log_evidence_interval
        if sampler == "exact":
            assert len(p) <= number and p.log_evidence == pytest.approx(whole.log_evidence)
        assert low - 1e-6 <= whole.log_evidence <= high + 1e-6 or sampler == "smc"  # which says no more than 95 %


def test_a_biased_estimate_has_no_error_bar(model):
    p = locore.generate(model, "", contains("ab"), 4, num_particles=30, sampler=ASAp(), seed=0)
    assert all(map(math.isnan, (p.log_evidence_error, *p.log_evidence_interval)))
    assert "biased" in p.report() and "95 %" not in p.report(full=True)
    assert p.log_evidence_bounds[1] == pytest.approx(p.log_evidence)  # which is all that it knows


def test_an_exact_answer_needs_no_warning(model):
    p = locore.generate(model, "", contains("ab"), 3, num_particles=8, sampler="exact", seed=0)
    assert "exactly" in p.report() and "cannot see" not in p.report(full=True) and "k̂" not in p.report(full=True)


def test_refusing_particles_of_blocks_that_are_not_known_leaves_no_verdict():
    p = particles([0.0] * 64, blocks=[0.0, 0.01, -0.01, 0.02])
    assert p.verdict.level == "trust"
    assert p.where(torch.arange(64) > 0, "once").verdict.level == "not judged"


@pytest.mark.parametrize("sampler", BY_NAME)
def test_every_sampler_has_its_diagnostics_as_json(model, sampler):
    p = locore.generate(model, "", choice(["ab", "b a"]) | contains("ab"), 4, num_particles=30, sampler=sampler, seed=0)
    found = json.loads(json.dumps(p.to_json(), allow_nan=False))
    assert found["verdict"] == p.verdict.level in LEVELS and headline(p).startswith(f"{p.verdict.level}; ")
    for name in ("log_evidence_interval", "log_evidence_bounds", "log_evidence_bounds_95"):
        assert len(found[name]) == 2
    assert found["log_evidence_bounds"][0] <= found["log_evidence_bounds_95"][0] + 1e-9
    assert found["pareto_k"] is None or isinstance(found["pareto_k"], float)
    assert 0 < found["largest_weight"] <= 1 and found["distinct_texts"] == len(set(p.texts))
    assert 0 <= sum(found["zero_weights"].values()) < 1
    assert {"lm_tokens", "lm_contexts", "seconds", "model_seconds"} <= found["info"].keys()
    assert "s in the model" in found["report"] and "s outside" in found["report"]
    assert 3 <= len(p.report().splitlines()) <= 4 and p.report(full=True).startswith(p.report())


def test_bare_ids_have_a_report_too():
    p = Particles(torch.tensor([[0, 1], [0, 1], [1, 1]]), torch.zeros(3).double(), tokenizer=Tokenizer.integers(2))
    assert "2 distinct texts in 3 particles" in p.report(full=True) and p.to_json()["texts"] is None


def test_what_the_model_would_never_write_is_no_matter_of_particles():
    rare, likely = (particles([shift, shift - 9.0, shift - 9.0]) for shift in (-200.0, -2.0))
    assert rare.verdict.level == likely.verdict.level == "do not trust"
    assert "a prompt that leads there" in headline(rare) and "e^-201" in headline(rare)
    assert "a prompt that leads there" not in headline(likely)
