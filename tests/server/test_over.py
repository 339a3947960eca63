"""Patterns, and constraints that see the prompt, say over HTTP, in files of prompts and the shell what they say in Python."""

from __future__ import annotations

import json

import pytest

import locore
from locore import ban, pattern
from locore.cli import main
from tests.batch.helpers import batch, results, write
from tests.chatting import talking

ALPHA = ban(["weather is very", pattern(r"is (a|not) ?\w")]).over("prompt+text")
OPTIONS = {"max_new_tokens": 4, "num_particles": 8, "sampler": "smc", "seed": 3}
BEGUN = [{"role": "user", "content": "weather is very is a x"}, {"role": "assistant", "content": "The weather is"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return locore.load(talking(tmp_path_factory.mktemp("talking") / "model"))


@pytest.mark.parametrize("prompt", ["The weather is", BEGUN], ids=["a text", "a chat"])
def test_the_server_samples_what_python_samples(server, model, prompt):
    named = {"prompt": prompt} if isinstance(prompt, str) else {"messages": prompt}
    path = "/v1/completions" if isinstance(prompt, str) else "/v1/chat/completions"
    asked = {**OPTIONS, "max_tokens": OPTIONS["max_new_tokens"], "constraint": ALPHA.to_json(), "return_particles": True}
    del asked["max_new_tokens"]
    status, _, answer = server.post({"model": "tiny", **named, **asked}, path)
    expected = locore.generate(model, prompt, ALPHA, **OPTIONS)
    assert status == 200, answer
    assert [particle["text"] for particle in answer["locore"]["particles"]] == expected.texts
    assert all(locore.holds(ALPHA, text, model, "The weather is") for text in expected.texts)


def test_what_the_prompt_breaks_is_refused_with_its_place(server):
    body = {"model": "tiny", "prompt": "The weather is very", "max_tokens": 4, "constraint": ALPHA.to_json()}
    status, _, answer = server.post(body, "/v1/completions")
    assert 400 <= status < 500 and '"weather is very" occurs at character 4' in answer["error"]["message"]


def test_files_of_prompts_and_the_shell_say_the_same(model, tmp_path, capsys):
    form = json.dumps(ALPHA.to_json())
    rows = [{"prompt": "The weather is", "seed": 3}, {"prompt": "The weather is very", "seed": 3}]
    output = tmp_path / "out"
    options = ("--constraint", form, "--max-new-tokens", "4", "--num-particles", "8", "--sampler", "smc")
    batch(write(tmp_path / "prompts.jsonl", rows), output, *options)
    found = results(output)
    expected = locore.generate(locore.load("tiny"), "The weather is", ALPHA, **OPTIONS)
    row = locore.generate(locore.load("tiny"), "The weather is", ALPHA, **{**OPTIONS, "seed": found[0]["seed"]})
    assert found[0]["texts"] == row.texts
    assert "prompt alone breaks" in json.dumps(found[1])
    capsys.readouterr()
    assert main(["generate", "--prompt", "The weather is", "--seed", "3", "--json", *options]) == 0
    assert json.loads(capsys.readouterr().out)["texts"] == expected.texts
    check = ["check", "--constraint", form, "--prompt", "The weather is", "--explain", "--text"]
    assert main([*check, " cold"]) == 0
    assert main([*check, " very cold"]) == 1
    assert '"weather is very" occurs at character 4' in capsys.readouterr().out
