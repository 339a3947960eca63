"""`results.json` and `table.md`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from locore.io import machine, write_whole
from locore_lab.harness import Columns, Fields, table, write_rows
from locore_lab.speed import accelerator, circuits, footprint, masks, neighbours, sampling, scaling

ABOUT = """\
CPU seconds of one thread, the least of {repeats}; both sides of a ratio take turns in one run. The Llamas "small" and "large"
have random weights (speed does not depend on them), {n} tokens are drawn or changed, weights and arithmetic are float32."""
TABLES: dict[str, tuple[str, Columns, Fields]] = {
    "neighbours": (neighbours.ABOUT, neighbours.COLUMNS, neighbours.FIELDS),
    "sampling": (sampling.ABOUT, sampling.COLUMNS, sampling.FIELDS),
    "circuits": (circuits.ABOUT, circuits.COLUMNS, {}),
    "pysdd": (circuits.PEER_ABOUT, circuits.PEER_COLUMNS, circuits.PEER_FIELDS),
    "masks": (masks.ABOUT, masks.COLUMNS, masks.FIELDS),
    "footprint": (footprint.ABOUT, footprint.COLUMNS, {}),
    "scaling": (scaling.ABOUT, scaling.COLUMNS, scaling.FIELDS),
    "pass": (accelerator.PASS_ABOUT, accelerator.PASS_COLUMNS, accelerator.PASS_FIELDS),
    "accelerator": (accelerator.ABOUT, accelerator.COLUMNS, accelerator.FIELDS),
}


def write_results(output: Path, rows: list[dict[str, Any]], settings: dict[str, Any]) -> None:
    """Write both files; parts that were not measured are left out."""
    write_rows(output / "results.json", {"settings": settings, "machine": machine()}, rows)
    parts = ["# Speed", ABOUT.format(**settings)]
    for part, (about, columns, fields) in TABLES.items():
        measured = [row for row in rows if row["part"] == part]
        if measured:
            parts += [about.format(**settings), table(measured, columns, fields)]
    write_whole(output / "table.md", "\n\n".join(parts) + "\n")
