"""What the README and the other pages say can be done, can be done."""

from __future__ import annotations

import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

import locore
from locore.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")] + sorted((ROOT / "docs").glob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced code of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def test_the_python_of_the_readme_runs(capsys):
    code = "\n".join(blocks(ROOT / "README.md", "python"))
    assert "locore.generate" in code
    exec(compile(code, "README.md", "exec"), {})
    assert "log p(α)" in capsys.readouterr().out


def test_the_commands_of_the_readme_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "constraint.json").write_text(json.dumps(locore.contains(" sun").to_json()))
    lines = [line for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines() if line.startswith("locore ")]
    codes = {}
    for line in lines:
        command = shlex.split(line, comments=True)[1:]
        codes[command[0]] = main(command)
        assert capsys.readouterr().err == ""
    assert codes == {"generate": 0, "check": 0, "compile": 0, "prepare": 0}
    assert (tmp_path / "circuit.dot").read_text().startswith("digraph")


def test_the_make_targets_that_pages_name_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE)}
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert link.startswith("https://") or (page.parent / link).exists() or (page.parent / f"{link}.md").exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_that_pages_name_exist(page):
    for path in re.findall(r"`((?:tests|docs|src|experiments|benchmarks)/[\w/.]*)`", page.read_text()):
        assert (ROOT / path).exists(), path


def test_names_in_the_table_of_the_method_exist():
    """Every `locore.…` name in docs/method.md can be reached."""
    names = set(re.findall(r"`(locore(?:\.\w+)+)", (ROOT / "docs" / "method.md").read_text()))
    assert len(names) > 5
    for name in names:
        found: object = locore
        for depth, part in enumerate(name.split(".")[1:], start=1):
            if not hasattr(found, part):
                import_module(".".join(name.split(".")[: depth + 1]))
            found = getattr(found, part)
