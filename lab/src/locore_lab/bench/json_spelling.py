"""How a model writes JSON: log p(α) of schemas behind chat prompts, by whitespace.

Objects are closed, in the order of the schema. Numbers of a row are comparable: the same prompt, schema and horizon. Each is an
estimate by particles, ± its standard error in nats.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import locore
from locore import json_schema
from locore_lab.harness import Case, Row, Some, measurement


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


TEXT, WHOLE, NUMBER, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sentiment": (
        "The food was cold, but the waiter was kind. What is the sentiment of this review, and why?",
        _object(sentiment={"enum": ["positive", "negative", "mixed"]}, reason={**TEXT, "maxLength": 60}),
    ),
    "order": (
        "Maria Lopez orders 24 office chairs for 12 March, and it is urgent. Extract the order.",
        _object(customer=TEXT, product=TEXT, quantity=WHOLE, urgent=FLAG),
    ),
    "tags": (
        "Give three tags for a recipe of tomato soup.",
        _object(tags={"type": "array", "items": {**TEXT, "maxLength": 20}, "minItems": 3, "maxItems": 3}),
    ),
    "ranking": (
        "Rank the planets Mars, Venus and Jupiter by size, the largest first.",
        {"type": "array", "items": {"enum": ["Mars", "Venus", "Jupiter"]}, "uniqueItems": True, "minItems": 3},
    ),
    "point": ("Where is Paris? Give latitude and longitude.", _object(latitude=NUMBER, longitude=NUMBER)),
    "person": (
        "Ann Lee, aged 34, lives in Oslo, Norway. Who is she?",
        _object(name=TEXT, age=WHOLE, address=_object(city=TEXT, country=TEXT)),
    ),
}
ASKED = " Answer in JSON that is valid for this schema: "
STYLES = ("compact", "spaced", "indent", "single", "consistent")


def measured(model: locore.LanguageModel, case: str, style: str, tokens: int, particles: int, sampler: str) -> Row:
    """An estimate of log p(α) with its error, and the likeliest text."""
    question, schema = CASES[case]
    chat = [{"role": "user", "content": question + ASKED + json.dumps(schema)}]
    constraint = json_schema(schema, objects="closed", whitespace=style)
    p = locore.generate(model, chat, constraint, tokens, num_particles=particles, seed=0, sampler=sampler)
    return {"log_p": p.log_evidence, "error": p.log_evidence_error, "text": next(iter(p.posterior()))}


@measurement(
    "case | spelling | log p(α), nats | likeliest text",
    "{case} | {style} | {log_p:.1f} ± {error:.1f} | {text!r}",
    quick={"particles": 4, "case": ["point"], "style": ["compact", "single"]},
)
def run(
    model: str = "smollm2", tokens: int = 80, particles: int = 64, sampler: str = "smc", case: Some = None, style: Some = None
) -> Iterator[Case]:
    opened = locore.load(model)
    for name in case or CASES:
        for spelling in style or STYLES:
            work = partial(measured, opened, name, spelling, tokens, particles, sampler)
            yield {"case": name, "style": spelling}, work
