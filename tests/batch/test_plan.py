"""Shards of any file: every line is in one of them, in order."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locore.batch import plan as module
from locore.batch.plan import Plan, lines_of
from locore.kernel.errors import InvalidArgument

CONTENT = st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\r", b"")), min_size=1, max_size=30).map(b"\n".join)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("plan") / "input.jsonl"


@given(content=CONTENT.filter(bool), shard_rows=st.integers(1, 9), chunk=st.integers(1, 50), skip=st.integers(0, 3))
def test_shards_are_the_lines_of_the_file(path, content, shard_rows, chunk, skip):
    path.write_bytes(content)
    lines = content.removesuffix(b"\n").split(b"\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        plan = Plan(path, shard_rows)
        spans = [plan[number] for number in range(len(plan))]
        found = [pair for span in spans for pair in lines_of(path, span, 0)]
        rest = [pair for span in spans for pair in lines_of(path, span, skip)]
    assert (plan.rows, plan.num_bytes) == (len(lines), len(content))
    assert found == list(enumerate(lines, 1))
    assert [span.rows for span in spans] == [len(lines[i : i + shard_rows]) for i in range(0, len(lines), shard_rows)]
    assert rest == [pair for pair in found if (pair[0] - 1) % shard_rows >= skip]
    assert Plan(path, shard_rows).digest == plan.digest


@given(content=CONTENT.filter(bool), place=st.integers(0), shard_rows=st.integers(1, 5))
def test_one_changed_byte_is_seen(path, content, place, shard_rows):
    path.write_bytes(content)
    before = Plan(path, shard_rows)
    spans = [before[number] for number in range(len(before))]
    at = place % len(content)
    changed = bytes([content[at] ^ 1])
    path.write_bytes(content[:at] + changed + content[at + 1 :])
    assert Plan(path, shard_rows).digest != before.digest
    with pytest.raises(InvalidArgument, match="was changed"):
        for span in spans:
            list(lines_of(path, span, 0))


def test_a_long_line_does_not_fill_the_memory(path, monkeypatch):
    monkeypatch.setattr(module, "MAX_ROW_BYTES", 10)
    path.write_bytes(b"0123456789\nabcdefghijklmnopqrstuvwxyz\n" + b"x" * 100)
    assert [line for _, line in lines_of(path, Plan(path, 5)[0], 0)] == [b"0123456789", b"abcdefghijk", b"x" * 11]


def test_too_many_shards_name_the_remedy(path, monkeypatch):
    monkeypatch.setattr(module, "MAX_SHARDS", 10)
    path.write_bytes(b"{}\n" * 1000)
    with pytest.raises(InvalidArgument, match="--shard-rows") as caught:
        Plan(path, 5)
    enough = int(re.search(r"about (\d+)", str(caught.value))[1])
    assert len(Plan(path, enough)) <= 10


def test_what_is_no_file_of_rows_is_refused(path, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    for wrong in (tmp_path, tmp_path / "nothing", tmp_path / "empty"):
        with pytest.raises(InvalidArgument, match="one JSON object a line"):
            Plan(wrong, 5)
