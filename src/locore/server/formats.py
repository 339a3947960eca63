"""Other names for some constraints, as OpenAI and vLLM have them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Json = dict[str, Any]
ANY_OBJECT = "any JSON object may nest without end, which no automaton can follow; give its schema (json_schema, or json)"


class Strict(BaseModel):
    """An object without other fields; nothing is converted from other types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NamedSchema(Strict):
    """As in OpenAI's `response_format`."""

    name: str
    schema_: Json | bool = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextFormat(Strict):
    """No constraint."""

    type: Literal["text"]


class ObjectFormat(Strict):
    """Always refused, in words: any JSON object."""

    type: Literal["json_object"]

    @model_validator(mode="after")
    def _never(self) -> ObjectFormat:
        raise ValueError(ANY_OBJECT)


class SchemaFormat(Strict):
    """JSON that is valid for a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


class StructuredOutputs(Strict):
    """As vLLM's; exactly one of the fields."""

    json_: Json | bool | None = Field(default=None, alias="json")
    json_object: Literal[True] | None = None
    regex: str | None = None
    choice: list[str] | None = None

    @model_validator(mode="after")
    def _one(self) -> StructuredOutputs:
        if len([value for value in (self.json_, self.json_object, self.regex, self.choice) if value is not None]) != 1:
            raise ValueError("structured_outputs needs exactly one of json, json_object, regex, choice")
        if self.json_object is not None:
            raise ValueError(ANY_OBJECT)
        return self

    def constraint(self) -> Json:
        """As Locore's JSON."""
        if self.regex is not None:
            return {"type": "regex", "pattern": self.regex}
        if self.choice is not None:
            return {"type": "choice", "texts": self.choice}
        return {"type": "json_schema", "schema": self.json_}
