"""Whatever is asked is answered or refused in words: no internal error, nobody blocked."""

from __future__ import annotations

import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from tests.server.conftest import Server
from tests.server.hostile import Hostile
from tests.server.test_faults import send

ALLOWED = {200, 400, 404, 413, 422, 501, 504}
MANY = int(os.environ.get("LOCORE_HOSTILE_REQUESTS", "10000"))
HALF_OPEN = 1100  # more than are kept


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
    found = answers(server, range(80))
    assert found[200] > 5 and found[400] > 20
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
    """More than are kept at a time, each with a byte of a header."""
    import socket

    place = urlsplit(server.url)
    with ExitStack() as stack:
        for _ in range(HALF_OPEN):
            line = stack.enter_context(socket.create_connection((place.hostname, place.port)))
            line.sendall(b"P")
        assert server.post({"model": "tiny", "prompt": "I", "max_tokens": 2})[0] == 200
        with send(server, {}) as line:
            assert line.recv(12) == b"HTTP/1.1 401"
