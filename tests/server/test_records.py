"""What `locore.parse` says of a record is what the server, files of prompts and the shell say of it."""

from __future__ import annotations

import json

import pytest

import locore
from locore.cli import main
from tests.batch.helpers import results, write
from tests.chatting import talking
from tests.effort import some

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": [3, 4]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
PROMPT = "Tom has a ball. "
LENGTH, LEVEL = 16, 0.9
CONSTRAINT = json.dumps({"type": "json_schema", "schema": SCHEMA})


def same(one, other):
    """Equal but for the last digits, which depend on the threads of a process."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == (pytest.approx(other, rel=1e-5, abs=1e-12) if isinstance(other, float) else other)


def record_of(model, seed, **options):
    """By Python, as plain values."""
    answer = locore.parse(model, PROMPT, SCHEMA, LENGTH, seed=seed, abstain_below=LEVEL, **options)
    return json.loads(json.dumps(answer.to_json()))


# Where no budget is said all faces spend the same, however many texts are to come back.
@pytest.mark.parametrize("given", [{}, {"num_particles": 8}, {"budget": 60}, {"temperature": 0}])
def test_the_server_says_the_same(server, tmp_path, given):
    asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": LENGTH, "seed": 3, **given}
    asked |= {"constraint": json.loads(CONSTRAINT), "return_fields": True, "abstain_below": LEVEL}
    status, _, answer = server.post(asked, "/v1/completions")
    assert status == 200, answer
    record = record_of(locore.load(talking(tmp_path / "model")), 3, **given)
    assert same(answer["locore"]["record"], record)
    assert set(record["fields"]) == {"/a", "/b"}


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


@pytest.mark.parametrize("given", some([{}, {"num_particles": 8}, {"budget": 60, "sampler": "auto"}]))
def test_files_of_prompts_and_the_shell_say_the_same(tmp_path, capsys, given):
    output = tmp_path / "out"
    more = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    options = ("--constraint", CONSTRAINT, "--max-new-tokens", str(LENGTH), *more)
    fields = ("--parse", "--abstain-below", str(LEVEL))
    prompts = write(tmp_path / "prompts.jsonl", [{"prompt": PROMPT}])
    assert main(["batch", str(prompts), "-o", str(output), *options, *fields]) == 0
    (row,) = results(output)
    assert same(row["record"], record_of(locore.load("tiny"), row["seed"], **given))
    capsys.readouterr()
    assert main(["generate", "--prompt", PROMPT, "--seed", "3", "--json", *options, *fields]) == 0
    assert same(json.loads(capsys.readouterr().out)["record"], record_of(locore.load("tiny"), 3, **given))
    assert main(["generate", "--prompt", PROMPT, "--seed", "3", *options, *fields]) == 0
    assert "verdict: " in capsys.readouterr().out
    assert main(["generate", "--prompt", PROMPT, *options, "--abstain-below", "0.5"]) != 0
    assert "give --parse" in capsys.readouterr().err


def test_rows_of_other_lengths_have_their_own_budget(tmp_path):
    """A row says how long its record may be, so the budget is that of the row."""
    rows = [{"prompt": PROMPT, "seed": 3, "max_new_tokens": length} for length in (LENGTH, LENGTH + 4)]
    prompts, output = write(tmp_path / "prompts.jsonl", rows), tmp_path / "out"
    # One after the other, as by Python: rows that share a pass have other last digits, in one process of thirty beyond `same`.
    assert main(["batch", str(prompts), "-o", str(output), "--constraint", CONSTRAINT, "--parse", "--together", "1"]) == 0
    found = [row["record"]["fields"] for row in results(output)]
    for fields, row in zip(found, rows, strict=True):
        answer = locore.parse(locore.load("tiny"), PROMPT, SCHEMA, row["max_new_tokens"], seed=3)
        assert same(fields, json.loads(json.dumps(answer.to_json()))["fields"])
