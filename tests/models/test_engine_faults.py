"""Faults of servers, and keys, which are never shown."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from locore.kernel.errors import EngineError, InvalidArgument
from locore.models import load
from locore.models.engines.http import JsonClient

from . import zoo
from .opened_engines import ENDS, opened, reply
from .test_laws import same

ERROR = {"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "code": 500}}
FAULTS = {
    "in trouble": (reply(500, ERROR), "answered 500: EngineCore encountered an issue. It is in trouble"),
    "overloaded": (reply(429, {}), "overloaded"),
    "no JSON": (reply(200, b"<html>"), "no JSON"),
    "half an answer": (reply(200, b'{"choices"', Content_Length="4000"), "out of reach"),
    "no vLLM": (reply(404, {"detail": "Not Found"}), "404"),
    "elsewhere": (reply(302, b"", Location="http://127.0.0.1:9/"), "302"),
    "a list": (reply(200, []), "does not list its models|cannot be read"),
}


@pytest.mark.parametrize("when", ["at the start", "later"])
@pytest.mark.parametrize("fault", FAULTS)
def test_faults(service, fault, when):
    answer, message = FAULTS[fault]
    if when == "at the start":
        service.spoil = lambda *_: answer
        with pytest.raises(EngineError, match=message) as caught:
            opened(service)
    else:
        model = opened(service).prompted((1, 7, 3))
        service.spoil = lambda *_: answer
        with pytest.raises(EngineError, match=message) as caught:
            model.score(torch.tensor([[3, 4]]))
    assert "\n" not in str(caught.value)


def test_what_passes_is_waited_for(service):
    left = [reply(503, {}), reply(429, {}, Retry_After="0")]
    service.spoil = lambda path, body, answer: left.pop() if left else answer
    model = opened(service).prompted((1, 7, 3))
    assert not left
    assert same(model.score(torch.tensor([[3, 4]])), zoo.huggingface().score(torch.tensor([[3, 4]])))


def test_a_server_that_does_not_answer(service):
    model = opened(service).prompted((1, 7, 3))
    model.engine._client = JsonClient(service.address, timeout=0.3, retries=0)

    def hang(*_: Any) -> Any:
        service.stopping.wait()
        return {}

    service.spoil = hang
    with pytest.raises(EngineError, match=r"out of reach \(ReadTimeoutError.*larger `timeout`"):
        model.score(torch.tensor([[3, 4]]))


def test_nobody_there():
    with pytest.raises(EngineError, match="out of reach"):
        load("http://127.0.0.1:9/v1", tokenizer=ENDS, retries=0)


def test_keys_are_sent_and_never_shown(service, monkeypatch):
    key = "a-secret-of-the-engine"
    service.key = key
    with pytest.raises(EngineError, match=r"401: Unauthorized.*LOCORE_ENGINE_API_KEY"):
        opened(service)
    monkeypatch.setenv("LOCORE_ENGINE_API_KEY", key)
    model = opened(service)
    assert set(service.keys[1:]) == {f"Bearer {key}"}
    assert key not in repr(model) + repr(vars(model))
    service.spoil = lambda *_: reply(400, {"error": {"message": f"the key {key} is odd"}})
    with pytest.raises(EngineError, match=r"the key \*\*\* is odd") as caught:
        model.prompted((1, 7)).score(torch.tensor([[3]]))
    shown = ""
    error: BaseException | None = caught.value
    while error is not None:
        shown, error = shown + str(error), error.__cause__
    assert key not in shown
    with pytest.raises(EngineError, match=r"\*\*\*"):
        service.spoil = lambda *_: reply(400, {"error": {"message": key}})
        opened(service, api_key=key)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://127.0.0.1:8000", "ends with /v1"),
        ("http://user:word@127.0.0.1:8000/v1", "password"),
        ("http:///v1", "not the address"),
        ("http://127.0.0.1:99999/v1", "port"),
        ("https://127.0.0.1:8000/v1?x=1", "/v1"),
        ("sglang:127.0.0.1:30000", "not the address"),
    ],
)
def test_addresses_of_nothing(address, message):
    with pytest.raises(InvalidArgument, match=message) as caught:
        load(address)
    assert "word" not in str(caught.value).replace("password", "")
