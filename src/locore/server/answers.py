"""Answers in OpenAI's shape, with a `locore` object of diagnostics beside the texts; and answers as streams."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from locore.evidence import Guarantee
from locore.server.errors import ApiError
from locore.server.jobs import Bundle
from locore.server.schema import version
from locore.server.task import Result, ScoredToken
from locore.server.tools import Calls

Json = dict[str, Any]
Finish = Literal["stop", "length", "tool_calls"]


class Usage(BaseModel):
    """Tokens of the prompt and of the texts that are returned."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Diagnostics(BaseModel):
    """What the texts of one run are worth; numbers that are unknown or infinite are null."""

    model_config = ConfigDict(extra="allow")

    log_evidence: float | None
    log_evidence_error: float | None
    log_evidence_interval: list[float | None]
    log_evidence_bounds: list[float | None]
    ess: float | None
    pareto_k: float | None
    verdict: str
    report: str
    guarantee: Guarantee
    sampler: str
    effort: Literal["low", "normal", "high"] | None
    num_particles: int
    distinct_texts: int
    zero_weights: dict[str, float]
    seed: int | None
    lm_tokens: int
    compile_seconds: float
    seconds: float


class ChoiceScores(BaseModel):
    """Log-probabilities of all tokens of a text, its end included, in nats; null where they are not known."""

    log_prob: float | None
    log_prob_given_constraint: float | None
    log_prob_masked: float | None
    log_weight: float | None


class _Choice(BaseModel):
    index: int
    finish_reason: Finish | None
    locore: ChoiceScores | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class TextLogprobs(BaseModel):
    """Of the tokens of a completion."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]
    masked_token_logprobs: list[float | None] = Field(description="Renormalised over what the constraint allows.")


class TopLogprob(BaseModel):
    """A token that could have been there."""

    token: str
    bytes: list[int] | None
    logprob: float


class TokenLogprob(TopLogprob):
    """A token."""

    top_logprobs: list[TopLogprob]
    masked_logprob: float | None = Field(description="Renormalised over what the constraint allows.")


class ChatLogprobs(BaseModel):
    """Of the tokens of an answer."""

    content: list[TokenLogprob]
    refusal: None


class TextChoice(_Choice):
    """One text."""

    text: str
    logprobs: TextLogprobs | None


class CalledFunction(BaseModel):
    """A function and its arguments, as JSON text."""

    name: str
    arguments: str


class Call(BaseModel):
    """A call of a function."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class Message(BaseModel):
    """What the model answers."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: list[Call] | None = None


class ChatChoice(_Choice):
    """One answer."""

    message: Message
    logprobs: ChatLogprobs | None


class _Answer(BaseModel):
    id: str
    created: int
    model: str
    system_fingerprint: str
    usage: Usage
    locore: Diagnostics | list[Diagnostics] = Field(description="A list where several runs were asked for.")


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
    """How one answer is written: of which model, for completions or for chats, and what may be called."""

    def __init__(self, model: str, chat: bool, include_usage: bool, calls: Calls | None = None) -> None:
        self.chat = chat
        self.include_usage = include_usage
        self.calls = calls
        self._common = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, results: list[Result]) -> Json:
        """An answer at once."""
        choices = list(self._choices(results))
        kind = "chat.completion" if self.chat else "text_completion"
        common = self._common | {"object": kind, "system_fingerprint": _fingerprint(results)}
        return {**common, "choices": choices, "usage": _usage(results), "locore": _diagnostics(results)}

    def chunks(self, results: list[Result]) -> Iterator[Json]:
        """The same as a stream: each text in one piece, since no part of it is known before all of it is."""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        base = self._common | {"object": kind, "system_fingerprint": _fingerprint(results)}
        usage: Json = {"usage": None} if self.include_usage else {}
        choices = list(self._choices(results))
        for index, choice in enumerate(choices):
            finish = choice.pop("finish_reason")
            if self.chat:
                message = choice.pop("message")
                calls = [{"index": number, **call} for number, call in enumerate(message.pop("tool_calls", []))]
                choice["delta"] = message | ({"tool_calls": calls} if calls else {})
            yield {**base, "choices": [{**choice, "finish_reason": None}], **usage}
            end: Json = {"delta": {}} if self.chat else {"text": ""}
            last = {"locore": _diagnostics(results)} if index == len(choices) - 1 else {}
            yield {**base, "choices": [{"index": index, "finish_reason": finish, "logprobs": None, **end}], **usage, **last}
        if self.include_usage:
            yield {**base, "choices": [], "usage": _usage(results)}

    def _choices(self, results: list[Result]) -> Iterator[Json]:
        texts = [(result, text) for result in results for text in result.texts]
        for index, (result, text) in enumerate(texts):
            calls = None if self.calls is None else self.calls.read(text.text)
            content: Json = {"text": text.text}
            if self.chat:
                message: Json = {"role": "assistant", "content": None if calls else text.text, "refusal": None}
                content = {"message": message | ({"tool_calls": calls} if calls else {})}
            found = {"index": index, "finish_reason": "tool_calls" if calls else text.finish, **content}
            found["logprobs"] = None if text.scored is None else (_chat_logprobs if self.chat else _logprobs)(text.scored)
            if text.scores is not None:
                found["locore"] = asdict(text.scores)
            if text.ids is not None:
                found |= {"token_ids": text.ids, "prompt_token_ids": result.prompt_ids}
            yield found


def _fingerprint(results: list[Result]) -> str:
    """Of what computed them: a model that is reloaded has another one."""
    return f"locore-{version()}-{results[0].fingerprint}"


def _diagnostics(results: list[Result]) -> Json | list[Json]:
    return results[0].diagnostics if len(results) == 1 else [result.diagnostics for result in results]


def _usage(results: list[Result]) -> Json:
    prompt = sum(result.prompt_tokens for result in results)
    completion = sum(text.tokens for result in results for text in result.texts)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _logprobs(tokens: list[ScoredToken]) -> Json:
    """As completions have them."""
    offsets, place = [], 0
    for token in tokens:
        offsets.append(place)
        place += len(token.text)
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.log_prob for token in tokens],
        "top_logprobs": [{other.text: other.log_prob for other in token.top} for token in tokens],
        "text_offset": offsets,
        "masked_token_logprobs": [token.masked_log_prob for token in tokens],
    }


def _chat_logprobs(tokens: list[ScoredToken]) -> Json:
    """As chats have them."""
    content = [
        {**_one(token), "top_logprobs": [_one(other) for other in token.top], "masked_logprob": token.masked_log_prob}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _one(token: ScoredToken) -> Json:
    return {"token": token.text, "logprob": token.log_prob, "bytes": token.content}


async def server_sent_events(
    bundle: Bundle, answer: Callable[[], Iterable[Json]], keep_alive: float, state: Callable[[], Json | None] = lambda: None
) -> AsyncIterator[bytes]:
    """What is known while there is no answer, then the answer, or the error, and the end. Who leaves stops the work.

    Args:
        bundle: the runs of the request.
        answer: its events, once all runs have ended; an `ApiError` that it raises is one, too.
        keep_alive: seconds between two looks at the state.
        state: how far the runs are, told where it has changed; a comment keeps the connection open where it has not.
    """
    told: Json | None = None
    try:
        while not bundle.done:
            now = state()
            yield b": keep-alive\n\n" if now == told else _event(now)
            told = now
            await bundle.wait(keep_alive)
        try:
            for event in answer():
                yield _event(event)
        except ApiError as error:
            yield _event(error.body())
        yield b"data: [DONE]\n\n"
    finally:
        bundle.leave()


def _event(content: Json | None) -> bytes:
    return b"data: " + json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n\n"
