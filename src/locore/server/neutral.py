"""OpenAI's fields that Locore does not have, with the values that ask for nothing: many clients send those unasked.

Any other value is refused: what was asked for would be dropped.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from locore.server.formats import Strict

Zero = Annotated[float, Field(ge=0, le=0)]
One = Annotated[int, Field(ge=1, le=1)]
NoObject = Annotated[dict[str, Any], Field(max_length=0)]
NoList = Annotated[list[Any], Field(max_length=0)]


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
