"""`results.json` and `table.md`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from locore.io import machine, markdown_table, write_whole
from locore_lab.speed import accelerator, circuits, footprint, masks, neighbours, sampling, scaling

ABOUT = """\
CPU seconds of one thread, the least of {repeats}; both sides of a ratio take turns in one run. The Llamas "small" and "large"
have random weights (speed does not depend on them), {n} tokens are drawn or changed, weights and arithmetic are float32."""
TABLES = {
    "neighbours": (neighbours.ABOUT, neighbours.COLUMNS, neighbours.shown),
    "sampling": (sampling.ABOUT, sampling.COLUMNS, sampling.shown),
    "circuits": (circuits.ABOUT, circuits.COLUMNS, circuits.shown),
    "pysdd": (circuits.PEER_ABOUT, circuits.PEER_COLUMNS, circuits.shown_peer),
    "masks": (masks.ABOUT, masks.COLUMNS, masks.shown),
    "footprint": (footprint.ABOUT, footprint.COLUMNS, footprint.shown),
    "scaling": (scaling.ABOUT, scaling.COLUMNS, scaling.shown),
    "accelerator": (accelerator.ABOUT, accelerator.COLUMNS, accelerator.shown),
}


def write_results(output: Path, rows: list[dict[str, Any]], settings: dict[str, Any]) -> None:
    """Write both files; parts that were not measured are left out."""
    record = {"settings": settings, "machine": machine(), "rows": rows}
    write_whole(output / "results.json", json.dumps(record, indent=1) + "\n")
    parts = ["# Speed", ABOUT.format(**settings)]
    for part, (about, columns, shown) in TABLES.items():
        measured = [shown(row) for row in rows if row["part"] == part]
        if measured:
            parts += [about.format(**settings), markdown_table(measured, columns)]
    write_whole(output / "table.md", "\n\n".join(parts) + "\n")
