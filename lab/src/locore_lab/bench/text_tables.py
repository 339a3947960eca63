"""Writes the tables of docs/lab/performance.md and docs/lab/succinctness.md from the committed results, or checks them."""

import json
import re
from collections.abc import Callable
from itertools import groupby
from typing import Annotated

import typer

from locore_lab.bench import ban_lists, masks, steps, succinctness
from locore_lab.harness import Row, markdown
from locore_lab.shared import REPOSITORY, RESULTS

PAGES = [REPOSITORY / "docs" / "lab" / name for name in ("performance.md", "succinctness.md")]


def walks(rows: list[Row]) -> str:
    """A table for each case, in which rows are named after engines."""
    parts = []
    for (tokens, case), found in groupby(_not_batches(rows), lambda row: (row["tokens"], row["case"])):
        head, line, *lines = masks.run.table([row for row in found]).splitlines()
        own = [re.sub(rf"^\| (.*?), {re.escape(case)}, [\d,]+ \|", r"| \1 |", each) for each in lines]
        parts.append("\n".join([head.replace("engine, case, tokens", f"{case}, {tokens:,} tokens"), line, *own]))
    return "\n\n".join(parts)


def applied(rows: list[Row]) -> str:
    """Microseconds to put a mask on logits: the least and the most over the cases."""
    head, lines = ["tokens", "locore", "llguidance", "xgrammar", "outlines-core"], []
    for tokens in dict.fromkeys(row["tokens"] for row in rows):
        cells = []
        for engine in head[1:]:
            here = [row for row in _not_batches(rows) if (row["tokens"], row["engine"]) == (tokens, engine)]
            known = [row["apply_median_us"] for row in here if "apply_median_us" in row]
            cells.append(f"{min(known):.0f}–{max(known):.0f}")
        lines.append([f"{tokens:,}", *cells])
    return markdown(head, lines)


def batches(rows: list[Row]) -> str:
    """Milliseconds of the masks after many prefixes."""
    return masks.run.table([row for row in rows if row.get("part") == "batch"])


def _not_batches(rows: list[Row]) -> list[Row]:
    return [row for row in rows if "part" not in row]


def ban_goals(rows: list[Row]) -> str:
    """What was asked of ban lists, against the worst of the lists."""
    asked = [(32_000, "compile_cpu_s", 3, 1), (128_000, "compile_cpu_s", 10, 4), (128_000, "peak_mb", 2000, 1000)]
    asked.append((128_000, "mass_and_sample_cpu_s", 1, 0.5))
    names = {"compile_cpu_s": "compile, s", "peak_mb": "peak memory, MB", "mass_and_sample_cpu_s": "32 masses and samples, s"}
    lines = []
    for tokens, name, limit, goal in asked:
        worst = max(row[name] for row in rows if row["vocabulary"] == tokens)
        verdict = "goal met" if worst <= goal else "within the limit" if worst <= limit else "**missed**"
        shown = f"{worst:,.0f}" if worst > 100 else f"{worst:.2f}"
        lines.append([f"{names[name]}, {tokens:,} tokens", f"{limit:,}", f"{goal:,}", shown, verdict])
    return markdown(["", "limit", "goal", "worst list", ""], lines)


TABLES: dict[str, tuple[Callable[[list[Row]], str], str]] = {
    "masks": (walks, "masks"),
    "apply": (applied, "masks"),
    "batches": (batches, "masks"),
    "ban lists": (ban_lists.run.table, "ban_lists"),
    "ban goals": (ban_goals, "ban_lists"),
    "steps": (steps.run.table, "steps"),
    "halves": (succinctness.of("equal halves"), "succinctness"),
    "hidden": (succinctness.of("hidden weighted bit"), "succinctness"),
}


def filled(page: str) -> str:
    """The page with every table between `<!-- name -->` and `<!-- end -->` made anew."""

    def made(found: re.Match[str]) -> str:
        kind, results = TABLES[found[1]]
        record = json.loads((RESULTS / f"{results}.json").read_text())
        return f"<!-- {found[1]} -->\n{kind(record['rows'])}\n<!-- end -->"

    return re.sub(r"<!-- ([^>]+?) -->\n(?:(?!<!--).)*?<!-- end -->", made, page, flags=re.DOTALL)


def run(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit code 1 if a page is not up to date.")] = False,
) -> None:
    """Write the tables of pages from the committed results, or say whether they are as they would be written."""
    for page in PAGES:
        old = page.read_text()
        new = filled(old)
        if check and old != new:
            print(f"{page.name} is not as the results are: locore bench text-tables")
            raise typer.Exit(1)
        if not check:
            page.write_text(new)
