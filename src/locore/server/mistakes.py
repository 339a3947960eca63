"""What to say of a body that is wrong: which place of the request it is, and which field does what was meant.

A field that asks for something of the text is never to be left out: that would drop the constraint. Its message names the field
that does it here.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from locore.kernel.constraints.spelling import cut
from locore.server.api_errors import ApiError
from locore.server.chats import ChatRequest
from locore.server.comparison_schema import CompareRequest
from locore.server.schema import ASK_OF_THE_TEXT, REASONS, CompletionRequest, StructuredOutputs

PROMPTS = "prompt must be a text, a list of token ids, a list of texts, or a list of lists of token ids."
SHOWN = 64  # characters of a name that the client made up
CLOSE = 0.75  # how alike a name and a known one are that may have been meant
PATHS = {CompletionRequest: "/v1/completions", ChatRequest: "/v1/chat/completions", CompareRequest: "/page/compare"}
GRAMMAR, REGEX = 'structured_outputs={"grammar": ...}', 'structured_outputs={"regex": ...}'
SCHEMA = 'response_format={"type": "json_schema", "json_schema": {"name": ..., "schema": ...}}'
SCHEMA = f'{SCHEMA}, or structured_outputs={{"json": <the schema>}}'
# What stands in the name of a field that asks something of the text, in other servers; the first that fits decides.
INSTEAD = {
    "structural_tag": REASONS["structural_tag"],
    "whitespace": 'write constraint={"type": "json_schema", "schema": ..., "whitespace": ...}',
    "grammar": f"write {GRAMMAR}",
    "bnf": f"write {GRAMMAR}",
    "lark": f"write {GRAMMAR}",
    "regex": f"write {REGEX}",
    "pattern": f"write {REGEX}",
    "choice": 'write structured_outputs={"choice": [...]}',
    "enum": 'write structured_outputs={"choice": [...]}',
    "json_object": 'write response_format={"type": "json_object"}',
    "schema": f"write {SCHEMA}",
    "json": f"write {SCHEMA}",
    "extra_body": "what a client of OpenAI's library puts there stands beside `model` in the request itself",
}
WAYS = "response_format, structured_outputs or constraint"
NOT_HERE = ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call")


async def on_invalid_body(request: Request, error: Exception) -> JSONResponse:
    """400 for the first thing that is wrong with a request; what was sent is not repeated, but for names of fields."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return refusal_of(first, error.body).response()


def refusal_of(mistake: dict[str, Any], body: Any) -> ApiError:
    """What is said of one mistake that pydantic found in a body."""
    loc = [part for part in mistake["loc"] if part != "body"]
    kind, context = mistake["type"], mistake.get("ctx", {})
    place = place_of(loc, body, missing=kind == "missing")
    if kind.startswith("union_tag"):
        place.append(str(context["discriminator"]).strip("'"))
    param = ".".join(cut(str(part), SHOWN + 1) for part in place) or None
    if kind == "extra_forbidden":
        return ApiError(400, unknown_field([str(part) for part in place]), "unknown_field", param)
    tag = context.get("tag")
    asked = tag if place == ["response_format", "type"] else _first(place)
    if asked in REASONS:
        return ApiError(400, not_supported(asked), "unsupported_value", param)
    if tag is not None and place[:1] == ["response_format"]:
        return ApiError(400, unknown_format(tag), "unsupported_value" if instead_of(tag) else "invalid_value", param)
    if place[:1] == ["prompt"] and kind != "missing":
        return ApiError(400, PROMPTS, "invalid_value", "prompt")
    message = mistake["msg"].removeprefix("Value error, ")
    if place:
        return ApiError(400, f"{param}: {message}", "missing_field" if kind == "missing" else "invalid_value", param)
    if kind == "value_error":
        return ApiError(400, f"{message}.", "invalid_value")
    return ApiError(400, "the body must be a JSON object, sent as Content-Type: application/json.", "invalid_body")


def place_of(loc: Sequence[str | int], body: Any, missing: bool = False) -> list[str | int]:
    """Where in a body pydantic's `loc` is: without the branches of unions, which are no places of the request.

    Args:
        loc: parts, of which some are keys and indices and some names of branches.
        body: what was sent.
        missing: is the last part the name of what is not there?
    """
    if not loc:
        return []
    part, rest = loc[0], loc[1:]
    if missing and not rest:
        return [part]
    skipped = place_of(rest, body, missing)
    inside = isinstance(body, dict) and part in body
    if not inside and not (isinstance(body, list) and isinstance(part, int) and 0 <= part < len(body)):
        return skipped
    entered = [part, *place_of(rest, body[part], missing)]
    # A branch may have the name of a key beside it: the last part tells which it is, if it is a key.
    return skipped if rest and skipped[-1:] == [loc[-1]] != entered[-1:] else entered


def _first(place: list[str | int]) -> str | None:
    """The field of the request, or of vLLM's `structured_outputs`, that a place lies in."""
    return next((str(name) for name in place if name != "structured_outputs"), None)


def instead_of(name: str) -> str | None:
    """What does here what a field of this name asks of the text elsewhere."""
    return next((remedy for asks, remedy in INSTEAD.items() if asks in name.lower()), None)


def unknown_field(place: list[str]) -> str:
    """What to say of a field that is not known: what to write for it, or which it may have been meant to be."""
    name, top = place[-1], len(place) == 1
    said = f"unknown field {cut(name, SHOWN + 1)!r}"
    if place[0] == "response_format":
        return f"{said}; a schema is given as {SCHEMA}."
    remedy = instead_of(name)
    if remedy is not None:
        return f"{said}; {remedy}. Nothing is dropped."
    others = [path for kind, path in PATHS.items() if top and name in names_of(kind)]
    if others:
        return f"{said} on this path; it is one of {' and '.join(others)}."
    names = names_of(*PATHS) if top else names_of(StructuredOutputs) if place[0] == "structured_outputs" else []
    close = difflib.get_close_matches(name[:SHOWN], names, 1, CLOSE)
    if close:
        return f"{said}; did you mean {close[0]!r}?"
    return f"{said}; all fields are in /openapi.json, and none is dropped. What it asks of the text is said by {WAYS}."


def names_of(*kinds: Any) -> list[str]:
    """The fields of models, by the names that requests have."""
    return sorted({field.alias or name for kind in kinds for name, field in kind.model_fields.items()})


def unknown_format(tag: str) -> str:
    """What to say of a `response_format` of a type that is not known."""
    remedy = instead_of(str(tag))
    return f"response_format has the type text, json_object or json_schema; {remedy or f'for others see {WAYS}'}."


def not_supported(name: str) -> str:
    """What to say of a field of OpenAI's or vLLM's that asks for what Locore has not."""
    end = "" if name in ASK_OF_THE_TEXT else " Leave it out, or send the value that asks for nothing."
    return f"{name!r} is not supported: {REASONS[name]}.{end}"
