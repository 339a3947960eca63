"""Servers that speak the JSON of vLLM 0.32 (as recorded from a real one) and of SGLang, with the numbers of a model here."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import torch

from locore.kernel.numerics import categorical, make_generator
from locore.kernel.tokenizer import Tokenizer
from locore.models import HuggingFaceModel, LanguageModel
from tests.http_service import served

Reply = tuple[int, dict[str, str], bytes]
Spoil = Callable[[str, dict, Any], Any]
NAME = "the-model"


class Failure(Exception):
    """An answer other than 200; `error` is its JSON."""

    def __init__(self, status: int, error: Any) -> None:
        self.status, self.error = status, error


def bad(message: str, status: int = 400) -> Failure:
    kind = {400: "BadRequestError", 404: "NotFoundError"}[status]
    return Failure(status, {"error": {"message": message, "type": kind, "param": None, "code": status}})


@dataclass
class Service:
    """A server and how it was started.

    Attributes:
        model: what it serves, without ends, before any prompt.
        tokenizer: its own; None as with --skip-tokenizer-init.
        max_logprobs: -1 for all.
        forces: does it have the processor of forced tokens?
        spoil: is given path, request and answer, and may return another one: JSON, or status, headers and body.
        requests: path and body of each, in their order.
        known: the distribution after each text that was read; most tests ask for the same texts.
    """

    model: LanguageModel
    tokenizer: Tokenizer | None = None
    max_logprobs: int = -1
    forces: bool = True
    key: str = ""
    root: str = "/nowhere/the-model"
    max_model_len: int = 512
    spoil: Spoil = field(default=lambda path, body, answer: answer)
    requests: list[tuple[str, dict]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    address: str = ""
    running: int = 0
    most_running: int = 0
    known: dict[tuple[int, ...], torch.Tensor] = field(default_factory=dict)
    stopping: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    def answer(self, path: str, body: dict) -> Any:
        """The JSON of status 200."""
        routes = {
            "/v1/models": self.models,
            "/v1/completions": self.completions,
            "/tokenize": self.tokenize,
            "/get_model_info": lambda _: {"model_path": self.root, "is_generation": True},
            "/get_server_info": lambda _: {"context_length": self.max_model_len, "version": "0.5.23"},
            "/generate": self.generate,
        }
        if path not in routes:
            raise Failure(404, {"detail": "Not Found"})
        return routes[path](body)

    def models(self, _: dict) -> dict:
        card = {"id": NAME, "object": "model", "owned_by": "vllm", "root": self.root, "max_model_len": self.max_model_len}
        return {"object": "list", "data": [card]}

    def tokenize(self, body: dict) -> dict:
        if self.tokenizer is None:
            raise bad("Tokenizer not available when `skip_tokenizer_init=True`")
        ids = self.tokenizer.encode_prompt(body["prompt"])
        return {"count": len(ids), "max_model_len": self.max_model_len, "tokens": ids, "token_strs": None}

    def completions(self, body: dict) -> dict:
        """As vLLM answers; what it does not read here, it would ignore."""
        if body.get("model") != NAME:
            raise bad(f"The model `{body.get('model')}` does not exist.", 404)
        prompts, n = body["prompt"], body.get("n", 1)
        most = self.model.vocab_size if self.max_logprobs == -1 else self.max_logprobs
        wanted = self.model.vocab_size if body.get("logprobs") == -1 else body.get("logprobs") or 0
        if wanted > most:
            raise bad(f"Requested sample logprobs of {wanted}, which is greater than max allowed: {most} (parameter=logprobs)")
        choices = []
        for prompt in prompts:
            if max(prompt) >= self.model.vocab_size:
                raise bad(f"Token id {max(prompt)} is out of vocabulary")
            if len(prompt) + body["max_tokens"] > self.max_model_len:
                raise bad(f"The decoder prompt (length {len(prompt)}) is longer than the maximum model length.")
            rows = None if body.get("prompt_logprobs") is None else self._prompt_rows(prompt)
            for text in self._texts(prompt, body, n):
                text |= {"index": len(choices), "text": "", "prompt_token_ids": prompt, "prompt_logprobs": rows}
                choices.append(text)
        return {"id": "cmpl-1", "object": "text_completion", "model": NAME, "choices": choices}

    def _prompt_rows(self, prompt: list[int]) -> list:
        scores = self._scores(prompt[:1], prompt[1:])
        return [None] + [
            {str(t): {"logprob": max(v, -9999.0), "rank": 1, "decoded_token": ""}}
            for t, v in zip(prompt[1:], scores, strict=True)
        ]

    def _texts(self, prompt: list[int], body: dict, n: int) -> Iterator[dict]:
        length, logprobs = body["max_tokens"], body.get("logprobs")
        forced = (body.get("vllm_xargs") or {}).get("locore_forced") if self.forces else None
        if forced is not None:
            tokens = torch.tensor([forced])
            rows = self._rows(prompt, tokens)
        else:
            tokens, rows = self._drawn(prompt, n, length, body.get("seed"))
        scores = rows.gather(2, tokens[..., None])[..., 0]
        for number, ids in enumerate(tokens.tolist()):
            end = next((at for at, token in enumerate(ids) if token in body.get("stop_token_ids", ())), length - 1) + 1
            tops = []
            for at, token in enumerate(ids[:end]):
                row = {token: float(scores[number, at])}
                if logprobs:
                    extra = body.get("logprob_token_ids") or range(self.model.vocab_size)
                    row |= {i: float(rows[number, at, i]) for i in extra}
                tops.append({f"token_id:{i}": max(value, -9999.0) for i, value in row.items()})
            values = [max(value, -9999.0) for value in scores[number, :end].tolist()]
            logs = {"token_logprobs": values, "tokens": [f"token_id:{i}" for i in ids[:end]], "top_logprobs": tops}
            yield {"token_ids": ids[:end], "logprobs": None if logprobs is None else logs, "finish_reason": "length"}

    def generate(self, body: dict) -> list:
        """As SGLang is documented to answer."""
        answers = []
        for i, ids in enumerate(body["input_ids"]):
            row = self._rows(ids, torch.zeros(1, 1, dtype=torch.int64))[0, 0].tolist()
            facts: dict[str, Any] = {"prompt_tokens": len(ids), "completion_tokens": 1}
            if "token_ids_logprob" in body:
                facts["output_token_ids_logprobs"] = [[[max(row[t], -9999.0), t, None] for t in body["token_ids_logprob"][i]]]
            if "logprob_start_len" in body:
                start = body["logprob_start_len"][i]
                scores = [None, *self._scores(ids[: start + 1], ids[start + 1 :])]
                facts["input_token_logprobs"] = [[v, t, None] for v, t in zip(scores, ids[start:], strict=True)]
            answers.append({"text": "", "output_ids": [0], "meta_info": facts})
        return answers

    def _scores(self, prompt: Sequence[int], tail: Sequence[int]) -> list[float]:
        if not tail:
            return []
        tokens = torch.tensor([list(tail)])
        scores = self._rows(prompt, tokens).gather(2, tokens[..., None])[0, :, 0]
        return [max(v, -9999.0) for v in scores.tolist()]

    def _drawn(self, prompt: Sequence[int], num: int, length: int, seed: int | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Texts and the distributions they come from; few are the first of many.

        Not by `model.sample`: in Python 3.11 a cursor holds a lock while it is read, which a client in this process would hold.
        """
        generator = make_generator(seed)
        uniforms = torch.rand(num, length, generator=generator, dtype=torch.float64)
        tokens = torch.zeros(num, length, dtype=torch.int64)
        for step in range(length):
            rows = self._rows(prompt, tokens[:, : step + 1])
            tokens[:, step] = categorical(rows[:, step], uniforms[:, step])
        return tokens, rows

    def _rows(self, prompt: Sequence[int], tokens: torch.Tensor) -> torch.Tensor:
        """Float[batch, time, vocab]: the distributions after the prompt, and after it and each token but the last."""
        after, texts = tuple(prompt), tokens.tolist()
        wanted = [[(*after, *text[:at]) for at in range(len(text))] for text in texts]
        new = [i for i, keys in enumerate(wanted) if any(key not in self.known for key in keys)]
        if new:
            for i, rows in zip(new, self.model.prompted(after).log_probs(tokens[new]), strict=True):
                self.known.update(zip(wanted[i], rows, strict=True))
        return torch.stack([torch.stack([self.known[key] for key in keys]) for keys in wanted])


@contextmanager
def running(model: LanguageModel, **options: Any) -> Iterator[Service]:
    """A server on a free port of this machine."""
    service = Service(model, **options)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._do({})

        def do_POST(self) -> None:
            self._do(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _do(self, body: dict) -> None:
            with service.lock:
                service.requests.append((self.path, body))
                service.keys.append(self.headers.get("Authorization"))
                service.running += 1
                service.most_running = max(service.most_running, service.running)
            status, headers, data = self._reply(body)
            with service.lock:
                service.running -= 1
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()
            if headers:  # of replies that break the protocol
                self.close_connection = True

        def _reply(self, body: dict) -> Reply:
            try:
                if service.key and self.headers.get("Authorization") != f"Bearer {service.key}":
                    raise Failure(401, {"error": "Unauthorized"})
                answer = service.spoil(self.path, body, service.answer(self.path, body))
            except Failure as failure:
                return failure.status, {}, json.dumps(failure.error).encode()
            return answer if isinstance(answer, tuple) else (200, {}, json.dumps(answer).encode())

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    with served(Handler, service.stopping) as service.address:
        yield service


def endless(model: HuggingFaceModel) -> HuggingFaceModel:
    """The same model without ends and prompt, as an engine has it."""
    return HuggingFaceModel(model.causal, Tokenizer.integers(model.vocab_size))
