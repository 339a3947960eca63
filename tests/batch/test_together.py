"""Rows that run beside each other: the same rows, in the same order, whatever else happens."""

import json
from types import SimpleNamespace

import pytest

from locore import batch
from locore.batch.worker import Worker
from locore.models import HuggingFaceModel
from tests.models import zoo


def small(*_, **__) -> HuggingFaceModel:
    """In place of `locore.load`."""
    return zoo.double_llama(11, (0,))


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """A function that runs a batch with so many rows at once and returns what was written."""
    monkeypatch.setattr("locore.load", small)
    alpha = {"type": "count_tokens", "ids": [3], "at_least": 1}
    lines = [
        {"prompt": [1 + number % 9], "id": number, "max_new_tokens": 3 + number % 4, "constraint": alpha}
        for number in range(25)
    ]
    lines[7] = {"prompt": [2], "constraint": {"type": "no such thing"}}
    lines[11] = {"prompt": [2], "unknown": 1}
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def run(together: int):
        output = tmp_path / f"out{together}"
        settings = batch.Settings(together=together, num_particles=6, sampler="swor", budget=200)
        batch.run(source, output, settings, shard_rows=10)
        found = [json.loads(line) for path in sorted((output / "results").iterdir()) for line in path.open()]
        return [{name: value for name, value in row.items() if name != "seconds"} for row in found]

    return run


def test_rows_are_what_they_are_alone(rows):
    alone, beside = rows(1), rows(8)
    assert [row["line"] for row in beside] == list(range(1, 26))
    for one, other in zip(alone, beside, strict=True):
        assert one.get("error") == other.get("error")
        assert one.get("tokens") == other.get("tokens") and one.get("seed") == other.get("seed")
        if "error" not in one:
            assert one["log_weights"] == pytest.approx(other["log_weights"], rel=1e-9)


def test_where_workers_have_died_rows_run_one_by_one(monkeypatch):
    monkeypatch.setattr("locore.load", small)
    seen = []
    monkeypatch.setattr("locore.batch.worker.together", lambda model, calls, number: seen.append(number) or iter(()))
    worker = Worker(batch.Settings(together=8))
    for deaths in (0, 1, 2):
        list(worker._rows(iter([(1, b"{}")]), SimpleNamespace(deaths=deaths), None))
    assert seen == [8]
