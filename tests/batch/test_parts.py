"""What an attempt leaves behind: torn at any byte, it loses no row and doubles none."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locore.batch.plan import Part, Span, parts_folder, results_folder, results_path, tally_of
from locore.kernel.errors import InvalidArgument

SPAN = Span(number=3, first=31, rows=5, start=0, end=0, digest="")
ROWS = [{"line": 31 + i, "verdict": "trust", "lm_tokens": i, "seconds": 0.5, "texts": ["é" * i]} for i in range(5)]
ROWS[2] = {"line": 33, "error": {"type": "InvalidArgument", "message": "x"}, "seconds": 0.5}


@pytest.fixture
def output(tmp_path):
    return emptied(tmp_path / "out")


@pytest.fixture(scope="module")
def one_output(tmp_path_factory):
    return tmp_path_factory.mktemp("parts") / "out"


def emptied(output):
    shutil.rmtree(output, ignore_errors=True)
    for folder in (parts_folder(output), results_folder(output)):
        folder.mkdir(parents=True)
    return output


def attempt(output, run="run", rows=5) -> Part:
    """One that goes on until there are so many rows."""
    with Part(output, SPAN, run) as part:
        for row in ROWS[part.adopted : rows]:
            part.append(row)
    return part


def finished(output):
    with Part(output, SPAN, "last") as part:
        for row in ROWS[part.adopted :]:
            part.append(row)
        report = part.finish()
    return [json.loads(line) for line in results_path(output, 3).read_bytes().splitlines()], report


@given(
    rows=st.lists(st.integers(0, 5), max_size=4),
    cut=st.integers(0, 40),
    junk=st.sampled_from([b"", b"\0" * 7, b'{"line":', b'{"line": 99}\n', b"[]\n", b"\xff\n"]),
)
def test_attempts_that_were_torn_anywhere(one_output, rows, cut, junk):
    output = emptied(one_output)
    for number in rows:
        path = attempt(output, f"run{number}", number).path
        content = path.read_bytes()
        path.write_bytes(content[: max(0, len(content) - cut)] + junk)
    found, report = finished(output)
    assert found == ROWS
    assert report["rows"] == 5 and report["failed"] == 1 and report["lm_tokens"] == 8
    assert report["bytes"] == results_path(output, 3).stat().st_size
    assert list(parts_folder(output).iterdir()) == []
    assert tally_of(results_path(output, 3), SPAN) == {key: value for key, value in report.items() if key != "bytes"}


def test_whole_rows_are_not_computed_again(output):
    attempt(output, rows=3)
    with Part(output, SPAN, "other") as part:
        assert (part.adopted, part.tally.rows, part.tally.failed) == (3, 3, 1)


def test_deaths_are_counted_at_one_row_of_one_run(output):
    attempt(output, "old", 2)
    counts = []
    for rows in (2, 2, 2, 4, 4):
        with Part(output, SPAN, "new") as part:
            counts.append(part.deaths)
            for row in ROWS[part.adopted : rows]:
                part.append(row)
    assert counts == [0, 1, 2, 3, 1]


def test_two_attempts_at_once_leave_one_whole_file(output):
    with Part(output, SPAN, "a") as slow:
        for row in ROWS[:2]:
            slow.append(row)
        with Part(output, SPAN, "a") as fast:
            for row in ROWS[fast.adopted :]:
                fast.append(row)
            fast.finish()
        for row in ROWS[2:]:
            slow.append(row)
        slow.finish()
    assert [json.loads(line) for line in results_path(output, 3).read_bytes().splitlines()] == ROWS


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_said(output):
    part = Part(output, SPAN, "run")
    part._file.close()
    part._file = open("/dev/full", "wb")  # noqa: SIM115
    with pytest.raises(InvalidArgument, match=r"No space left.*--resume"):
        part.append(ROWS[0])
    part._file.raw.close()


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-1], lambda b: b + b"\n", lambda b: b.replace(b'"line":32', b'"line":33'), lambda b: b""]
)
def test_a_damaged_file_of_results_is_known(output, spoil):
    finished(output)
    path = results_path(output, 3)
    assert tally_of(path, SPAN) is not None
    path.write_bytes(spoil(path.read_bytes()))
    assert tally_of(path, SPAN) is None
