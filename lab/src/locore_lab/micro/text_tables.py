"""Writes the tables of docs/text_performance.md from the committed results.

python -m locore_lab.micro.text_tables [--check]
"""

import argparse
import json
import re
from typing import Any

from locore_lab.places import REPOSITORY, RESULTS

PAGE = REPOSITORY / "docs" / "text_performance.md"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown; the first column is text, the others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def microseconds(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def masks(record: dict[str, Any]) -> str:
    """Median and 95th percentile of each engine, the walks side by side."""
    head = ["", "first", "again", "cold", "`advance`", "alike", "compile, s"]
    parts = []
    for vocabulary in record["vocabularies"].values():
        for case, found in vocabulary["cases"].items():
            rows = []
            for engine, row in found["engines"].items():
                if "not_expressible" in row:
                    rows.append([engine, *["–"] * 6])
                    continue
                walks = [row[name] for name in ("first", "again", "cold")]
                cells = [f"{microseconds(w['mask_median_us'])} ({microseconds(w['mask_p95_us'])})" for w in walks]
                cells.append(microseconds(row["again"]["advance_median_us"]))
                cells.append(f"{row['alike']['equal']} of {row['alike']['masks']}")
                rows.append([engine, *cells, f"{row['compile_cpu_seconds']:.3f}"])
            parts.append(table([f"{case}, {vocabulary['tokens']:,} tokens", *head[1:]], rows))
    return "\n\n".join(parts)


def apply(record: dict[str, Any]) -> str:
    """Microseconds to put a mask on logits: the least and the most over the cases."""
    head, rows = ["tokens", "locore", "llguidance", "xgrammar", "outlines-core"], []
    for vocabulary in record["vocabularies"].values():
        cells = []
        for engine in head[1:]:
            found = [case["engines"][engine].get("apply_median_us") for case in vocabulary["cases"].values()]
            known = [value for value in found if value is not None]
            cells.append(f"{min(known):.0f}–{max(known):.0f}")
        rows.append([f"{vocabulary['tokens']:,}", *cells])
    return table(head, rows)


def batches(record: dict[str, Any]) -> str:
    """Milliseconds of the masks after many prefixes."""
    ways = ["circuit.allowed(prefixes)", "reader.allowed_tokens(position, states)", "stack_masks, first", "stack_masks, again"]
    head = ["", "tokens", "distinct states", *(f"`{way}`" if "(" in way else way for way in ways)]
    rows = []
    for vocabulary in record["vocabularies"].values():
        for case, row in vocabulary["batch_ms"].items():
            rows.append([case, f"{vocabulary['tokens']:,}", str(row["states"]), *(f"{row[way]:.2f}" for way in ways)])
    return table(head, rows)


def ban_lists(record: dict[str, Any]) -> str:
    """Building and querying long ban lists."""
    head = ["", "tokens", "phrases", "states", "compile, s", "peak memory, MB", "before compiling", "32 masses and samples, s"]
    rows = []
    for row in record["rows"]:
        cells = [row["case"], *(f"{row[name]:,}" for name in ("vocabulary", "phrases", "states"))]
        cells += [f"{row['compile_cpu_s']:.2f}", f"{row['peak_mb']:,.0f}", f"{row['peak_before_mb']:,.0f}"]
        rows.append([*cells, f"{row['mass_and_sample_cpu_s']:.2f}"])
    return table(head, rows)


def ban_goals(record: dict[str, Any]) -> str:
    """What was asked of ban lists, against the worst of the lists."""
    asked = [(32_000, "compile_cpu_s", 3, 1), (128_000, "compile_cpu_s", 10, 4), (128_000, "peak_mb", 2000, 1000)]
    asked.append((128_000, "mass_and_sample_cpu_s", 1, 0.5))
    names = {"compile_cpu_s": "compile, s", "peak_mb": "peak memory, MB", "mass_and_sample_cpu_s": "32 masses and samples, s"}
    rows = []
    for tokens, name, limit, goal in asked:
        worst = max(row[name] for row in record["rows"] if row["vocabulary"] == tokens)
        verdict = "goal met" if worst <= goal else "within the limit" if worst <= limit else "**missed**"
        shown = f"{worst:,.0f}" if worst > 100 else f"{worst:.2f}"
        rows.append([f"{names[name]}, {tokens:,} tokens", f"{limit:,}", f"{goal:,}", shown, verdict])
    return table(["", "limit", "goal", "worst list", ""], rows)


def steps(record: dict[str, Any]) -> str:
    """Twisted sampling outside the model."""
    head = ["constraint", "tokens", "particles", "a step, ms", "look-ahead, ms", "compile, ms"]
    rows = []
    for cell in record["cells"]:
        numbers = [f"{cell['vocabulary']:,}", str(cell["particles"]), f"{cell['step_ms']:.1f}"]
        rows.append([cell["constraint"], *numbers, f"{cell['look_ahead_ms']:,.0f}", f"{cell['compile_ms']:,.0f}"])
    return table(head, rows)


def cache(record: dict[str, Any]) -> str:
    """Seconds with and without the compile cache."""
    head = ["", "tokens", "compile", "compile and keep", "from disk", "from memory", "table, MB", "file, MB"]
    rows = []
    for row in record["cases"]:
        names = ("compile", "compile_and_keep", "from_disk", "from_memory")
        seconds = [f"{row[name]['cpu_seconds']:.4f}" for name in names]
        rows.append(
            [row["case"], f"{row['tokens']:,}", *seconds, f"{row['table_bytes'] / 1e6:.0f}", f"{row['file_bytes'] / 1e6:.1f}"]
        )
    return table(head, rows)


TABLES = {
    "masks": (masks, "masks"),
    "apply": (apply, "masks"),
    "batches": (batches, "masks"),
    "ban lists": (ban_lists, "ban_lists"),
    "ban goals": (ban_goals, "ban_lists"),
    "steps": (steps, "steps"),
    "cache": (cache, "compile_cache"),
}


def filled(page: str) -> str:
    """The page with every table between `<!-- name -->` and `<!-- end -->` made anew."""

    def made(found: re.Match[str]) -> str:
        kind, results = TABLES[found[1]]
        record = json.loads((RESULTS / f"{results}.json").read_text())
        return f"<!-- {found[1]} -->\n{kind(record)}\n<!-- end -->"

    return re.sub(r"<!-- (.+?) -->\n.*?<!-- end -->", made, page, flags=re.DOTALL)


def main() -> None:
    """Write the page, or say whether it is as it would be written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is not up to date")
    options = parser.parse_args()
    old = PAGE.read_text()
    new = filled(old)
    if options.check:
        raise SystemExit(int(old != new))
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
