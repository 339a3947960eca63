"""`locore batch` in one process: what it writes, what it refuses, and that a row is what `generate` gives."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import locore
from locore.batch import Settings
from locore.batch import driver as module
from locore.batch.plan import Plan
from locore.batch.worker import Worker
from locore.kernel.errors import DeviceLost, InvalidArgument
from locore.models.bundled import located
from tests.batch.helpers import BAN, ODD, batch, many, results, write
from tests.effort import THOROUGH
from tests.models import engine_server

NUMBER = 24


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    return many(tmp_path_factory.mktemp("batch") / "prompts.jsonl", NUMBER)


@pytest.fixture(scope="module")
def done(prompts):
    """A folder of results that nothing happened to."""
    output = prompts.parent / "done"
    assert batch(prompts, output, "--shard-rows", "5") == 1
    return output


def test_every_row_is_there_once_and_in_order(done, prompts):
    rows = results(done)
    assert [row["line"] for row in rows] == list(range(1, NUMBER + 1))
    assert [len(path.read_bytes().splitlines()) for path in sorted((done / "results").iterdir())] == [5, 5, 5, 5, 4]
    assert ["error" in row for row in rows] == [fails for _, fails in ODD] + [False] * (NUMBER - len(ODD))


def test_paths_may_be_texts(tmp_path):
    source, output = write(tmp_path / "in.jsonl", [{"prompt": "a", "constraint": BAN}]), tmp_path / "out"
    locore.batch.run(str(source), str(output), Settings(max_new_tokens=2, num_particles=2))
    assert len(results(output)) == 1


def test_labels_come_back_whatever_becomes_of_a_row(done):
    rows = results(done)
    assert (rows[0]["id"], rows[0]["meta"]) == ("a", {"k": [1, "é", None]})
    assert (rows[3]["id"], rows[3]["error"]["type"]) == (7, "UnsupportedKeyword")
    assert rows[6]["id"] == "\ud800"
    assert [row["error"]["type"] for row in rows if "error" in row][-1] == "Unsatisfiable"
    assert all("meta" not in row for row in rows[1:])


def test_a_row_is_what_generate_gives(done):
    rows = results(done)
    model = locore.load("tiny")
    for row, constraint, length in ((rows[0], locore.from_json(BAN), 4), (rows[1], locore.ends_with("."), 3)):
        prompt = {1: "I am", 2: "The sky"}[row["line"]]
        same = locore.generate(model, prompt, constraint, length, num_particles=4, sampler="smc", seed=row["seed"])
        assert row["texts"] == same.texts
        assert row["log_weights"] == same.log_weights.tolist()
        assert row["log_evidence"] == same.log_evidence
        assert row["ess"] == same.ess
        assert (row["verdict"], row["guarantee"]) == (same.verdict.level, "proper")
        assert row["lm_tokens"] == same.info["lm_tokens"] > 0
    assert rows[1]["seed"] == 5
    assert len(rows[6]["texts"]) == 2 and len(set(rows[6]["log_weights"])) == 1  # resampled


def test_equal_rows_have_equal_results_and_others_do_not(done):
    rows = results(done)
    assert {**rows[7], "line": 0} == {**rows[8], "line": 0}
    assert len({row["seed"] for row in rows if "seed" in row}) == len([row for row in rows if "seed" in row]) - 1


def test_order_and_shards_change_nothing(done, prompts, tmp_path):
    lines = prompts.read_text().splitlines()
    random.Random(1).shuffle(lines)
    shuffled = write(tmp_path / "shuffled.jsonl", lines)
    batch(shuffled, tmp_path / "out", "--shard-rows", "7")

    def without_line(rows):
        return sorted(json.dumps({**row, "line": 0}) for row in rows)

    assert without_line(results(tmp_path / "out")) == without_line(results(done))


def test_the_seed_of_the_run_changes_the_rows(prompts, done, tmp_path):
    short = write(tmp_path / "short.jsonl", prompts.read_text().splitlines()[-3:])
    batch(short, tmp_path / "out", "--seed", "1")
    assert not {row["seed"] for row in results(tmp_path / "out")} & {row.get("seed") for row in results(done)}


def test_what_is_written_beside_the_results(done, prompts):
    config = json.loads((done / "config.json").read_text())
    settings = config["settings"]
    assert (settings["locore"], settings["torch"], settings["constraint"]) == (locore.__version__, torch.__version__, BAN)
    assert settings["model_fingerprint"] == locore.load("tiny").fingerprint()
    assert (settings["input_rows"], settings["input_bytes"]) == (NUMBER, prompts.stat().st_size)
    assert {path.name for path in done.iterdir()} == {"config.json", "progress.jsonl", "results"}


def test_summaries(prompts, done, tmp_path, capsys):
    failed = sum(fails for _, fails in ODD)
    assert batch(prompts, done, "--shard-rows", "5", "--resume") == 1
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{NUMBER - failed} of {NUMBER} rows done, {failed} failed\n")
    assert "failed InvalidArgument: 2" in captured.out
    assert f"going on: {NUMBER} of {NUMBER} rows" in captured.err
    command = captured.err.split("what is wrong: ")[1]
    shown = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
    assert len(shown.splitlines()) == failed
    good = write(tmp_path / "good.jsonl", [{"prompt": "I"}])
    assert batch(good, tmp_path / "out", "--json") == 0
    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    assert (summary["rows"], summary["failed"], summary["computed_now"], captured.err) == (1, 0, 1, "")


def test_tokens_are_written_if_asked_for(tmp_path):
    prompts = write(tmp_path / "p.jsonl", [{"prompt": "I"}])
    batch(prompts, tmp_path / "out", "--tokens")
    row = results(tmp_path / "out")[0]
    tokenizer = locore.load("tiny").tokenizer
    assert [tokenizer.text_bytes(tokens).decode() for tokens in row["tokens"]] == row["texts"]


# going on


def test_a_removed_or_damaged_file_of_results_is_computed_again(prompts, done, tmp_path):
    output = Path(shutil.copytree(done, tmp_path / "out"))
    first, second = output / "results" / "000001.jsonl", output / "results" / "000003.jsonl"
    first.unlink()
    second.write_bytes(second.read_bytes()[:-9])
    batch(prompts, output, "--shard-rows", "5", "--resume")
    assert results(output) == results(done)


@pytest.mark.parametrize("cut", [1, 100, 10**6])
def test_a_torn_journal_is_mended(prompts, done, tmp_path, cut, capsys):
    output = Path(shutil.copytree(done, tmp_path / "out"))
    journal = output / "progress.jsonl"
    journal.write_bytes(journal.read_bytes()[:-cut])
    capsys.readouterr()
    assert batch(prompts, output, "--shard-rows", "5", "--resume", "--json") == 1
    assert json.loads(capsys.readouterr().out)["computed_now"] == 0
    assert results(output) == results(done)


def test_rows_are_not_counted_twice_where_a_worker_is_asked_again(prompts, done):
    worker = Worker(Settings(constraint=BAN, max_new_tokens=4, num_particles=4, sampler="smc"))
    path = done / "results" / "000002.jsonl"
    before = path.read_bytes()
    report = worker.shard(prompts, done, Plan(prompts, 5)[2], "again")
    assert (report["adopted"], report["rows"], path.read_bytes()) == (5, 5, before)


REFUSED = {
    "without --resume": ([], "add --resume"),
    "another seed": (["--resume", "--seed", "3"], "seed is 0 there and 3 now"),
    "other shards": (["--resume", "--shard-rows", "4"], "shard_rows is 5 there and 4 now"),
    "another length": (["--resume", "--max-new-tokens", "5"], "max_new_tokens is 4 there and 5 now"),
    "an engine that is not known": (["--engine", "dask"], "engine must be one of local, ray"),
    "workers of the local engine": (["--workers", "3"], "--engine ray"),
    "a sampler that is not known": (["--sampler", "greddy"], "known are auto"),
    "no tokens": (["--max-new-tokens", "0"], "at least 1"),
    "a bad ending": (["--ending", "never"], "ending must be"),
    "no draws": (["--resample", "0"], "resample must be at least 1"),
    "no threads": (["--threads", "0"], "threads must be at least 1"),
    "a bad device": (["--resume", "--device", "abacus"], "cannot compute on 'abacus'"),
    "no rows in a shard": (["--shard-rows", "0"], "shard_rows must be at least 1"),
    "a bad constraint": (["--constraint", '{"type": "bann"}'], "'bann'"),
    "a bad limit": (["--limit", "states=x"], "is no number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_written(prompts, done, case, capsys):
    before = {path: path.read_bytes() for path in done.rglob("*") if path.is_file()}
    options, reason = REFUSED[case]
    assert batch(prompts, done, *(() if "--shard-rows" in options else ("--shard-rows", "5")), *options) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and re.search(re.escape(reason), captured.err)
    assert {path: path.read_bytes() for path in done.rglob("*") if path.is_file()} == before


def test_another_input_is_refused(prompts, done, tmp_path, capsys):
    changed = tmp_path / "prompts.jsonl"
    changed.write_text(prompts.read_text().replace("Number 3", "Number 4"))
    assert batch(changed, done, "--shard-rows", "5", "--resume") == 2
    assert "is not the file that" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "says"), [("nothing.jsonl", "is not there"), (".", "is no file")])
def test_an_input_that_is_no_file_is_refused(tmp_path, name, says, capsys):
    assert batch(tmp_path / name, tmp_path / "out") == 2
    assert says in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_results_of_nobody_are_refused(prompts, tmp_path, capsys):
    (tmp_path / "out" / "results").mkdir(parents=True)
    (tmp_path / "out" / "results" / "000000.jsonl").write_text("{}\n")
    assert batch(prompts, tmp_path / "out", "--resume") == 2
    assert "no progress.jsonl" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_refused(prompts, capsys):
    assert batch(prompts, prompts) == 2
    assert "cannot write to" in capsys.readouterr().err


def test_the_input_must_not_change_while_a_run_goes_on(tmp_path, monkeypatch, capsys):
    prompts = many(tmp_path / "p.jsonl", 14)
    work = module._work

    def change_and_work(*arguments):
        prompts.write_text(prompts.read_text().replace("Number 4", "Number 5"))
        return work(*arguments)

    monkeypatch.setattr(module, "_work", change_and_work)
    assert batch(prompts, tmp_path / "out", "--shard-rows", "7") == 2
    assert "was changed while the run went on" in capsys.readouterr().err


# workers


@pytest.fixture(scope="module")
def worker():
    return Worker(Settings(constraint=BAN, max_new_tokens=2, num_particles=2, sampler="smc"))


def test_an_unexpected_error_is_a_row(worker, monkeypatch):
    def broken(*arguments, **options):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(locore, "generate", broken)
    assert worker.row(1, b'{"prompt": "I", "id": 3}')["error"] == {"type": "ZeroDivisionError", "message": "oh"}


def test_a_lost_device_ends_the_worker(worker, monkeypatch):
    def lost(*arguments, **options):
        raise torch.AcceleratorError("gone")

    monkeypatch.setattr(locore, "generate", lost)
    with pytest.raises(DeviceLost, match="line 7"):
        worker.row(7, b'{"prompt": "I"}')


def test_a_worker_that_differs_is_refused(worker):
    worker.check(worker.facts())
    with pytest.raises(InvalidArgument, match=r"torch is '2.*' here and '1.0' there"):
        worker.check({**worker.facts(), "torch": "1.0"})


def test_a_row_at_which_workers_die_is_given_up(worker, prompts, tmp_path, monkeypatch):
    plan, compute = Plan(prompts, NUMBER), worker.row
    for folder in ("parts", "results"):
        (tmp_path / folder).mkdir()

    def die_at_line_12(number, line):
        if number == 12:
            raise KeyboardInterrupt
        return compute(number, line)

    monkeypatch.setattr(worker, "row", die_at_line_12)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            worker.shard(prompts, tmp_path, plan[0], "run")
    assert worker.shard(prompts, tmp_path, plan[0], "run")["adopted"] == 11
    rows = results(tmp_path)
    assert [row["line"] for row in rows] == list(range(1, NUMBER + 1))
    assert rows[11]["error"]["type"] == "WorkerDied"
    assert sum("error" in row for row in rows) == sum(fails for _, fails in ODD) + 1


@pytest.mark.parametrize(
    ("asked", "handed"),
    [
        ({}, {"threads": 1}),
        ({"device": "cuda"}, {"device": "cuda", "threads": 1}),
        ({"model": "llamacpp:m.gguf"}, {"threads": 1}),
        ({"model": "http://127.0.0.1:1/v1"}, {}),
        ({"model": "http://127.0.0.1:1/v1", "threads": 2}, {"threads": 2}),
    ],
)
def test_engines_are_handed_what_was_asked_for(monkeypatch, asked, handed):
    """Models in engines compute where these run: they take no device, and servers no threads."""
    options, tiny = [], locore.load("tiny")
    monkeypatch.setattr(locore, "load", lambda name, **given: options.append(given) or tiny)
    Worker(Settings(constraint=BAN, **asked))
    assert options == [handed]


def test_an_engine_has_the_texts_of_its_model(prompts, tmp_path):
    short = write(tmp_path / "short.jsonl", prompts.read_text().splitlines()[-6 if THOROUGH else -3 :])
    batch(short, tmp_path / "here")
    with engine_server.running(engine_server.endless(locore.load("tiny")), root=str(located("tiny"))) as service:
        assert batch(short, tmp_path / "there", "--model", f"{service.address}/v1") == 0
    here, there = ([row["texts"] for row in results(tmp_path / where)] for where in ("here", "there"))
    assert here == there
