"""What a reader has to read: the README is one screen, the user's path is bounded, and each page says whom it is for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import DOCS, ROOT, name_of

NAVIGATION = (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]
PATH, LAB = (re.findall(r"[\w/]+\.md", part) for part in NAVIGATION.split("  - Lab:"))
GENERATED = {"tour.md", "changelog.md"}  # from the notebook and CHANGELOG.md: see docs/hooks.py
PAGES = [DOCS / name for name in [*PATH, *LAB] if name not in GENERATED]
DIRECTIVE = re.compile(r"^::: .*\n(?: {4}.*\n)*", re.MULTILINE)  # where the site puts a docstring


def words(page: Path) -> int:
    """All words of a page, those of code and tables too."""
    return len(DIRECTIVE.sub("", page.read_text()).split())


def test_the_readme_is_one_screen():
    assert words(ROOT / "README.md") < 700


def test_the_path_of_a_user_is_bounded():
    found = {name: words(DOCS / name) for name in PATH if name not in GENERATED}
    assert len(found) > 30
    assert sum(found.values()) <= 30_000, sorted(found.items(), key=lambda item: -item[1])


def test_every_page_is_on_the_path_or_in_the_lab():
    assert sorted(PAGES) == sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_begins_with_its_reader(page):
    assert re.match(r"# .+\n\nFor (?:everyone|readers|those|whoever)\b", page.read_text())
