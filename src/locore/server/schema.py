"""What a request may say. Every field is known: an unknown one is refused, so that no constraint is ever dropped silently."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

import locore
from locore.request import RENAMED, SAMPLERS, Request, help_of
from locore.server.formats import Json, ObjectFormat, SchemaFormat, Strict, StructuredOutputs, TextFormat
from locore.server.neutral import NeutralInChats, NeutralInCompletions
from locore.server.settings import Settings

EVERYTHING = {"type": "true"}  # the constraint that always holds
# Its form is checked where it is built, in the worker, which says where it is wrong.
ConstraintJson = Annotated[Json, WithJsonSchema({"$ref": "#/components/schemas/Constraint"})]
Count = Annotated[int, Field(ge=1)]


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
