"""The page on masks and the compile cache: its tables are those of the committed results."""

from __future__ import annotations

from pathlib import Path

from locore.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "lab" / "performance.md").read_text()


def test_the_tables_are_those_of_the_results():
    assert PAGE.count("<!-- end -->") > 5
    assert main(["bench", "text-tables", "--check"]) == 0, "run `locore bench text-tables`"
