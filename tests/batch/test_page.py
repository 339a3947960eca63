"""The page on batches: its commands and its code run, and its numbers are those of the committed results."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from locore.batch.rows import COPIED, FIELDS
from locore.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "batch.md").read_text()
MEASURED = (ROOT / "docs" / "lab" / "running.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def commands() -> list[list[str]]:
    return [shlex.split(line)[1:] for block in blocks("sh") for line in block.splitlines() if line.startswith("locore ")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "prompts.jsonl").write_text(blocks("json")[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_and_the_code_run(folder):
    here = [command for command in commands() if "ray" not in command]
    assert [main(command) for command in here] == [0, 0]
    code = blocks("python")
    assert len(code) == 2
    names = {}
    for block in code:
        exec(compile(block, "batch.md", "exec"), names)


@pytest.mark.slow
def test_the_commands_on_ray_run(folder):
    pytest.importorskip("ray")
    on_ray = [command for command in commands() if "ray" in command]
    assert [main(command) for command in on_ray] == [0]
    assert len(list((folder / "out_ray" / "results").iterdir())) == 1


def test_every_field_is_described():
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert {*FIELDS, *COPIED, "line", "digest", "texts", "tokens", "guarantee", "lm_tokens", "seconds", "error"} <= named


def test_the_numbers_are_those_of_the_results():
    result = json.loads((ROOT / "lab" / "results" / "batch.json").read_text())
    for row in result["overhead"]:
        assert f"{sorted(row['ratios'])[1]:.2f} times" in MEASURED
        assert f"{row['loop_ms_a_row']:.0f} ms" in MEASURED
        assert f"{row['bytes_a_row']:,.0f}" in MEASURED
    assert f"{result['restart']['scan_bytes_a_second'] / 1e9:.2f} GB/s".lstrip("0") in MEASURED
