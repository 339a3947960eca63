"""Random JSON schemas, values that are valid for them or nearly so, and the many ways to write a value."""

from __future__ import annotations

import json

from hypothesis import strategies as st

# Everything that JSON allows: what is valid by the standard.
LOOSE = {"whitespace": "any", "order": "any", "escapes": "any", "integers": "any"}
NAMES = ["a", "b", "id", "\u00e9t\u00e9", 'q"', "x/y~", ""]
CHARACTERS = 'ab1"\\/\n\t\x01\u00e9\u0301\u05d0\u2028\uffff\U0001f600 '
STRINGS = st.text(st.sampled_from(CHARACTERS), max_size=4)
PATTERNS = [
    "^a",
    "b$",
    "^[ab]*$",
    r"\d",
    "^.{2}$",
    "a|\u00e9",
    r"^\w+$",
    "\n",
    "^(?!a)",
    r"\bb\b",
    '"',
    "[^a]{2}",
    "^\\S*$",
    "\\s",
]
INTEGERS = st.integers(-120, 120)
NUMBERS = st.sampled_from([0, 1, -1, 2.5, 1.0, -0.0, 0.1, 1e-7, 1e3, 12345678901234567890])
SCALARS = st.one_of(st.none(), st.booleans(), INTEGERS, NUMBERS, STRINGS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=2),
    max_leaves=4,
)
SMALL = st.integers(0, 4)


def _keywords(**optional):
    return st.fixed_dictionaries({}, optional=optional)


def _typed(name, keywords):
    return keywords.map(lambda found: {"type": name, **found})


STRING_SCHEMAS = _typed("string", _keywords(minLength=SMALL, maxLength=SMALL, pattern=st.sampled_from(PATTERNS)))
BOUNDS = INTEGERS | st.sampled_from([0.5, -7.25, 10**20, -(10**19)])
INTEGER_SCHEMAS = _typed("integer", _keywords(minimum=BOUNDS, maximum=BOUNDS, exclusiveMinimum=BOUNDS, exclusiveMaximum=BOUNDS))
FINITE_SCHEMAS = st.one_of(
    st.fixed_dictionaries({"enum": st.lists(VALUES, max_size=4)}),
    st.fixed_dictionaries({"const": VALUES}),
    st.fixed_dictionaries(
        {"enum": st.lists(SCALARS, max_size=4), "type": st.sampled_from(["integer", "number", "string", ["null", "boolean"]])}
    ),
    st.sampled_from([{"type": "null"}, {"type": "boolean"}, {"type": ["boolean", "null"], "title": "either"}, False]),
)
LEAF_SCHEMAS = st.one_of(
    STRING_SCHEMAS,
    INTEGER_SCHEMAS,
    FINITE_SCHEMAS,
    st.sampled_from(
        [{"type": "number"}, {"type": ["string", "integer"], "maxLength": 1, "minimum": 3}, {"$ref": "#/$defs/word"}]
    ),
)


def _object(properties, required, closed):
    schema = {"type": "object", "properties": properties, "required": [name for name in required if name in properties]}
    return {**schema, "additionalProperties": False} if closed else schema


def _containers(inner):
    arrays = _keywords(minItems=SMALL, maxItems=SMALL).flatmap(
        lambda keywords: inner.map(lambda items: {"type": "array", "items": items, **keywords})
    )
    distinct = st.tuples(FINITE_SCHEMAS, _keywords(minItems=SMALL, maxItems=SMALL)).map(
        lambda pair: {"type": "array", "items": pair[0], "uniqueItems": True, **pair[1]}
    )
    objects = st.builds(
        _object, st.dictionaries(st.sampled_from(NAMES), inner, max_size=3), st.sets(st.sampled_from(NAMES)), st.booleans()
    )
    unions = st.lists(inner, min_size=1, max_size=2).map(lambda parts: {"anyOf": parts, "description": "one of"})
    return arrays | distinct | objects | unions


def schemas():
    """Schemas within what is supported; some allow no value at all."""
    found = st.recursive(LEAF_SCHEMAS, _containers, max_leaves=5)
    definitions = {"$defs": {"word": {"enum": ["yes", "no"]}}, "$schema": "https://json-schema.org/draft/2020-12/schema"}
    return found.map(lambda schema: {**schema, **definitions} if isinstance(schema, dict) else schema)


@st.composite
def values_for(draw, schema, root=None):
    """A value that a schema describes; now and then one that it does not."""
    root = schema if root is None else root
    if schema is False or draw(st.integers(0, 19)) == 0:
        return draw(VALUES)
    if "$ref" in schema:
        return draw(st.sampled_from(root["$defs"]["word"]["enum"]))
    if "anyOf" in schema:
        return draw(values_for(draw(st.sampled_from(schema["anyOf"])), root))
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"])) if schema["enum"] else draw(VALUES)
    return draw(_of_type(schema, root))


def _of_type(schema, root):
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.sampled_from(types).flatmap(
        lambda name: {
            "null": lambda: st.none(),
            "boolean": lambda: st.booleans(),
            "number": lambda: NUMBERS,
            "integer": lambda: _integers(schema),
            "string": lambda: _strings(schema),
            "array": lambda: _arrays(schema, root),
            "object": lambda: _objects(schema, root),
        }[name]()
    )


def _integers(schema):
    # Each once: Hypothesis tells equal strategies apart or not, as its cache has it.
    bounds = sorted({int(schema[key]) for key in schema if key.endswith("imum")})
    return st.one_of(INTEGERS, *[st.integers(bound - 1, bound + 1) for bound in bounds])


def _strings(schema):
    least = schema.get("minLength", 0)
    return st.text(st.sampled_from(CHARACTERS), min_size=least, max_size=max(least, schema.get("maxLength", 4)))


def _arrays(schema, root):
    least = schema.get("minItems", 0)
    most = max(least, schema.get("maxItems", 3))
    return st.lists(values_for(schema["items"], root), min_size=least, max_size=most)


@st.composite
def _objects(draw, schema, root):
    names = draw(st.permutations(list(schema["properties"])))
    chosen = [name for name in names if name in schema["required"] or draw(st.booleans())]
    return {name: draw(values_for(schema["properties"][name], root)) for name in chosen}


class Writer:
    """Writes values, with whatever whitespace and escapes chance picks."""

    def __init__(self, generator, plain):
        self._generator = generator
        self._plain = plain

    def text(self, value):
        return self._space() + self._value(value)

    def _chance(self, probability):
        return not self._plain and self._generator.random() < probability

    def _space(self):
        return self._generator.choice([" ", "\n", "\t", "\r", "  "]) if self._chance(0.15) else ""

    def _sign(self, sign):
        return self._space() + sign + self._space()

    def _value(self, value):
        if isinstance(value, str):
            return '"' + "".join(map(self._character, value)) + '"'
        if isinstance(value, list):
            return "[" + self._space() + self._sign(",").join(map(self._value, value)) + self._space() + "]"
        if isinstance(value, dict):
            members = [self._value(name) + self._sign(":") + self._value(item) for name, item in value.items()]
            return "{" + self._space() + self._sign(",").join(members) + self._space() + "}"
        return self._scalar(value)

    def _scalar(self, value):
        text = json.dumps(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and self._chance(0.2):
            return self._generator.choice([text + ".0", text + "0", "-0", f"{value:e}", f"{float(value):.3f}", "0" + text])
        return text

    def _character(self, character):
        if character == "/" and self._chance(0.5):
            return "\\/"
        if self._chance(0.2):
            units = character.encode("utf-16-be").hex()
            escaped = "".join("\\u" + units[start : start + 4] for start in range(0, len(units), 4))
            return (
                escaped.replace("\\U", "\\u") if self._chance(0.5) else escaped[:2] + escaped[2:].upper().replace("\\U", "\\u")
            )
        return json.dumps(character, ensure_ascii=False)[1:-1]


# Schemas of all keywords, and values of all kinds, few enough that they often meet.

FEW_NAMES = ["a", "b", "ab", "\u00e9"]
FEW_STRINGS = ["", "a", "b", "ab", "aab", "\u00e9", "1"]
FEW_NUMBERS = [0, 1, 2, 3, -1, 0.5, 1.5, -2.5, 10, 7]


def anything():
    """Values of all kinds."""
    scalars = st.one_of(st.none(), st.booleans(), st.sampled_from(FEW_NUMBERS), st.sampled_from(FEW_STRINGS))
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FEW_NAMES), inner, max_size=3),
        max_leaves=5,
    )


def _few(inner):
    names = st.sampled_from(FEW_NAMES)
    patterns = st.sampled_from(["^a", "b$", "^.$"])
    lists = st.lists(inner, min_size=1, max_size=2)
    numbers = st.sampled_from(FEW_NUMBERS)
    return {
        "type": st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
        | st.lists(st.sampled_from(["null", "integer", "string", "object", "array"]), min_size=1, max_size=3, unique=True),
        "enum": st.lists(anything(), min_size=1, max_size=3),
        "const": anything(),
        "minimum": numbers,
        "maximum": numbers,
        "exclusiveMinimum": numbers,
        "exclusiveMaximum": numbers,
        "multipleOf": st.sampled_from([1, 2, 0.5, 1.5]),
        "minLength": SMALL,
        "maxLength": SMALL,
        "pattern": patterns,
        "items": inner,
        "prefixItems": lists,
        "contains": inner,
        "minContains": st.integers(0, 2),
        "maxContains": st.integers(0, 2),
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(0, 3),
        "properties": st.dictionaries(names, inner, max_size=3),
        "patternProperties": st.dictionaries(patterns, inner, max_size=2),
        "additionalProperties": inner,
        "propertyNames": inner,
        "required": st.lists(names, max_size=2, unique=True),
        "minProperties": st.integers(0, 2),
        "maxProperties": st.integers(0, 2),
        "dependentRequired": st.dictionaries(names, st.lists(names, max_size=2, unique=True), max_size=2),
        "dependentSchemas": st.dictionaries(names, inner, max_size=2),
        "allOf": lists,
        "anyOf": lists,
        "oneOf": lists,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "unevaluatedProperties": inner,
        "unevaluatedItems": inner,
        "$ref": st.just("#/$defs/one"),
    }


@st.composite
def _some(draw, inner):
    keywords = _few(inner)
    chosen = draw(st.lists(st.sampled_from(sorted(keywords)), max_size=3, unique=True))
    return {name: draw(keywords[name]) for name in chosen}


@st.composite
def any_schemas(draw):
    """Schemas of all keywords."""
    one = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/one"}}, "minProperties": 1}
    schema = draw(_some(_some(_some(st.booleans()) | st.booleans())))
    return {**schema, "$defs": {"one": one}}
