"""`locore bench patterns`: what it counts, and that it can find a fault."""

from __future__ import annotations

import pytest
from locore_lab.bench import patterns

from locore.kernel.errors import InvalidArgument

TRIED = {r"a+b?": patterns.REGULAR, r"(a|b)\1": patterns.FEW, r"(.)-\1": patterns.FOLLOWED, r"(?=(a))\1": patterns.REFUSED}


@pytest.mark.parametrize(("pattern", "kind"), TRIED.items())
def test_how_a_pattern_is_taken(pattern, kind):
    row = patterns.judged(pattern, 15)
    assert row["kind"] == kind
    if kind != patterns.REFUSED:
        assert row["accepted"] > 0 and row["wrong"] == []


def test_a_fault_is_found():
    """Texts of one pattern, judged by another."""
    reader = patterns.machine(patterns.taken_as("a+"))
    assert patterns.disagreements("a{1,2}", reader, 20)[2]


def test_only_the_file_that_was_measured(tmp_path):
    with pytest.raises(InvalidArgument, match="get it: clone https://github"):
        patterns.patterns(tmp_path)
    path = tmp_path / "assets" / "pattern_matching" / "patterns.csv"
    path.parent.mkdir(parents=True)
    path.write_text("regex\na+\n")
    with pytest.raises(InvalidArgument, match=r"patterns\.csv is another version than the one that was measured"):
        patterns.patterns(tmp_path)
