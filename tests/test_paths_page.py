"""The page on paths: its examples run, and print what it says."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "paths.md"


def test_the_examples_run_and_print_what_the_page_says(capsys):
    page = PAGE.read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    exec(compile(code, PAGE.name, "exec"), {})
    (printed,) = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert capsys.readouterr().out == printed
