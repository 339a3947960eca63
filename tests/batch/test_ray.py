"""Batches on a cluster of two nodes: the same rows as in one process, whatever dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import locore
from locore.models.bundled import located
from tests.batch.helpers import OPTIONS, batch, many, results
from tests.batch.test_kill import rows_on_disk
from tests.models import engine_server

pytest.importorskip("ray")
NUMBER = 60
SHARDS = ("--shard-rows", "6")
RUN = "import sys; from locore.cli import main; sys.exit(main())"
ACTOR = "ShardActor"
PATIENCE = 1800  # seconds; only what hangs needs them


@pytest.fixture(scope="module")
def cluster(poison):
    """The address of two nodes of one core each."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # 15 by default: on a busy machine workers would hardly run
        patch.setenv("PYTHONPATH", f"{poison}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        node = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
        nodes = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        nodes.add_node(**node)
        nodes.wait_for_nodes()
        yield nodes.address
        nodes.shutdown()


@pytest.fixture(scope="module")
def poison(tmp_path_factory):
    """A folder on the path of every worker: as long as there is a file `armed` in it, line 11 kills who works on it."""
    folder = tmp_path_factory.mktemp("poison")
    (folder / "sitecustomize.py").write_text(
        f"""
import os, sys
class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == "locore.batch.on_ray" and os.path.exists({str(folder / "armed")!r}):
            sys.meta_path.remove(self)
            from locore.batch.worker import Worker
            compute = Worker.row
            Worker.row = lambda self, number, line: os._exit(9) if number == 11 else compute(self, number, line)
sys.meta_path.insert(0, Hook())
"""
    )
    return folder


def spawn(prompts, output, address: str | None, *options: str) -> subprocess.Popen[str]:
    """`locore batch` on the cluster, or on one that it starts itself, in a process of its own."""
    where = ["--workers", "1"] if address is None else ["--ray-address", address, "--workers", "2"]
    on_ray = ["--engine", "ray", *where, *SHARDS, *options]
    command = [sys.executable, "-c", RUN, "batch", str(prompts), "-o", str(output), *OPTIONS, *on_ray]
    environment = {**os.environ, "RAY_worker_niceness": "0"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def actors() -> list[int]:
    """Ids of the processes of Ray that hold a worker."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if ACTOR.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def wait_for_rows(output, rows: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE
    while rows_on_disk(output) < rows and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)


@pytest.mark.slow
def test_ray_writes_the_same_rows(prompts, done, tmp_path):
    """On a cluster of its own, which ends with it."""
    process = spawn(prompts, tmp_path / "out", None, "--json")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, err
    assert json.loads(out)["computed_now"] == NUMBER
    assert results(tmp_path / "out") == results(done)


@pytest.mark.slow
def test_two_nodes_write_the_same_rows(prompts, done, cluster, tmp_path):
    process = spawn(prompts, tmp_path / "out", cluster)
    pids = set()
    while process.poll() is None:
        pids |= set(actors())
        time.sleep(0.05)
    assert process.returncode == 1, process.communicate()
    assert len(pids) >= 2
    assert results(tmp_path / "out") == results(done)


@pytest.mark.slow
def test_killed_workers_lose_nothing(prompts, done, cluster, tmp_path):
    process = spawn(prompts, tmp_path / "out", cluster)
    killed = set()
    for rows in (8, 25, 40):
        wait_for_rows(tmp_path / "out", rows, process)
        for actor in actors()[:1]:
            os.kill(actor, signal.SIGKILL)
            killed.add(actor)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, err
    assert killed
    assert results(tmp_path / "out") == results(done)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_driver_goes_on(prompts, done, cluster, tmp_path, number):
    codes = []
    for rows in (1, 10, 30):
        process = spawn(prompts, tmp_path / "out", cluster, "--resume")
        wait_for_rows(tmp_path / "out", rows, process)
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
        codes.append(process.returncode)
    assert (130 if number == signal.SIGINT else -number) in codes
    process = spawn(prompts, tmp_path / "out", cluster, "--resume")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, err
    assert results(tmp_path / "out") == results(done)


@pytest.mark.slow
def test_another_engine_can_finish(prompts, done, cluster, tmp_path):
    process = spawn(prompts, tmp_path / "out", cluster)
    wait_for_rows(tmp_path / "out", 15, process)
    process.kill()
    process.communicate()
    assert batch(prompts, tmp_path / "out", *SHARDS, "--resume") == 1
    assert results(tmp_path / "out") == results(done)


@pytest.mark.slow
def test_a_row_that_kills_its_workers_is_given_up(prompts, done, cluster, tmp_path, poison):
    (poison / "armed").touch()
    try:
        process = spawn(prompts, tmp_path / "out", cluster)
        _, err = process.communicate(timeout=PATIENCE)
    finally:
        (poison / "armed").unlink()
    assert process.returncode == 1, err
    found, expected = results(tmp_path / "out"), results(done)
    assert found[10]["error"]["type"] == "WorkerDied"
    assert found[:10] + found[11:] == expected[:10] + expected[11:]


@pytest.mark.slow
def test_errors_of_workers_reach_the_shell(prompts, cluster, tmp_path):
    process = spawn(prompts, tmp_path / "out", cluster, "--model", "./nowhere")
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (2, "")
    assert "./nowhere is not a folder" in err and "Traceback" not in err


@pytest.mark.slow
def test_workers_share_an_engine(cluster, tmp_path):
    """Its rows are those of one process that asks it, also where a worker is killed while the engine answers."""
    prompts = many(tmp_path / "prompts.jsonl", 30)
    with engine_server.running(engine_server.endless(locore.load("tiny")), root=str(located("tiny"))) as service:
        model = ("--model", f"{service.address}/v1")
        assert batch(prompts, tmp_path / "alone", *SHARDS, *model) == 1
        process = spawn(prompts, tmp_path / "out", cluster, *model)
        wait_for_rows(tmp_path / "out", 8, process)
        killed = actors()[:1]
        for actor in killed:
            os.kill(actor, signal.SIGKILL)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, err
    assert killed
    assert results(tmp_path / "out") == results(tmp_path / "alone")
