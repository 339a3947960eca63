"""What is released says the same everywhere: versions, dependencies, and what users are told first."""

from __future__ import annotations

import re
import tomllib

import locore
from tests.pages import ROOT

PROJECTS = [tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in ("", "lab")]


def test_the_version_is_the_same_everywhere():
    assert {project["version"] for project in PROJECTS} == {locore.__version__}
    assert f"\nversion: {locore.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {locore.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_every_dependency_says_why_it_is_there():
    asked = set()
    for project in PROJECTS:
        extras = project["optional-dependencies"].values()
        for requirement in [*project["dependencies"], *(each for extra in extras for each in extra)]:
            asked.add(re.match(r"[\w-]+", requirement)[0])
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", (ROOT / "DEPENDENCIES.md").read_text(), re.MULTILINE)
    named = {name for row in rows for cell in row for name in cell.split(", ")}
    assert asked - named == {"locore"}  # the extras of Locore itself


def test_the_changelog_begins_with_what_to_change():
    newest = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    assert newest.split("\n### ")[1].startswith("Change in your code first\n")
    assert len(newest.split()) < 500


def test_the_package_is_typed():
    assert (ROOT / "src" / "locore" / "py.typed").exists()
