"""What goes wrong hurts one request at most, and that one is told: dead workers, deadlines, full queues, clients that leave."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.server.apart_alone import children
from tests.server.conftest import PATIENCE, Server, until

QUICK = {"model": "tiny", "prompt": "I", "max_tokens": 2, "constraint": {"type": "choice", "texts": [" am"]}}
# Minutes of work for one core, in small steps; 310 MB.
LONG = {"model": "tiny", "prompt": "I", "max_tokens": 60, "sampler": "lcr-published", "num_particles": 16}
TIMEOUT = 30


@pytest.fixture(scope="module")
def fragile(tmp_path_factory):
    """Without a key and a chat template; two may wait, nobody long, and a worker may not grow much."""
    options = ("--queue-size", "2", "--timeout", str(TIMEOUT), "--memory", "1150000000", "--compile-memory", "100000000")
    running = Server(tmp_path_factory.mktemp("fragile"), *options, "--together", "1", "--compile-seconds", "3", key=None).wait()
    yield running
    running.stop()


def send(server: Server, body: dict) -> socket.socket:
    """A request whose answer is not waited for."""
    place = urlsplit(server.url)
    line = socket.create_connection((place.hostname, place.port))
    content = json.dumps(body).encode()
    line.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        + f"Content-Length: {len(content)}\r\n\r\n".encode()
        + content
    )
    return line


def test_requests_outlive_workers_that_are_killed(fragile):
    """They are done again from their seeds, and have the answers that they have otherwise."""
    before = fragile.metric("locore_worker_restarts_total")
    some = {
        **QUICK,
        "max_tokens": 100,  # longer than the pause before the kill
        "num_particles": 16,
        "sampler": "smc",
        "constraint": {"type": "contains", "text": " am"},
    }
    asked = [{**some, "seed": 1}, {**QUICK, "seed": 2}]
    expected = [fragile.post(body)[2]["choices"][0]["text"] for body in asked]
    workers = fragile.workers()
    forks = [fork for pid in workers for fork in children(pid)]
    with ThreadPoolExecutor() as pool:
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)  # neither ends before both are there, however slowly this process is served
        found = [pool.submit(fragile.post, body) for body in asked]
        until(lambda: fragile.metric("locore_runs") + fragile.metric("locore_queue_depth") == 2)
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.2)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        answers = [answer.result()[2] for answer in found]
    assert [answer["choices"][0]["text"] for answer in answers] == expected, answers
    assert fragile.metric("locore_worker_restarts_total") == before + 1
    until(lambda: not any(Path(f"/proc/{fork}").exists() for fork in forks))  # what compiles apart ends with its worker


@pytest.mark.slow
def test_an_idle_worker_that_is_killed_costs_no_request(fragile):
    for pid in fragile.workers():
        os.kill(pid, signal.SIGKILL)
    until(lambda: fragile.get("/ready")[0] == 503)
    fragile.wait()
    assert fragile.post(QUICK)[0] == 200


@pytest.mark.slow
def test_a_deadline_is_kept_and_the_worker_survives(fragile):
    workers = fragile.workers()
    status, headers, body = fragile.post(LONG)
    assert (status, body["error"]["code"], headers["x-should-retry"]) == (504, "timeout", "false")
    assert int(re.search(r"spent ([\d,]+) LM tokens", body["error"]["message"])[1].replace(",", "")) > 0
    assert fragile.post(QUICK)[0] == 200
    assert fragile.workers() == workers


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_the_worker(fragile, stream):
    """The worker itself says that it has stopped, and why."""
    workers, before = fragile.workers(), stopped(fragile, "left")
    with send(fragile, {**LONG, "stream": stream}) as line:
        until(lambda: fragile.metric("locore_runs") == 1)
        if stream:
            assert line.recv(1000).startswith(b"HTTP/1.1 200")  # the stream has begun
    until(lambda: fragile.metric("locore_runs") == 0)
    assert stopped(fragile, "left") == before + 1
    assert fragile.post(QUICK)[0] == 200
    assert fragile.workers() == workers


def stopped(server: Server, reason: str) -> float:
    lines = server.get("/metrics")[1].decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith(f'locore_stopped_total{{reason="{reason}"}}'))


def test_a_full_queue_says_when_to_come_again(fragile):
    lines = [send(fragile, LONG)]
    until(lambda: fragile.metric("locore_runs") == 1)
    lines += [send(fragile, LONG) for _ in range(2)]
    until(lambda: fragile.metric("locore_queue_depth") == 2)
    status, headers, body = fragile.post(QUICK)
    assert (status, body["error"]["code"], body["error"]["type"]) == (429, "queue_full", "rate_limit_error")
    assert int(headers["retry-after"]) > 0
    for line in lines:
        line.close()
    until(lambda: fragile.metric("locore_queue_depth") == fragile.metric("locore_runs") == 0)
    assert fragile.post(QUICK)[0] == 200


@pytest.mark.slow
def test_a_request_that_takes_too_much_memory_is_told(fragile):
    """4,096 rows of 2,048 probabilities, many times: 1.7 GB."""
    large = {**QUICK, "constraint": {"type": "true"}, "max_tokens": 50, "num_particles": 4096, "sampler": "masked"}
    status, headers, body = fragile.post(large)
    assert (status, body["error"]["code"], headers["x-should-retry"]) == (500, "out_of_memory", "false")
    fragile.wait()
    assert fragile.post(QUICK)[0] == 200


def test_a_compile_that_takes_too_long_is_told(fragile):
    phrases = [f"{i:x}{i * 7919:x}{i * 104729:x}" for i in range(20_000)]
    status, _, body = fragile.post(
        {**QUICK, "max_tokens": 100, "constraint": {"type": "count", "strings": phrases, "at_most": 400}}
    )
    assert (status, body["error"]["code"]) == (400, "budget_exceeded")


def test_a_slow_body_does_not_hold_up_others(fragile):
    place = urlsplit(fragile.url)
    lines = [socket.create_connection((place.hostname, place.port)) for _ in range(50)]
    for line in lines:
        line.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
    assert fragile.post(QUICK)[0] == 200
    for line in lines:
        line.close()


def test_a_model_without_a_template_takes_no_messages(fragile):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]}
    status, _, answer = fragile.post(body, "/v1/chat/completions")
    assert (status, answer["error"]["code"]) == (400, "no_chat_template")


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_ends_the_server_with_the_reason(tmp_path):
    server = Server(tmp_path, "--device", "abacus", key=None)
    assert server.process.wait(PATIENCE) == 2
    log = server.log.read_text()
    assert "error: This torch cannot compute on 'abacus'" in log.splitlines()[-1]
    assert "Traceback" not in log and "started again" not in log
