"""The page on text constraints: its examples run, and print what it says."""

from __future__ import annotations

import re
from pathlib import Path

import locore

PAGE = Path(__file__).resolve().parents[2] / "docs" / "text_constraints.md"


def test_the_examples_run_and_print_what_the_page_says(capsys):
    page = PAGE.read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    exec(compile(code, PAGE.name, "exec"), {})
    (printed,) = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert capsys.readouterr().out == printed


def test_the_table_has_all_functions():
    named = set(re.findall(r"`(\w+)\(", PAGE.read_text().split("## Words")[0]))
    kinds = {kind for kind in dir(locore.constraints) if hasattr(getattr(locore.constraints, kind), "kind")}
    assert {getattr(locore.constraints, name).kind for name in kinds} <= named
