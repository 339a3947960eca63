"""A bonus is exactly what it says: p(y) · 1[α] · exp(nats · 1[y ⊨ c]), whatever samples it."""

from __future__ import annotations

import json
import math
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from locore_lab.baselines import MarkovChain
from scipy import stats

import locore
from locore import ban, bonus, choice, contains, ends_with, potential, predicate, starts_with
from locore.kernel.errors import InvalidArgument, InvalidConstraint, Unsatisfiable, UnsupportedKeyword
from locore.kernel.evidence.bounds import SMALL_REACH, within
from locore.kernel.tokenizer import Tokenizer
from locore.models import TableModel
from locore.potentials import Target
from locore.shaping import MOST_BONUSES, strata_of
from tests.effort import THOROUGH, runs, some

LENGTH = 4
TOKENIZER = Tokenizer.from_tokens(["a", "b", "ab", "c", None], eos_ids=[4])
MODEL = TableModel(TableModel.random(5, LENGTH, seed=4, eos=True, concentration=0.7)._tables, tokenizer=TOKENIZER)
EVERYTHING = locore.from_json({"type": "true"})
ALPHAS = [EVERYTHING, ban("bb"), contains("a"), choice(["a", "ab", "abc", "ca"]), ends_with("b")]
WORTHY = [contains("ab"), starts_with("c"), ban("a"), contains("c") & ~contains("b"), ends_with("a") | contains("bb")]
ONE = bonus(contains("ab"), 2.0)


def plainly(alpha, bonuses):
    """{text: p(y) · Π exp(nats)}, by reading every sequence, ends that the model pays for included."""
    total = {}
    for number, (text, score) in enumerate(possible().values()):
        if truths(alpha)[number]:
            nats = sum(nats for constraint, nats in bonuses if truths(constraint)[number])
            total[text] = total.get(text, 0.0) + math.exp(score + nats)
    return total


@cache
def possible():
    """{sequence that the model can write: its text, log p(y)}."""
    every = torch.cartesian_prod(*[torch.arange(5)] * LENGTH)
    scores = zip(every.tolist(), MODEL.score(every).tolist(), strict=True)
    return {tuple(y): (TOKENIZER.decode(y), score) for y, score in scores if score > -math.inf}


@cache
def truths(constraint):
    """Does it hold of each of them?"""
    return [constraint.evaluate(y, TOKENIZER) for y in possible()]


def product(alpha, bonuses):
    target = alpha
    for constraint, nats in bonuses:
        target = target * bonus(constraint, nats)
    return target


@settings(max_examples=25 if THOROUGH else 5, deadline=None)
@given(
    st.sampled_from(ALPHAS),
    st.lists(st.tuples(st.sampled_from(WORTHY), st.sampled_from([-6.0, -1.0, 0.0, 1.0, 1.5, 9.0])), min_size=1, max_size=4),
)
def test_enumerated_it_is_the_plain_sum(alpha, bonuses):
    truth = plainly(alpha, bonuses)
    p = locore.generate(MODEL, "", product(alpha, bonuses), LENGTH, sampler="exact", num_particles=2000, ending="eos", seed=0)
    z = sum(truth.values())
    assert p.log_evidence == pytest.approx(math.log(z), abs=1e-9) and p.record.enumerated
    assert p.posterior() == pytest.approx({text: mass / z for text, mass in truth.items() if mass}, abs=1e-9)
    few = locore.generate(MODEL, "", product(alpha, bonuses), LENGTH, sampler="exact", num_particles=3, ending="eos", seed=0)
    assert len(few) <= 3 and few.log_evidence == pytest.approx(math.log(z), abs=1e-9)


@pytest.mark.parametrize("alpha", ALPHAS, ids=str)
def test_texts_end_where_they_would_without_it(alpha):
    """With ending="complete" too the law is that of the constraint; a potential is weighed there by another road."""
    asked = alpha * potential(lambda texts: [1.5 * ("ab" in text) for text in texts])
    told = alpha * bonus(contains("ab"), 1.5)
    options = {"sampler": "exact", "num_particles": 2000, "stop": "complete", "seed": 0}
    first, second = (locore.generate(MODEL, "", target, LENGTH, **options) for target in (asked, told))
    assert first.log_evidence == pytest.approx(second.log_evidence, abs=1e-9)
    assert first.posterior() == pytest.approx(second.posterior(), abs=1e-9)


@pytest.mark.parametrize("sampler", some(["auto", "smc", "swor", "rejection", "masked", "lcr", "cars", "oversampling"], 8))
def test_samplers_weigh_it_properly(sampler):
    """E[Ẑ] = Z; false alarm 1e-5 a sampler, by the normal tail of a mean of runs."""
    target, truth = ban("bb") * bonus(contains("ab"), 2.0), sum(plainly(ban("bb"), [(contains("ab"), 2.0)]).values())
    found = []
    for seed in range(runs(150)):
        p = locore.generate(MODEL, "", target, LENGTH, sampler=sampler, num_particles=8, ending="eos", seed=seed)
        found.append(math.exp(p.log_mean_weight))
        low, high = p.log_evidence_bounds
        assert low - 1e-9 <= math.log(truth) <= high + 1e-9
    sample = torch.tensor(found, dtype=torch.float64)
    error = max(float(sample.std()) / math.sqrt(len(sample)), 1e-9)
    assert abs(float(sample.mean()) - truth) / error < stats.norm.ppf(1 - 0.5e-5), (sampler, float(sample.mean()), truth)


def test_minus_infinity_is_the_ban():
    assert bonus(contains("ab"), -math.inf).as_target().constraint == ~contains("ab")
    banned = locore.generate(MODEL, "", ban("bb") * bonus(contains("ab"), -math.inf), LENGTH, seed=3, ending="eos")
    plain = locore.generate(MODEL, "", ban("bb") & ~contains("ab"), LENGTH, seed=3, ending="eos")
    assert banned.posterior() == plain.posterior() and banned.log_evidence == plain.log_evidence


def test_bonuses_add_up_and_nothing_is_worth_nothing():
    twice = bonus(contains("a"), 1.0) * bonus(contains("a"), 0.5)
    assert [stratum.nats for stratum in strata_of(twice)] == [1.5, 0.0]
    for nothing in (bonus(contains("a"), 0.0), bonus(contains("a"), 1.0) * bonus(contains("a"), -1.0)):
        assert [stratum.nats for stratum in strata_of(nothing.as_target())] == [0.0]
    alike = bonus(contains("a"), 1.0) * bonus(contains("b"), 1.0) * bonus(contains("c"), 1.0)
    assert [stratum.nats for stratum in strata_of(alike)] == [3.0, 2.0, 1.0, 0.0]


def test_it_goes_with_predicates_and_potentials():
    letters = potential(lambda texts: [0.5 * text.count("c") for text in texts])
    target = ban("bb") * ONE * letters * predicate(lambda text: text != "a")
    truth = sum(
        mass * math.exp(0.5 * text.count("c"))
        for text, mass in plainly(ban("bb"), [(contains("ab"), 2.0)]).items()
        if text != "a"
    )
    p = locore.generate(MODEL, "", target, LENGTH, sampler="exact", num_particles=2000, ending="eos")
    assert p.log_evidence == pytest.approx(math.log(truth), abs=1e-9)
    assert p.info["potential_texts"] > 0


def test_what_is_impossible_has_no_part():
    """A phrase that cannot fit leaves the constraint as it is; a constraint that cannot hold says so."""
    p = locore.generate(MODEL, "", bonus(contains("c" * 9), 5.0), LENGTH, sampler="exact", num_particles=2000, ending="eos")
    assert p.log_evidence == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(Unsatisfiable):
        locore.generate(MODEL, "", contains("c" * 9) * ONE, LENGTH)


def test_odds_of_products_are_compared():
    found = locore.log_odds(MODEL, "", ban("bb") * ONE, ban("bb"), LENGTH, sampler="exact", num_particles=2000, ending="eos")
    truth = math.log(sum(plainly(ban("bb"), [(contains("ab"), 2.0)]).values()) / sum(plainly(ban("bb"), []).values()))
    assert found.value == pytest.approx(truth, abs=1e-9)


def test_a_budget_is_shared():
    p = locore.generate(MODEL, "", ban("bb") * ONE * bonus(contains("c"), 1.0), LENGTH, budget=60, seed=0)
    assert p.info["lm_tokens"] <= 60


def test_a_part_of_which_nothing_was_found_is_not_trusted():
    """32 draws of a model hardly ever have a phrase that one text in 700 has; what it may be worth counts in full."""
    p = locore.generate(locore.load("tiny"), "The weather is", bonus(contains(" sun"), 8.0), 6, sampler="oversampling", seed=0)
    assert p.verdict.level == "do not trust" and p.log_evidence_interval[1] >= 1.7
    rare = bonus(contains(" sun"), -3.0)
    kept = locore.generate(locore.load("tiny"), "The weather is", rare, 6, sampler="oversampling", seed=0)
    assert kept.log_evidence_interval[0] <= 0.0015 * math.expm1(-3.0) <= kept.log_evidence_interval[1]


def test_what_is_worth_much_is_found():
    """p(" sun") is .0015 (e^−6.66 to e^−6.16), so with 8 nats Z = 1 + p(e^8 − 1) and most of the weight has it."""
    p = locore.generate(locore.load("tiny"), "The weather is", bonus(contains(" sun"), 8.0), 6, seed=0)
    low, high = (math.log1p(math.exp(log) * math.expm1(8.0)) for log in (-6.66, -6.16))
    assert p.log_evidence_interval[0] <= high and p.log_evidence_interval[1] >= low
    assert sum(weight for text, weight in p if " sun" in text) > 0.6


JSON = {"type": "product", "of": [{"type": "ban", "phrases": ["bb"]}, {"type": "bonus", "constraint": None, "nats": 2.0}]}
JSON["of"][1]["constraint"] = contains("ab").to_json()


@pytest.mark.parametrize(
    "target", [ONE, ban("bb") * ONE, ONE * bonus(ends_with("b"), -1), ban("bb") * bonus(contains("c"), -math.inf)]
)
def test_it_is_written_as_json_and_read_back(target):
    form = json.loads(json.dumps(target.to_json(), allow_nan=False))
    again = locore.from_json(form)
    assert again.to_json() == form
    ours, theirs = (locore.generate(MODEL, "", one, LENGTH, seed=1, ending="eos") for one in (target, again))
    assert ours.posterior() == theirs.posterior()


def test_json_is_what_is_written_down():
    assert (ban("bb") * ONE).to_json() == JSON
    assert isinstance(locore.from_json(JSON), Target) and locore.from_json({"type": "product", "of": []}) == EVERYTHING
    with pytest.raises(InvalidConstraint, match="code and not data"):
        (ONE * potential(lambda texts: [0.0] * len(texts))).to_json()


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"type": "bonus", "constraint": {"type": "true"}}, "needs the field 'nats'"),
        ({"type": "bonus", "constraint": {"type": "true"}, "nats": "2"}, "must be a finite number"),
        ({"type": "bonus", "constraint": {"type": "true"}, "nats": True}, "must be a finite number"),
        ({"type": "and", "of": [JSON]}, "no yes or no.*of.0"),
        ({"type": "product", "of": [JSON]}, "no product"),
        ({"type": "product", "of": JSON}, "must be a list"),
        ({"type": "product", "of": [{"type": "bonus", "constraint": {"type": "bann"}, "nats": 1}]}, r"of\[0\].constraint"),
    ],
)
def test_json_that_means_nothing_is_refused_by_place(form, message):
    with pytest.raises(InvalidConstraint, match=message):
        locore.from_json(form)


def test_fields_that_nobody_knows_are_refused():
    with pytest.raises(UnsupportedKeyword, match="'weight'"):
        locore.from_json({**JSON["of"][1], "weight": 1})


def test_arguments_that_mean_nothing_are_refused():
    with pytest.raises(InvalidConstraint, match="needs a constraint"):
        bonus(" sun", 8.0)
    for nats in (math.inf, math.nan, "8", True):
        with pytest.raises(InvalidArgument, match="must be a finite number"):
            bonus(contains("a"), nats)
    with pytest.raises(InvalidConstraint, match="multiplied only"):
        ONE | ban("a")
    many = EVERYTHING
    for number in range(MOST_BONUSES + 1):
        many = many * bonus(contains("a" * (number + 1)), 1.0 + number)
    with pytest.raises(InvalidConstraint, match=f"at most {MOST_BONUSES}"):
        locore.generate(MODEL, "", many, LENGTH)
    with pytest.raises(InvalidArgument, match="no proper weights"):
        locore.generate(MODEL, "", ONE, LENGTH, sampler=MarkovChain())


def test_a_text_is_explained_and_checked():
    target = ban("bb") * ONE
    assert locore.holds(target, "ca", TOKENIZER) and not locore.holds(target, "bb", TOKENIZER)
    told = str(locore.explain(target, "cab", TOKENIZER))
    assert "+2 nats" in told and locore.explain(target, "cab", TOKENIZER).holds
    assert "+0 nats" in str(locore.explain(target, "ca", TOKENIZER)) and locore.explain(target, "ca", TOKENIZER).holds
    assert not locore.explain(target, "bb", TOKENIZER).holds


@pytest.mark.parametrize("sampler", some(["oversampling", "rejection", "cars"]))
def test_exact_draws_from_parts_are_trusted_only_where_it_is_known_how_much_each_part_holds(sampler):
    """One exact draw from each of two parts says which text of a part, and not which part. No interval is a wrong point.

    A wrong trust has a chance of about 1 in 50, so more than 4 of 40, or 3 of 16, are chance once in 1,000.
    """
    target, trusted, off = ban("bb") * bonus(contains("ab"), 2.0), 0, 0
    truth = math.log(sum(plainly(ban("bb"), [(contains("ab"), 2.0)]).values()))
    for number in (1, 4, 16, 64):
        for seed in range(10 if THOROUGH else 4):
            p = locore.generate(MODEL, "", target, LENGTH, sampler=sampler, num_particles=number, ending="eos", seed=seed)
            low, high = p.log_evidence_interval
            assert p.record.enumerated or high - low > 1e-9 or low == pytest.approx(truth, abs=1e-9)
            if p.verdict.level == "trust":
                assert max(high - p.log_evidence, p.log_evidence - low) <= SMALL_REACH
                trusted += 1
                off += abs(math.expm1(p.log_evidence - truth)) > 0.3
    assert off <= (4 if THOROUGH else 3) and trusted > 0


def test_what_is_certain_counts_where_an_interval_is_impossible():
    """Cut to one end of what is certain, it would be a point, and wrong."""
    assert within(-2.0, -1.0, (-0.5, -0.1)) == (-0.5, -0.1) == within(-0.05, 0.0, (-0.5, -0.1))
    assert within(-2.0, -0.3, (-0.5, -0.1)) == (-0.5, -0.3) and within(-0.4, -0.3, (-0.5, -0.1)) == (-0.4, -0.3)
