"""A study: what is on disk is not measured again, and one that was killed ends as if it had not been."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
import torch
from locore_lab.fidelity.command import QUICK, all_problems, cache_in, run
from locore_lab.fidelity.entries import choose
from locore_lab.fidelity.study import CHUNKS, FidelityStudy

from locore.kernel.errors import InvalidArgument
from locore.samplers.twist import ngram
from tests.effort import THOROUGH

PROBLEMS = ["table5-end", "chain5-word"]
RUNS = CHUNKS if THOROUGH else 4  # one in each of the chunks, which are fewer
SAMPLERS = ["masked", "smc", "swor", "twisted + table"]
CLOCKS = ("seconds", "model_seconds", "cpu_seconds")


@pytest.fixture(autouse=True)
def no_table_in_memory():
    """As in a new process."""
    ngram._in_memory.clear()


def study(folder, samplers=SAMPLERS, problems=PROBLEMS, **settings):
    with pytest.MonkeyPatch.context() as patch:
        if not THOROUGH:  # pictures are asked for in `test_command`
            patch.setattr("locore_lab.fidelity.command.plot", lambda *_: None)
        patch.setattr("locore_lab.fidelity.study.CHUNKS", RUNS)
        run(folder, quick=True, problems=problems, samplers=samplers, budgets=[40], **{"runs": RUNS, **settings})
    record = json.loads((folder / "results.json").read_text())
    return [{k: v for k, v in row.items() if k not in CLOCKS} for row in record["rows"]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study that was never interrupted, and its folder."""
    ngram._in_memory.clear()
    folder = tmp_path_factory.mktemp("whole")
    return study(folder), folder


def journals(folder):
    """What each journal holds, by its name."""
    return {path.name: path.read_bytes() for path in (folder / "runs").iterdir()}


@pytest.mark.parametrize("share", [0.3, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.0, 0.55, 0.999))])
def test_a_study_that_was_killed_ends_as_if_it_had_not_been(whole, tmp_path, share):
    rows, folder = whole
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "results.json").unlink()
    for name, content in journals(folder).items():
        size = int(share * len(content))
        assert share == 0 or content[size - 1 : size] != b"\n"  # in the middle of a line
        (tmp_path / "runs" / name).write_bytes(content[:size])
    assert study(tmp_path) == rows
    lengths = [{name: len(found.splitlines()) for name, found in journals(place).items()} for place in (tmp_path, folder)]
    assert lengths[0] == lengths[1]


def test_a_study_that_goes_on_makes_no_runs_twice(whole, monkeypatch):
    rows, folder = whole
    before = journals(folder)
    monkeypatch.setattr("locore_lab.fidelity.study.run_chunk", None)
    assert study(folder) == rows
    assert journals(folder) == before


def test_order_and_company_change_nothing(whole, tmp_path):
    rows, _ = whole
    alone = study(tmp_path, ["swor"], PROBLEMS[::-1])
    assert sorted(alone, key=str) == sorted((row for row in rows if row["sampler"] == "swor"), key=str)


@pytest.mark.slow
def test_another_seed_gives_other_runs_in_the_same_folder(whole, tmp_path):
    rows, _ = whole
    first = study(tmp_path, ["smc"], ["chain5-word"])
    other = study(tmp_path, ["smc"], ["chain5-word"], seed=1)
    assert first == [row for row in rows if (row["sampler"], row["problem"]) == ("smc", "chain5-word")]
    assert other[0]["rmse"] != first[0]["rmse"]
    assert study(tmp_path, ["smc"], ["chain5-word"]) == first


def test_a_changed_problem_is_measured_anew(tmp_path):
    """Under its old name: neither its answer nor its runs are those of before."""
    torch.manual_seed(0)
    problem = next(p for p in all_problems(True, 0, 0, None) if p.name == "table5-end")
    changed = dataclasses.replace(problem, length=4)
    plan = dataclasses.replace(QUICK, budgets=(40,), runs=16)
    with cache_in(tmp_path / "cache"):
        (row,), (other,) = (FidelityStudy(tmp_path, plan).run([p], choose(["masked"])) for p in (problem, changed))
        (fresh,) = FidelityStudy(tmp_path / "fresh", plan).run([changed], choose(["masked"]))
    assert other["rmse"] == fresh["rmse"] != row["rmse"]


def test_the_table_is_there_before_the_first_row(tmp_path, monkeypatch):
    """`auto` reads it where there is one, so its rows must not depend on what ran before them."""
    problem = next(p for p in all_problems(True, 0, 0, None) if p.name == "table5-end")
    asked = []
    for names in (["masked"], ["auto"]):
        made = FidelityStudy(tmp_path / names[0], dataclasses.replace(QUICK, budgets=(8,), runs=16))
        monkeypatch.setattr(made, "table", asked.append)
        monkeypatch.setattr(made, "_cell", lambda *_: asked.append("row"))
        made.run([problem], choose(names))
    assert asked == ["row", problem.model, "row"]


def test_runs_that_differ_from_those_on_disk_are_said_to(whole, capsys):
    _, folder = whole
    rows = study(folder, ["masked"], runs=4 * RUNS)
    assert {row["runs"] for row in rows} == {RUNS}
    assert "--runs" in capsys.readouterr().err


@pytest.mark.slow
def test_the_number_of_runs_follows_the_noise(tmp_path, monkeypatch):
    """Without --runs: at least the least, at most the most, and more where the noise is large."""
    problem = next(p for p in all_problems(True, 0, 0, None) if p.name == "table5-end")
    plan = dataclasses.replace(QUICK, budgets=(8, 400), runs=None, least=32, most=160, cell_seconds=60.0)
    monkeypatch.setattr("time.process_time", lambda: 0.0)  # a run costs nothing, whatever the machine
    rows = FidelityStudy(tmp_path, plan).run([problem], choose(["masked", "swor"]))
    found = {(row["sampler"], row["budget"]): row["runs"] for row in rows}
    assert all(32 <= runs <= 160 and runs % CHUNKS == 0 for runs in found.values())
    assert found["swor", 8] > found["swor", 400]


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="chain5-word"):
        run(tmp_path, quick=True, problems=["nonsense"])
    with pytest.raises(InvalidArgument, match="masked"):
        run(tmp_path, quick=True, problems=["table5-end"], samplers=["nonsense"])
