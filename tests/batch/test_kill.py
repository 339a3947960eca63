"""kill −9 and Ctrl-C of a run at any moment: what is written in the end is what an unbroken run writes."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from tests.batch.helpers import batch, batch_apart, results
from tests.effort import THOROUGH

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
NUMBER = 40 if THOROUGH else 24
SHARDS = ("--shard-rows", "8")


def rows_on_disk(output) -> int:
    """Lines in files of results and parts; some may be there twice while a part is copied."""
    found = 0
    for path in output.glob("*/*.*"):
        try:
            found += path.read_bytes().count(b"\n")
        except FileNotFoundError:
            continue
    return found


def killed_after(prompts, output, rows: int, number: int) -> int | None:
    """The exit code of a run that gets a signal once there are so many rows."""
    process = batch_apart(prompts, output, *SHARDS, "--resume")
    while process.is_alive() and rows_on_disk(output) < rows:
        time.sleep(0.002)
    if process.is_alive():
        os.kill(process.pid, number)
    process.join()
    return process.exitcode


def test_kills_at_random_moments(prompts, done, tmp_path):
    output, draw, kills = tmp_path / "out", random.Random(0), 0
    for rows in sorted(draw.sample(range(NUMBER - 5), 5 if THOROUGH else 2)):
        kills += killed_after(prompts, output, rows, signal.SIGKILL) == -signal.SIGKILL
    assert kills >= (2 if THOROUGH else 1)  # a run may be faster than its murderer, but not always
    assert batch(prompts, output, *SHARDS, "--resume") == 1
    assert results(output) == results(done)
    assert {path.name for path in output.iterdir()} - {".lock"} == {"config.json", "progress.jsonl", "results"}


def test_an_interrupted_run_keeps_what_is_finished(prompts, done, tmp_path, capfd):
    output = tmp_path / "out"
    assert killed_after(prompts, output, NUMBER // 2, signal.SIGINT) == 130
    before = rows_on_disk(output)
    assert before >= NUMBER // 2
    assert "--resume goes on" in capfd.readouterr().err
    assert batch(prompts, output, *SHARDS, "--resume") == 1
    assert results(output) == results(done)


@pytest.mark.slow
def test_many_kills_at_any_time(prompts, done, tmp_path):
    """Also while the model is loaded, a part copied, or a file renamed."""
    output, draw = tmp_path / "out", random.Random(1)
    kills = 0
    for _ in range(60):
        process = batch_apart(prompts, output, *SHARDS, "--resume")
        process.join(draw.uniform(0, 1.5))
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    assert kills > 5
    batch(prompts, output, *SHARDS, "--resume")
    assert results(output) == results(done)
