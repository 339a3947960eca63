"""Functions that an answer may call: how the model is told of them, what an answer must look like, how it is read.

All of it is text, the same for every model: the functions are described in the system's message, a call is JSON, and what a
function gave is told in a message of the user. So nothing depends on what a chat template knows of tools, and what a message
holds cannot become a special token.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]
STYLE = {"objects": "closed"}  # what a client's type has, and nothing that the model invents
MOST_CALLS = 4  # in one answer
NOT_A_CALL = {"type": "not", "of": {"type": "regex", "pattern": r"(?s)\s*[\[{].*"}}
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Function:
    """A function that an answer may call; `parameters` is a JSON schema of its arguments."""

    name: str
    parameters: Json
    description: str | None = None


@dataclass(frozen=True)
class Calls:
    """What may be called.

    Attributes:
        functions: those that are offered.
        choice: may the answer be a call or a text ("auto"), or must it be a call?
        parallel: may one answer hold several calls?
    """

    functions: tuple[Function, ...]
    choice: Literal["auto", "required"]
    parallel: bool = False

    def constraint(self, text: Json) -> Json:
        """Of an answer, where `text` is that of one that calls nothing."""
        if self.parallel:
            draft = _draft(self.functions)
            each = [_call(function, draft) for function in self.functions]
            items = each[0] if len(each) == 1 else {"anyOf": each}
            calls = [_of_schema({"type": "array", "items": items, "minItems": 1, "maxItems": MOST_CALLS}, draft)]
        else:
            drafts = [_draft((function,)) for function in self.functions]
            calls = [_of_schema(_call(f, draft), draft) for f, draft in zip(self.functions, drafts, strict=True)]
        if self.choice == "auto":
            calls.append({"type": "and", "of": [NOT_A_CALL, text]})
        return calls[0] if len(calls) == 1 else {"type": "or", "of": calls}

    def instruction(self) -> str:
        """What the model is told."""
        when = "If a function helps, answer" if self.choice == "auto" else "Answer"
        form = '{"name": …, "arguments": {…}}'
        form = f"a list of calls, [{form}, …]" if self.parallel else form
        described = [
            json.dumps({"name": f.name, "description": f.description or "", "parameters": f.parameters}, ensure_ascii=False)
            for f in self.functions
        ]
        return "\n".join([f"You can call functions. {when} with nothing but {form}. The functions are:", *described])

    def read(self, answer: str) -> list[Json] | None:
        """The calls of a finished answer, in OpenAI's shape; None if it is a text."""
        if self.choice == "auto" and not answer.lstrip().startswith(("{", "[")):
            return None
        try:
            parsed = json.loads(answer)
        except ValueError:  # cut off by the horizon, where no constraint asked for more
            return None
        calls = parsed if isinstance(parsed, list) else [parsed]
        return [
            {
                "id": f"call_{uuid.uuid4().hex}",
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)},
            }
            for call in calls
        ]


def _draft(functions: tuple[Function, ...]) -> str | None:
    """What `$schema` says in all of these, if a schema around them can say it too.

    Beside `$ref` no name of a resource counts in the older drafts, so such a schema is read as one of no named draft.
    """
    schemas = [function.parameters or NO_ARGUMENTS for function in functions]
    named = {str(schema.get("$schema")) if "$ref" not in schema else None for schema in schemas}
    draft = named.pop() if len(named) == 1 else None
    return None if draft == "None" else draft


def _call(function: Function, draft: str | None) -> Json:
    """The schema of a call. That of the arguments is a resource of its own, in which references lead where they led alone."""
    # What `$schema` says stands at the top, or nowhere.
    arguments = {name: value for name, value in (function.parameters or NO_ARGUMENTS).items() if name != "$schema"}
    key = "id" if draft is not None and "draft-04" in draft else "$id"
    if not isinstance(arguments.get(key), str):
        arguments[key] = f"urn:locore:arguments-of:{function.name}"
    return {
        "type": "object",
        "properties": {"name": {"enum": [function.name]}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _of_schema(schema: Json, draft: str | None) -> Json:
    named = {} if draft is None else {"$schema": draft}
    return {"type": "json_schema", "schema": {**named, **schema}, **STYLE}


def names_in(schema: Any) -> Iterator[tuple[str, Json]]:
    """The resources in a schema that have a name, and what they are; more than one of a name must be the same."""
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from names_in(value)
    if isinstance(schema, dict) and isinstance(schema.get("$id"), str):
        yield schema["$id"], schema


def written(calls: list[tuple[str, str]]) -> str:
    """What the assistant said when it called these functions with these arguments, each as JSON text."""
    texts = [f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}' for name, arguments in calls]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def function_result(name: str, content: str) -> str:
    """What a function gave, as the model reads it."""
    return f"Result of {name}: {content}"


def with_instruction(messages: Messages, instruction: str) -> Messages:
    """The same chat, in which the system speaks of the functions too."""
    first = messages[0]
    if first["role"] in ("system", "developer"):
        return [{**first, "content": f"{first['content']}\n\n{instruction}"}, *messages[1:]]
    return [{"role": "system", "content": instruction}, *messages]
