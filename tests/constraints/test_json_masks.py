"""What a text needs behind each token, found for a whole vocabulary at once, is what reading each token byte by byte finds."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from locore import json_schema
from locore.automata.needs import NEVER, Needs
from locore.automata.walking import DEAD, walk_of
from locore.compilers.on_demand import Spelling
from locore.kernel.errors import LocoreError
from tests.effort import THOROUGH

WORDS = r"""{" { } [ ] " ": : , "," ", ," 1 10 .5 -1 0. true null a b ab abc "ab "a": ab" bc" c":1,"a é éa \u \u0061
\n \" \\ \/ /" 🙂 x- 20 26-1 :00Z @a. http :// ://a "},"b":{ ]}, ],[ "],"a":[ ":{" ":[" ":" ":"" :"a 1, 1}, 1]""".split()  # noqa: SIM905
SPACES = [" ", "  ", "\n", '\n  "', ' "', ' "ab', '": ', '": "', ', "', ",\n", ": [", "{ ", "a b", " a", "a a a", "    "]
BYTES = tuple(bytes([byte]) for byte in range(256))
PIECES = (b"\xc3", b"\xa9b", b"\xf0\x9f", b"\x99\x82a", b'\xa9"', b'\xa9":', "ß€".encode(), b"a\xc3")
VOCABULARY = (*BYTES, *(word.encode() for word in (*WORDS, *SPACES)), *PIECES, None)
WALK = walk_of(VOCABULARY)
NAMES = ["a", "ab", "abc", "b", "bc", "", "é", 'q"', "a b", "x-1", "n\n"]
PATTERNS = ["^a", "b$", "^[ab]*$", "^.{1,3}$", "é", "^x-", "^[^/]+$", "^\\S{2}", "^(a|bc)+$"]
FORMATS = ["date", "time", "uuid", "email", "ipv4", "uri", "json-pointer", "regex", "date-time"]


def scalar(rng):
    """A schema of a string, a number, or a value that is listed."""
    kind = rng.randrange(8)
    if kind < 4:
        some = {"type": "string"}
        if rng.random() < 0.5:
            some["minLength"] = rng.randrange(3)
        if rng.random() < 0.5:
            some["maxLength"] = rng.choice([1, 2, 3, 7, 30, 300])
        if rng.random() < 0.4:
            some["pattern"] = rng.choice(PATTERNS)
        elif rng.random() < 0.2:
            some["format"] = rng.choice(FORMATS)
        return some
    if kind == 4:
        return {"enum": rng.sample([*NAMES, 1, 10, None, True, "abcabc"], 3)}
    if kind == 5:
        return {"type": rng.choice(["integer", "number"]), "minimum": rng.randrange(-2, 12)}
    return rng.choice([{}, {"type": "boolean"}, {"type": ["string", "null"]}, {"not": {"const": "ab"}}])


def schema_of(rng, depth):
    """A random one of a value."""
    if depth == 0 or rng.random() < 0.25:
        return scalar(rng)
    if rng.random() < 0.25:
        some = {"type": "array", "items": schema_of(rng, depth - 1), "minItems": rng.randrange(3)}
        return some if rng.random() < 0.5 else some | {"maxItems": 3}
    names = rng.sample(NAMES, rng.randrange(5))
    some = {"type": "object", "properties": {name: schema_of(rng, depth - 1) for name in names}}
    some["required"] = [name for name in names if rng.random() < 0.4]
    if rng.random() < 0.5:
        some["additionalProperties"] = rng.choice([False, False, True, scalar(rng)])
    if rng.random() < 0.2:
        some["patternProperties"] = {rng.choice(PATTERNS): scalar(rng)}
    if rng.random() < 0.15:
        some["propertyNames"] = rng.choice([{"maxLength": 3}, {"pattern": "^a"}])
    if rng.random() < 0.25:
        some["minProperties"] = rng.randrange(1, 4)
    if rng.random() < 0.2:
        some["maxProperties"] = rng.randrange(2, 5)
    return some


def plainly(automaton, state):
    """What a text needs behind each token, read byte by byte."""
    found = np.full(len(VOCABULARY), NEVER)
    known = {b"": state}
    for content in WALK.contents:
        for end in range(1, len(content) + 1):
            before = known[content[: end - 1]]
            if content[:end] not in known:
                if before != DEAD:
                    automaton.read(before)
                known[content[:end]] = DEAD if before == DEAD else int(automaton.table[before, content[end - 1]])
    for token, content in enumerate(VOCABULARY):
        if content is not None and known[content] != DEAD:
            found[token] = automaton.costs[known[content]]
    return found


def compare(schema, rng, steps, **style):
    """Along a random text, also what single bytes lead to, by rows and one by one. Returns how many states were compared."""
    try:
        follow = json_schema(schema, depth=3, **style).follow()
        needs, plain = follow(Spelling(WALK)), follow(Spelling(WALK))
    except LocoreError:
        return 0
    asked, text, state = Needs(needs, WALK), b"", 0
    for step in range(steps):
        reference = 0
        for byte in text:
            plain.read(reference)
            reference = int(plain.table[reference, byte])
        plain.read(reference)
        rows = [(needs.after(state, byte), int(plain.table[reference, byte])) for byte in range(256)]
        assert all(needs.costs[one] == plain.costs[other] if one != DEAD else other == DEAD for one, other in rows), (
            text,
            schema,
        )
        told, found = asked.behind(state), plainly(plain, reference)
        differ = [(VOCABULARY[token], told[token], found[token]) for token in np.flatnonzero(told != found).tolist()]
        assert not differ, (text, differ[:5], style, json.dumps(schema))
        possible = np.flatnonzero(found != NEVER).tolist()
        longer = [token for token in possible if token >= 256]
        if not possible:
            return step + 1
        content = VOCABULARY[rng.choice(longer if longer and rng.random() < 0.7 else possible)]
        text += content
        for byte in content:
            state = needs.after(state, byte)
    return steps


@pytest.mark.parametrize("seed", range(80 if THOROUGH else 1))
def test_needs_are_those_of_reading_each_token(seed):
    rng, compared = random.Random(seed), 0
    style = {
        "whitespace": rng.choice(["compact", "spaced", "indent", "any", "single", "consistent"]),
        "order": rng.choice(["any", "schema"]),
        "escapes": rng.choice(["any", "minimal"]),
        "objects": rng.choice(["open", "open", "closed"]),
    }
    for _ in range(10 if THOROUGH else 5):
        compared += compare(schema_of(rng, 2), rng, 12, **style)
    assert compared > 20
