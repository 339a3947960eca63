"""What the README and the other pages say can be done, can be done."""

from __future__ import annotations

import json
import re
from weakref import WeakKeyDictionary

import pytest

import locore
import locore.constraints  # registers its types before a page is there to forget them
from locore.kernel.constraints import serial
from locore.models import hardware
from locore.samplers.twist import ngram
from tests.chatting import talking
from tests.effort import THOROUGH
from tests.pages import DOCS, MARKS, PAGES, ROOT, blocks, name_of, run_page

# Pages that need more than a folder to run, and the test that runs them.
ELSEWHERE = {DOCS / "server.md": "tests/server/test_page.py", DOCS / "batch.md": "tests/batch/test_page.py"}
RUNNING = [page for page in PAGES if page not in ELSEWHERE and any(block.runs for block in blocks(page))]
SHOWS_NO_TEXT = {ROOT / "README.md", DOCS / "index.md", DOCS / "models.md"}  # of SmolLM2
LONG = {DOCS / "lab" / "paper.md", DOCS / "tutorial.md", DOCS / "recipes.md", DOCS / "structured_text.md"}


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] * (page in LONG), id=name_of(page)) for page in RUNNING]
)
def test_the_blocks_run_and_print_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # What a page registers is forgotten again.
    monkeypatch.setattr(serial, "_KINDS", dict(serial._KINDS))
    monkeypatch.setattr(locore.samplers.BY_NAME, "_samplers", dict(locore.samplers.BY_NAME._samplers))
    # Seconds buy the same on any machine: on a busy one two would not pay for a text.
    monkeypatch.setattr(hardware, "_paces", WeakKeyDictionary())
    monkeypatch.setattr(hardware, "_measured", lambda model: hardware.Pace(*((0.002, 0.0002) if THOROUGH else (0.02, 0.002))))
    (tmp_path / "constraint.json").write_text(json.dumps(locore.contains(" sun").to_json()))
    # SmolLM2 takes a minute for the first page; `make test-slow` waits for it. Some pages show what it alone prints.
    small = page in SHOWS_NO_TEXT and not THOROUGH
    folder = str(talking(tmp_path / "small")) if small else "smollm2"
    if not THOROUGH:
        monkeypatch.setattr(ngram.prepare, "__defaults__", (500, None))  # `locore prepare` makes a small table
    run_page(page, lambda code: code.replace('load("smollm2")', f"load({folder!r})"))


def test_pages_that_run_elsewhere_do():
    for page in ELSEWHERE.keys() & set(PAGES):
        assert page.name in (ROOT / ELSEWHERE[page]).read_text()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page):
    """A fence without a language, or with a mark that nobody reads, would pass unnoticed."""
    text, found = page.read_text(), list(blocks(page))
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(found)
    assert {block.language for block in found} <= {"python", "sh", "text", "json"}
    assert all(block.mark.startswith(MARKS) for block in found if block.mark)


def test_the_helper_sees_wrong_pages(tmp_path, monkeypatch):
    """The laws above would also hold if nothing were run or compared."""
    monkeypatch.setattr("tests.pages.ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    for wrong, error in {
        "```python\nassert False\n```\n": AssertionError,
        "```python\nprint(1)\n```\n\n```text\n2\n```\n": AssertionError,
        "```sh\nmake test\n```\n": AssertionError,
        '```sh\nlocore check --constraint \'{"type": "true"}\' --text a --nonsense\n```\n': AssertionError,
        "<!-- needs: locore -->\n```python\nunknown\n```\n": NameError,
    }.items():
        page.write_text(wrong)
        with pytest.raises(error):
            run_page(page)
    page.write_text("<!-- needs: no.such.module -->\n```python\nunknown\n```\n\n<!-- not run: a test -->\n```sh\nmake\n```\n")
    assert run_page(page) == ""


def test_the_make_targets_that_pages_name_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE)}
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        assert link.startswith("https://") or (page.parent / link).exists() or (page.parent / f"{link}.md").exists(), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_that_pages_name_exist(page):
    for path in re.findall(r"`((?:tests|docs|src|lab)/[\w/.]*)`", page.read_text()):
        assert (ROOT / path).exists(), path
