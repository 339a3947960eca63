"""Small batches, and what was written of them."""

from __future__ import annotations

import json
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from locore.cli import main
from tests.forked import forked

BAN = {"type": "ban", "phrases": ["the", " a"]}
OPTIONS = ("--constraint", json.dumps(BAN), "--max-new-tokens", "4", "--num-particles", "4", "--sampler", "smc")
ODD = (  # rows that are odd, and whether they fail
    ('{"prompt": "I am", "id": "a", "meta": {"k": [1, "é", null]}}', False),
    ('{"prompt": "The sky", "constraint": {"type": "ends_with", "text": "."}, "max_new_tokens": 3, "seed": 5}', False),
    ("", True),
    ('{"prompt": "I", "nonsense": 1, "id": 7}', True),
    ("no json", True),
    ('{"prompt": "I", "constraint": {"type": "false"}}', True),
    ('{"prompt": [5, 6], "resample": 2, "id": "\\ud800"}', False),
    ('{"prompt": "I am"}', False),
    ('{"prompt": "I am"}', False),
)


def write(path: Path, rows: list[dict[str, Any] | str]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8")
    return path


def many(path: Path, number: int) -> Path:
    """Odd rows and plain ones."""
    plain = [f'{{"prompt": "Number {i} is"}}' for i in range(number - len(ODD))]
    return write(path, [line for line, _ in ODD] + plain)


def results(output: Path) -> list[dict[str, Any]]:
    """All rows in order, without the seconds, which no two runs have in common."""
    found = []
    for path in sorted((output / "results").iterdir()):
        for line in path.read_bytes().splitlines():
            row = json.loads(line)
            assert row.pop("seconds") >= 0
            found.append(row)
    return found


def batch(prompts: Path, output: Path, *options: str) -> int:
    """The exit code of `locore batch`, in this process."""
    return main(["batch", str(prompts), "-o", str(output), *OPTIONS, *options])


def batch_apart(prompts: Path, output: Path, *options: str) -> BaseProcess:
    """The same in a process of its own, at once."""
    return forked(lambda: batch(prompts, output, *options))
