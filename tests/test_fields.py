"""Fields of texts that are JSON: what is not known is said, and a pointer to nowhere is no answer."""

from __future__ import annotations

import math
import pickle
from typing import Literal

import pytest
import torch
from pydantic import BaseModel

import locore
from locore import ban, json_schema, regex
from locore.evidence import Particles, Record
from locore.kernel.errors import InvalidArgument
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel


class Address(BaseModel):
    city: Literal["Rome", "Oslo"]
    zip: int | None = None


class Person(BaseModel):
    name: Literal["Ann", "Bob"]
    address: Address
    tags: tuple[bool, bool] = (True, False)


@pytest.fixture(scope="module")
def person():
    model = locore.load("tiny")
    return locore.generate(model, "", json_schema(Person, whitespace="compact"), 40, num_particles=4, seed=0, sampler="masked")


@pytest.mark.parametrize(
    ("pointer", "message"),
    [
        ("/nmae", "did you mean '/name'"),
        ("/adress/city", "did you mean '/address/city'"),
        ("/address/ctiy", "did you mean '/address/city'"),
        ("/x", "no text can have a value at '/x'; there are /name, /address, /tags"),
        ("/name/first", "no text can have a value at '/name/first'"),
        ("/tags/2", "no text can have a value at '/tags/2'"),
        ("/tags/x", "no text can have a value"),
        ("name", "needs a JSON pointer"),
    ],
)
def test_a_pointer_to_nowhere_is_refused(person, pointer, message):
    with pytest.raises(InvalidArgument, match=message):
        person.marginal(pointer)


def test_values_carry_error_and_verdict(person):
    for pointer in ("/name", "/address/city", "/address", "/tags/1", ""):
        found = person.marginal(pointer)
        assert sum(one.probability for one in found) == pytest.approx(1)
        assert all(one.verdict == person.verdict.level for one in found)
        assert all(one.error is None or one.error >= 0 for one in found)
        assert all(str(one).endswith(f"; {person.verdict.level}") and person.verdict.level in repr(one) for one in found)


def test_pointers_are_those_of_the_whole_text():
    """Beside other constraints; of alternatives all have to be schemas, and where none says what there is the texts do."""
    model, schema = locore.load("tiny"), json_schema(Person, whitespace="compact")
    for constraint in (schema & ban("Bob"), schema | json_schema(Person, whitespace="spaced")):
        p = locore.generate(model, "", constraint, 40, num_particles=2, seed=0, sampler="masked")
        with pytest.raises(InvalidArgument, match="did you mean '/name'"):
            p.marginal("/nmae")
        assert p.resample(2, seed=0).marginal("/name")[0].error is None
    p = locore.generate(model, "", regex(r'\{"name":[12]\}'), 12, num_particles=2, seed=0, sampler="masked")
    with pytest.raises(InvalidArgument, match="did you mean '/name'"):
        p.marginal("/nmae")
    (absent,) = p.marginal("/other")
    assert not absent.present and absent.error is None and "missing" in str(absent)


def test_what_may_be_there_and_is_not_is_no_error():
    schema = {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["a"]}
    model = locore.load("tiny")
    p = locore.generate(
        model, "", json_schema(schema) & regex(r"[^b]*") & regex(".{0,8}"), 8, num_particles=2, seed=0, sampler="masked"
    )
    (absent,) = p.marginal("/b")
    assert (absent.value, absent.present, absent.error) == (None, False, None)
    (open_,) = p.marginal("/other")  # an open object may have it
    assert not open_.present


def of_texts(texts: list[str], **record: object) -> Particles:
    """Equally weighted particles of these texts."""
    tokens = [text.encode() for text in texts]
    tokenizer = Tokenizer.from_tokens([*tokens, None], eos_ids=(len(tokens),))
    return Particles(
        torch.arange(len(tokens))[:, None], torch.zeros(len(tokens)).double(), record=Record(**record), tokenizer=tokenizer
    )


def test_no_spread_is_not_no_error():
    same = of_texts(['{"a":1}'] * 5).marginal("/a")
    assert [(one.probability, one.error) for one in same] == [(pytest.approx(1), None)]
    mixed = of_texts(['{"a":1}', '{"a":1.0}', '{"a":2}', "{}"]).marginal("/a")
    assert [one.probability for one in mixed] == pytest.approx([0.5, 0.25, 0.25])
    assert all(one.error is not None and math.isfinite(one.error) and one.error > 0 for one in mixed)
    exact = of_texts(['{"a":1}'] * 2, evidence="exact", sequences=2).marginal("/a")
    assert exact[0].error == 0 and exact[0].verdict == "trust"
    single = of_texts(['{"a":1}']).marginal("/a")
    assert single[0].error is None


def test_particles_can_be_pickled(person):
    with pytest.raises(InvalidArgument, match="did you mean"):
        pickle.loads(pickle.dumps(person)).marginal("/nmae")


@pytest.mark.parametrize("sampler", ["swor", "smc", "exact"])
def test_what_is_equally_probable_comes_in_one_order_however_the_model_rounds(sampler):
    """What one machine and another say of a model differs in the last digits; which value is shown must not."""
    tokenizer = Tokenizer.from_tokens([b"1", b"2", b"3", b"<", None], (4,))
    form = locore.template("<{n}", n=locore.choice(["1", "2", "3"]))
    orders = set()
    for seed in range(20):
        noise = 1e-7 * torch.randn(5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        row = (torch.tensor([0.2] * 5).double().log() + noise).softmax(0)
        model = MarkovModel(row, row.expand(5, 5).clone(), (4,), tokenizer)
        found = locore.generate(model, "", json_schema({"enum": [3, 1, 2]}), 3, num_particles=32, sampler=sampler, seed=0)
        filled = locore.generate(model, "", form, 3, num_particles=32, sampler=sampler, seed=0)
        fields = tuple(one.value for one in found.marginal(""))
        orders.add((found.best, tuple(found.posterior()), fields, tuple(form.marginal(filled, "n"))))
    assert len(orders) == 1
