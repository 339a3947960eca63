"""Answers in OpenAI's shape, with a `locore` object of diagnostics beside the texts; and answers as streams."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from locore.server.api_errors import ApiError
from locore.server.jobs import Bundle, Job
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
    guarantee: Literal["proper", "asymptotic", "biased", "mode"]  # `locore.evidence.Guarantee`, without torch
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
        self._said: dict[int, str] = {}  # of a stream, by choice

    def whole(self, results: list[Result]) -> Json:
        """An answer at once."""
        choices = list(self._choices(results))
        kind = "chat.completion" if self.chat else "text_completion"
        common = self._common | {"object": kind, "system_fingerprint": _named(results[0].fingerprint)}
        return {**common, "choices": choices, "usage": _usage(results), "locore": _diagnostics(results)}

    def pieces(self, jobs: Sequence[Job]) -> Iterator[Json]:
        """What has become certain of the texts since this was asked last."""
        index = 0
        for job in jobs:
            new = "".join(job.pieces)
            for number in range(index, index + job.task.n):
                piece = new[len(self._said.get(number, "")) :]
                if piece:
                    yield self._chunk(job.fingerprint, {"index": number, "finish_reason": None, **self._content(number, piece)})
            index += job.task.n

    def chunks(self, results: list[Result]) -> Iterator[Json]:
        """The same as a stream: of each text what was not told before."""
        choices, fingerprint = list(self._choices(results)), results[0].fingerprint
        for index, choice in enumerate(choices):
            finish = choice.pop("finish_reason")
            if self.chat:
                message = choice.pop("message")
                calls = [{"index": number, **call} for number, call in enumerate(message.pop("tool_calls", []))]
                choice["delta"] = message | ({"tool_calls": calls} if calls else {})
            said = self._said.get(index)
            if said is not None:
                rest = self._rest(choice["delta"]["content"] if self.chat else choice["text"], said)
                choice |= self._content(index, rest)
            if said is None or rest:
                yield self._chunk(fingerprint, {**choice, "finish_reason": None})
            end: Json = {"delta": {}} if self.chat else {"text": ""}
            last = {"locore": _diagnostics(results)} if index == len(choices) - 1 else {}
            yield {**self._chunk(fingerprint, {"index": index, "finish_reason": finish, "logprobs": None, **end}), **last}
        if self.include_usage:
            yield {**self._chunk(fingerprint), "usage": _usage(results)}

    def _chunk(self, fingerprint: str, *choices: Json) -> Json:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        usage: Json = {"usage": None} if self.include_usage else {}
        common = self._common | {"object": kind, "system_fingerprint": _named(fingerprint)}
        return {**common, "choices": list(choices), **usage}

    def _content(self, index: int, piece: str) -> Json:
        """A piece of a text, which is remembered."""
        begins = index not in self._said
        self._said[index] = self._said.get(index, "") + piece
        if not self.chat:
            return {"text": piece, "logprobs": None}
        return {"delta": {**({"role": "assistant", "refusal": None} if begins else {}), "content": piece}, "logprobs": None}

    @staticmethod
    def _rest(text: str, said: str) -> str:
        if not text.startswith(said):
            raise ApiError(500, "a text is not what was said to be certain of it; please report this.", "internal_error")
        return text[len(said) :]

    def _choices(self, results: list[Result]) -> Iterator[Json]:
        texts = [(result, text) for result in results for text in result.texts]
        for index, (result, text) in enumerate(texts):
            calls = None if self.calls is None else self.calls.read(text.text)
            content: Json = {"text": text.text}
            if self.chat:
                message: Json = {"role": "assistant", "content": None if calls else text.text, "refusal": None}
                content = {"message": message | ({"tool_calls": calls} if calls else {})}
            choice = {"index": index, "finish_reason": "tool_calls" if calls else text.finish, **content}
            choice["logprobs"] = None if text.scored is None else (_chat_logprobs if self.chat else _logprobs)(text.scored)
            if text.scores is not None:
                choice["locore"] = asdict(text.scores)
            if text.ids is not None:
                choice |= {"token_ids": text.ids, "prompt_token_ids": result.prompt_ids}
            yield choice


def _named(fingerprint: str) -> str:
    """Of what computed an answer: a model that is reloaded has another one."""
    return f"locore-{version()}-{fingerprint}"


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
        {**_logprob(token), "top_logprobs": [_logprob(other) for other in token.top], "masked_logprob": token.masked_log_prob}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _logprob(token: ScoredToken) -> Json:
    return {"token": token.text, "logprob": token.log_prob, "bytes": token.content}


async def server_sent_events(
    bundle: Bundle,
    answer: Callable[[], Iterable[Json]],
    keep_alive: float,
    state: Callable[[], Json | None] = lambda: None,
    pieces: Callable[[], Iterable[Json]] = lambda: (),
) -> AsyncIterator[bytes]:
    """What is known while there is no answer, then the answer, or the error, and the end. Who leaves stops the work.

    Args:
        bundle: the runs of the request.
        answer: its events, once all runs have ended; an `ApiError` that it raises is one, too.
        keep_alive: seconds between two looks at the state.
        state: how far the runs are, told where it has changed; a comment keeps the connection open where it has not.
        pieces: events of what the runs have told of their texts since it was asked last.
    """
    last: Json | None = None
    try:
        while not bundle.done:
            now, news = state(), bundle.news()
            if news.done():
                bundle.acknowledge()
                for event in pieces():
                    yield _event(event)
            else:
                yield b": keep-alive\n\n" if now == last else _event(now)
            last = now
            await bundle.wait(keep_alive, bundle.news())
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
