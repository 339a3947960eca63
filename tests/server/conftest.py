"""A real server in a process of its own, at a free port, asked over a socket."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import openai
import pytest

import locore
from locore.models import LanguageModel
from locore.samplers.twist import ngram
from locore.samplers.twist.ngram import settle
from locore.server.settings import CAN_FORK
from tests.chatting import talking
from tests.server.apart_alone import children

KEY = "a-key-for-tests-0123456789"
RUN = "import sys; from locore.cli import main; sys.exit(main())"
PATIENCE = 600  # seconds; only a server that hangs needs them


class Server:
    """`locore serve` with these options, once it is ready."""

    def __init__(self, folder: Path, *options: str, key: str | None = KEY, cache: Path | None = None) -> None:
        self.key = key
        self.log = folder / "server.log"
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if cache is not None:  # of its own: no table that other tests have prepared steers it
            environment["LOCORE_CACHE"] = str(cache)
        if key is not None:
            environment["LOCORE_API_KEY"] = key
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RUN, "serve", "--port", "0", *options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url, self.log.read_text()

    def wait(self) -> Server:
        """Until the model is loaded."""
        until(lambda: self.get("/ready")[0] == 200)
        return self

    def client(self, **options: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=self.key or "none", max_retries=0, timeout=PATIENCE, **options)

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body, whatever the status."""
        usual = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(self.url + path, body, {**usual, **(headers or {})}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def get(self, path: str) -> tuple[int, bytes]:
        status, _, body = self.request("GET", path)
        return status, body

    def post(self, body: Any, path: str = "/v1/completions") -> tuple[int, dict[str, str], Any]:
        """Status, headers and parsed answer of a request given as JSON."""
        status, headers, answer = self.request("POST", path, json.dumps(body).encode())
        return status, headers, json.loads(answer)

    def metric(self, name: str) -> float:
        """Sum over the labels of a metric."""
        lines = self.get("/metrics")[1].decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    def workers(self) -> list[int]:
        """Process ids of its workers."""
        try:
            return [worker for child in children(self.process.pid) for worker in (children(child) if CAN_FORK else [child])]
        except OSError:
            pytest.skip("this system does not list the children of a process")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


def until(condition: Any) -> None:
    """Wait for something that must come true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server of the bundled model, which was given a chat template."""
    folder = tmp_path_factory.mktemp("server")
    model = talking(folder / "model")
    running = Server(folder, "--model", str(model), "--name", "tiny", "--keep-alive", "0.2", cache=folder / "cache").wait()
    yield running
    workers = running.workers()
    assert running.stop() == -signal.SIGTERM
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


@pytest.fixture(scope="session")
def loaded() -> LanguageModel:
    """The same model in this process."""
    return locore.load("tiny")


@pytest.fixture
def tiny(loaded: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    """It, without a table, as in the server, whatever other tests have prepared."""
    monkeypatch.setattr(ngram, "_in_memory", {})
    settle(loaded, use=False)
    return loaded


@pytest.fixture(scope="session")
def client(server: Server) -> openai.OpenAI:
    return server.client()
