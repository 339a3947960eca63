"""Records with a probability of each field: they are the enumerated ones, or said to be unknown.

Statistical tests: false alarm below 1e-3 each.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import pytest
import torch
from pydantic import BaseModel
from typing_extensions import TypedDict

import locore
from locore import ban, json_schema
from locore.kernel.errors import InvalidArgument, InvalidConstraint, LocoreError
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel
from locore.parsing import Answer, checked_level
from tests.effort import runs, some


class Place(BaseModel):
    city: Literal["Rome", "Oslo"]
    zip: int | None = None


class Person(BaseModel):
    name: Literal["Ann", "Bob"]
    place: Place
    tags: list[bool]


class Small(TypedDict):
    a: Literal[1, 2]
    b: Literal[3, 4]


@dataclass
class Nothing:
    pass


LENGTH = 13  # of {"a":1,"b":3} at most, when each character is a token
PROMPT = "Tom has a red ball. JSON: "


@pytest.fixture(scope="module")
def tiny():
    return locore.load("tiny")


@pytest.fixture(scope="module")
def truth(tiny):
    """Of all texts of `Small`."""
    return locore.parse(
        tiny, PROMPT, Small, LENGTH, sampler="exact", whitespace="compact", num_particles=100_000, budget=100_000
    )


def test_an_enumerated_posterior_is_said_exactly(tiny, truth):
    """Four records, by hand: each pointer's probability is the sum over the others, by the model's own scores."""
    assert truth.particles.record.enumerated
    by_record = {(value["a"], value["b"]): 0.0 for value, _ in truth.particles.parsed()}
    for value, weight in truth.particles.parsed():
        by_record[value["a"], value["b"]] += weight
    assert len(by_record) == 4
    for pointer, place in (("a", 0), ("b", 1)):
        known = truth.fields[pointer]
        share = sum(weight for record, weight in by_record.items() if record[place] == known.value)
        assert known.probability == pytest.approx(share) and known.interval == pytest.approx((share, share))
    best = max(by_record, key=lambda record: by_record[record])
    assert (truth.value["a"], truth.value["b"]) == best and truth.probability == pytest.approx(by_record[best])


@pytest.mark.parametrize("budget", some([3 * (LENGTH - 1), 8 * (LENGTH - 1)]))
def test_certain_bounds_hold_and_intervals_do_mostly(tiny, truth, budget):
    """Certain bounds always; of 95 % intervals fewer than 1 of 3 fail (10 runs: 1e-3, as more than 3 have to fail)."""
    missed = 0
    for seed in range(runs(10)):
        answer = locore.parse(tiny, PROMPT, Small, LENGTH, budget=budget, seed=seed, whitespace="compact")
        for pointer in ("/a", "/b", ""):
            exact = {str(one.value): one.probability for one in truth.particles.marginal(pointer)}
            for one in answer.particles.marginal(pointer):
                low, high = one.bounds
                assert low - 1e-9 <= exact[str(one.value)] <= high + 1e-9
            known = answer.fields[pointer]
            low, high = known.interval
            assert known.probability is None or low <= known.probability <= high
            if pointer == "/a" and known.probability is not None:
                missed += not low - 1e-9 <= exact[str(known.value)] <= high + 1e-9
    assert missed <= runs(10) / 3


def test_a_probability_of_one_is_not_said_without_a_proof(tiny):
    """One text that says one value: what was not found may say another."""
    answer = locore.parse(tiny, PROMPT, Small, LENGTH, budget=LENGTH - 1, num_particles=1, sampler="masked", seed=0)
    assert all(one.probability is None or one.probability < 1 for one in answer.fields.values())
    assert all(one.interval[0] < 1 for one in answer.fields.values())
    assert "unknown" in answer.report() and answer.report().endswith(answer.note) and answer.note


def test_a_note_says_why_fields_are_unknown(tiny, truth):
    """Where the model hardly writes JSON, how seldom; elsewhere that more can be known; nothing where all is known."""
    assert truth.note == truth.to_json()["note"] == ""
    seldom = locore.parse(tiny, PROMPT, Person, 60, seed=0, budget=4 * 59)
    power = int(re.search(r"1e(-\d+),", seldom.note)[1])
    assert abs(power - seldom.particles.log_evidence / math.log(10)) <= 0.5
    masses = torch.full((4, 4), 0.25, dtype=torch.float64)
    tokenizer = Tokenizer(4, (b"1", b"2", b"3", None), eos_ids=(3,))
    often = locore.parse(MarkovModel(masses[0], masses, tokenizer=tokenizer), "", {"type": "integer"}, 6, seed=0, budget=5)
    assert "larger budget" in often.note


def test_fields_nest_and_are_found_by_names(tiny):
    answer = locore.parse(tiny, PROMPT, Person, 60, seed=0, budget=4 * 59, abstain_below=1.0)
    assert isinstance(answer.value, Person)
    assert set(answer.fields) <= {"/name", "/place/city", "/place/zip", "/tags"} and "/tags" in answer.fields
    assert answer.fields["place/city"] == answer.fields["/place/city"] and "name" in answer.fields
    assert answer.fields["place"].value["city"] in ("Rome", "Oslo")
    assert isinstance(answer.fields["tags"].value, list)
    assert set(answer.left_out) == {one.pointer for one in answer.fields.values() if one.probability != 1}
    assert not set(answer.left_out) & {f"/{name}" for name in answer.kept}
    with pytest.raises(InvalidArgument, match="did you mean '/name'"):
        answer.fields["nmae"]
    plain = answer.to_json()
    assert plain["fields"]["/name"]["value"] == answer.fields["name"].value and plain["left_out"] == list(answer.left_out)
    assert Person.model_validate(plain["value"]) == answer.value


def test_what_is_known_is_kept(truth):
    level = min(one.probability or 0.0 for one in truth.fields.values())
    assert Answer(truth.particles, Small, level).left_out == ()
    assert Answer(truth.particles, Small, level).kept == truth.fieldwise
    assert Answer(truth.particles, Small).left_out == ()


def test_schemas_lists_and_single_values(tiny):
    answer = locore.parse(tiny, PROMPT, {"enum": [1, 2]}, 8, seed=0)
    assert list(answer.fields) == [""] and answer.kept in (1, 2) and answer.value == answer.fields[""].value
    nothing = locore.parse(tiny, PROMPT, Nothing, 8, seed=0)
    assert isinstance(nothing.value, Nothing) and nothing.fieldwise == {}
    listed = locore.parse(tiny, PROMPT, list[bool], 12, seed=0)
    assert listed.value == listed.fields[""].value and isinstance(listed.fields["0"].value, bool | None)


def test_many_texts_are_read_together_and_answer_alike(tiny):
    prompts = [PROMPT, "Ann: "]
    answers = locore.parse_many(tiny, prompts, Small, LENGTH, seed=0, also=ban("1"), errors="return")
    assert [one.fields["a"].value for one in answers] == [2, 2]
    failed = locore.parse_many(tiny, prompts, {"const": "x" * 400}, 4, seed=0, errors="return")
    assert all(isinstance(one, LocoreError) for one in failed)
    assert locore.parse_many(tiny, [], Small, LENGTH) == []


@pytest.mark.parametrize("level", [0, -0.1, 1.5, math.nan, True, "0.8"])
def test_a_level_is_a_probability(level):
    with pytest.raises(InvalidArgument, match="abstain_below must be a probability"):
        checked_level(level)


def test_what_is_wrong_is_said(tiny):
    with pytest.raises(InvalidArgument, match="did you mean temperature"):
        locore.parse(tiny, PROMPT, Small, temprature=0.5)
    with pytest.raises(InvalidArgument, match="max_new_tokens"):
        locore.parse(tiny, PROMPT, Small, 0)
    with pytest.raises(InvalidConstraint, match="pydantic has no JSON schema"):
        locore.parse(tiny, PROMPT, object(), 8)
    with pytest.raises((InvalidConstraint, LocoreError)):
        locore.parse(tiny, PROMPT, {"type": "nothing of the kind"}, 8)


def test_the_law_is_that_of_generate(tiny):
    """The same texts with the same weights, where all is said in words."""
    answer = locore.parse(tiny, PROMPT, Small, LENGTH, seed=3, budget=200, temperature=0.7)
    plain = locore.generate(tiny, PROMPT, json_schema(Small), LENGTH, seed=3, budget=200, temperature=0.7)
    assert answer.particles.posterior() == plain.posterior()
