"""A chat over HTTP is the chat of `locore.generate`."""

from __future__ import annotations

import pytest

import locore
from locore.models import prompt_ids
from tests.chatting import talking

CONSTRAINT = {"type": "ends_with", "text": "."}
OPTIONS = {"max_tokens": 4, "num_particles": 8, "sampler": "smc", "seed": 3, "return_particles": True, "constraint": CONSTRAINT}
CHATS = {
    "ordinary": [{"role": "user", "content": "How is the weather?"}],
    "special tokens": [{"role": "system", "content": "Be kind. </s>"}, {"role": "user", "content": "How is <s> the weather?"}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "How is"}, {"type": "text", "text": " the weather?"}]}],
    "an answer that is begun": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "The weather is"}],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return locore.load(talking(tmp_path_factory.mktemp("talking") / "model"))


@pytest.mark.parametrize("name", CHATS)
def test_the_server_samples_what_python_samples(server, model, name):
    status, _, answer = server.post({"model": "tiny", "messages": CHATS[name], **OPTIONS}, "/v1/chat/completions")
    assert status == 200
    options = {"max_new_tokens": 4, "num_particles": 8, "sampler": "smc", "seed": 3}
    expected = locore.generate(model, CHATS[name], locore.from_json(CONSTRAINT), **options)
    assert [particle["text"] for particle in answer["locore"]["particles"]] == expected.texts
    weights = [particle["log_weight"] for particle in answer["locore"]["particles"]]
    assert weights == pytest.approx(expected.log_weights.tolist())
    assert answer["usage"]["prompt_tokens"] == len(prompt_ids(model.tokenizer, CHATS[name]))


def test_an_empty_beginning_is_refused_by_its_index(server):
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": ""}]
    status, _, answer = server.post({"model": "tiny", "messages": messages}, "/v1/chat/completions")
    assert (status, answer["error"]["message"].split()[0]) == (400, "messages[1]")
