"""The page on masks and the compile cache: its tables are those of the committed results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "text_performance.md").read_text()


def test_the_tables_are_those_of_the_results():
    assert PAGE.count("<!-- end -->") > 5
    command = [sys.executable, "-m", "locore_lab.micro.text_tables", "--check"]
    assert subprocess.run(command).returncode == 0, "run `python -m locore_lab.micro.text_tables`"
