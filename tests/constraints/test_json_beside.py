"""JSON schemas too large for an automaton of all states, together with other constraints."""

from __future__ import annotations

import json
import math
import random

import jsonschema
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import locore
from locore import after, ban, choice, contains, json_schema, regex, template, token
from locore.automata.composed import AutomatonMachine
from locore.automata.walking import DEAD
from locore.circuits import reached
from locore.compilers.explored import Exploration
from locore.constraints.text_leaf import NestedLeaf
from locore.kernel.errors import BudgetExceeded, InvalidConstraint, Unsatisfiable
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel
from locore.testing import proper_weighting
from tests.effort import THOROUGH, runs, some

from .schemas import any_schemas, schemas

TOKENS = [b'{"', b'"', b":", b",", b"}", b"[", b"]", b"1", b"11", b"0", b"a", b'a"', b'":', b"id", b"true", b"\\", b" ", None]
TOKENIZER = Tokenizer.from_tokens(TOKENS, eos_ids=[len(TOKENS) - 1])
INVOICE = {
    "type": "object",
    "properties": {
        "number": {"type": "string", "maxLength": 200},
        "items": {"type": "array", "maxItems": 20, "items": {"type": "object", "properties": {"qty": {"type": "integer"}}}},
    },
    "required": ["number", "items"],
    "additionalProperties": False,
}
BESIDE = {
    "ban": lambda leaf: leaf & ban(["11", "a1"]),
    "not": lambda leaf: ~leaf & regex(r'["\[{].*'),
    "or": lambda leaf: leaf | choice(["1 1", "a"]),
    "contains": lambda leaf: leaf & contains("1"),
    "tokens": lambda leaf: leaf & token(1, [1, 2, 6, 7, 10, 11, 14]),
    "either": lambda leaf: leaf ^ contains("a"),
    "after": lambda leaf: after(":", leaf),
    "template": lambda leaf: template("1{x},{y}", x=leaf, y=choice(["1", "a"])),
}


@settings(max_examples=40 if THOROUGH else 5, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas() | any_schemas(), st.integers(0, 99))
def test_costs_in_bytes_are_those_of_a_shortest_text(schema, seed):
    """The search for an end of the text takes it that no text needs fewer."""
    try:
        leaf = json_schema(schema)
        exact = AutomatonMachine(leaf.automaton_within(2000))
    except (BudgetExceeded, InvalidConstraint):
        return
    machine, rng = leaf.machine(), random.Random(seed)
    for _ in range(5):
        followed = whole = 0
        for _ in range(30):
            assert machine.least(followed) <= exact.least(whole)
            if machine.least(followed) == math.inf or not (byte := _next(machine, followed, rng)):
                break
            followed, whole = int(machine.row(followed)[byte]), int(exact.row(whole)[byte])


def _next(machine, state, rng):
    """A byte that may come, most often one of those that lead to an end."""
    alive = np.flatnonzero(machine.row(state) != DEAD).tolist()
    nearer = [byte for byte in alive if machine.least(int(machine.row(state)[byte])) < machine.least(state)]
    return rng.choice(nearer if nearer and rng.random() < 0.7 else alive) if alive else None


@settings(max_examples=25 if THOROUGH else 5, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas() | any_schemas(), st.sampled_from(sorted(BESIDE)), st.integers(3, 7), st.integers(0, 99))
def test_the_reading_is_that_of_the_automaton(schema, name, length, seed):
    try:
        leaf = json_schema(schema)
        leaf.automaton_within(1000)
    except (BudgetExceeded, InvalidConstraint):
        return
    whole = _compiled(BESIDE[name](leaf), length)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NestedLeaf, "is_small", False)
        followed = _compiled(BESIDE[name](json_schema(schema)), length)
    assert (whole is None) == (followed is None)
    if whole is None:
        return
    assert isinstance(followed.reader.steering, Exploration) and not followed.reader.notes()
    rng = random.Random(seed)
    for _ in range(8):
        prefix = []
        for position in range(length):
            mask = whole.allowed(torch.tensor(prefix, dtype=torch.long))
            assert torch.equal(mask, followed.allowed(torch.tensor(prefix, dtype=torch.long))), (prefix, position)
            prefix.append(rng.choice(mask.nonzero()[:, 0].tolist()))


def _compiled(constraint, length):
    try:
        return locore.compile(constraint, TOKENIZER, length, use_cache=False)
    except Unsatisfiable:
        return None


@pytest.mark.parametrize("name", some(["smc", "swor"]))
def test_samplers_are_proper_beside_other_constraints(name, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(len(TOKENS) + 1, len(TOKENS), generator=generator, dtype=torch.float64).softmax(-1)
    model = MarkovModel(rows[0], rows[1:], tokenizer=TOKENIZER)
    monkeypatch.setattr(NestedLeaf, "is_small", False)
    leaf = json_schema({"type": ["array", "integer"], "items": {"type": "integer"}, "maxItems": 2})
    circuit = locore.compile(leaf & ban("00") | choice(["a1"]), model, 4, use_cache=False)
    assert isinstance(circuit.reader.steering, Exploration)
    assert proper_weighting(locore.samplers.sampler_by_name(name), model, circuit, 8, runs(200), seed=1).holds()


def test_an_invoice_without_some_words():
    constraint = json_schema(INVOICE) & ban(["a1"]) & contains("11")
    model = MarkovModel(torch.full((18,), 1 / 18), torch.full((18, 18), 1 / 18), tokenizer=_spelling())
    length = 60 if THOROUGH else 30
    found = locore.generate(model, "", constraint, max_new_tokens=length, sampler="smc", num_particles=4, seed=0)
    for text in found.texts:
        jsonschema.validate(json.loads(text), INVOICE)
        assert "11" in text and "a1" not in text


def _spelling():
    names = [b'{"', b"number", b"items", b'":', b'"', b",", b"}", b"[", b"]", b"1", b"11", b"qty", b"a", b'a"', b"{", b":"]
    return Tokenizer.from_tokens([*names, b" ", None], eos_ids=[17])


def test_with_a_vtree_it_is_refused():
    with pytest.raises(InvalidConstraint, match="leave vtree out"):
        locore.compile(json_schema(INVOICE) & ban("a"), TOKENIZER, 4, vtree=((0, 1), (2, 3)))


def test_whole_tables_are_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr(reached, "MOST_STATES", 500)
    model = MarkovModel(torch.full((18,), 1 / 18), torch.full((18, 18), 1 / 18), tokenizer=_spelling())
    with pytest.raises(BudgetExceeded, match="sampler that goes token by token"):
        locore.generate(model, "", json_schema(INVOICE) & ban("a1"), 60, sampler="lcr-published", num_particles=2)
