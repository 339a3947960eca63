"""`locore bench speed` at a tiny size: both sides of a ratio compute the same, and a killed run goes on."""

from __future__ import annotations

import json

import pytest
import torch

from locore.bench.speed import command
from locore.bench.speed.llamas import Shape
from locore.bench.speed.measuring import TokenMeter, least_seconds, peak_bytes
from locore.bench.speed.neighbours import NeighbourCase, chosen, full_sequences, measure_neighbours
from locore.bench.speed.sampling import SAMPLERS, never, transformers_generate
from locore.cli import main
from locore.errors import InvalidArgument

SHAPE = Shape(vocab=50, hidden=16, inner=24, layers=2, heads=2)
PLAN = command.Plan({"small": SHAPE, "large": SHAPE}, 4, (2, 3), 2, 60, 1, neighbour_prompts=(3, 9), sampling_prompts=(3,))


@pytest.fixture(scope="module")
def model():
    return SHAPE.model(64)


def test_the_plain_algorithm_reads_the_sequences_that_neighbours_scores(model):
    prompted = model.prompted([1, 2, 3])
    tokens = prompted.sample(1, 5, seed=0).tokens[0]
    candidates = torch.randint(50, (5, 4), generator=torch.Generator().manual_seed(0))
    exact = prompted.neighbours(tokens, candidates).flatten()
    for batch in (1, 3, 20):
        torch.testing.assert_close(full_sequences(prompted, tokens, candidates, batch, 20), exact, rtol=0, atol=1e-4)
    some = full_sequences(prompted, tokens, candidates, 2, 6)
    torch.testing.assert_close(some, exact[chosen(20, 6)], rtol=0, atol=1e-4)


def test_a_row_of_neighbours_says_what_was_measured(model):
    row = measure_neighbours(NeighbourCase("any", 9, 6, 3, full_tokens=100, repeats=1), model)
    assert row["tokens"] <= row["bound"] == 3 * 15 + 6
    assert row["full tokens"] == 18 * (9 + 5) and row["measured"] == 7 / 18
    assert row["largest difference"] < 1e-4


def test_transformers_draws_as_many_tokens_as_asked_with_and_without_a_read_prompt(model):
    for share in (False, True):
        meter = TokenMeter(model.causal.module)
        drawn = transformers_generate(model, torch.tensor([1, 2, 3, 4]), rows=3, n=5, share_prompt=share)
        assert drawn.shape == (3, 5)
        # The last token is not read, nor is what the cache holds.
        assert meter.close() == (3 + 3 * 5 if share else 3 * (4 + 4))


def test_the_constraint_of_the_samplers_forbids_these_tokens():
    constraint = never([3, 4], 3)
    assert constraint.evaluate([1, 2, 5], command.locore.Tokenizer.integers(9))
    assert not constraint.evaluate([1, 4, 5], command.locore.Tokenizer.integers(9))


def test_a_killed_run_goes_on_and_writes_the_same_rows(tmp_path, monkeypatch):
    whole = command.run(tmp_path / "whole", models=["small"], plan=PLAN)
    measure = command.measure_neighbours
    left = [2]

    def dies(*arguments):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return measure(*arguments)

    monkeypatch.setattr(command, "measure_neighbours", dies)
    with pytest.raises(KeyboardInterrupt):
        command.run(tmp_path / "killed", models=["small"], plan=PLAN)
    lines = (tmp_path / "killed" / "rows.jsonl").read_text().splitlines()
    monkeypatch.setattr(command, "measure_neighbours", measure)
    resumed = command.run(tmp_path / "killed", models=["small"], plan=PLAN)
    assert (tmp_path / "killed" / "rows.jsonl").read_text().splitlines()[: len(lines)] == lines
    names = ("part", "model", "prompt", "k", "sampler", "tokens", "bound")
    assert [[row.get(n) for n in names] for row in resumed] == [[row.get(n) for n in names] for row in whole]
    assert len(resumed) == len(SAMPLERS) + 4


def test_quick_has_the_rows_of_the_whole_bench():
    assert (len(command.QUICK.ks), *command.QUICK.shapes) == (len(command.FULL.ks), *command.FULL.shapes)
    assert command.QUICK.neighbour_prompts == command.FULL.neighbour_prompts
    assert command.QUICK.sampling_prompts == command.FULL.sampling_prompts


def test_the_shell_command_prints_the_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "QUICK", PLAN)
    assert main(["bench", "speed", "--quick", "-o", str(tmp_path), "--model", "large"]) == 0
    printed = capsys.readouterr()
    assert printed.out == (tmp_path / "table.md").read_text() + "\n"
    assert "neighbours, large" in printed.err
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["settings"]["n"] == 4 and len(record["rows"]) == len(SAMPLERS) + 4
    assert str(tmp_path) not in (tmp_path / "results.json").read_text()


def test_unknown_models_are_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="nonsense"):
        command.run(tmp_path, models=["nonsense"])


def test_work_takes_turns_and_the_least_counts():
    order = []
    found = least_seconds({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 3)
    assert order == ["a", "b"] * 3 and set(found) == {"a", "b"} and min(found.values()) >= 0


def test_the_peak_holds_what_was_allocated():
    size = 2**26
    peak = peak_bytes(lambda: torch.ones(size, dtype=torch.uint8).sum())
    assert peak is None or peak > 0.9 * size
