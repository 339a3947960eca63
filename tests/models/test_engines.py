"""Models behind engines: exactness, what is asked of a server, its faults, its lies, and its keys."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import locore
from locore import contains_tokens, ends_with, token
from locore.errors import CannotScore, EngineError, InvalidArgument, MissingExtra, ModelNotFound
from locore.models import load
from locore.models.engines.http import JsonClient
from locore.models.engines.model import EngineModel
from locore.tokenizer import Tokenizer

from . import engine_server, zoo
from .engine_server import NAME, Reply, Service
from .test_laws import same

ENDS = Tokenizer.integers(zoo.VOCAB, (2, 5))
QUICK = {"retries": 2, "backoff": 0.01, "timeout": 30}


@pytest.fixture
def service() -> Iterator[Service]:
    """A vLLM server of a random model, which has said nothing yet."""
    with engine_server.running(engine_server.endless(zoo.huggingface()), max_model_len=32) as running:
        yield running


def opened(service: Service, **options: Any) -> EngineModel:
    return load(f"{service.address}/v1", **{"tokenizer": ENDS, **QUICK, **options})


def sglang(service: Service, **options: Any) -> EngineModel:
    return load(f"sglang:{service.address}", **{"tokenizer": ENDS, **QUICK, **options})


@pytest.mark.parametrize("kind", zoo.ENGINES)
def test_an_engine_says_what_its_model_says(kind):
    there = zoo.engine(kind)
    here = zoo.markov().prompted((0,)) if kind.endswith("chain") else zoo.huggingface()
    tokens = zoo.ending_sequences(here, num=6, length=5)
    candidates = torch.arange(15).view(5, 3) % here.vocab_size
    assert same(there.log_probs(tokens), here.log_probs(tokens))
    assert same(there.score(tokens), here.score(tokens))
    for y in tokens:
        assert same(there.neighbours(y, candidates), here.neighbours(y, candidates))
    assert there.full_support == here.full_support


@pytest.mark.parametrize("sampler", ["greedy", "swor", "smc", "cars", "exact"])
@pytest.mark.parametrize("kind", ["vllm server", "sglang server"])
def test_samplers_that_ask_for_distributions_draw_the_same(kind, sampler):
    """They are driven by our own random numbers, wherever the distributions come from."""
    constraint = contains_tokens([[7]]) & ~token(1, [3])
    there, here = (
        locore.generate(model.unprompted(), (1, 7, 3), constraint, 2, num_particles=16, sampler=sampler, seed=3)
        for model in (zoo.engine(kind), zoo.huggingface())
    )
    assert torch.equal(there.tokens, here.tokens)
    assert same(there.log_weights, here.log_weights)
    assert there.log_evidence == pytest.approx(here.log_evidence, abs=1e-4)


@pytest.mark.parametrize("sampler", ["rejection", "lcr"])
def test_samplers_of_drafts_are_right(sampler):
    """The server's own random numbers, and the law of the model: with a truth by enumeration and six standard errors."""
    constraint = contains_tokens([[2]])
    chain, length = zoo.engine("vllm server of a chain"), 3
    every = zoo.all_sequences(6, length)
    truth = zoo.markov().prompted((0,)).score(every).exp()[(every == 2).any(-1)].sum()
    p = locore.generate(chain.unprompted(), (0,), constraint, length, num_particles=400, sampler=sampler, seed=1)
    weights = torch.cat([p.log_weights.exp(), torch.zeros(p.info["drawn"] - len(p))])
    error = float(weights.std() / math.sqrt(len(weights))) if sampler == "lcr" else math.sqrt(float(truth) / 400)
    assert abs(math.exp(p.log_evidence) - float(truth)) < 6 * error


def test_real_text_and_its_own_tokenizer(stories260k):
    """A real model with the tokenizer that the server names, which must cut texts as the server does."""
    here = load(stories260k)
    raw = engine_server.endless(here)
    with engine_server.running(raw, tokenizer=here.tokenizer, root=str(stories260k)) as service:
        there = load(f"{service.address}/v1")
        assert there.tokenizer == here.tokenizer
        assert max(there.differences.values()) < 1e-4
        task = ("Once upon a time", ends_with("."), 4)
        ours, theirs = (locore.generate(m, *task, num_particles=8, sampler="swor", seed=0) for m in (here, there))
        assert ours.texts == theirs.texts
        assert ours.log_evidence == pytest.approx(theirs.log_evidence, abs=1e-4)


def test_neighbours_are_read_after_their_prefix(service):
    """Position i asks for its candidates once, and for all their common tails once."""
    model = opened(service, tokenizer=Tokenizer.integers(zoo.VOCAB)).prompted((1, 7, 3))
    service.requests.clear()
    model.neighbours(torch.tensor([3, 1, 4, 1, 5]), torch.tensor([[8, 9, 10]] * 5))
    bodies = [body for path, body in service.requests if path == "/v1/completions"]
    forced = [body for body in bodies if "vllm_xargs" in body]
    assert sorted((len(b["prompt"]), b["max_tokens"]) for b in forced) == [(1, 5), (3, 1), (3, 2), (3, 3), (3, 4)]
    assert sum(len(body["prompt"]) for body in bodies if "logprob_token_ids" in body) == 5
    assert not any("prompt_logprobs" in body for body in bodies)


def test_what_is_asked_is_the_model_itself(service):
    """A server fills in what its model's files say, unless it is told."""
    opened(service).prompted((1, 7)).sample(3, 4, seed=0)
    for path, body in service.requests:
        if path == "/v1/completions":
            assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (1.0, 1.0, 0, 0.0)
            assert (body["repetition_penalty"], body["presence_penalty"], body["frequency_penalty"]) == (1.0, 0.0, 0.0)


def test_the_same_is_asked_once(service):
    model = opened(service).prompted((1, 7, 3))
    model.log_probs(torch.tensor([[3, 3]]))
    service.requests.clear()
    model.log_probs(torch.tensor([[3, 4, 6]] * 5))
    assert sum(len(body["prompt"]) for _, body in service.requests) == 2  # after the prompt it is known
    service.requests.clear()
    model.token_scores(torch.tensor([[3, 4, 6]] * 5))
    assert sum(len(body["prompt"]) for _, body in service.requests) == 1


def test_requests_at_once_are_bounded(service):
    def slow(path: str, body: dict, answer: Any) -> Any:
        time.sleep(0.02)
        return answer

    model = opened(service, connections=3).prompted((1, 7, 3))
    service.spoil, service.most_running = slow, 0
    candidates = torch.arange(20).view(5, 4) + 1
    model.neighbours(torch.tensor([3, 1, 4, 1, 8]), candidates)
    assert service.most_running == 3


def test_a_server_with_few_log_probabilities(service):
    """Sampling and scoring go on; what needs whole distributions says what to do."""
    service.max_logprobs = 20
    model = opened(service).prompted((1, 7, 3))
    assert set(model.differences) == {"sampled tokens", "scores"} and not model.full_support
    tokens = zoo.ending_sequences(zoo.huggingface(), num=4, length=5)
    assert same(model.score(tokens), zoo.huggingface().score(tokens))
    assert same(model.neighbours(tokens[0], tokens[1:2].T), zoo.huggingface().neighbours(tokens[0], tokens[1:2].T))
    p = locore.generate(model.unprompted(), (1, 7, 3), ~token(0, [7]), 4, num_particles=8, sampler="rejection", seed=0)
    assert len(p) > 0
    for sampler in ("greedy", "lcr", "twisted", "exact"):
        with pytest.raises(CannotScore, match=r"greater than max allowed: 20.*--max-logprobs -1.*rejection"):
            locore.generate(model.unprompted(), (1, 7, 3), ~token(0, [7]), 4, num_particles=8, sampler=sampler, seed=0)


def test_longer_than_the_context(service):
    model = opened(service).prompted((1, 7, 3))
    model.score(torch.full((1, 28), 3))  # a server needs room for one token more
    with pytest.raises(CannotScore, match=r"3 tokens .* 29, .* 32, .* 31"):
        model.score(torch.full((1, 29), 3))
    with pytest.raises(CannotScore, match="31"):
        model.prompted([3] * 40)


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


def reply(status: int, body: Any, **headers: str) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, data


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


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"retries": -1}, {"connections": 0}, {"tolerance": 0}, {"api_key": "line\nbreak"}]
)
def test_options_out_of_range(service, options):
    with pytest.raises(InvalidArgument):
        opened(service, **options)


def test_which_model_is_meant(service):
    with pytest.raises(InvalidArgument, match=f"does not serve 'other'; it serves {NAME}"):
        opened(service, model="other")
    several = {"data": [{"id": NAME, "max_model_len": 32}, {"id": "an-adapter", "max_model_len": 32}]}
    service.spoil = lambda path, body, answer: several if path == "/v1/models" else answer
    with pytest.raises(InvalidArgument, match="an-adapter; name one"):
        opened(service)
    assert opened(service, model=NAME).engine.model == NAME


def test_wrong_tokenizers(service, stories260k):
    with pytest.raises(EngineError, match=f"have {zoo.VOCAB} tokens.*one for 512"):
        opened(service, tokenizer=stories260k)
    with pytest.raises(EngineError, match=f"have {zoo.VOCAB} tokens.*one for 9"):
        opened(service, tokenizer=Tokenizer.integers(9))
    with pytest.raises(ModelNotFound, match="give its folder or name as `tokenizer`"):
        opened(service, tokenizer=None)
    here = load("tiny").tokenizer
    with engine_server.running(engine_server.endless(load(stories260k)), tokenizer=load(stories260k).tokenizer) as other:
        table = Tokenizer(512, here.token_bytes[:512], _codec=here._codec)
        with pytest.raises(EngineError, match="cuts a text into other tokens"):
            opened(other, tokenizer=table)
        with pytest.raises(EngineError, match="the tokenizer here cannot spell"):
            opened(other, tokenizer=Tokenizer.from_tokens([chr(i) for i in range(512)]))


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


def test_sglang_is_labelled(service):
    assert "not verified against a real server" in repr(sglang(service))
    assert "not verified" not in repr(opened(service))


def test_an_engine_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingExtra, match="pip install vllm"):
        load("vllm:tiny")


def test_without_urllib3(monkeypatch):
    monkeypatch.setitem(sys.modules, "locore.patience", None)
    with pytest.raises(MissingExtra, match=r"locore\[engines\]"):
        load("http://127.0.0.1:9/v1", tokenizer=ENDS)


def test_the_command_line_takes_an_engine(stories260k):
    """In a process of its own, as a user has it."""
    here = load(stories260k)
    run = "import sys; from locore.cli import main; sys.exit(main())"
    constraint = locore.contains("time")
    with engine_server.running(engine_server.endless(here), root=str(stories260k)) as service:
        command = [sys.executable, "-c", run, "generate", "--json", "--model", f"{service.address}/v1", "--sampler", "swor"]
        command += [
            "--prompt",
            "Once upon",
            "--max-new-tokens",
            "3",
            "--seed",
            "1",
            "--constraint",
            json.dumps(constraint.to_json()),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        ours = locore.generate(here, "Once upon", constraint, 3, sampler="swor", seed=1)
        assert json.loads(done.stdout)["log_evidence"] == pytest.approx(ours.log_evidence, abs=1e-4)
        service.spoil = lambda *_: reply(404, {"detail": "Not Found"})
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "answered 404" in done.stderr and "Traceback" not in done.stderr
