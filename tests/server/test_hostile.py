"""Whatever is asked is answered or refused in words: no internal error, nobody blocked."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from tests.server.conftest import Server, until
from tests.server.hostile import Hostile
from tests.server.test_faults import LONG, QUICK, send

ALLOWED = {200, 400, 404, 413, 422, 501, 504}
MANY = int(os.environ.get("LOCORE_HOSTILE_REQUESTS", "10000"))
HALF_OPEN = 2000  # more than are kept
VANISHING = 200
HEADER = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"a" * 1000
RESET = struct.pack("ii", 1, 0)


def answers(server: Server, seeds: range, clients: int = 8) -> Counter:
    """Statuses of hostile requests; what is neither a text nor a refusal in words is shown with its request."""

    def ask(seed: int) -> int:
        body = Hostile(seed).body()
        status, headers, answer = server.request("POST", "/v1/completions", body)
        if status == 200 and "event-stream" in headers["content-type"]:
            return status
        told = json.loads(answer)
        good = status == 200 if "choices" in told else status in ALLOWED and len(told["error"]["message"]) > 10
        assert good, f"{status} {answer[:300]!r} for seed {seed}: {body[:2000]!r}"
        return status

    with ThreadPoolExecutor(clients) as pool:
        return Counter(pool.map(ask, seeds))


def test_hostile_requests_are_answered_or_refused(server):
    """Of both kinds there are some, or the generator would test nothing."""
    workers = server.workers()
    found = answers(server, range(30))
    assert found[200] > 1 and found[400] > 7
    assert server.workers() == workers


@pytest.mark.slow
def test_many_hostile_requests(server):
    """Meanwhile a good one is answered, and the worker stays the same."""
    workers = server.workers()
    print(answers(server, range(1000, 1000 + MANY)))
    assert server.workers() == workers
    assert server.post({"model": "tiny", "prompt": "I", "max_tokens": 2})[0] == 200


@pytest.mark.slow
def test_half_open_connections_shut_nobody_out(server):
    """More than are kept at a time, each sends a header byte by byte and has a new connection when it is closed."""
    place, over, dropped = urlsplit(server.url), threading.Event(), 0

    def opened() -> socket.socket:
        return socket.create_connection((place.hostname, place.port))

    def drip() -> None:
        nonlocal dropped
        sent = [0] * HALF_OPEN
        while not over.is_set():
            for i in range(HALF_OPEN):
                try:
                    lines[i].sendall(HEADER[sent[i] : sent[i] + 1])
                    sent[i] += 1
                except OSError:
                    dropped += 1
                    lines[i].close()
                    lines[i], sent[i] = opened(), 0

    lines = [opened() for _ in range(HALF_OPEN)]
    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        until(lambda: dropped > HALF_OPEN)
        assert {server.post(QUICK)[0] for _ in range(20)} == {200}
        with send(server, {}) as line:
            assert line.recv(12) == b"HTTP/1.1 401"
    finally:
        over.set()
        dripping.join()
        for line in lines:
            line.close()
    assert server.post(QUICK)[0] == 200


@pytest.mark.slow
def test_clients_that_vanish_leave_nothing(server):
    """In the middle of a body, of a computation or of a stream, by a farewell or by a reset."""
    workers, place = server.workers(), urlsplit(server.url)
    key = f"Authorization: Bearer {server.key}".encode()

    def vanish(seed: int) -> None:
        rng = random.Random(seed)
        body = json.dumps({**rng.choice([LONG, QUICK]), "stream": rng.random() < 0.5}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + key
        content = head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        with socket.create_connection((place.hostname, place.port)) as line, suppress(OSError):
            line.sendall(content[: rng.choice([len(content), rng.randrange(len(content))])])
            time.sleep(rng.uniform(0, 0.5))
            if rng.random() < 0.5:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(vanish, range(VANISHING)))
        assert server.post(QUICK)[0] == 200
    until(lambda: server.metric("locore_runs") == server.metric("locore_queue_depth") == 0)
    assert server.workers() == workers and server.post(QUICK)[0] == 200
    assert "internal error" not in server.log.read_text()
