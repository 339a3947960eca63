"""Grading blind: texts under letters, a key apart from them, and the table that the grades give once the key is read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from locore.kernel.errors import InvalidArgument
from locore_lab.people.wishes import Wish
from locore_lab.people.written import TOOLS, read
from locore_lab.shared import seed_of

LETTERS = "ABCD"
GRADES = range(1, 6)
SLOWER = 3.0  # times masking's seconds that the default call may take
HEAD = """# Would one keep it?

For each letter a grade: 5 as it is, 4 with a small change, 3 as a draft, 2 a word or two of it, 1 not at all. A text that
does not do what was asked has 2 at most.
"""


def lay_out(folder: Path, wishes: Sequence[Wish], tools: Sequence[str], seeds: Sequence[int] = ()) -> None:
    """Write `sheet.md` without names, and `key.json` beside it, of the wishes and seeds that all tools have answered."""
    sheet, key = [HEAD], {}
    asked = {wish.name: wish.asked for wish in wishes}
    groups = _groups([row for row in read(folder / "texts.jsonl") if not seeds or row["seed"] in seeds], len(tools))
    for number, ((name, seed), answers) in enumerate(sorted(groups.items(), key=lambda each: seed_of("sheet", *each[0])), 1):
        order = sorted(tools, key=lambda tool: seed_of("letters", name, seed, tool))
        key[str(number)] = {"wish": name, "seed": seed, **dict(zip(LETTERS, order, strict=False))}
        sheet.append(f"## {number}\n\n{_quoted(asked[name])}\n")
        sheet += [
            f"**{letter}**\n\n```text\n{answers[tool]['text']}\n```\n" for letter, tool in zip(LETTERS, order, strict=False)
        ]
    (folder / "sheet.md").write_text("\n".join(sheet))
    (folder / "key.json").write_text(json.dumps(key, indent=1) + "\n")


def table_of(folder: Path) -> str:
    """What the grades in `grades.json` say: `{number: {letter: [grade, reason]}}`."""
    found = _by_wish(folder, TOOLS)
    rows = read(folder / "texts.jsonl")
    lines = list(_lines(found, rows))
    single = [sheet for sheets in found.values() for sheet in sheets]
    wins = sum(_is_best(sheets) for sheets in found.values())
    alone = sum(_is_best([sheet]) for sheet in single)
    means = ", ".join(f"{tool} {mean(sheet[tool] for sheet in single):.2f}" for tool in TOOLS)
    ratios = [_ratio(name, rows) for name in found]
    said = (
        f"Locore is preferred or equal in {wins} of {len(found)} wishes ({alone} of {len(single)} sheets). "
        f"Mean grades: {means}. "
        f"Its default call takes {median(ratios):.1f} times masking's seconds in the median, {min(ratios):.1f} to "
        f"{max(ratios):.1f}; at most {SLOWER:g} times in {sum(ratio <= SLOWER for ratio in ratios)}."
    )
    return "\n".join([*lines, "", said, ""])


def graded(folder: Path, tools: Sequence[str]) -> list[dict[str, int]]:
    """The grade of each tool, for each sheet."""
    return [sheet for sheets in _by_wish(folder, tools).values() for sheet in sheets]


def _by_wish(folder: Path, tools: Sequence[str]) -> dict[str, list[dict[str, int]]]:
    """The grades of each wish, by name of the tool."""
    key, grades = (json.loads((folder / name).read_text()) for name in ("key.json", "grades.json"))
    found: dict[str, list[dict[str, int]]] = {}
    for number, each in key.items():
        sheet = {}
        for letter in LETTERS[: len(tools)]:
            sheet[each[letter]] = grade = grades.get(number, {}).get(letter, [None])[0]
            if grade not in GRADES:
                raise InvalidArgument(f"text {letter} of sheet {number} has the grade {grade!r}; grades are 1 to 5.")
        found.setdefault(each["wish"], []).append(sheet)
    return found


def _lines(found: dict[str, list[dict[str, int]]], rows: list[dict[str, Any]]) -> Iterator[str]:
    kept_by = " | ".join(f"kept by {tool}" for tool in TOOLS)
    yield f"| wish | {kept_by} | {' | '.join(TOOLS)} | preferred | seconds, times masking's |"
    yield f"|---|{'---:|' * 2 * len(TOOLS)}---|---:|"
    for name, sheets in found.items():
        mine = [row for row in rows if row["wish"] == name]
        kept = [f"{sum(r['kept'] for r in mine if r['tool'] == tool)} of {len(sheets)}" for tool in TOOLS]
        notes = [", ".join(str(sheet[tool]) for sheet in sheets) for tool in TOOLS]
        yield f"| {' | '.join([name, *kept, *notes, _preferred(sheets), f'{_ratio(name, rows):.1f}'])} |"


def _preferred(sheets: Sequence[dict[str, int]]) -> str:
    """The tools with the best grades."""
    totals = {tool: sum(sheet[tool] for sheet in sheets) for tool in TOOLS}
    return ", ".join(tool for tool, total in totals.items() if total == max(totals.values()))


def _is_best(sheets: Sequence[dict[str, int]]) -> bool:
    return TOOLS[0] in _preferred(sheets).split(", ")


def _ratio(name: str, rows: list[dict[str, Any]]) -> float:
    """CPU seconds of Locore over those of masking."""
    spent = {tool: sum(row["cpu_seconds"] for row in rows if row["wish"] == name and row["tool"] == tool) for tool in TOOLS}
    return float(spent["Locore"] / spent["masking"])


def _groups(rows: list[dict[str, Any]], tools: int) -> dict[tuple[str, int], dict[str, Any]]:
    """By wish and seed, what each tool wrote, where all did."""
    groups: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        groups.setdefault((row["wish"], row["seed"]), {})[row["tool"]] = row
    return {each: answers for each, answers in groups.items() if len(answers) == tools}


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())
