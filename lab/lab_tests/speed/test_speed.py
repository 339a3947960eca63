"""`locore bench speed` at a tiny size: both sides of a ratio compute the same, and a killed run goes on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from locore_lab.shared import TokenMeter, least_seconds, peak_bytes
from locore_lab.speed import command, scaling
from locore_lab.speed import sampling as neighbours
from locore_lab.speed.circuits import vocabulary, words
from locore_lab.speed.plan import Shape, SpeedPlan
from locore_lab.speed.sampling import SAMPLERS, chosen, full_sequences, measure_neighbours, never, transformers_generate

import locore
from locore.cli import main
from locore.kernel.errors import InvalidArgument

SHAPE = Shape(vocab=50, hidden=16, inner=24, layers=2, heads=2)
PLAN = SpeedPlan(
    {"small": SHAPE, "large": SHAPE},
    4,
    (2, 3),
    2,
    60,
    1,
    neighbour_prompts=(3, 9),
    sampling_prompts=(3,),
    words=(3, 9),
    formulas=((9, 12, 5),),
    batch=3,
    vocabulary=600,
    lengths=(3, 6),
    candidates=(2, 4),
    particles=(1, 2),
    vocabularies=(300, 600),
    constraint_words=(5, 10),
    accelerator_shapes={"one": SHAPE},
    accelerator_ks=(2,),
    accelerator_particles=(2, 3),
    accelerator_rows=(1, 4, 16),
)
MODELS = ("sampling", "neighbours")


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
    row = measure_neighbours(replace(PLAN, n=6, full_tokens=100), "any", model, 9, 3)
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
    assert constraint.evaluate([1, 2, 5], locore.Tokenizer.integers(9))
    assert not constraint.evaluate([1, 4, 5], locore.Tokenizer.integers(9))


@pytest.mark.slow
def test_a_killed_run_goes_on_and_writes_the_same_rows(tmp_path, monkeypatch):
    whole = command.run(tmp_path / "whole", models=["small"], parts=MODELS, plan=PLAN)
    measure = neighbours.measure_neighbours
    left = [2]

    def dies(*arguments):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return measure(*arguments)

    monkeypatch.setattr(neighbours, "measure_neighbours", dies)
    with pytest.raises(KeyboardInterrupt):
        command.run(tmp_path / "killed", models=["small"], parts=MODELS, plan=PLAN)
    lines = (tmp_path / "killed" / "rows.jsonl").read_text().splitlines()
    monkeypatch.setattr(neighbours, "measure_neighbours", measure)
    resumed = command.run(tmp_path / "killed", models=["small"], parts=MODELS, plan=PLAN)
    assert (tmp_path / "killed" / "rows.jsonl").read_text().splitlines()[: len(lines)] == lines
    names = ("part", "model", "prompt", "k", "sampler", "tokens", "bound")
    assert [[row.get(n) for n in names] for row in resumed] == [[row.get(n) for n in names] for row in whole]
    assert len(resumed) == len(SAMPLERS) + 4


def test_quick_has_the_rows_of_the_whole_bench():
    assert (len(command.QUICK.ks), *command.QUICK.shapes) == (len(command.FULL.ks), *command.FULL.shapes)
    assert command.QUICK.neighbour_prompts == command.FULL.neighbour_prompts
    assert command.QUICK.sampling_prompts == command.FULL.sampling_prompts
    for points in ("words", "formulas"):
        assert len(getattr(command.QUICK, points)) == len(getattr(command.FULL, points))


@pytest.mark.slow
def test_parts_without_a_model(tmp_path):
    rows = command.run(tmp_path, parts=["circuits", "masks", "scaling"], plan=PLAN)
    of = {part: [row for row in rows if row["part"] == part] for part in ("circuits", "pysdd", "masks", "scaling")}
    assert [row["constraint"] for row in of["circuits"]] == ["ban of 3 words", "ban of 9 words"]
    assert of["circuits"][0]["edges"] < of["circuits"][1]["edges"]
    assert abs(of["pysdd"][0]["difference"]) < 1e-9 and of["pysdd"][0]["ratio"] > 0
    assert [row["read tokens"] for row in of["masks"]] == [1, 2, 3]
    curves = {(row["cost of"], row["grows with"]): row for row in of["scaling"]}
    assert len(curves) == 8 and all(row["ends"] is None and min(row["seconds"]) > 0 for row in curves.values())
    assert curves["generate by smc", "particles"]["sizes"] == [1, 2]
    table = (tmp_path / "table.md").read_text()
    assert "## Scaling" in table and "### Against PySDD" in table and "## Masks" in table and "## `generate`" not in table
    assert "{" not in table


@pytest.mark.slow  # it builds the wheel, installs it and prepares a model
def test_the_footprint_is_that_of_processes_of_their_own(tmp_path):
    held = torch.ones(2**28)  # a gigabyte here is none of theirs
    rows = {row["what"]: row for row in command.run(tmp_path, parts=["footprint"], plan=PLAN)}
    assert held[0] == 1
    assert len(rows) == 5 and all(row["value"] > 0 for row in rows.values())
    memory = rows["memory of it"]
    assert (
        50 < memory["value"] < rows["memory of it after `locore prepare`"]["value"] < 1000
    )  # interpreter and torch alone need more than 50 MB
    assert rows["`locore generate` on the bundled model, 32 particles"]["value"] > 1  # torch alone takes that long to import
    assert 5 < rows["the package, compressed"]["value"] < 20  # the bundled model alone is 7.9 MB


def test_the_part_for_accelerators_runs_on_any_device(tmp_path):
    found = command.run(tmp_path, parts=["accelerator"], device="cpu", plan=PLAN)
    rows = [row for row in found if row["part"] == "accelerator"]
    assert [(row["sampler"], row["particles"]) for row in rows] == [
        (name, number) for name in ("smc", "auto", "swor", "lcr, forward", "lcr, k = 2") for number in (2, 3)
    ]
    assert [row["rows"] for row in found if row["part"] == "pass"] == [1, 4, 16]
    for row in rows:
        assert 0 < row["model seconds"] < row["seconds"] and row["flops"] == 2 * row["parameters"] * row["tokens"] > 0
    assert "## On an accelerator" in (tmp_path / "table.md").read_text()
    with pytest.raises(InvalidArgument, match="--device"):
        command.run(tmp_path, parts=["accelerator"], plan=PLAN)


def test_a_curve_ends_where_something_is_refused():
    def work_of(size):
        if size == 4:
            raise InvalidArgument("too large")
        return lambda: None

    row = scaling._curve(1, "nothing", "size", "0", [1, 2, 4, 8], work_of)[0]
    assert row["sizes"] == [1, 2] and row["ends"] == "4: InvalidArgument"
    assert scaling.exponent({1: 3.0, 2: 12.0, 4: 48.0}) == pytest.approx(2) and scaling.exponent({1: 3.0}) is None


def test_made_up_words_and_vocabularies():
    assert len(set(words(50))) == 50 and words(50)[:20] == words(20)
    tokenizer = vocabulary(600)
    assert tokenizer.vocab_size == 600 and tokenizer.eos_ids == (599,) and tokenizer.decode([104, 105]) == "hi"


@pytest.mark.slow
def test_the_shell_command_prints_the_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "QUICK", PLAN)
    arguments = ["--model", "large", "--part", "sampling", "--part", "neighbours"]
    assert main(["bench", "speed", "--quick", "-o", str(tmp_path), *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.out == (tmp_path / "table.md").read_text() + "\n"
    assert "neighbours, large" in printed.err
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["settings"]["n"] == 4 and len(record["rows"]) == len(SAMPLERS) + 4
    assert str(tmp_path) not in (tmp_path / "results.json").read_text()


def test_unknown_models_are_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="nonsense"):
        command.run(tmp_path, models=["nonsense"])
    with pytest.raises(InvalidArgument, match="nonsense"):
        command.run(tmp_path, parts=["nonsense"])


@pytest.mark.slow
def test_work_takes_turns_and_the_least_counts():
    order = []
    found = least_seconds({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 3)
    assert order == ["a", "b"] * 3 and set(found) == {"a", "b"} and min(found.values()) >= 0


def test_the_peak_holds_what_was_allocated():
    size = 2**26
    peak = peak_bytes(lambda: torch.ones(size, dtype=torch.uint8).sum())
    assert peak is None or peak > 0.9 * size
