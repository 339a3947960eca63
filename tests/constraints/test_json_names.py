"""Objects that must have several properties of names that no schema lists: none may come twice, and masks stay cheap."""

from __future__ import annotations

import json
import random

import pytest
import torch

import locore
from locore import json_schema
from locore.automata.walking import DEAD
from locore.compilers.on_demand import Following
from locore.kernel.tokenizer import Tokenizer
from tests.effort import THOROUGH

WORDS = ['{"', "{", "}", '"', '":', ":", ",", ',"', "1", "a", "b", "ab", "\\", "u0061", "é", "\\u00", 'é":', 'b":1', " ", "e9"]
BYTES = [bytes([byte]) for byte in range(256)]
TOKENS = [*BYTES, *(word.encode() for word in WORDS), None]
TOKENIZER = Tokenizer.from_tokens(TOKENS, eos_ids=[len(TOKENS) - 1])
SCHEMAS = [
    {"minProperties": 3, "maxProperties": 4},
    {"properties": {"ab": {"type": "integer"}}, "minProperties": 3},
    {"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}, "minProperties": 2},
    {"propertyNames": {"maxLength": 3}, "minProperties": 3},
    {"minProperties": 2, "additionalProperties": {"enum": [1, 11]}},
]
LENGTH = 40
WALKS = 6 if THOROUGH else 1


@pytest.fixture(params=range(len(SCHEMAS)))
def schema(request):
    """One of them, of an object."""
    return {"type": "object", **SCHEMAS[request.param]}


def walks(reader, number, seed):
    """Positions, states and masks along random texts that like to write names again."""
    rng = random.Random(seed)
    favoured = [
        token for token, content in enumerate(TOKENS) if content is not None and (token >= 256 or content in b'ab:1,"{}')
    ]
    for _ in range(number):
        state, text = reader.start, b""
        for position in range(LENGTH):
            mask = reader.mask(position, state)
            yield position, state, mask, text
            likely = [token for token in favoured if mask[token]]
            choices = likely if likely and rng.random() < 0.9 else mask.nonzero()[:, 0].tolist()
            token = rng.choice(choices)
            if TOKENS[token] is None:
                break
            text += TOKENS[token]
            state = reader.state_after(position, state, token)


def test_a_mask_allows_what_can_be_read(schema):
    circuit = locore.compile(json_schema(schema), TOKENIZER, LENGTH, use_cache=False)
    assert isinstance(circuit.reader.steering, Following)
    for position, state, mask, text in walks(circuit.reader, WALKS, 1):
        read = [circuit.reader.state_after(position, state, token) != DEAD for token in range(len(TOKENS))]
        assert mask.tolist() == read, text


def test_every_text_has_as_many_names_as_are_asked_for(schema):
    leaf = json_schema(schema)
    circuit = locore.compile(leaf, TOKENIZER, LENGTH, use_cache=False)
    ended = 0
    for position, state, mask, text in walks(circuit.reader, 5 * WALKS, 2):
        if mask[len(TOKENS) - 1]:
            ended += 1
            assert len(json.loads(text.decode())) >= schema["minProperties"], text
            assert leaf.accepts(text)
            assert circuit.reader.completed(position, torch.tensor([state])).item()
    assert ended


def test_names_that_are_told_apart_cost_few_states():
    circuit = locore.compile(json_schema({"type": "object", "minProperties": 4}), TOKENIZER, LENGTH, use_cache=False)
    for _ in walks(circuit.reader, 4, 3):
        pass
    assert circuit.reader.steering.automaton.num_states < 20_000


def test_names_that_several_patterns_tell_apart_cost_what_their_cheapest_way_costs():
    """What a text needs at least never grows by more than was read: otherwise a text gets where it cannot be completed."""
    string = {"type": "string", "pattern": "7"}
    first, second = ({"type": "object", "required": ["c"], "properties": {"c": one}} for one in (string, {"const": "99"}))
    some = {"not": {"patternProperties": {"a": {"not": first}}}}
    schema = {"oneOf": [{"patternProperties": {"a": second}, **some}, {"patternProperties": {"b": first, "ab": second}}]}
    followed = json_schema({"type": "object", **schema}).follow()(len)
    for seed in range(40 if THOROUGH else 4):
        rng, state = random.Random(seed), 0
        for _ in range(30):
            after = {byte: followed.after(state, byte) for byte in range(256)}
            possible = [byte for byte in b'ab{}":,c79' if after[byte] != DEAD]
            if not followed.accepts_at(state):
                assert followed.costs[state] == 1 + min(followed.costs[one] for one in after.values() if one != DEAD)
            if not possible:
                break
            state = after[rng.choice(possible)]
