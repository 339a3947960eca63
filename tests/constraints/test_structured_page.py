"""The page on regular expressions and JSON: its lists are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from locore.automata.regex import Budget
from locore.constraints import regex
from locore.constraints.json_schema.rules import ANNOTATIONS, ASSERTING
from locore.constraints.json_schema.style import CHOICES

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "structured_text.md").read_text()
MEASURED = (DOCS / "lab" / "constraints.md").read_text().split("## Sizes of patterns")[1].split("\n## ")[0]


def test_the_keywords_are_named():
    section = PAGE.split("## JSON schemas")[1].split("## Sizes")[0]
    assert {*ASSERTING, *ANNOTATIONS} - {"type"} <= set(re.findall(r"`([$\w]+)", section))
    for option, choices in CHOICES.items():
        assert f"`{option}`" in section
        assert all(f'`"{choice}"`' in section for choice in choices)


def test_the_sizes_are_right():
    rows = dict(re.findall(r"^\| .*?`(.+)` \| ([\d,]+) \|", MEASURED, re.MULTILINE))
    patterns = [pattern.replace("\\|", "|") for pattern in rows if "=" not in pattern and len(pattern) > 3]
    assert len(patterns) >= 4
    for pattern in patterns:
        states = int(rows[pattern.replace("|", "\\|")].replace(",", ""))
        assert regex(pattern).automaton().num_states == states


def test_the_limits_are_right():
    budget = Budget()
    assert f"{budget.positions:,} positions" in PAGE
    assert f"{budget.states:,} states over characters, {budget.byte_states:,} over bytes" in PAGE
