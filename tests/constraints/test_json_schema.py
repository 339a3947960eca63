"""`json_schema`: its automaton, its check by Python's `json` and `jsonschema`, and the standard agree."""

from __future__ import annotations

import itertools
import json
import random

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from locore.automata.regex import Budget
from locore.automata.regex.determinise import determinise
from locore.constraints import from_json, json_schema, minimise
from locore.constraints.json_schema.texts import integers
from locore.errors import BudgetExceeded, UnsupportedKeyword

from .bytewise import accepts, holds
from .patterns import accepted_strings
from .schemas import CHARACTERS, Writer, schemas, values_for

STYLES = st.fixed_dictionaries(
    {
        "whitespace": st.sampled_from(["any", "single", "compact"]),
        "order": st.sampled_from(["any", "schema"]),
        "escapes": st.sampled_from(["any", "minimal"]),
    }
)
SEEDS = st.integers(0, 2**32 - 1)
MUTATIONS = CHARACTERS + "{}[],:.-0e"


def constraint_of(schema, **style):
    try:
        leaf = json_schema(schema, **style)
        leaf.automaton()
    except BudgetExceeded:
        assume(False)
    return leaf


def mutated(generator, text):
    place = generator.randrange(len(text) + 1)
    cut = generator.randrange(2)
    return text[:place] + generator.choice(["", generator.choice(MUTATIONS)]) + text[place + cut :]


@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), schemas(), STYLES, SEEDS)
def test_the_automaton_agrees_with_the_check(data, schema, style, seed):
    """Valid and nearly valid values, in all kinds of spellings, and mutations of their texts."""
    leaf, generator = constraint_of(schema, **style), random.Random(seed)
    for plain in (True, False, False, False):
        text = Writer(generator, plain).text(data.draw(values_for(schema)))
        for candidate in (text, text + " ", mutated(generator, text), mutated(generator, mutated(generator, text))):
            assert accepts(leaf, candidate) == holds(leaf, candidate), (leaf, candidate)
    for string in accepted_strings(leaf.automaton(), np.random.default_rng(seed), 6):
        assert holds(leaf, string.decode()), (leaf, string)


def closed(schema):
    """The same with what Locore's language leaves out said in the words of the standard."""
    if isinstance(schema, dict):
        schema = {key: closed(value) if key not in ("enum", "const") else value for key, value in schema.items()}
        return {**schema, "additionalProperties": False} if schema.get("type") == "object" else schema
    return [closed(value) for value in schema] if isinstance(schema, list) else schema


@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), schemas(), SEEDS)
def test_what_the_standard_says(data, schema, seed):
    """Against the library as it is: all that is accepted is valid; what is valid and written by `json.dumps` is accepted."""
    assume("pattern" not in json.dumps(schema))  # the library means Python's regular expressions
    leaf, generator = constraint_of(schema), random.Random(seed)
    validator = jsonschema.Draft202012Validator(closed(schema))
    for string in accepted_strings(leaf.automaton(), np.random.default_rng(seed), 6):
        assert validator.is_valid(json.loads(string)), (schema, string)
    for _ in range(4):
        value = data.draw(values_for(schema))
        text = Writer(generator, True).text(value)
        names_floats = any(isinstance(one, float) for one in scalars_in([value, schema]))
        if not names_floats and validator.is_valid(value):
            assert accepts(leaf, text), (schema, text)
        if not validator.is_valid(value):
            assert not accepts(leaf, text), (schema, text)


def scalars_in(value):
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from scalars_in(part)
    else:
        yield value


@settings(max_examples=60)
@given(schemas(), STYLES)
def test_the_automaton_is_minimal(schema, style):
    automaton = constraint_of(schema, **style).automaton()
    assert automaton.num_states == minimise(automaton).num_states


@given(st.none() | st.integers(-1200, 1200), st.none() | st.integers(-1200, 1200))
def test_integers_of_a_range(low, high):
    automaton = determinise(integers(low, high), Budget())
    for value in itertools.chain(range(-1300, 1300, 7), *(range(b - 2, b + 3) for b in (0, low or 0, high or 0))):
        wanted = (low is None or low <= value) and (high is None or value <= high)
        assert automaton.accepts(str(value)) == wanted
        assert not automaton.accepts("0" + str(value))
    assert automaton.accepts("-0") == automaton.accepts("0")
    assert not any(automaton.accepts(text) for text in ("", "-", "--1", "1.0", "1e0", "+1"))


@given(schemas(), STYLES)
def test_json_form(schema, style):
    leaf = json_schema(schema, **style)
    assert from_json(json.loads(json.dumps(leaf.to_json()))) == leaf
    assert leaf.to_json()["schema"] == schema
    with pytest.raises(UnsupportedKeyword, match="depth"):
        from_json({**leaf.to_json(), "depth": 2})
