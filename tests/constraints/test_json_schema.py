"""`json_schema`: its automaton and the library `jsonschema` say the same of random schemas and values, in all styles."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import locore
from locore.automata.walking import DEAD
from locore.constraints import from_json, json_schema
from locore.kernel.errors import BudgetExceeded, UnsupportedKeyword
from tests.effort import THOROUGH, examples

from .bytewise import holds
from .schemas import CHARACTERS, LOOSE, Writer, any_schemas, anything, schemas, values_for

STYLES = st.fixed_dictionaries(
    {
        "whitespace": st.sampled_from(["any", "single", "indent", "compact", "spaced", "consistent"]),
        "order": st.sampled_from(["any", "schema"]),
        "escapes": st.sampled_from(["any", "minimal"]),
        "integers": st.sampled_from(["any", "digits"]),
        "objects": st.sampled_from(["open", "closed"]),
    }
)
SEEDS = st.integers(0, 2**32 - 1)
MUTATIONS = CHARACTERS + "{}[],:.-0e"
SLOW = settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))


def mutated(generator, text):
    place = generator.randrange(len(text) + 1)
    cut = generator.randrange(2)
    return text[:place] + generator.choice(["", generator.choice(MUTATIONS)]) + text[place + cut :]


def constraint_of(schema, **style):
    """The constraint, or None where what the schema says is refused."""
    try:
        return json_schema(schema, **style)
    except (UnsupportedKeyword, BudgetExceeded):
        return None


def written(machine, generator, most=25):
    """A random text of an automaton: where nothing can be chosen any more, on the cheapest way to the end."""
    state, found = 0, bytearray()
    while not (machine.accepts_at(state) and (machine.is_over(state) or generator.random() < 0.3)):
        machine.read(state)
        row = machine.table[state]
        ways = [byte for byte in range(256) if row[byte] != DEAD]
        if machine.accepts_at(state) and (not ways or len(found) > most):  # a number may end anywhere
            break
        if len(found) > most:
            cheapest = min(machine.costs[row[byte]] for byte in ways)
            assert cheapest <= machine.costs[state] - 1  # so there is an end
            ways = [byte for byte in ways if machine.costs[row[byte]] == cheapest]
        plain = [byte for byte in ways if byte < 0x80]
        byte = generator.choice(plain if plain and generator.random() < 0.9 else ways)
        found.append(byte)
        state = int(row[byte])
    return bytes(found)


@SLOW
@given(st.data(), any_schemas(), SEEDS)
def test_just_what_is_valid_is_accepted(data, schema, seed):
    """Of all keywords, against the library; both ways."""
    leaf, generator = constraint_of(schema, **LOOSE), random.Random(seed)
    if leaf is None:
        return
    validator = jsonschema.Draft202012Validator(schema)
    for _ in range(6):
        value = data.draw(anything())
        text = Writer(generator, True).text(value)
        assert leaf.accepts(text.encode()) == validator.is_valid(value), (schema, text)


@SLOW
@given(any_schemas(), STYLES, SEEDS)
def test_what_is_written_is_valid(schema, style, seed):
    """Random texts of the automaton, each of which comes to an end, are valid by the check; so are nearly all others not."""
    leaf, generator = constraint_of(schema, **style), random.Random(seed)
    machine = None if leaf is None else leaf.read.reading()
    if machine is None or machine.costs[0] == float("inf"):
        return
    for _ in range(3):
        text = written(machine, generator).decode()
        assert holds(leaf, text), (leaf, text)
        for other in (mutated(generator, text), text + " "):
            assert leaf.accepts(other.encode()) == holds(leaf, other), (leaf, other)


@SLOW
@given(st.data(), schemas(), STYLES, SEEDS)
def test_values_in_all_spellings(data, schema, style, seed):
    """Valid and nearly valid values, in all kinds of spellings: what is accepted in a style is what is valid and in it."""
    leaf, generator = json_schema(schema, **style), random.Random(seed)
    loose = json_schema(schema, **LOOSE)
    for plain in (True, False, False, False):
        text = Writer(generator, plain).text(data.draw(values_for(schema)))
        assert loose.accepts(text.encode()) == holds(loose, text), text
        assert leaf.accepts(text.encode()) <= loose.accepts(text.encode())
        is_loose = style["order"] == style["integers"] == "any" and style["objects"] == "open"
        if plain and is_loose and style["whitespace"] in ("compact", "consistent"):
            assert leaf.accepts(text.encode()) == loose.accepts(text.encode()), text


@settings(max_examples=examples(20), deadline=None)
@given(schemas(), st.data())
def test_indented_as_python_indents(schema, data):
    leaf, loose = (json_schema(schema, **{**LOOSE, "whitespace": one}) for one in ("indent", "compact"))
    value = data.draw(values_for(schema))
    if "e" in json.dumps(value).replace("true", "").replace("false", "").replace("id", ""):
        return  # a number with an exponent
    for indent, separators, one in ((2, None, leaf), (None, (",", ":"), loose)):
        text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)
        assert one.accepts(text.encode()) == holds(one, text)
    assert leaf.accepts(json.dumps(value, indent=2).encode()) == loose.accepts(
        json.dumps(value, separators=(",", ":")).encode()
    )


@settings(max_examples=10 if THOROUGH else 5, deadline=None)
@given(schemas(), SEEDS)
def test_the_whole_automaton_is_the_one_that_is_followed(schema, seed):
    leaf, generator = json_schema(schema), random.Random(seed)
    try:
        automaton = leaf.automaton_within(1000)
    except BudgetExceeded:
        return
    machine = leaf.read.reading()
    for _ in range(5):
        text = written(machine, generator) if machine.costs[0] < float("inf") else b'"a"'
        for one in (text, mutated(generator, text.decode()).encode()):
            assert automaton.accepts(one) == leaf.accepts(one)


@given(schemas(), STYLES, st.integers(1, 64), st.sampled_from(["asserted", "annotations"]))
@settings(deadline=None)
def test_json_form(schema, style, depth, formats):
    leaf = json_schema(schema, **style, depth=depth, formats=formats)
    assert from_json(json.loads(json.dumps(leaf.to_json()))) == leaf
    assert leaf.to_json()["schema"] == schema
    with pytest.raises(UnsupportedKeyword, match="deep"):
        from_json({**leaf.to_json(), "deep": 2})


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_values_nest_as_deep_as_is_said(depth):
    leaf = json_schema(True, depth=depth)
    for nested in range(1, 8):
        for text in ("[" * nested + "]" * nested, '{"a":' * (nested - 1) + "{}" + "}" * (nested - 1)):
            assert leaf.accepts(text.encode()) == (nested <= depth)
    assert f"{depth} deep" in leaf.notes()[0]


SEVEN = "http://json-schema.org/draft-07/schema#"  # which zod writes into the schema of each tool


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$schema": SEVEN, "type": "integer", "maximum": 23}}},
        {"$schema": SEVEN, "properties": {"a": {"$schema": SEVEN, "type": "integer", "maximum": 23}}},
        {"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"$schema": SEVEN, "$id": "b", "type": "integer"}}},
    ],
)
def test_a_draft_may_be_named_in_a_part(schema):
    """The circuit and the check say the same of it."""
    one = json_schema(schema, integers="any")
    for text, valid in (('{"a":10}', True), ('{"a":10.0}', True), ('{"a":10.5}', False), ('{"a":"b"}', False)):
        assert (one.accepts(text.encode()), holds(one, text.encode())) == (valid, valid)


def test_another_draft_in_a_part_is_refused():
    four = {"$schema": "http://json-schema.org/draft-04/schema#"}
    with pytest.raises(UnsupportedKeyword, match=r"'\$schema' \(at /properties/a/\$schema\).*another draft"):
        json_schema({**four, "properties": {"a": {"$schema": SEVEN}}})
    with pytest.raises(UnsupportedKeyword, match=r"'\$schema' \(at /definitions/a/\$schema\).*another draft"):
        json_schema({**four, "definitions": {"a": {"$schema": SEVEN}}, "properties": {"b": {"$ref": "#/definitions/a"}}})
    with pytest.raises(UnsupportedKeyword, match=r"'\$schema' \(at /properties/a/\$schema\): 'x' is none"):
        json_schema({**four, "properties": {"a": {"$schema": "x"}}})


@pytest.mark.parametrize("names", [("a",), ("first", "last")])
def test_what_a_layout_can_hold_the_choice_of_layouts_can_too(names):
    """Where tokens span the pieces of JSON, what the pieces cost together is no proof that nothing fits."""
    inner = {"type": "object", "properties": {name: {"enum": ["Ann", "Bob"]} for name in names}, "required": list(names)}
    schema = {**inner, "properties": {**inner["properties"], "who": inner}, "required": [*names, "who"]}
    model = locore.load("tiny")
    text = json.dumps({**dict.fromkeys(names, "Ann"), "who": dict.fromkeys(names, "Bob")}, separators=(",", ":"))
    least = len(model.tokenizer.encode(text))
    for whitespace in ("compact", "consistent"):
        kind = locore.json_schema(schema, whitespace=whitespace, objects="closed")
        assert locore.compile(kind, model, least).length == least
