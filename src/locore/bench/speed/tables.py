"""`results.json` and `table.md`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from locore.records import machine, markdown_table, write_whole

NEIGHBOURS = [
    "model", "parameters", "prompt", "k", "speed-up", "measured", "LM tokens", "bound", "of full", "difference", "peak MiB",
    "budget MiB",
]  # fmt: skip
SAMPLING = ["model", "parameters", "prompt", "sampler", "ratio", "prompt read once", "a token", "LM tokens", "transformers"]
ABOUT = """\
CPU seconds of one thread, the least of {repeats}; both sides of a ratio take turns in one run. The Llamas "small" and "large"
have random weights (speed does not depend on them), {n} tokens are drawn or changed, weights and arithmetic are float32."""
ABOUT_NEIGHBOURS = """\
## All sequences at Hamming distance 1

`neighbours` against Algorithm 1 of the paper as printed: n·k full sequences, in the faster of two batch sizes, with logits of
the last n positions only.

- speed-up: seconds of the full sequences / seconds of `neighbours`.
- measured: share of the full sequences that was read; their seconds are scaled to all of them, which are equally long.
- LM tokens: read by the module; bound: k·n(n−1)/2 + n; "of full": what the full sequences are.
- difference: the largest one of the joint log-probabilities, in nats, where both were computed.
- peak: memory beyond what the process held before, weights and prompt included there; budget: what was asked for."""
ABOUT_SAMPLING = """\
## `generate` against transformers

`locore.generate` of {rows} particles under a constraint that forbids 1 % of the tokens, compiling and checking included,
against `generate(do_sample=True)` of transformers without a constraint, for as many rows and tokens.

- ratio: CPU seconds of Locore / of transformers, which reads the prompt for each row.
- prompt read once: the same against transformers with a cache in which the prompt was read once, as Locore does.
- a token: that ratio for each token that the module reads; LCR reads each of its sequences a second time, to score it.
- LM tokens: read by the module; "transformers": read by it without that cache."""


def write_results(output: Path, rows: list[dict[str, Any]], settings: dict[str, Any]) -> None:
    """Write both files; what is missing of either part is no error."""
    neighbours = [_neighbours(row) for row in rows if row["part"] == "neighbours"]
    sampling = [_sampling(row) for row in rows if row["part"] == "sampling"]
    record = {"settings": settings, "machine": machine(), "rows": rows}
    write_whole(output / "results.json", json.dumps(record, indent=1) + "\n")
    parts = [
        "# Speed",
        ABOUT.format(**settings),
        ABOUT_NEIGHBOURS,
        markdown_table(neighbours, NEIGHBOURS),
        ABOUT_SAMPLING.format(**settings),
        markdown_table(sampling, SAMPLING),
    ]
    write_whole(output / "table.md", "\n\n".join(parts) + "\n")


def _neighbours(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "parameters": _millions(row["parameters"]),
        "measured": f"{row['measured']:.0%}",
        "LM tokens": row["tokens"],
        "of full": row["full tokens"],
        "difference": f"{row['largest difference']:.0e}",
        "peak MiB": None if row["peak"] is None else round(row["peak"] / 2**20),
        "budget MiB": row["budget"] // 2**20,
    }


def _sampling(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "parameters": _millions(row["parameters"]),
        "prompt read once": row["ratio, shared prompt"],
        "a token": row["ratio a token"],
        "LM tokens": row["tokens"],
        "transformers": row["transformers tokens"],
    }


def _millions(number: int) -> str:
    return f"{number / 1e6:.3g}M"
