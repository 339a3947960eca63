"""Laws of targets p(y) · 1[y ⊨ α] · Π φ(y): exact sums on table models, and proper weights of every sampler that carries them.

False alarm: 1e-6 a test.
"""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from locore_lab.baselines import ASAp, IteratedSIR, MarkovChain, ParticleGibbs

import locore
from locore.compilers import compile
from locore.kernel.errors import InvalidArgument
from locore.kernel.samplers.sampler import promised
from locore.kernel.tokenizer import Tokenizer
from locore.models import TableModel
from locore.potentials import Scorer, Target, target_of
from locore.samplers import BY_NAME, sampler_by_name
from locore.testing import enumerate_posterior, proper_weighting
from tests.effort import THOROUGH, runs

LENGTH = 3
TOKENIZER = Tokenizer.from_tokens(["a", "b", "ab", None], eos_ids=[3])


def table(seed):
    bare = TableModel.random(4, LENGTH, seed=seed, eos=True, concentration=10.0)
    rows = [bare.log_probs(torch.cartesian_prod(*[torch.arange(4)] * LENGTH)).double().exp()[:, t] for t in range(LENGTH)]
    tables = [row.reshape(*[4] * LENGTH, 4)[(slice(None),) * t + (0,) * (LENGTH - t)] for t, row in enumerate(rows)]
    return TableModel(tables, tokenizer=TOKENIZER)


MODEL, SECOND = table(3), table(4)
ALPHA = locore.ban("bb")


def reward(texts):
    return [1.5 * text.count("a") - 0.5 * len(text) for text in texts]


def misled(texts):
    return [-2.0 * text.count("a") for text in texts]


def even(text):
    return text.count("a") % 2 == 0


TARGETS = {
    "a potential": ALPHA * locore.potential(reward),
    "one that steers": ALPHA * locore.potential(reward, prefix=reward, bound=4.0),
    "one that misleads": ALPHA * locore.potential(reward, prefix=misled, weight=0.7),
    "a predicate": ALPHA & locore.predicate(even),
    "one that prunes": ALPHA & locore.predicate(lambda text: "aa" not in text, prefix=lambda text: "aa" not in text),
    "an expert": ALPHA * locore.expert(SECOND, "", 0.6),
    "against an amateur, and a predicate": locore.predicate(even) * ALPHA * locore.expert(SECOND, "", -0.5),
}
CARRY = [name for name in BY_NAME if promised(BY_NAME[name], "guarantee") == "proper"]
BOUNDED = {"one that steers", "a predicate", "one that prunes", "an expert"}
BRIEF = [  # each way to carry a factor once
    *(("smc", "against an amateur, and a predicate"), ("twisted", "one that misleads")),
    *(("swor", "one that prunes"), ("rejection", "one that steers"), ("lcr", "an expert")),
]
CASES = [(sampler, name) for name in TARGETS for sampler in CARRY if sampler != "rejection" or name in BOUNDED]
SLOW = [pytest.param(*case, marks=pytest.mark.slow) for case in CASES if case not in BRIEF]


def sequences():
    return torch.cartesian_prod(*[torch.arange(4)] * LENGTH)


def scorer(target):
    return Scorer(target.factors, TOKENIZER, lambda model: model)


def plainly(target):
    """log of p(y) Π φ(y) by texts and by scores alone, for every sequence that satisfies α: {tokens: log}."""
    found = {}
    for y in sequences().tolist():
        if not target.constraint.evaluate(y, TOKENIZER):
            continue
        total, text = float(MODEL.score(torch.tensor([y]))), TOKENIZER.decode(y)
        for factor in target.factors:
            if hasattr(factor, "model"):
                total += factor.weight * float(factor.model.score(torch.tensor([y])))
            elif factor.is_predicate:
                total += 0.0 if factor.ask(text) else -math.inf
            else:
                total += factor.weight * factor.ask([text])[0]
        found[tuple(y)] = total
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_exact_answers_are_the_plain_sums(name):
    target = TARGETS[name]
    truth = {y: log for y, log in plainly(target).items() if log > -math.inf}
    p = locore.generate(MODEL, "", target, LENGTH, sampler="exact", num_particles=1000, ending="eos")
    assert p.log_evidence == pytest.approx(math.log(sum(map(math.exp, truth.values()))), abs=1e-9)
    found = dict(zip(map(tuple, p.tokens.tolist()), p.log_weights.tolist(), strict=True))
    assert found == pytest.approx({y: log + math.log(len(p)) for y, log in truth.items()})
    few = locore.generate(MODEL, "", target, LENGTH, sampler="exact", num_particles=3, ending="eos", seed=1)
    assert len(few) == 3 and few.log_evidence == pytest.approx(p.log_evidence)


@pytest.mark.parametrize(("sampler", "name"), [*BRIEF, *SLOW])
def test_samplers_weigh_properly(sampler, name):
    circuit = compile(ALPHA, MODEL, LENGTH)
    law = proper_weighting(sampler_by_name(sampler), MODEL, circuit, 8, runs(240), seed=5, scorer=scorer(TARGETS[name]))
    assert law.holds(1e-6), (law.z, law.estimates, law.truth)


def test_the_law_notices_a_factor_that_is_missing():
    target = TARGETS["a potential"]
    circuit = compile(ALPHA, MODEL, LENGTH)

    class Forgetful(Scorer):
        first = True

        def of(self, tokens):
            right = super().of(tokens)
            if self.first:  # the truth is asked for first
                self.first = False
                return right
            return right - 0.5

    wrong = Forgetful(target.factors, TOKENIZER, lambda model: model)
    number = 100 if THOROUGH else 50
    assert not proper_weighting(sampler_by_name("smc"), MODEL, circuit, 8, number, seed=5, scorer=wrong).holds(1e-6)


@pytest.mark.parametrize("name", CARRY)
def test_a_text_is_asked_about_once(name):
    asked = Counter()

    def counted(texts):
        asked.update(texts)
        return reward(texts)

    target = ALPHA * locore.potential(counted, bound=4.0, prefix=misled)
    p = locore.generate(MODEL, "", target, LENGTH, sampler=name, num_particles=12, seed=2)
    assert max(asked.values()) == 1 and set(p.texts) <= set(asked)
    assert p.info["potential_texts"] == len(asked)


@pytest.mark.parametrize("sampler", [MarkovChain(), IteratedSIR(), ParticleGibbs(), ASAp()], ids=lambda sampler: sampler.name)
def test_samplers_without_proper_weights_refuse(sampler):
    with pytest.raises(InvalidArgument, match="cannot carry potentials"):
        locore.generate(MODEL, "", TARGETS["a potential"], LENGTH, sampler=sampler)


def test_intervals_and_bounds_hold_what_they_say():
    """Of 30 runs at 95 % fewer than 21 that hold are hardly chance (1e-5); certain bounds always hold."""
    for name in ("one that steers", "a potential", "an expert")[: None if THOROUGH else 1]:
        truth = locore.generate(MODEL, "", TARGETS[name], LENGTH, sampler="exact", num_particles=1000).log_evidence
        held = 0
        for seed in range(30):
            p = locore.generate(MODEL, "", TARGETS[name], LENGTH, sampler="smc", num_particles=96, seed=seed)
            low, high = p.log_evidence_bounds
            assert low - 1e-9 <= truth <= high + 1e-9
            held += p.log_evidence_interval[0] <= truth <= p.log_evidence_interval[1]
        assert held >= 21


def test_products_are_the_same_in_any_order():
    one, two = locore.potential(reward), locore.predicate(even)
    for target in (one * ALPHA * two, two * (ALPHA * one), (two & ALPHA) * one):
        assert isinstance(target, Target) and target.constraint == ALPHA and set(target.factors) == {one, two}
    assert target_of(one).constraint == locore.from_json({"type": "true"})
    assert (two & ALPHA & locore.contains("a")).constraint == ALPHA & locore.contains("a")


def test_the_posterior_enumerates_what_it_should():
    """The reference above is the truth of `enumerate_posterior` with factors, too."""
    circuit = compile(ALPHA, MODEL, LENGTH)
    truth = enumerate_posterior(MODEL, circuit)
    target = TARGETS["an expert"]
    joint = truth.log_joint + scorer(target).of(truth.tokens)
    assert dict(zip(map(tuple, truth.tokens.tolist()), joint.tolist(), strict=True)) == pytest.approx(plainly(target))
