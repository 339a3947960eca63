"""Requests that nobody sends who means well: extreme numbers, wrong kinds, nested and enormous constraints, broken bytes."""

from __future__ import annotations

import json
import random
from typing import Any

NUMBERS = [
    0,
    -1,
    1,
    2,
    3,
    7,
    1.5,
    -0.0,
    1e-320,
    1e308,
    -1e308,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63),
    10**18,
    10**40,
]
STRINGS = [
    "",
    " ",
    "a",
    "\0",
    "\ud800",
    "é",
    "\U0001f600",
    "e\u0301",
    "</s>",
    "a" * 5000,
    "%s",
    "../../etc/passwd",
    "null",
    "\u202e",
]
JUNK = [None, True, False, [], {}, [[]], {"type": "true"}, {"type": 3}, {"": ""}, [None], ["a", 1]]
PIECES = [
    "a",
    "[a-z]",
    "\\d",
    ".",
    "(a|b)",
    "(",
    ")",
    "[",
    "]",
    "*",
    "+",
    "?",
    "{2,3}",
    "{1000}",
    "{9999999}",
    "\\",
    "^",
    "$",
    "|",
]
PIECES += ["(?i)", "(?=a)", "\\1", "\\p{L}", "\\x", "(?P<n>a)", "(a*)*", "[^\\W\\d]", "\ud83d", "\\b"]
LEAVES = {
    "ban": {"phrases": list, "words": bool, "ignore_case": bool, "level": str},
    "contains": {"text": str, "at_least": int, "at_most": int, "exactly": int, "ordered": bool},
    "choice": {"texts": list},
    "starts_with": {"text": str},
    "ends_with": {"text": str},
    "regex": {"pattern": "pattern"},
    "count": {"strings": list, "at_least": int, "at_most": int},
    "word_count": {"lo": int, "hi": int},
    "char_count": {"lo": int, "hi": int},
    "sentence_count": {"lo": int, "hi": int},
    "json_schema": {"schema": "schema", "whitespace": str, "order": str},
    "token": {"position": int, "in": "ids"},
    "count_tokens": {"positions": "ids", "in": "ids", "at_least": int},
    "contains_tokens": {"sequences": "lists"},
    "permutation": {"positions": "ids", "values": "ids"},
    "all_different": {"positions": "ids", "values": "lists"},
    "digit_sum": {"positions": "ids", "total": int},
    "finished": {},
    "before": {"stops": list, "of": "constraint"},
    "nothing of the kind": {"a": int},
}
FIELDS = ["max_tokens", "min_tokens", "num_particles", "n", "seed", "budget", "temperature", "top_p", "top_k", "min_p", "stop"]
FIELDS += ["logit_bias", "logprobs", "effort", "sampler", "canonical", "ending", "echo", "bad_words", "frequency_penalty"]
FIELDS += ["stream", "response_format", "structured_outputs", "prompt", "model", "stream_options", "return_particles", "tools"]
KEYWORDS = [
    "type",
    "properties",
    "items",
    "enum",
    "const",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "maxLength",
    "pattern",
]
KEYWORDS += [
    "required",
    "additionalProperties",
    "anyOf",
    "allOf",
    "not",
    "$ref",
    "$defs",
    "format",
    "multipleOf",
    "uniqueItems",
]
MOST_TOKENS = 4


class Hostile:
    """A generator of requests, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def body(self) -> bytes:
        """Of one request for a completion."""
        rng = self._rng
        asked: dict[str, Any] = {"model": "tiny", "prompt": "I", "max_tokens": rng.randint(1, MOST_TOKENS), "num_particles": 2}
        if rng.random() < 0.7:
            asked["constraint"] = self._constraint(rng.choice([0, 1, 1, 2, 3]))
        for name in rng.sample(FIELDS, rng.choice([0, 1, 1, 2])):
            asked[name] = self._value()
        for name in ("max_tokens", "num_particles", "n"):  # what is large and allowed is no hostility, only work
            if isinstance(asked.get(name), int) and asked[name] > MOST_TOKENS and rng.random() < 0.9:
                asked[name] = MOST_TOKENS
        text = json.dumps(asked)
        if rng.random() < 0.05:
            text = "[" * rng.choice([10, 1000, 50_000]) + text
        content = bytearray(text.encode())
        for _ in range(rng.choice([0] * 9 + [1, 3])):
            place = rng.randrange(len(content))
            content[place : place + rng.randint(0, 2)] = bytes([rng.randrange(256)])
        return bytes(content)

    def _value(self) -> Any:
        kind = self._rng.random()
        if kind < 0.4:
            return self._rng.choice(NUMBERS)
        return self._rng.choice(STRINGS if kind < 0.6 else JUNK)

    def _constraint(self, depth: int) -> Any:
        rng = self._rng
        if rng.random() < 0.03:
            return self._value()
        if depth and rng.random() < 0.7:
            kind = rng.choice(["and", "or", "not"])
            if kind == "not":
                return {"type": "not", "of": self._constraint(depth - 1)}
            return {"type": kind, "of": [self._constraint(depth - 1) for _ in range(rng.choice([0, 1, 2, 5, 40]))]}
        name = rng.choice(list(LEAVES))
        fields = {field: self._of(kind) for field, kind in LEAVES[name].items() if rng.random() < 0.75}
        return {"type": name, **fields}

    def _of(self, kind: Any) -> Any:
        rng = self._rng
        if rng.random() < 0.08:
            return self._value()
        if kind is int:
            return rng.choice(NUMBERS[:5] * 3 + NUMBERS)
        if kind is bool:
            return rng.random() < 0.5
        if kind is str:
            return rng.choice(["a", " the", "text", "any", "schema", *STRINGS])
        if kind is list:
            return [rng.choice(["a", " am", " the", *STRINGS]) for _ in range(rng.choice([0, 1, 2, 30]))]
        if kind == "pattern":
            return "".join(rng.choice(PIECES) for _ in range(rng.choice([1, 3, 8, 200])))
        if kind == "ids":
            return [rng.choice([0, 1, 2, 3, 5, 300, *NUMBERS]) for _ in range(rng.choice([0, 1, 2, 4]))]
        if kind == "lists":
            return [self._of("ids") for _ in range(rng.choice([0, 1, 3]))]
        return self._schema(3) if kind == "schema" else self._constraint(0)

    def _schema(self, depth: int) -> Any:
        rng = self._rng
        if not depth or rng.random() < 0.1:
            return rng.choice(
                [True, False, {}, {"type": "string"}, {"type": "integer"}, {"enum": [1, "a", None]}, self._value()]
            )
        schema: dict[str, Any] = {}
        for keyword in rng.sample(KEYWORDS, rng.choice([1, 2, 4])):
            schema[keyword] = {
                "type": lambda: rng.choice(
                    ["object", "array", "string", "number", "integer", "null", ["string", "null"], "word"]
                ),
                "properties": lambda: {rng.choice("abcdef"): self._schema(depth - 1) for _ in range(rng.choice([0, 1, 3]))},
                "$defs": lambda: {"a": self._schema(depth - 1)},
                "items": lambda: self._schema(depth - 1),
                "not": lambda: self._schema(depth - 1),
                "additionalProperties": lambda: self._schema(depth - 1),
                "anyOf": lambda: [self._schema(depth - 1) for _ in range(rng.choice([0, 1, 3]))],
                "allOf": lambda: [self._schema(depth - 1) for _ in range(2)],
                "$ref": lambda: rng.choice(["#", "#/$defs/a", "#/nowhere", "http://example.org/x", "file:///etc/passwd", ""]),
                "pattern": lambda: self._of("pattern"),
                "required": lambda: rng.sample("abcdef", 2),
            }.get(keyword, self._value)()
        return schema
