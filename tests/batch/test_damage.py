"""Folders whose files are damaged, and disks that are full: told in a sentence, or gone on with; never rows of two settings."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal

import pytest

from tests.batch.helpers import batch, results, write
from tests.effort import some
from tests.forked import forked

resource = pytest.importorskip("resource")
ROWS = 12


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    lines = [f'{{"prompt": "Number {number} is"}}' for number in range(ROWS)]
    return write(tmp_path_factory.mktemp("batch") / "prompts.jsonl", lines)


@pytest.fixture(scope="module")
def begun(prompts, tmp_path_factory):
    """Finished, but for the second of two files of results."""
    output = tmp_path_factory.mktemp("batch") / "out"
    assert batch(prompts, output, "--shard-rows", "6") == 0
    (output / "results" / "000001.jsonl").unlink()
    return output


@pytest.fixture
def output(begun, tmp_path):
    shutil.copytree(begun, tmp_path / "out")
    return tmp_path / "out"


def damaged(path, how):
    whole = path.read_bytes()
    contents = {"empty": b"", "half a line": whole[:40], "a line cut": whole[:-9], "an object": b"{}\n", "text": b"what\n"}
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(contents[how])


def go_on(prompts, output, *options):
    return batch(prompts, output, "--shard-rows", "6", "--resume", *options)


@pytest.mark.parametrize("how", some(["a line cut", "empty", "half a line", "gone"], 4))
def test_without_its_journal_a_batch_goes_on_by_its_settings_alone(prompts, output, how, capsys):
    damaged(output / "progress.jsonl", how)
    before = (output / "results" / "000000.jsonl").read_bytes()
    assert go_on(prompts, output, "--seed", "5") == 2
    assert "seed is 0 there and 5 now" in capsys.readouterr().err
    assert not (output / "results" / "000001.jsonl").exists()
    assert go_on(prompts, output) == 0
    assert len(results(output)) == ROWS and (output / "results" / "000000.jsonl").read_bytes() == before


@pytest.mark.parametrize("how", ["empty", "half a line"])
def test_without_any_witness_it_is_refused(prompts, output, how, capsys):
    damaged(output / "progress.jsonl", how)
    (output / "config.json").unlink()
    assert go_on(prompts, output) == 2
    assert "choose another folder" in capsys.readouterr().err


@pytest.mark.parametrize("how", some(["half a line", "empty", "an object", "text"], 4))
def test_damaged_settings_are_told_and_can_be_removed(prompts, output, how, capsys):
    damaged(output / "config.json", how)
    assert go_on(prompts, output) == 2
    assert "is damaged" in (said := capsys.readouterr().err) and "Traceback" not in said
    (output / "config.json").unlink()
    assert go_on(prompts, output) == 0
    assert len(results(output)) == ROWS


def test_a_disk_that_is_full_is_told_and_everything_is_there_with_room(prompts, tmp_path):
    """No file may be larger than so many bytes, which the file of results would be."""
    output, log = tmp_path / "out", tmp_path / "log"

    def run():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
        with log.open("w") as errors, contextlib.redirect_stderr(errors):
            return batch(prompts, output)

    process = forked(run)
    process.join()
    said = log.read_text()
    assert process.exitcode == 2, said
    assert "cannot write to" in said and "--resume" in said and "Traceback" not in said
    assert batch(prompts, output, "--resume") == 0
    assert [row["line"] for row in results(output)] == list(range(1, ROWS + 1))
    assert json.loads((output / "config.json").read_text())["settings"]["seed"] == 0
