"""The page on text constraints: its table names every function."""

from __future__ import annotations

import re
from pathlib import Path

import locore

PAGE = Path(__file__).resolve().parents[2] / "docs" / "text_constraints.md"


def test_the_table_has_all_functions():
    named = set(re.findall(r"`(\w+)\(", PAGE.read_text().split("## Words")[0]))
    kinds = {kind for kind in dir(locore.constraints) if hasattr(getattr(locore.constraints, kind), "kind")}
    assert {getattr(locore.constraints, name).kind for name in kinds} <= named
