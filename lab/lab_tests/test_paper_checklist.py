"""`locore reproduce all`: rows of the paper beside those of a run, failures that are told and stop nothing, runs that go on."""

from __future__ import annotations

import json
import re

import pytest
from locore_lab import paper_checklist
from locore_lab.paper_checklist import Experiment, PaperRow, papers, run_all
from locore_lab.shared import REPOSITORY

from locore.cli import main
from locore.kernel.errors import InvalidArgument

MOST_BYTES = 30e6


class Toy:
    """Runs that write a result, and are counted; the weights of what they trained are large."""

    def __init__(self):
        self.runs, self.broken = [], False

    def run(self, output, seed):
        self.runs.append(seed)
        if self.broken:
            raise RuntimeError("out of\nmemory | gone")
        (output / "model0").mkdir(parents=True)
        (output / "model0" / "weights").write_text("large")
        write(output, f"{seed}.5")


def write(folder, value):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps({"rows": [{"row": "LCR, k=2", "value": value}]}))


def read(results, row):
    (found,) = results["rows"]
    if not found["row"].startswith(row.here):
        raise InvalidArgument("no such row.")
    return found["value"]


def experiment(name, toy, committed, here="LCR"):
    row = PaperRow("Table 9", "+ LCR (ours)", here, "exact %", "78.13")
    return Experiment(name, (row,), read, toy.run, committed, ("model*",))


@pytest.fixture
def committed(tmp_path):
    write(tmp_path / "committed", "64.1")
    return tmp_path / "committed"


def test_each_row_has_the_papers_number_that_of_the_run_and_the_committed_one(tmp_path, committed):
    toy = Toy()
    found = run_all(tmp_path / "out", 7, [experiment("one", toy, committed), experiment("two", toy, tmp_path / "nothing")])
    assert "| Table 9 | + LCR (ours) | LCR | exact % | 78.13 | 7.5 | 64.1 |" in found.text
    assert "| 78.13 | 7.5 | – |" in found.text  # a checkout without the results
    assert found.text == (tmp_path / "out" / "checklist.md").read_text()
    assert not found.failed and toy.runs == [7, 7]
    assert not list((tmp_path / "out").rglob("model0"))


def test_what_fails_says_so_and_the_others_run(tmp_path, committed):
    broken, whole = Toy(), Toy()
    broken.broken = True
    both = [experiment("one", broken, committed), experiment("two", whole, committed)]
    found = run_all(tmp_path, 0, both)
    assert "| 78.13 | failed: RuntimeError: out of memory / gone | 64.1 |" in found.text
    assert found.failed == ("one",) and "Failed: one." in found.text and "| 0.5 |" in found.text
    broken.broken = False
    assert not run_all(tmp_path, 0, both).failed
    assert (broken.runs, whole.runs) == ([0, 0], [0])  # what was finished is not run again
    with pytest.raises(InvalidArgument, match="other settings"):
        run_all(tmp_path, 1, both)


def test_a_row_that_is_missing_is_a_failure(tmp_path, committed):
    found = run_all(tmp_path, 0, [experiment("one", Toy(), committed, "masking")])
    assert found.failed == ("one",) and "failed: InvalidArgument: no such row." in found.text


def test_the_command_prints_the_list_and_its_exit_code_tells_failures(tmp_path, committed, monkeypatch, capsys):
    toy = Toy()
    monkeypatch.setattr(paper_checklist, "papers", lambda: (experiment("one", toy, committed),))
    assert main(["reproduce", "all", "-o", str(tmp_path / "a")]) == 2 and not toy.runs
    assert main(["reproduce", "all", "--quick", "-o", str(tmp_path / "a")]) == 0
    assert (tmp_path / "a" / "checklist.md").read_text() in capsys.readouterr().out
    toy.broken = True
    assert main(["reproduce", "all", "--quick", "-o", str(tmp_path / "b")]) == 1


def test_the_repository_has_a_number_for_every_row_of_the_paper():
    tables = {"Table 1": 0, "Table 2": 0, "Table 3": 0}
    for each in papers():
        results = json.loads((each.committed / "results.json").read_text())
        for row in each.rows:
            assert each.read(results, row)
            if row.where in tables:
                tables[row.where] += 1
    assert tables == {"Table 1": 3, "Table 2": 3, "Table 3": 3}


def numbers(text):
    return [float(number) for number in re.findall(r"(?<![\w.])\d*\.?\d+", text)]


@pytest.mark.parametrize("table", ["Table 1", "Table 2", "Table 3"])
def test_the_page_has_these_numbers(table):
    """Those of the paper in their row, those of the committed results somewhere in the table."""
    (section,) = re.findall(
        rf"^### {table}.*\n((?:(?!^##).*\n)*)", (REPOSITORY / "docs" / "lab" / "paper.md").read_text(), re.MULTILINE
    )
    _, _, *lines = (line for line in section.splitlines() if line.startswith("|"))
    found = numbers("".join(lines))
    (rows,) = ([(each, row) for row in each.rows] for each in papers() if each.rows[0].where == table)
    for (each, row), line in zip(rows, lines, strict=True):
        assert set(numbers(line.split("|")[2])) == set(numbers(row.there))
        here = each.read(json.loads((each.committed / "results.json").read_text()), row)
        for number in numbers(here):
            assert number == 0 or any(abs(number - other) <= max(0.006, 0.002 * number) for other in found), (row.name, here)


@pytest.mark.slow
def test_all_of_the_paper_runs_at_toy_size_and_leaves_little(tmp_path):
    found = run_all(tmp_path)
    assert not found.failed and "failed" not in found.text.lower(), found.text
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < MOST_BYTES
