"""`locore reproduce warcraft`: whole at toy size, resumed, and with wrong arguments."""

from __future__ import annotations

import json

import pytest
import torch
from locore_lab.warcraft import command
from locore_lab.warcraft.command import COLUMNS, WarcraftPlan, run
from locore_lab.warcraft.dataset import generate_maps, save_maps
from locore_lab.warcraft.methods import METHODS, Task
from locore_lab.warcraft.model import PathModel
from locore_lab.warcraft.network import PathNetwork
from locore_lab.warcraft.paths import cells_of, is_valid_path

from locore import simple_moves
from locore.cli import main
from locore.errors import InvalidArgument
from locore.testing import enumerate_posterior

TOY = WarcraftPlan(size=3, maps=4, samples=3, seeds=2, train=70, epochs=1, memory=0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A whole run at toy size through the command line."""
    folder = tmp_path_factory.mktemp("warcraft")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "QUICK", TOY)
        assert main(["reproduce", "warcraft", "--quick", "-o", str(folder)]) == 0
    return folder


@pytest.mark.slow
def test_every_row_and_column_is_there(finished):
    rows = json.loads((finished / "results.json").read_text())["rows"]
    assert [row["row"] for row in rows] == list(METHODS)
    assert all(set(COLUMNS) <= set(row) for row in rows)
    table = (finished / "table.md").read_text()
    assert all(f"| {name} |" in table for name in METHODS)
    assert (finished / "paths.png").stat().st_size > 1000


def test_constrained_rows_are_consistent_by_construction(finished):
    lines = [json.loads(line) for line in (finished / "rows.jsonl").read_text().splitlines()[1:]]
    for line in lines:
        name = line["key"][0]
        if line["tokens"] is not None and ("Locore" in name or "exact" in name):
            assert line["consistent"] and is_valid_path(cells_of(line["tokens"]), 3, 3)


@pytest.mark.slow
def test_a_run_that_was_cut_goes_on(finished, monkeypatch):
    monkeypatch.setattr(command, "QUICK", TOY)
    path = finished / "rows.jsonl"
    before = path.read_bytes()
    kept = before[: len(before) // 2]
    path.write_bytes(kept)
    run(finished, quick=True)
    after = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    whole = [json.loads(line) for line in before.splitlines()[1:]]
    assert [(line["key"], line["tokens"]) for line in after] == [(line["key"], line["tokens"]) for line in whole]


@pytest.fixture(scope="module")
def task():
    """A model of 3 × 3 maps with random weights, and what is asked of it."""
    torch.manual_seed(0)
    model = PathModel(PathNetwork(3, 3)).prompted(generate_maps(1, 0, "test", 3, 3).images[0])
    return model, Task(simple_moves(3, 3, (0, 0), (2, 2), memory=0), 5, 40)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in METHODS if "Locore" in name or "exact" in name])
def test_one_draw_follows_the_law(name, task):
    """The number of moves of some draws, against enumeration: fails in 1 of 1,000 runs (chi-square, 4 classes)."""
    from scipy.stats import chisquare

    import locore

    model, what = task
    circuit = locore.compile(what.constraint, model.tokenizer, what.length)
    posterior = enumerate_posterior(model, circuit)
    law = torch.zeros(what.length + 1, dtype=torch.float64)
    for tokens, probability in zip(posterior.tokens.tolist(), posterior.log_joint.exp().tolist(), strict=True):
        cells = cells_of(tokens)
        if is_valid_path(cells, 3, 3):
            law[len(cells) - 1] += probability
    law /= law.sum()
    drawn = torch.zeros_like(law)
    num = 20 if "lcr" in name else 40
    for seed in range(num):
        answer = METHODS[name](model, what, seed)
        assert answer.tokens is not None
        drawn[len(cells_of(answer.tokens)) - 1] += 1
    seen = law > 0
    assert drawn[~seen].sum() == 0
    assert chisquare(drawn[seen], num * law[seen]).pvalue > 1e-3


def test_wrong_arguments(tmp_path):
    save_maps(generate_maps(2, 0, "test", 3, 3), tmp_path, "test")
    weights = tmp_path / "w.safetensors"
    PathModel(PathNetwork(4, 4)).save(weights)
    with pytest.raises(InvalidArgument, match=r"4 × 4 maps, the test maps are 3 × 3"):
        run(tmp_path / "a", data=tmp_path, weights=[weights], maps=2)
    with pytest.raises(InvalidArgument, match="There are 2 maps"):
        run(tmp_path / "a", data=tmp_path, weights=[weights], maps=3)
    with pytest.raises(InvalidArgument, match="no row 'beam'"):
        run(tmp_path / "a", rows=["beam"])
    with pytest.raises(InvalidArgument, match="at least 1"):
        run(tmp_path / "a", samples=-1)
    assert main(["reproduce", "warcraft", "-o", str(tmp_path / "a"), "--data", str(tmp_path / "nothing")]) == 2
