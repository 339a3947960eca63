"""Laws of orders: the posterior that the generator gives is Bayes', and truths by reading all texts are the model's.

Statistical tests: false alarm below 1e-5 each.
"""

from __future__ import annotations

import json
import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from locore_lab.bench import field_plots
from locore_lab.bench.field_plots import bins, kept
from locore_lab.bench.records import (
    METHODS,
    Question,
    by_bayes,
    by_tokens,
    calibration_error,
    error_by_chance,
    masked,
    rated,
    worst_error,
)
from locore_lab.extraction.corpus import spelled
from locore_lab.extraction.letters import SCHEMA, letters
from locore_lab.extraction.truth import MISSING, enumerated, plain, value_at
from locore_lab.extraction.world import ORIGINS, SLOTS, Order, Table
from locore_lab.shared import auroc
from locore_lab.tiny_lm.models import RECIPES

import locore
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel
from tests.effort import THOROUGH


def test_every_clause_is_about_one_field_alone():
    """So a sentence says of the values what its clauses say."""
    rng, said = random.Random(0), {}
    for name, slot in SLOTS.items():
        for origin in ORIGINS:
            said.setdefault(name, set()).update(slot.say(slot.draw(rng), origin, rng) for _ in range(2000))
    clauses = [clause for found in said.values() for clause in found - {""}]
    assert len(clauses) == len(set(clauses))


@pytest.mark.parametrize("name", sorted(SLOTS))
def test_what_a_clause_may_mean_is_what_it_is_said_for(name):
    rng, slot = random.Random(1), SLOTS[name]
    for _ in range(200):
        value, origin = slot.draw(rng), rng.choice(list(ORIGINS))
        assert slot.explain(slot.say(value, origin, rng), origin)[value] > 0
    if isinstance(slot, Table):
        joint = [chance for origin in ORIGINS for chances in slot.clauses(origin) for chance in chances.values()]
        assert sum(joint) == pytest.approx(len(ORIGINS))


def test_the_posterior_is_bayes():
    """Of all orders whose posterior says p, a share of p has these values."""
    rng, surplus, variance = random.Random(2), 0.0, 0.0
    for _ in range(3000):
        order = Order.drawn(rng)
        posterior = order.posterior()
        assert sum(posterior.values()) == pytest.approx(1)
        likeliest, p = max(posterior.items(), key=lambda each: each[1])
        surplus += (tuple(order.values[name] for name in order.asked) == likeliest) - p
        variance += p * (1 - p)
    assert abs(surplus) < 4.5 * math.sqrt(variance)


def test_each_field_has_bayes_marginal():
    """Of all fields that are said to have a value with probability p, a share of p has it."""
    rng, surplus, variance = random.Random(3), 0.0, 0.0
    for _ in range(2000):
        order = Order.drawn(rng)
        pointer = f"/{rng.choice(order.asked)}"
        chances = by_bayes(order, pointer)
        assert sum(chances.values()) == pytest.approx(1)
        likeliest, p = max(chances.items(), key=lambda each: each[1])
        surplus += (value_at(order.record, pointer) == likeliest) - p
        variance += p * (1 - p)
    assert abs(surplus) < 4.5 * math.sqrt(variance)


@given(st.integers(0, 10_000))
def test_spellings_are_of_the_record_and_valid(seed):
    order = Order.drawn(random.Random(seed))
    text = spelled(order.record, random.Random(seed))
    assert plain(json.loads(text)) == plain(order.record)
    assert Draft202012Validator(order.schema).is_valid(json.loads(text))


def test_letters_are_as_many_as_asked_for_and_valid():
    found = letters(300)
    assert len({letter.text for letter in found}) > 250 and len(letters(7)) == 7
    assert all(Draft202012Validator(SCHEMA).is_valid(dict(letter.record)) for letter in found)


class Words:
    """Two values of a field, spelled in two ways, and texts that are no record."""

    pieces = ('{"a":1}', '{"a": 1.0}', '{"a":2}', "{}", '{"b":1}', "x")
    chances = (0.3, 0.2, 0.1, 0.1, 0.1, 0.2)


def test_a_truth_is_what_the_model_gives_to_valid_records():
    end = len(Words.pieces)
    rows = torch.zeros(end + 1, end + 1, dtype=torch.float64)
    rows[:, end] = 1
    tokenizer = Tokenizer(end + 1, (*(piece.encode() for piece in Words.pieces), None), eos_ids=(end,))
    model = MarkovModel(torch.tensor([*Words.chances, 0.0]), rows, tokenizer=tokenizer)
    schema = {"type": "object", "properties": {"a": {"type": "number"}}, "additionalProperties": False}
    truth = enumerated(model, "", schema, 3, 1e-3)
    assert truth.valid == pytest.approx(0.7) and truth.dropped == pytest.approx(0)
    assert truth.marginal("/a") == pytest.approx({"1": 5 / 7, "2": 1 / 7, MISSING: 1 / 7})
    assert enumerated(model, "", schema, 3, 0.15).off == pytest.approx(0.3 / 0.8)


@pytest.fixture(scope="module")
def clerk():
    return locore.load(RECIPES["clerk"].folder)


def test_fields_of_orders_are_the_models(clerk):
    """Every marginal near the one that was found by reading all probable texts."""
    orders = (("amount", "item"), ("weight", "express"), ("date", "colours"))
    for number, asked in enumerate(orders[: 3 if THOROUGH else 1]):
        order = Order.drawn(random.Random(f"fields/{number}"), asked)
        truth = enumerated(clerk, order.prompt, order.schema, 64, 1e-5)
        answer = locore.parse(clerk, order.prompt, order.schema, 64, seed=number, budget=96 * 63)
        assert worst_error(answer, truth, list(answer.fields)) < 0.06 + truth.off


def test_measures_by_hand():
    assert auroc([True, False, True, False], [0.9, 0.8, 0.8, 0.1]) == pytest.approx(3.5 / 4)
    assert math.isnan(auroc([True], [0.9]))
    assert calibration_error([(0.91, 1.0), (0.93, 1.0), (0.2, 0.0)]) == pytest.approx((0.16 + 0.2) / 3)
    assert error_by_chance([0.0, 1.0]) == 0 and error_by_chance([0.5]) == 0.5
    assert value_at({"a": {"b": 2.0}}, "/a/b") == "2" and value_at({"a": 1}, "/a/b") == MISSING


def test_unknown_fields_flatter_no_method():
    """A wrong field that is unknown counts against Locore among all fields, by what was found of it, and nowhere else."""
    right = {"true": "1", **{name: ("1", 0.9) for name in METHODS}}
    wrong = {"true": "1", **{name: ("2", 0.7) for name in METHODS}, "locore": ("2", None), "unrounded": 0.6}
    lines = rated([{"said": [right, wrong, right], "seconds": 2.0, "masked_seconds": 1.0}])
    first, second = (next(k for k, line in enumerate(lines) if line.startswith(name)) for name in ("known", "all"))
    assert "right 1.000" in lines[first + 1] and "right 0.667" in lines[second + 1]
    errors = [line.split("calibration error ")[1].split()[0] for line in lines[second + 1 : second + 4]]
    assert errors == ["0.267", "0.300", "0.300"]  # (.1 + .1 + .6) / 3 and (.1 + .1 + .7) / 3
    assert lines[0].startswith("3 fields, 1 unknown") and lines[-1].endswith("2 of 3 fields kept, right 1.000")


PAIRS = st.lists(st.tuples(st.sampled_from([0.1, 0.25, 0.5, 0.9, 1.0]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=90)


@given(PAIRS, st.randoms())
def test_curves_do_not_depend_on_the_order_of_equals(pairs, shuffled):
    again = shuffled.sample(pairs, len(pairs))
    for curve in (bins, kept):
        assert curve(again) == [pytest.approx(point) for point in curve(pairs)]
    assert kept(pairs)[-1] == pytest.approx((1.0, sum(true for _, true in pairs) / len(pairs)))


def test_curves_by_hand():
    assert kept([(0.9, 1.0), (0.5, 0.0), (0.5, 1.0), (0.1, 0.0)], 1) == [(1 / 4, 1.0), (3 / 4, 2 / 3), (1.0, 1 / 2)]
    assert bins([(0.2, 0.0)] * 20 + [(0.4, 1.0)] * 20 + [(0.8, 1.0)] * 60) == [
        pytest.approx(p) for p in ((0.3, 0.5), (0.8, 1.0))
    ]


def test_the_picture_is_drawn_from_the_results(tmp_path, monkeypatch):
    """With letters and without."""
    monkeypatch.setattr(field_plots, "REPOSITORY", tmp_path)
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    results = json.loads((field_plots.RESULTS / "records.json").read_text())
    assert list(field_plots.curves(results["rows"])) == ["posterior", "outcomes", "kept"]
    asked = [{"said": [{**field, "asked": field["tokens"]} for field in row["said"]]} for row in results["rows"]]
    for found in ({"records": results}, {"records": results, "letters": {"rows": asked}}):
        assert field_plots.draw(found, "dark").read_text().count('id="axes_') == 3 * len(found)


def test_the_tokens_of_a_value_are_those_that_spell_it():
    """With greedy decoding of a schema that leaves one value, its tokens have the probability that the model gives them."""
    model = locore.load("tiny")
    question = Question("A:", {"type": "object", "properties": {"a": {"const": "yes"}}, "required": ["a"]}, {"a": "yes"}, 16)
    ((value, chance),) = by_tokens(model, question, ["/a"], 0).values()
    assert value == '"yes"' and 0 < chance < 1
    assert json.loads(masked(model, question, 1, 0).texts[0])["a"] == "yes"
