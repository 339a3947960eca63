"""What a request may say. Every field is known: an unknown one is refused, so that no constraint is ever dropped silently.

Other names for some constraints, as OpenAI and vLLM have them, come first; then OpenAI's fields that Locore does not have, with
the values that ask for nothing: many clients send those unasked. Any other value is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

import locore
from locore.request import RENAMED, SAMPLERS, Request, help_of
from locore.server.settings import Settings

Json = dict[str, Any]
ANY_OBJECT = "any JSON object may nest without end, which no automaton can follow; give its schema (json_schema, or json)"
Zero = Annotated[float, Field(ge=0, le=0)]
One = Annotated[int, Field(ge=1, le=1)]
NoObject = Annotated[dict[str, Any], Field(max_length=0)]
NoList = Annotated[list[Any], Field(max_length=0)]
EVERYTHING = {"type": "true"}  # the constraint that always holds
# Its form is checked where it is built, in the worker, which says where it is wrong.
ConstraintJson = Annotated[Json, WithJsonSchema({"$ref": "#/components/schemas/Constraint"})]
Count = Annotated[int, Field(ge=1)]


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


class Neutral(Strict):
    """In all requests."""

    frequency_penalty: Zero | None = None
    presence_penalty: Zero | None = None
    logit_bias: NoObject | None = None
    stop: NoList | None = None


class NeutralInCompletions(Neutral):
    """In requests for completions."""

    best_of: One | None = None
    echo: Literal[False] | None = None
    logprobs: None = None
    suffix: Literal[""] | None = None


class NeutralInChats(Neutral):
    """In chats."""

    logprobs: Literal[False] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=0)] | None = None
    tools: NoList | None = None
    tool_choice: Literal["none"] | None = None
    store: Literal[False] | None = None


NEUTRAL = frozenset(NeutralInCompletions.model_fields) | frozenset(NeutralInChats.model_fields)


def current_name(sampler: object) -> object:
    """Of a sampler that had another one."""
    return RENAMED.get(sampler, sampler) if isinstance(sampler, str) else sampler


class StreamOptions(Strict):
    """As OpenAI's."""

    include_usage: bool = False


class Sampling(Strict):
    """What is to be sampled, and how; shared by all requests."""

    model: str = Field(description="The name in /v1/models.")
    constraint: ConstraintJson | None = Field(default=None, description="What the text must satisfy.")
    min_tokens: int = Field(default=0, ge=0, description="The text may not end before; part of the constraint.")
    num_particles: Count = Field(default=Request.num_particles, description=help_of("num_particles"))
    sampler: Annotated[Literal[SAMPLERS], BeforeValidator(current_name)] | None = None  # type: ignore[valid-type]
    budget: Count | None = Field(default=None, le=2**63 - 1, description=help_of("budget"))
    seed: int | None = Field(default=None, ge=0, lt=2**63 - 1)
    temperature: float = Field(default=1.0, gt=0, le=100, description="Of the model that is sampled: p^(1/T), token by token.")
    top_p: float = Field(default=1.0, gt=0, le=1, description="The model is cut to its nucleus.")
    canonical: Literal["alpha", "only"] | None = None
    ending: Literal["eos", "complete"] | None = Field(default=None, description=help_of("stop"))

    def alpha(self) -> Json:
        """The constraint."""
        return EVERYTHING if self.constraint is None else self.constraint

    def settings(self) -> Json:
        """What the worker needs."""
        names = ("min_tokens", "num_particles", "sampler", "budget", "seed", "temperature", "top_p", "canonical", "ending")
        chosen = {name: getattr(self, name) for name in names}
        return {**chosen, "task": "sample", "constraint": self.alpha()}


class CompareRequest(Sampling):
    """For the page: masking and Locore beside each other."""

    prompt: str = Field(description="A text to go on from.")
    max_tokens: Count = 16

    def settings(self) -> Json:
        """What the worker needs."""
        return {**super().settings(), "task": "compare", "prompt": self.prompt, "max_tokens": self.max_tokens}


class Common(Sampling):
    """What requests for texts share."""

    response_format: Annotated[TextFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")] | None = None
    structured_outputs: StructuredOutputs | None = None
    n: Count = Field(default=1, description="Texts, drawn in proportion to the weights of the particles.")
    return_particles: bool = Field(default=False, description="Answer with all weighted texts too.")
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = Field(default=None, description="Has no effect.")

    @model_validator(mode="after")
    def _one_constraint(self) -> Common:
        given = [name for name in ("constraint", "response_format", "structured_outputs") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f'give one of {" and ".join(given)}; join constraints with {{"type": "and", "of": [...]}}')
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream=true")
        return self

    def alpha(self) -> Json:
        """The constraint, by whichever name it came."""
        if self.structured_outputs is not None:
            return self.structured_outputs.constraint()
        if isinstance(self.response_format, SchemaFormat):
            return {"type": "json_schema", "schema": self.response_format.json_schema.schema_}
        return super().alpha()

    def settings(self) -> Json:
        """What the worker needs."""
        return {**super().settings(), "n": self.n, "return_particles": self.return_particles}


class CompletionRequest(Common, NeutralInCompletions):
    """A text to go on from."""

    prompt: str | list[int] = Field(description="A text, or token ids, which are taken as they are.")
    max_tokens: Count = 16

    def settings(self) -> Json:
        """What the worker needs."""
        return {**super().settings(), "prompt": self.prompt, "max_tokens": self.max_tokens}


class TextPart(Strict):
    """A part of a message."""

    type: Literal["text"]
    text: str


class ChatMessage(Strict):
    """One turn."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]


class ChatRequest(Common, NeutralInChats):
    """Messages to answer."""

    messages: list[ChatMessage] = Field(min_length=1, description="An answer goes on from a last one of the assistant.")
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None

    @model_validator(mode="after")
    def _one_length(self) -> ChatRequest:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise ValueError("give one of max_tokens and max_completion_tokens")
        return self

    def settings(self) -> Json:
        """What the worker needs."""
        length = self.max_completion_tokens or self.max_tokens or 16
        return {**super().settings(), "prompt": [message.model_dump() for message in self.messages], "max_tokens": length}


def refusal(request: Json, settings: Settings) -> tuple[str, str] | None:
    """The field that is beyond what this server allows, and a message; None if there is none."""
    limits = {"max_tokens": settings.max_tokens, "num_particles": settings.max_particles, "n": settings.max_n}
    for name, most in limits.items():
        if request.get(name, 0) > most:
            return name, f"{name} is {request[name]}, but this server allows at most {most}."
    if request["min_tokens"] > request["max_tokens"]:
        return "min_tokens", f"min_tokens is {request['min_tokens']}, above max_tokens, which is {request['max_tokens']}."
    return None


def version() -> str:
    """Of Locore."""
    return locore.__version__
