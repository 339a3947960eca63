"""SIGHUP loads the model anew, and nobody who asks meanwhile notices."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from locore.models.bundled import _bundled_folder
from tests.server.conftest import PATIENCE, RUN, Server, until
from tests.server.test_faults import LONG, QUICK, send

WEIGHTS = "model.safetensors"
CLIENTS = 3


class Clients:
    """Several who ask one question after the other until the end of the block; `found` counts statuses and fingerprints."""

    def __init__(self, server: Server) -> None:
        self.found: Counter[tuple[int, str]] = Counter()
        self._server, self._over = server, threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(CLIENTS)]

    def _ask(self) -> None:
        while not self._over.is_set():
            status, _, answer = self._server.post(QUICK)
            self.found[status, answer.get("system_fingerprint") or answer["error"]["code"]] += 1

    def __enter__(self) -> Counter[tuple[int, str]]:
        for thread in self._threads:
            thread.start()
        return self.found

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def replace(path: Path, content: bytes) -> None:
    """By a new file, since the old one may be mapped into memory."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.rename(path)


def changed(path: Path) -> bytes:
    """Weights of another model of the same form."""
    weights = load_file(path)
    name = max(weights, key=lambda name: weights[name].numel())
    weights[name] = weights[name] * 0.5
    other = path.with_suffix(".other")
    save_file(weights, other, {"format": "pt"})
    return other.read_bytes()


def reloads(server: Server) -> tuple[float, float]:
    lines = dict(line.rsplit(" ", 1) for line in server.get("/metrics")[1].decode().splitlines())
    success, failure = (float(lines[f'locore_reloads_total{{result="{result}"}}']) for result in ("success", "failure"))
    return success, failure


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.slow)])
def served(request, tmp_path_factory):
    """A folder, and the server of what lies there; with one worker or two, of one request at a time."""
    folder = tmp_path_factory.mktemp("reload")
    model = Path(shutil.copytree(str(_bundled_folder("tiny")), folder / "model"))
    options = ("--model", str(model), "--name", "tiny", "--workers", str(request.param))
    server = Server(folder, *options, "--together", "1", "--timeout", "10000", key=None).wait()
    until(lambda: server.metric("locore_workers_ready") == request.param)
    yield model, server
    server.stop()


def test_a_reload_costs_no_request(served):
    """Another model replaces the first one; damaged files do not."""
    model, server = served
    before, reloaded, failed = server.workers(), *reloads(server)
    with Clients(server) as found:
        until(lambda: found)
        replace(model / WEIGHTS, changed(model / WEIGHTS))
        server.process.send_signal(signal.SIGHUP)
        until(lambda: reloads(server) == (reloaded + 1, failed))
        asked = found.total()
        until(lambda: found.total() > asked + CLIENTS)
    assert {status for status, _ in found} == {200} and len(found) == 2
    after = server.workers()
    assert len(after) == len(before) and not set(before) & set(after)
    fingerprint = server.post(QUICK)[2]["system_fingerprint"]

    good = (model / WEIGHTS).read_bytes()
    with Clients(server) as found:
        replace(model / WEIGHTS, good[: len(good) // 2])
        server.process.send_signal(signal.SIGHUP)
        until(lambda: reloads(server) == (reloaded + 1, failed + 1))
    replace(model / WEIGHTS, good)
    assert set(found) == {(200, fingerprint)} and server.workers() == after
    (told,) = (line for line in server.log.read_text().splitlines() if "is not reloaded" in line)
    assert "Cannot read the safetensors weights" in told
    assert server.metric("locore_worker_restarts_total") == 0


def test_what_runs_ends_on_the_old_worker_and_what_waits_begins_on_the_new(served):
    """One at a time, each of minutes: what waits is begun only if it need not wait for the end of what runs."""
    _, server = served
    before, reloaded = server.workers(), reloads(server)[0]
    lines = [send(server, LONG) for _ in range(len(before) + 1)]
    until(lambda: server.metric("locore_runs") == len(before) and server.metric("locore_queue_depth") == 1)
    server.process.send_signal(signal.SIGHUP)
    until(lambda: server.metric("locore_runs") == len(before) + 1)
    assert set(before) < set(server.workers()) and len(server.workers()) == len(before) + 1
    for line in lines:
        line.close()
    until(lambda: reloads(server)[0] == reloaded + 1)
    assert not set(before) & set(server.workers()) and server.post(QUICK)[0] == 200
    assert server.metric("locore_worker_restarts_total") == 0


def test_a_terminal_that_is_closed_ends_the_server():
    """It sends the same signal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", f"import os; os.setsid(); os.close(os.open(os.ttyname(0), os.O_RDWR)); {RUN}"]
    command += ["serve", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if name != "LOCORE_API_KEY"}
    server = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    while b"startup complete" not in seen:
        seen += os.read(ours, 1000)
    os.close(ours)
    server.wait(PATIENCE)
