"""Many rows and ten kills, of workers and of drivers by turns: every row is there once, and is what it is without a kill.

LOCORE_BATCH_ROWS=100000 python -m pytest -m slow -s tests/batch/test_many_rows.py
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

import locore
from tests.batch.helpers import BAN
from tests.batch.test_ray import PATIENCE, RUN, actors

pytest.importorskip("ray")
pytestmark = pytest.mark.slow
NUMBER = int(os.environ.get("LOCORE_BATCH_ROWS", "5000"))
SHARD = max(10, NUMBER // 200)
KILLS = 10
CHECKED = 500  # rows that are computed again
SETTINGS = locore.batch.Settings(constraint=BAN, max_new_tokens=1, num_particles=1, sampler="rejection")
OPTIONS = ("--constraint", json.dumps(BAN), "--max-new-tokens", "1", "--num-particles", "1", "--sampler", "rejection")


def spawn(prompts: Path, output: Path) -> subprocess.Popen[bytes]:
    """`locore batch` with one worker, on a cluster of its own."""
    command = [sys.executable, "-c", RUN, "batch", str(prompts), "-o", str(output), *OPTIONS, "--resume"]
    command += ["--engine", "ray", "--workers", "1", "--shard-rows", str(SHARD)]
    with (prompts.parent / "log").open("ab") as log:
        environment = {**os.environ, "RAY_worker_niceness": "0"}
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=prompts.parent)


def finished(output: Path) -> int:
    """Files of results."""
    with suppress(FileNotFoundError):
        return len(list((output / "results").iterdir()))
    return 0


def own_actors() -> list[int]:
    """Those of this test alone: they inherit the folder of its cache, which no other has."""
    found, own = [], f"LOCORE_CACHE={os.environ['LOCORE_CACHE']}\0".encode()
    for pid in actors():
        with suppress(OSError):
            if own in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


def rows(output: Path) -> Iterator[dict[str, Any]]:
    """One at a time: they need not fit into memory."""
    for path in sorted((output / "results").iterdir()):
        with path.open("rb") as file:
            yield from map(json.loads, file)


def test_no_row_is_lost_or_doubled(tmp_path):
    draw, output, prompts = random.Random(2), tmp_path / "out", tmp_path / "prompts.jsonl"
    lines = [json.dumps({"prompt": [5 + i % 1000], "id": i}) for i in range(NUMBER)]
    prompts.write_text("".join(f"{line}\n" for line in lines))
    moments = sorted(draw.sample(range(NUMBER // SHARD), KILLS))  # in files of results
    start, killed = time.monotonic(), {"worker": 0, "driver": 0}
    driver = spawn(prompts, output)
    for number, moment in enumerate(moments):
        while finished(output) < moment and driver.poll() is None:
            time.sleep(0.05)
        kind = ("worker", "driver")[number % 2]
        while kind == "worker" and not own_actors() and driver.poll() is None:
            time.sleep(0.05)  # until it is there
        time.sleep(draw.uniform(0, 1))
        assert driver.poll() is None, (tmp_path / "log").read_text()[-2000:]
        for pid in [driver.pid] if kind == "driver" else own_actors():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed[kind] += 1
        if kind == "driver":
            driver.wait()
            driver = spawn(prompts, output)
    assert driver.wait(10 * PATIENCE) == 0, (tmp_path / "log").read_text()[-2000:]
    print(f"{NUMBER} rows, kills: {killed}, {time.monotonic() - start:.0f} s")
    assert min(killed.values()) >= KILLS // 2

    chosen = set(draw.sample(range(NUMBER), CHECKED))
    seen, kept = 0, []
    for row in rows(output):
        assert (row["line"], row["id"]) == (seen + 1, seen) and "error" not in row
        assert row["digest"] == blake2b(lines[seen].encode(), digest_size=8).hexdigest()
        if seen in chosen:
            kept.append(row)
        seen += 1
    assert seen == NUMBER
    again = tmp_path / "again.jsonl"
    again.write_text("".join(f"{lines[i]}\n" for i in sorted(chosen)))
    locore.batch.run(again, tmp_path / "again", SETTINGS)
    for row, expected in zip(kept, rows(tmp_path / "again"), strict=True):
        own = ("line", "seconds")
        assert {k: v for k, v in row.items() if k not in own} == {k: v for k, v in expected.items() if k not in own}
