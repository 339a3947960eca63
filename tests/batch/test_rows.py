"""What a row may say, what becomes of it, and what its seed depends on."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locore.batch.rows import check_fields, encode, read_object, seed_of
from locore.kernel.errors import InvalidArgument, LocoreError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OPTIONAL = {"id": st.integers() | st.text(), "num_particles": st.integers(1, 9)}
ROW = st.fixed_dictionaries({"prompt": st.text()}, optional=OPTIONAL)

BAD = {
    b"": "empty",
    b"  \r": "empty",
    b"[1]": "no JSON object",
    b"3": "no JSON object",
    b"{": "column 2",
    b'{"prompt": "a", "prompt": "b"}': "'prompt' stands twice",
    b'{"prompt": NaN}': "NaN",
    b'{"prompt": 1e999}': "too large",
    b'{"prompt": ' + b"9" * 5000 + b"}": "digits",
    b"[" * 100_000: "deep",
    b'{"prompt": "\xff"}': "no UTF-8",
    b'\xef\xbb\xbf{"prompt": "a"}': "no JSON",
    b'{"id": 3}': "needs a field 'prompt'",
    b'{"prompt": null}': "needs a field 'prompt'",
    b'{"prompt": {"a": 1}}': "needs a field 'prompt'",
    b'{"prompt": "a", "id": [1]}': "the id must be",
    b'{"prompt": "a", "id": true}': "the id must be",
    b'{"prompt": "a", "num_particle": 3}': "'num_particle', which is not known",
    b'{"prompt": "a", "model": "tiny"}': "'model', which is not known",
}


@pytest.mark.parametrize("line", BAD, ids=lambda line: repr(line[:30]))
def test_bad_rows_are_refused_with_a_reason(line):
    with pytest.raises(LocoreError, match=BAD[line]):
        check_fields(read_object(line))


def test_very_long_rows_are_refused(monkeypatch):
    monkeypatch.setattr("locore.batch.rows.MAX_ROW_BYTES", 20)
    with pytest.raises(InvalidArgument, match="more than 20 bytes"):
        read_object(b'{"prompt": "0123456789"}')


@given(row=ROW, meta=JSON, run=st.integers(0, 2**40))
def test_the_seed_depends_on_the_run_and_the_content_alone(row, meta, run):
    seed = seed_of(run, row)
    assert 0 <= seed < 2**32
    assert seed == seed_of(run, {**dict(reversed(row.items())), "meta": meta})
    changed = {**row, "prompt": row["prompt"] + "."}
    assert seed not in (seed_of(run + 1, row), seed_of(run, changed), seed_of(run, {**row, "id": 1.5}))


@given(record=st.dictionaries(st.text(st.characters(), max_size=5), JSON | st.text(st.characters(codec=None)), max_size=4))
def test_a_record_is_one_line(record):
    line = encode(record)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert json.loads(line) == record


def test_half_a_surrogate_pair_is_written_too():
    assert json.loads(encode({"id": "\ud800é"}).decode("utf-8")) == {"id": "\ud800é"}
