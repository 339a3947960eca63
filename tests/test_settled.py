"""Laws of fields that are weighed where they are settled."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import locore
from locore import json_schema
from locore.evidence import fields
from locore.evidence.settled import settled, settled_shares
from locore.kernel.evidence.blocks import Block, Blocks, Kept, Lineage
from locore.kernel.evidence.record import Draws, Record
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel
from tests.effort import examples, runs

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 999) | st.floats(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "a/b", 'q"']), inner, max_size=3),
    max_leaves=8,
)
STEPS = st.lists(st.sampled_from(["a", "b", "a/b", 'q"', "0", "1"]), max_size=3)


def at(value, steps):
    """By the definition of a pointer."""
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return False, None
    return True, value


@settings(max_examples=examples(600), deadline=None)
@given(VALUES, STEPS, st.sampled_from([None, 1]), st.sampled_from([(", ", ": "), (",", ":")]))
def test_what_is_settled_is_what_will_stand_there_and_stays(value, steps, indent, separators):
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)
    known = [settled(text[:end], steps) for end in range(len(text) + 1)] + [settled(text + " ", steps)]
    assert known[-1] == at(value, steps)
    first = next(number for number, found in enumerate(known) if found is not None)
    assert all(found == known[-1] for found in known[first:])


def test_a_field_is_settled_before_the_text_ends():
    text = '{"a": 12, "b": {"c": "x'
    assert settled(text, ["a"]) == (True, 12) and settled(text[:8], ["a"]) is None
    assert settled(text, ["b", "c"]) is None and settled(text, ["b", "d"]) is None
    assert settled(text + '"}', ["b", "d"]) == (False, None)
    assert settled('{"a": [1, 2', ["a", "0"]) == (True, 1) and settled('{"a": [1, 2', ["a", "1"]) is None


SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2, 3]}, "b": {"type": "boolean"}, "c": {"enum": ["x", "y"]}},
    "required": ["a", "c"],
}
FIELDS = ("/a", "/b", "/c")


VALUES_OF = {'"a":': ("1", "2", "3"), '"b":': ("true", "false"), '"c":': ('"x"', '"y"')}
ALPHABET = ("{", "}", ",", *VALUES_OF, *(value for values_of in VALUES_OF.values() for value in values_of))
LENGTH = 12  # tokens: {"a":1,"b":true,"c":"x"} and an end


def model(seed, sharp=True):
    """A Markov chain over pieces of JSON. Where it is not `sharp` it knows nothing of JSON, and what the constraint leaves
    differs a lot from prefix to prefix.
    """
    end = len(ALPHABET)
    tokenizer = Tokenizer(end + 1, (*(piece.encode() for piece in ALPHABET), None), eos_ids=(end,))
    rows = torch.rand(end + 1, end + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.05
    if sharp:
        follows = {"{": ['"a":'], ",": ['"b":', '"c":'], "}": [], **VALUES_OF}
        for number, piece in enumerate(ALPHABET):
            after = follows.get(piece, ["}"] if '"' in piece else [","])
            rows[number, [ALPHABET.index(other) for other in after] or [end]] += 60
    rows /= rows.sum(1, keepdim=True)
    initial = torch.zeros(end + 1, dtype=torch.float64)
    initial[0] = 1
    return MarkovModel(initial, rows, tokenizer=tokenizer)


def shares(found):
    """By the text of a value."""
    return {json.dumps([one.present, one.value]): one.probability for one in found}


def off(found, truth):
    return sum((found.get(key, 0.0) - truth.get(key, 0.0)) ** 2 for key in {*found, *truth})


def drawn(chain, prefixes, seed, **more):
    kind = json_schema(SCHEMA, whitespace="compact")
    options = {"sampler": "swor", "budget": prefixes * (LENGTH - 1), "seed": seed, "ending": "eos", **more}
    return locore.generate(chain, "", kind, LENGTH, **options)


@pytest.fixture(scope="module")
def chains():
    """Chains, and the enumerated distribution of each field."""
    found = []
    for seed in range(8):
        chain, kind = model(seed, sharp=seed < 6), json_schema(SCHEMA, whitespace="compact")
        exact = locore.generate(chain, "", kind, LENGTH, sampler="exact", num_particles=10_000, seed=0, ending="eos")
        found.append((chain, {field: shares(exact.marginal(field)) for field in FIELDS}))
    return found


def test_with_more_prefixes_shares_are_those_that_were_enumerated(chains):
    """Also where the constraint leaves much less behind one value than behind another."""
    for chain, truth in chains:
        p = drawn(chain, 200, 0)
        for field in FIELDS:
            assert off(shares(p.marginal(field)), truth[field]) < 1e-4


def test_shares_are_nearer_the_truth_than_by_the_weights_of_complete_texts(chains):
    """With few prefixes, the first two fields, which later draws say nothing of."""
    early = late = 0.0
    for number in range(runs(200)):
        chain, truth = chains[number % 6]
        p = drawn(chain, 4, number)
        for field in FIELDS[:2]:
            early += off(shares(p.marginal(field)), truth[field])
            late += off(by_weights(p, field), truth[field])
    assert early < 0.9 * late, (early, late)


def by_weights(p, field):
    known = fields.Fields(p.places, p.verdict.level)
    return shares(fields.marginal(p, fields.parsed(p.texts), p.weights, field, known))


def test_a_value_whose_texts_were_all_dropped_weighs_what_it_weighed_then():
    """{"c":"x" and {"c":"y" with .6 and .3, of which the first is kept and goes on with what .8 of its mass allows."""
    tokenizer, pieces = model(0).tokenizer, (["{"], ['"c":'], ['"x"', '"y"'], ["}"])
    ids = [[ALPHABET.index(piece) for piece in part] for part in pieces]
    masses, weights, parents = [[1.0], [1.0], [0.9], [0.8, 0.5]], [[1.0], [1.0], [0.6, 0.3], [0.72]], [[0], [0], [0, 0], [0]]
    log_masses, log_weights = ([torch.tensor(part).double().log() for part in each] for each in (masses, weights))
    kept = tuple(Kept(torch.tensor(i), w, z) for i, w, z in zip(ids, log_weights, log_masses, strict=True))
    line = Lineage(
        tuple(torch.tensor(p) for p in parents), tuple(torch.zeros_like(w) for w in log_weights), log_weights[-1], kept
    )
    y = torch.tensor([[0, ids[1][0], ids[2][0], 1]])
    blocks = Blocks.of([Block(torch.tensor([0]), log_weights[-1], None, line)], y)
    draws = Draws(y, log_weights[-1], None, Record(blocks=blocks))
    found = {value: share for (_, value), share in settled_shares(draws, tokenizer, ["c"]) or []}
    assert found == pytest.approx({"x": 2 / 3, "y": 1 / 3})
    assert settled_shares(replace(draws, record=replace(draws.record, resampled_from=4.0)), tokenizer, ["c"]) is None


def test_no_error_is_said_where_few_prefixes_cannot_show_it(chains):
    """A standard error is one, or it is not known; then a field has certain bounds."""
    chain, truth = chains[0]
    for prefixes in (3, 12, 40):
        for field in FIELDS:
            for one in drawn(chain, prefixes, 0).marginal(field):
                assert one.error is None or one.error < 0.3
                exact = truth[field].get(json.dumps([one.present, one.value]), 0.0)
                assert one.bounds[0] - 1e-9 <= exact <= one.bounds[1] + 1e-9


def test_weights_that_vanish_leave_those_of_complete_texts():
    """Of texts less probable than e^−745 exponentials are zero."""
    nothing = torch.full((1,), -2000.0, dtype=torch.float64)
    piece = ALPHABET.index("{")
    kept = (Kept(torch.tensor([piece]), nothing, torch.zeros(1).double()),)
    line = Lineage((torch.tensor([0]),), (torch.zeros(1).double(),), nothing, kept)
    y = torch.tensor([[piece]])
    draws = Draws(y, nothing, None, Record(blocks=Blocks.of([Block(torch.tensor([0]), nothing, None, line)], y)))
    assert settled_shares(draws, model(0).tokenizer, ["c"]) is None


def test_fewer_particles_than_texts_found_leave_errors_and_bounds(chains):
    """Only so many texts are returned as were asked for; what is said of fields rests on all that were found."""
    chain, truth = chains[0]
    every, few = (drawn(chain, 24, 0, num_particles=number) for number in (200, 4))
    assert len(few) == 4 < len(every)
    for field in FIELDS:
        for one in few.marginal(field):
            assert one.error is not None or one.bounds[1] - one.bounds[0] < 1e-6  # all was found
            exact = truth[field].get(json.dumps([one.present, one.value]), 0.0)
            assert one.bounds[0] - 1e-9 <= exact <= one.bounds[1] + 1e-9
