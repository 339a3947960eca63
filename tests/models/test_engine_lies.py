"""Servers that lie are not believed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from locore.kernel.errors import EngineError

from . import engine_server
from .opened_engines import opened, sglang


def spoil_rows(change: Callable[[dict], dict]) -> engine_server.Spoil:
    """Change whole distributions in answers."""

    def spoil(path: str, body: dict, answer: Any) -> Any:
        if body.get("logprobs") == -1:
            for choice in answer["choices"]:
                choice["logprobs"]["top_logprobs"] = [change(top) for top in choice["logprobs"]["top_logprobs"]]
        return answer

    return spoil


def shifted(top: dict) -> dict:
    """Another distribution: each token has the probability of the one before it."""
    values = list(top.values())
    return dict(zip(sorted(top), [*values[1:], values[0]], strict=True))


def spoil_choices(when: str, change: Callable[[dict], Any]) -> engine_server.Spoil:
    def spoil(path: str, body: dict, answer: Any) -> Any:
        if path == "/v1/completions" and when in body:
            for choice in answer["choices"]:
                change(choice)
        return answer

    return spoil


def in_prompt(value: Any) -> Callable[[dict], None]:
    """Values of every token of a prompt, as uninitialised memory gives them."""

    def change(choice: dict) -> None:
        for row in choice["prompt_logprobs"][1:]:
            for entry in row.values():
                entry["logprob"] = value

    return change


def tempered(choice: dict) -> None:
    """What a server reports that applies a temperature of 2 to what it drew."""
    choice["logprobs"]["token_logprobs"] = [value / 2 for value in choice["logprobs"]["token_logprobs"]]


def of_others(choice: dict) -> None:
    """Right tokens, with the log-probabilities of others."""
    values = choice["logprobs"]["token_logprobs"]
    choice["logprobs"]["token_logprobs"] = [value - 1 for value in values]


def spoil_answers(change: Callable[[dict], Any]) -> engine_server.Spoil:
    return lambda path, body, answer: change(answer) if path == "/v1/completions" else answer


LIES = {
    "other distributions": (spoil_rows(shifted), "next-token distributions.* nats a token"),
    "truncated distributions": (spoil_rows(lambda top: dict(list(top.items())[:20])), "next-token distribution of"),
    "NaN": (spoil_rows(lambda top: dict.fromkeys(top, math.nan)), "gave nan"),
    "positive": (spoil_rows(lambda top: dict.fromkeys(top, 7.8e15)), "gave 78000"),
    "text": (spoil_rows(lambda top: dict.fromkeys(top, "x")), "gave 'x'"),
    "no mass": (spoil_rows(lambda top: {k: v - 1 for k, v in top.items()}), "sum to 0.367"),
    "strange ids": (spoil_rows(lambda top: {k.replace("token_id:1", "token_id:7"): v for k, v in top.items()}), "token"),
    "uninitialised scores": (spoil_choices("prompt_logprobs", in_prompt(math.nan)), "gave nan"),
    "other scores": (spoil_choices("prompt_logprobs", in_prompt(-3.0)), "differ from its own plain scores by"),
    "processed scores": (spoil_choices("seed", tempered), "sampled tokens .* differ"),
    "forced scores after the processor": (
        spoil_choices("vllm_xargs", lambda c: c["logprobs"].update(token_logprobs=[0.0] * len(c["token_ids"]))),
        "The (scores|neighbours) .* differ",
    ),
    "forced scores of other tokens": (spoil_choices("vllm_xargs", of_others), "gave no|differ|was to generate"),
    "other prompts": (spoil_choices("prompt", lambda c: c.update(prompt_token_ids=[0])), "other tokens than it was sent"),
    "too few tokens": (spoil_choices("seed", lambda c: c.update(token_ids=c["token_ids"][:1])), "was to draw"),
    "fewer completions": (spoil_answers(lambda answer: {**answer, "choices": []}), "gave 0"),
    "no completions": (spoil_answers(lambda answer: {"ok": True}), "cannot be read"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_is_not_believed(service, lie):
    service.spoil, message = LIES[lie]
    with pytest.raises(EngineError, match=message) as caught:
        opened(service)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("lie", ["NaN", "positive", "no mass", "uninitialised scores", "other prompts"])
def test_a_server_that_begins_to_lie_is_not_believed(service, lie):
    service.forces = lie != "uninitialised scores"
    model = opened(service).prompted((1, 7, 3))
    service.spoil, message = LIES[lie]
    ask = model.log_probs if lie in ("NaN", "positive", "no mass") else model.score
    with pytest.raises(EngineError, match=message):
        ask(torch.tensor([[3, 4, 6]]))


def test_a_server_that_stops_forcing_is_not_believed(service):
    model = opened(service).prompted((1, 7, 3))
    assert model.engine.reuses_prefix
    service.forces = False
    with pytest.raises(EngineError, match="was to generate"):
        model.score(torch.tensor([[3, 4, 6, 8, 10, 12]]))


def test_a_server_that_decides_by_itself_when_a_text_ends(service):
    """Its model has an end that the tokenizer here does not declare."""

    def cut(choice: dict) -> None:
        choice["token_ids"], choice["logprobs"]["token_logprobs"] = [9], [-1.0]

    model = opened(service).prompted((1, 7, 3))
    service.spoil = spoil_choices("seed", cut)
    with pytest.raises(EngineError, match="other ends"):
        model.sample(2, 4, seed=0)


def scores(one: dict) -> list[list]:
    """Rows [log p, id, text] of the input; none where they were not asked for."""
    return one["meta_info"].get("input_token_logprobs", [])


def rows(one: dict) -> list[list]:
    """The same of the chosen ids after it."""
    return [row for position in one["meta_info"].get("output_token_ids_logprobs", []) for row in position]


SGLANG_LIES: dict[str, tuple[Callable[[dict], Any], str]] = {
    "no facts": (lambda one: one.pop("meta_info"), "meta_info"),
    "fewer scores": (lambda one: scores(one) and scores(one).pop(), "log-probabilities"),
    "scores of other ids": (lambda one: [row.__setitem__(1, 0) for row in scores(one)], "other tokens"),
    "distributions of other ids": (lambda one: [row.__setitem__(1, 0) for row in rows(one)], "lacks"),
    "NaN": (lambda one: [row.__setitem__(0, math.nan) for row in rows(one)], "gave nan"),
    "other scores": (lambda one: [row.__setitem__(0, -3.0) for row in scores(one)], "differ"),
}


@pytest.mark.parametrize("lie", SGLANG_LIES)
def test_an_sglang_server_that_lies_is_not_believed(service, lie):
    change, message = SGLANG_LIES[lie]

    def spoil(path: str, body: dict, answer: Any) -> Any:
        if path == "/generate":
            for one in answer:
                change(one)
        return answer

    service.spoil = spoil
    with pytest.raises(EngineError, match=message):
        sglang(service)
