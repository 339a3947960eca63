"""`locore bench fidelity` from the shell, at a tiny size."""

from __future__ import annotations

import json

import pytest

from locore.cli import main


def small(*names):
    return [argument for name in names for argument in ("--sampler", name)]


@pytest.mark.slow
def test_the_shell_command_measures_and_prints_the_table(tmp_path, capsys):
    arguments = ["--problem", "table5-end", "--problem", "chain5-word", *small("smc", "twisted + table"), "--runs", "16"]
    assert main(["bench", "fidelity", "--quick", "-o", str(tmp_path), *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.out == (tmp_path / "table.md").read_text() + "\n"
    assert "log Z" in printed.err  # progress
    record = json.loads((tmp_path / "results.json").read_text())
    cells = {(row["problem"], row["sampler"], row["budget"]) for row in record["rows"]}
    assert cells == {(p, s, b) for p in ("table5-end", "chain5-word") for s in ("smc", "twisted + table") for b in (80, 400)}
    assert record["tables"]["markov:48:1:0.1"]["lm_tokens"] >= 4000
    assert all(0 < row["lm_contexts"] <= row["lm_tokens"] <= row["budget"] for row in record["rows"])
    assert all(0 <= row["tv"] <= 1 and row["violating"] == 0 for row in record["rows"])
    assert str(tmp_path) not in (tmp_path / "results.json").read_text()  # no paths of this machine


def test_unknown_names_are_wrong_usage(tmp_path, capsys):
    assert main(["bench", "fidelity", "--quick", "-o", str(tmp_path), "--problem", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_budgets_and_plots(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    arguments = [
        "--quick",
        "--problem",
        "table5-end",
        *small("masked", "swor"),
        "--budget",
        "12",
        "--budget",
        "40",
        "--runs",
        "16",
    ]
    assert main(["bench", "fidelity", "-o", str(tmp_path), *arguments]) == 0
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [(row["sampler"], row["budget"]) for row in rows] == [(s, b) for s in ("masked", "swor") for b in (12, 40)]
    plots = {path.name for path in (tmp_path / "plots").iterdir()}
    assert plots == {"overview.svg", "table5-end.svg"}
