"""The page on combinatorial constraints: its table is that of the committed results."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "lab" / "constraints.md").read_text()


def test_the_numbers_of_solutions_are_those_of_the_results():
    rows = json.loads((ROOT / "lab" / "results" / "combinatorial.json").read_text())["rows"]
    found = [row for row in rows if row["way"] == "search" and "models" in row]
    assert len(found) > 8
    for row in found:
        line = next(line for line in PAGE.splitlines() if line.startswith(f"| {row['case']} |"))
        assert f"{row['nodes']:,} / {row['edges']:,}" in line
