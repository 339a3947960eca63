"""`locore bench json` and `json-samples`, on three cases made here."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
from locore_lab.json_suites import command, samples

import locore
from locore.kernel.errors import InvalidArgument

TINY = Path(locore.__file__).parent / "assets" / "tiny"
AGE = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"], "additionalProperties": False}
CASES = [
    {"id": "age", "schema": AGE, "instances": ['{"age":3}', '{"age":"3"}', "{}"], "valid": [True, False, False]},
    {"id": "elsewhere", "schema": {"$ref": "other.json"}, "instances": ["1"], "valid": [True]},
    {"id": "nothing", "schema": False, "instances": ["1"], "valid": [False]},
]


@pytest.fixture
def data(tmp_path):
    """A folder as both commands want it."""
    groups = [{"description": "of one type", "schema": {"type": "null"}, "tests": [{"data": None, "valid": True}]}]
    for folder, formats in (("", groups), ("optional/format", groups)):
        place = tmp_path / "test-suite" / "tests" / "draft2020-12" / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / "type.json").write_text(json.dumps(formats))
    with lzma.open(tmp_path / "maskbench_dev.jsonl.xz", "wt") as file:
        file.write("".join(json.dumps(case) + "\n" for case in CASES))
    return tmp_path


def test_suites(data, tmp_path):
    command.run(tmp_path / "out", data, TINY / "tokenizer.json", 3, ["locore"])
    rows = {row["suite"]: row for row in json.loads((tmp_path / "out" / "results.json").read_text())["rows"]}
    assert rows["required"]["passed"] == rows["formats"]["passed"] == 1
    assert (rows["MaskBench"]["taken"], rows["MaskBench"]["passed"], list(rows["MaskBench"]["refused"])) == (
        2,
        2,
        ["elsewhere"],
    )
    assert "| Locore, order=any | 3 | 2 | 2 | 0 of 1 | 0 of 3 |" in (tmp_path / "out" / "table.md").read_text()


@pytest.mark.parametrize(
    ("engine", "message"), [("nobody", "there is no engine 'nobody'"), ("xgrammar", "pip install xgrammar")]
)
def test_an_engine_that_is_not_here(engine, message, data, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    with pytest.raises(InvalidArgument, match=message):
        command.run(tmp_path / "out", data, TINY / "tokenizer.json", 3, [engine])


def test_samples_and_going_on(data, tmp_path, monkeypatch):
    arguments = tmp_path / "out", data, 3, 12, "smc", 4, 0, "tiny", 2
    samples.run(*arguments)
    found = json.loads((tmp_path / "out" / "samples.json").read_text())
    assert found["outcomes"] == {"text": 1, "refused": 1, "no text": 1} and found["valid"] == found["whole"] == 1
    monkeypatch.setattr(samples, "sample", None)  # nothing is made again
    samples.run(*arguments)
    assert "× refused: json_schema does not support '$ref'" in (tmp_path / "out" / "samples.md").read_text()
