"""Rows of long runs and whole files: what was written is there once, whatever happened to the process that wrote it."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal

import pytest
from locore_lab.harness import markdown_table, write_report

from locore.io import Journal, only_writer, replacing, write_whole
from locore.kernel.errors import InvalidArgument

SETTINGS = {"seed": 0, "sizes": (1, 2)}


def test_rows_are_read_back(tmp_path):
    journal = Journal(tmp_path / "new" / "rows.jsonl", SETTINGS)
    journal.append(("model", 1), {"exact": 0.5, "text": "é\n"})
    again = Journal(tmp_path / "new" / "rows.jsonl", SETTINGS)
    assert ("model", 1) in again and ("model", 2) not in again
    assert dict(again.items()) == dict(journal.items()) == {("model", 1): {"exact": 0.5, "text": "é\n"}}
    assert again["model", 1]["exact"] == 0.5


def test_a_row_is_never_doubled(tmp_path):
    journal = Journal(tmp_path / "rows.jsonl", SETTINGS)
    journal.append((1,), {})
    with pytest.raises(InvalidArgument, match="already"):
        journal.append((1,), {})


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_half_a_line_is_measured_again(tmp_path, cut):
    path = tmp_path / "rows.jsonl"
    journal = Journal(path, SETTINGS)
    journal.append((1,), {"value": "x" * 40})
    journal.append((2,), {"value": "x" * 40})
    path.write_bytes(path.read_bytes()[:-cut])
    again = Journal(path, SETTINGS)
    assert [key for key, _ in again.items()] == [(1,)]
    again.append((2,), {"value": "y"})
    assert Journal(path, SETTINGS)[(2,)] == {"value": "y"}


def test_half_a_header_is_written_again(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"sett')
    assert list(Journal(path, SETTINGS).items()) == []
    assert list(Journal(path, SETTINGS).items()) == []


def test_other_settings_are_refused(tmp_path):
    Journal(tmp_path / "rows.jsonl", SETTINGS)
    with pytest.raises(InvalidArgument, match=r"seed is 0 there and 1 now.*choose another folder"):
        Journal(tmp_path / "rows.jsonl", {**SETTINGS, "seed": 1})


@pytest.mark.parametrize("content", ["[1]\n", "no json\n", '{"key": [1]}\n', "\xff\n"])
def test_what_is_no_journal_is_refused(tmp_path, content):
    (tmp_path / "rows.jsonl").write_text(content, encoding="latin-1")
    with pytest.raises(InvalidArgument, match=r"rows\.jsonl"):
        Journal(tmp_path / "rows.jsonl", SETTINGS)


def _write_until_killed(path):
    journal = Journal(path, SETTINGS)
    number = len(dict(journal.items()))
    while True:
        journal.append((number,), {"value": number})
        number += 1


def test_nothing_is_lost_when_the_writer_is_killed(tmp_path):
    path = tmp_path / "rows.jsonl"
    for _ in range(3):
        before = path.stat().st_size if path.exists() else 0
        writer = multiprocessing.get_context("fork").Process(target=_write_until_killed, args=(path,))
        writer.start()
        while not path.exists() or path.stat().st_size < before + 2000:
            assert writer.is_alive()
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        keys = [key for key, _ in Journal(path, SETTINGS).items()]
        assert keys == [(number,) for number in range(len(keys))]


def test_two_runs_do_not_share_a_folder(tmp_path):
    with only_writer(tmp_path), pytest.raises(InvalidArgument, match="another run"), only_writer(tmp_path):
        pass
    with only_writer(tmp_path):  # and when the first has ended, the next may
        pass


def test_a_report_is_a_table_and_all_fields(tmp_path):
    rows = [{"row": "model", "exact": 62.0, "seconds": 0.01234, "more": [1]}, {"row": "exact", "exact": None}]
    write_report(tmp_path, "Title", "What it is.", rows, ["row", "exact", "seconds"], settings=SETTINGS)
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["rows"] == rows and record["settings"]["seed"] == 0 and "cpu" in record["machine"]
    table = (tmp_path / "table.md").read_text()
    assert table.startswith("# Title\n\nWhat it is.\n\n| row | exact | seconds |\n")
    assert table.endswith("| model | 62.00 | 0.0123 |\n| exact | – | – |\n")
    assert markdown_table([], ["a"]) == "| a |\n| --- |"


def test_a_file_is_replaced_whole_or_stays(tmp_path):
    path = tmp_path / "a.txt"
    write_whole(path, "old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as temporary:
        temporary.write_text("half of")
        assert path.read_text() == "old"
        raise KeyboardInterrupt
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    for synced in (True, False):
        with replacing(path, synced) as temporary:
            temporary.write_text(f"new {synced}")
        assert path.read_text() == f"new {synced}" and list(tmp_path.iterdir()) == [path]


def _replace_until_killed(path):
    for turn in itertools.count():
        write_whole(path, str(turn % 10) * 100_000)


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    path = tmp_path / "a.txt"
    write_whole(path, "x" * 100_000)
    for _ in range(3):
        writer = multiprocessing.get_context("fork").Process(target=_replace_until_killed, args=(path,))
        before = path.read_text()
        writer.start()
        while path.read_text() == before:
            assert writer.is_alive()
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        content = path.read_text()
        assert len(content) == 100_000 and len(set(content)) == 1
