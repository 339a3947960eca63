"""What `locore.parse` says of a record is what the server, files of prompts and the shell say of it."""

from __future__ import annotations

import json

import pytest

import locore
from locore.cli import main
from tests.batch.helpers import batch, results, write
from tests.chatting import talking

SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2]}, "b": {"enum": [3, 4]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
PROMPT = "Tom has a ball. "
LENGTH, BUDGET, LEVEL = 13, 60, 0.9
CONSTRAINT = json.dumps({"type": "json_schema", "schema": SCHEMA})


def record_of(model, seed, **options):
    """By Python, as plain values."""
    answer = locore.parse(
        model, PROMPT, SCHEMA, LENGTH, budget=BUDGET, seed=seed, num_particles=32, abstain_below=LEVEL, **options
    )
    return json.loads(json.dumps(answer.to_json()))


def test_the_server_says_the_same(server, tmp_path):
    asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": LENGTH, "budget": BUDGET, "seed": 3}
    asked |= {"constraint": json.loads(CONSTRAINT), "return_fields": True, "abstain_below": LEVEL}
    status, _, answer = server.post(asked, "/v1/completions")
    assert status == 200, answer
    assert answer["locore"]["record"] == record_of(locore.load(talking(tmp_path / "model")), 3)
    assert set(answer["locore"]["record"]["fields"]) == {"/a", "/b"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"return_fields": False}, "abstain_below needs return_fields"),
        ({"abstain_below": 2}, "abstain_below"),
        ({"constraint": {"type": "choice", "texts": ["no JSON"]}, "max_tokens": 20}, "not JSON"),
    ],
)
def test_what_has_no_fields_is_refused(server, changed, said):
    asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": LENGTH, "constraint": json.loads(CONSTRAINT)}
    status, _, answer = server.post({**asked, "return_fields": True, "abstain_below": 0.5, **changed}, "/v1/completions")
    assert 400 <= status < 500 and said in answer["error"]["message"]


def test_files_of_prompts_and_the_shell_say_the_same(tmp_path, capsys):
    tiny, output = locore.load("tiny"), tmp_path / "out"
    options = (
        "--constraint",
        CONSTRAINT,
        "--max-new-tokens",
        str(LENGTH),
        "--budget",
        str(BUDGET),
        "--sampler",
        "auto",
        "--num-particles",
        "32",
    )
    fields = ("--parse", "--abstain-below", str(LEVEL))
    batch(write(tmp_path / "prompts.jsonl", [{"prompt": PROMPT}]), output, *options, *fields)
    (row,) = results(output)
    assert row["record"] == record_of(tiny, row["seed"], sampler="auto")
    capsys.readouterr()
    assert main(["generate", "--prompt", PROMPT, "--seed", "3", "--json", *options, *fields]) == 0
    assert json.loads(capsys.readouterr().out)["record"] == record_of(tiny, 3, sampler="auto")
    assert main(["generate", "--prompt", PROMPT, "--seed", "3", *options, *fields]) == 0
    assert "verdict: " in capsys.readouterr().out
    assert main(["generate", "--prompt", PROMPT, *options, "--abstain-below", "0.5"]) != 0
    assert "give --parse" in capsys.readouterr().err
