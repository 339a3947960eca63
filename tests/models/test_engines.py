"""Models behind engines: exactness, and what is asked of a server."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import torch

import locore
from locore import contains_tokens, ends_with, token
from locore.kernel.errors import CannotScore
from locore.kernel.tokenizer import Tokenizer
from locore.models import load

from . import engine_server, zoo
from .opened_engines import opened
from .test_laws import same


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


@pytest.mark.parametrize("sampler", ["masked", "swor", "smc", "cars", "exact"])
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
    for sampler in ("masked", "lcr", "twisted", "exact"):
        with pytest.raises(CannotScore, match=r"greater than max allowed: 20.*--max-logprobs -1.*rejection"):
            locore.generate(model.unprompted(), (1, 7, 3), ~token(0, [7]), 4, num_particles=8, sampler=sampler, seed=0)


def test_longer_than_the_context(service):
    model = opened(service).prompted((1, 7, 3))
    model.score(torch.full((1, 28), 3))  # a server needs room for one token more
    with pytest.raises(CannotScore, match=r"3 tokens .* 29, .* 32, .* 31"):
        model.score(torch.full((1, 29), 3))
    with pytest.raises(CannotScore, match="31"):
        model.prompted([3] * 40)
