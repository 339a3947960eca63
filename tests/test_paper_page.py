"""The page on the paper: every name in it exists, and every equation and line of an algorithm is there."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

import locore
from tests.pages import DOCS

PAGE = (DOCS / "paper.md").read_text()
NAMES = sorted(set(re.findall(r"`(locore(?:\.\w+)+)", PAGE)))


@pytest.mark.parametrize("name", NAMES)
def test_the_name_can_be_reached(name):
    found: object = locore
    for depth, part in enumerate(name.split(".")[1:], start=1):
        if not hasattr(found, part):
            import_module(".".join(name.split(".")[: depth + 1]))
        found = getattr(found, part)


def test_all_of_the_paper_is_there():
    assert len(NAMES) > 20
    assert re.findall(r"^\| \((\d)\) \|", PAGE, re.MULTILINE) == list("12345678")
    lines = PAGE.split("## Algorithm 1")[1]
    first, second = (re.findall(r"^\| ([\d, ]+) \|", part, re.MULTILINE) for part in lines.split("## Algorithm 2")[:2])
    assert [int(line) for row in first for line in row.split(", ")] == [3, 4, 5, 6, 7]
    assert sorted(int(line) for row in second for line in row.split(", ")) == [3, 4, 5, 6, 7, 8, 9]
