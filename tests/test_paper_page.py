"""The page on the paper: what it names and cites exists, every equation and line of an algorithm is there, and has its test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module

import pytest

import locore
from tests.pages import DOCS, ROOT

PAGE = (DOCS / "lab" / "paper.md").read_text()
NAMES = sorted(set(re.findall(r"`(locore(?:\.\w+)+)", PAGE)))
CITED = sorted(set(re.findall(r"`((?:tests|lab/lab_tests)/[\w/]+\.py)(?:::(\w+))?`", PAGE)))
SECTIONS = {title: text for title, text in re.findall(r"^##+ (.+)\n((?:(?!^##).*\n)*)", PAGE, re.MULTILINE)}
BAR = re.compile(r"(?<!\\)\|")


def rows(section: str) -> Iterator[dict[str, str]]:
    """The lines of a table by the names of its columns."""
    header, _, *lines = (line for line in SECTIONS[section].splitlines() if line.startswith("|"))
    names = [cell.strip() for cell in BAR.split(header)[1:-1]]
    for line in lines:
        yield dict(zip(names, (cell.strip() for cell in BAR.split(line)[1:-1]), strict=True))


TABLES = [title for title, text in SECTIONS.items() if "| test |" in text]


@pytest.mark.parametrize("name", NAMES)
def test_the_name_can_be_reached(name):
    found: object = locore
    for depth, part in enumerate(name.split(".")[1:], start=1):
        if not hasattr(found, part):
            import_module(".".join(name.split(".")[: depth + 1]))
        found = getattr(found, part)


@pytest.mark.parametrize(("path", "name"), CITED, ids=lambda part: part)
def test_the_cited_test_exists(path, name):
    assert re.search(rf"^def {name}\(" if name else "^def test_", (ROOT / path).read_text(), re.MULTILINE)


@pytest.mark.parametrize("title", TABLES)
def test_every_row_says_which_test_holds_it(title):
    known = False
    for row in rows(title):
        known |= "::test_" in row["test"]
        assert "::test_" in row["test"] or row["test"] == "–" or (known and row["test"] == "the same"), row


def test_all_of_the_paper_is_there():
    assert len(NAMES) > 40 and len(CITED) > 50
    equations = [row["paper"] for row in rows("Equations")]
    assert [each for each in equations if each[0] == "("] == [f"({number})" for number in range(1, 9)]
    for title, last in (("Algorithm 1", 8), ("Algorithm 2", 9)):
        lines = [int(line) for row in rows(title) for line in row["line"].split(", ")]
        assert lines == list(range(1, last + 1))
    assert [len([*rows(title)]) for title in SECTIONS if title.startswith("Table ")] == [3, 3, 3]
    figures = [row["paper"] for row in rows("Claims, figures and the listing")]
    assert {each.split(",")[0] for each in figures if each.startswith("Figure")} == {"Figure 1", "Figure 2"}
