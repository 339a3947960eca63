"""Answers in OpenAI's shape, with a `locore` object of diagnostics beside the texts; and the form of the page's comparisons."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from locore.server.errors import ApiError
from locore.server.queue import Job

Json = dict[str, Any]


class Usage(BaseModel):
    """Tokens of the prompt and of the texts that are returned."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Diagnostics(BaseModel):
    """What the answer is worth; numbers that are unknown or infinite are null."""

    model_config = ConfigDict(extra="allow")

    log_evidence: float | None
    log_evidence_error: float | None
    log_evidence_interval: list[float | None]
    log_evidence_bounds: list[float | None]
    ess: float | None
    pareto_k: float | None
    verdict: str
    report: str
    guarantee: Literal["proper", "asymptotic", "biased"]
    sampler: str
    num_particles: int
    distinct_texts: int
    zero_weights: dict[str, float]
    seed: int | None
    lm_tokens: int
    compile_seconds: float
    seconds: float
    shared_by: int


class Message(BaseModel):
    """What the model answers."""

    role: Literal["assistant"]
    content: str


class TextChoice(BaseModel):
    """One text."""

    index: int
    text: str
    finish_reason: Literal["stop", "length"]
    logprobs: None


class ChatChoice(BaseModel):
    """One answer."""

    index: int
    message: Message
    finish_reason: Literal["stop", "length"]
    logprobs: None


class _Answer(BaseModel):
    id: str
    created: int
    model: str
    system_fingerprint: str
    usage: Usage
    locore: Diagnostics


class Completion(_Answer):
    """The answer of /v1/completions."""

    object: Literal["text_completion"]
    choices: list[TextChoice]


class ChatCompletion(_Answer):
    """The answer of /v1/chat/completions."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class ErrorFields(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorAnswer(BaseModel):
    """Every error."""

    error: ErrorFields


class Shape:
    """How one answer is written: of which model, for completions or for chats."""

    def __init__(self, model: str, fingerprint: str, chat: bool, include_usage: bool) -> None:
        self.chat = chat
        self.include_usage = include_usage
        self._common = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": fingerprint,
        }

    def whole(self, result: Json) -> Json:
        """An answer at once."""
        choices = [self._choice(index, choice) for index, choice in enumerate(result["choices"])]
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._common, "object": kind, "choices": choices, "usage": _usage(result), "locore": result["locore"]}

    def chunks(self, result: Json) -> Iterator[Json]:
        """The same as a stream: each text in one piece, since no part of it is known before all of it is."""
        base = {**self._common, "object": "chat.completion.chunk" if self.chat else "text_completion"}
        last = len(result["choices"]) - 1
        for index, choice in enumerate(result["choices"]):
            content = {"delta": {"role": "assistant", "content": choice["text"]}} if self.chat else {"text": choice["text"]}
            yield {**base, "choices": [{"index": index, "finish_reason": None, "logprobs": None, **content}]}
            end: Json = {"delta": {}} if self.chat else {"text": ""}
            chunk = {**base, "choices": [{"index": index, "finish_reason": choice["finish"], "logprobs": None, **end}]}
            yield chunk | ({"locore": result["locore"]} if index == last else {})
        if self.include_usage:
            yield {**base, "choices": [], "usage": _usage(result)}

    def _choice(self, index: int, choice: Json) -> Json:
        message = {"role": "assistant", "content": choice["text"]}
        content: Json = {"message": message} if self.chat else {"text": choice["text"]}
        return {"index": index, "finish_reason": choice["finish"], "logprobs": None, **content}


def _usage(result: Json) -> Json:
    prompt, completion = result["prompt_tokens"], sum(choice["tokens"] for choice in result["choices"])
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


async def server_sent_events(job: Job, shape: Shape, keep_alive: float) -> AsyncIterator[bytes]:
    """Comments while nothing is known, then the texts, or the error, and the end. Who leaves stops the work."""
    try:
        while not job.done:
            yield b": keep-alive\n\n"
            await asyncio.wait({job.answer}, timeout=keep_alive)
        try:
            for chunk in shape.chunks(job.answer.result()):
                yield _event(chunk)
        except ApiError as error:
            yield _event(error.body())
        yield b"data: [DONE]\n\n"
    finally:
        job.leave()


def _event(content: Json) -> bytes:
    return b"data: " + json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n\n"


class TokenOfSequence(BaseModel):
    """A token where it stands."""

    text: str
    end: bool = Field(description="It ends the text.")
    log_prob: float | None = Field(description="log p(token | before), of the model.")
    shift: float | None = Field(description="By how many nats its side moves that; null where it is not known.")


class Sequence(BaseModel):
    """A token sequence that a side drew."""

    text: str
    tokens: list[TokenOfSequence]
    share: float = Field(description="Of its side: of the draws of masking, of the weight of Locore's particles.")
    draws: int = Field(description="Particles that are this sequence.")
    weighted_share: float | None = Field(default=None, description="Masking only: its share if the draws were weighted.")


class Side(BaseModel):
    """What one way of sampling found; without sequences if it failed."""

    error: str | None
    num_particles: int = 0
    lm_tokens: int = 0
    seconds: float = 0.0
    exact: bool = Field(default=False, description="The shifts are exact, since every sequence was enumerated.")
    other_sequences: int = 0
    sequences: list[Sequence] = []


class Sides(BaseModel):
    """Both."""

    masking: Side
    locore: Side


class TextOfBoth(BaseModel):
    """How probable each side makes a text."""

    text: str
    masking: float
    locore: float


class OtherTexts(BaseModel):
    """All that are not listed."""

    number: int
    masking: float
    locore: float


class Arc(BaseModel):
    """From a state of one column to one of the next."""

    position: int
    source: int
    target: int
    tokens: str
    masking: float
    locore: float


class Trellis(BaseModel):
    """A small circuit, column by column."""

    columns: list[int]
    arcs: list[Arc]


class CircuitFacts(BaseModel):
    """The size of the circuit."""

    nodes: int
    edges: int
    classes: int
    vocab_size: int
    positions: int
    relaxed: bool
    trellis: Trellis | None


class ComparisonAnswer(BaseModel):
    """The answer of /page/compare."""

    prompt_tokens: int
    locore: Diagnostics
    judged_by_blocks: bool = Field(description="The particles depend on each other, so that blocks judge them, not the ESS.")
    divergence: float | None = Field(description="KL of masking's law from p(text | constraint), in nats, estimated.")
    divergence_error: float | None
    sides: Sides
    texts: list[TextOfBoth]
    other_texts: OtherTexts
    circuit: CircuitFacts
