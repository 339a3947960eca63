"""`locore serve` under load and under faults.

A server in a process of its own, asked over loopback: one client against several, each with prompts and constraints of its own;
the first byte of a stream; streams at low effort beside masked ones; a keep-alive request that computes nothing; a worker that
is killed; connections that never send a whole header; a stop while requests run. Every row says what was seen.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from locore.kernel.limits import resident_memory
from locore_lab.harness import Case, Row, Some, measurement

RUN = "import sys; from locore.cli import main; sys.exit(main())"
PROMPTS = ("The weather is", "Once upon a time", "A dog", "My friend said", "In the morning", "The king")
WORDS = (" sun", " rain", " dog", " day", " good", " little", " house", " red")
TOKENS, PARTICLES = 8, 8
PATIENCE = 300.0
STREAMED_TOKENS = 20
FIELDS = {"city": {"enum": ["Rome", "Oslo", "New York"]}, "degrees": {"type": "integer", "minimum": 0, "maximum": 40}}
STREAMED = {
    "no constraint": {"type": "true"},
    "a ban": {"type": "ban", "phrases": [" awful", " bad"]},
    "a word to mention": {"type": "contains", "text": " sun"},
    "a sentence": {"type": "regex", "pattern": r"[A-Za-z ,']+\."},
    "one of three": {"type": "choice", "texts": [" sunny today", " rainy today", " cold and grey"]},
    "an object": {
        "type": "json_schema",
        "schema": {"type": "object", "properties": FIELDS, "required": list(FIELDS), "additionalProperties": False},
    },
}
HALF_OPEN = 2000
HEADER = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"a" * 10_000
PARTS = ("latency", "streams", "rows", "load", "half-open", "constraints", "kill", "stop")


def tried(what: str, seen: str) -> Row:
    """One thing that was tried, and what was seen."""
    return {"what": what, "seen": seen}


class Server:
    """`locore serve` at a free port."""

    def __init__(self, model: str, timeout: int = 120, *options: str) -> None:
        """With options of `locore serve`; a queue that is not full soon where there are none."""
        command = [sys.executable, "-c", RUN, "serve", "--model", model, "--port", "0", "--timeout", str(timeout)]
        command += options or ("--queue-size", "500")
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet, text=True)
        assert self.process.stdout is not None
        place = urlsplit(self.process.stdout.readline().strip())
        self.host, self.port, self.model = str(place.hostname), int(place.port or 0), model
        self.wait()

    def line(self, timeout: float = PATIENCE, address: str = "") -> HTTPConnection:
        """A connection of its own, from this address of the machine."""
        return HTTPConnection(self.host, self.port, timeout=timeout, source_address=(address, 0) if address else None)

    def wait(self) -> None:
        """Until the model is loaded."""
        while self.get("/ready") != 200:
            time.sleep(0.2)

    def get(self, path: str) -> int:
        """The status of a path."""
        line = self.line()
        line.request("GET", path)
        return line.getresponse().status

    def metric(self, name: str) -> float:
        """What /metrics says, summed over labels."""
        line = self.line()
        line.request("GET", "/metrics")
        lines = line.getresponse().read().decode().splitlines()
        return sum(float(one.rsplit(" ", 1)[1]) for one in lines if one.split("{")[0].split(" ")[0] == name)

    def ask(self, body: dict[str, Any], line: HTTPConnection | None = None) -> tuple[int, dict[str, Any], float]:
        """Status, answer and seconds; status 0 where the connection broke."""
        start, line = time.perf_counter(), line or self.line()
        try:
            line.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = line.getresponse()
            return answer.status, json.loads(answer.read()), time.perf_counter() - start
        except (OSError, HTTPException, ValueError):
            return 0, {}, time.perf_counter() - start

    def streamed(self, body: dict[str, Any]) -> tuple[float, float, int]:
        """A stream: the worker's seconds on the processor until its first piece and in all, and its pieces."""
        line, start, pieces, first = self.line(), self.used(), 0, 0.0
        line.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        answer = line.getresponse()
        while (event := answer.readline()) != b"":
            if event.startswith(b"data: {") and any(choice["text"] for choice in json.loads(event[6:])["choices"]):
                pieces += 1
                first = first or self.used() - start
        return first, self.used() - start, pieces

    def used(self) -> float:
        """Seconds that the worker has been on a processor."""
        fields = Path(f"/proc/{self.worker()}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def worker(self) -> int:
        """The process that holds the model: what the server's own child has forked."""
        return _first_child(_first_child(self.process.pid))


def _first_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def body(model: str, number: int, mixed: bool = True) -> dict[str, Any]:
    """A small request; mixed ones differ in prompt and constraint."""
    rng = random.Random(number if mixed else 0)
    constraint = rng.choice(
        [
            {"type": "contains", "text": rng.choice(WORDS)},
            {"type": "ends_with", "text": "."},
            {"type": "ban", "phrases": rng.sample(WORDS, 3)},
            {"type": "word_count", "lo": rng.randint(3, 5), "hi": 6},
        ]
    )
    asked = {"prompt": rng.choice(PROMPTS), "max_tokens": TOKENS, "num_particles": PARTICLES, "seed": number}
    return {"model": model, "constraint": constraint, **asked}


def load(server: Server, clients: int, requests: int, mixed: bool) -> tuple[float, list[float], int]:
    """Requests a second, seconds of each, and how many had no text."""
    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(lambda number: server.ask(body(server.model, number, mixed)), range(requests)))
    seconds = [one for _, _, one in found]
    return requests / (time.perf_counter() - start), sorted(seconds), sum(status != 200 for status, _, _ in found)


def under_load(server: Server, requests: int, numbers: list[int]) -> Iterator[Row]:
    """Throughput and latency by the number of clients; the first number is what the others are compared with."""
    alone: dict[bool, tuple[float, float]] = {}
    load(server, 4, 24, True)  # what is compiled once
    for mixed in (True, False):
        for clients in numbers:
            rate, seconds, lost = load(server, clients, max(requests, clients), mixed)
            p50, p95, p99 = (seconds[min(len(seconds) - 1, int(share * len(seconds)))] for share in (0.5, 0.95, 0.99))
            alone.setdefault(mixed, (rate, p95))
            times = f"{rate / alone[mixed][0]:.1f} times the throughput of one, p95 {p95 / alone[mixed][1]:.1f} times"
            kind = "different constraints" if mixed else "one constraint"
            seen = f"{rate:.2f} requests/s, p50 {p50:.2f} s, p95 {p95:.2f} s, p99 {p99:.2f} s, {lost} without a text; {times}"
            yield tried(f"{clients} clients, {kind}", seen)


def latencies(server: Server) -> list[Row]:
    """What costs nothing should take nothing."""
    line, found = server.line(), []
    for _ in range(50):
        start = time.perf_counter()
        line.request("GET", "/health")
        line.getresponse().read()
        found.append(time.perf_counter() - start)
    kept = tried("50 requests for /health on one connection", f"median {1000 * statistics.median(found):.1f} ms")
    line, start = server.line(), time.perf_counter()
    long = {**body(server.model, 1), "max_tokens": 200, "num_particles": 64, "stream": True}
    line.request("POST", "/v1/completions", json.dumps(long), {"Content-Type": "application/json"})
    line.getresponse().read(1)
    first = time.perf_counter() - start
    line.close()
    return [kept, tried("first byte of a stream of a long request", f"{first:.2f} s")]


def streams(server: Server, number: int) -> Iterator[Row]:
    """Streams at low effort and masked ones (one particle, as engines have it), in turn: until the first piece, and in all.

    Seconds are the worker's on the processor, which other work on the machine hardly changes.
    """
    for name, constraint in STREAMED.items():
        kinds: dict[str, dict[str, Any]] = {"masked": {"sampler": "masked", "num_particles": 1}, "low": {"effort": "low"}}
        asked = {"model": server.model, "prompt": PROMPTS[0], "max_tokens": STREAMED_TOKENS, "constraint": constraint}
        for how in kinds.values():
            server.streamed({**asked, **how, "seed": number})  # what is compiled once
        found: dict[str, list[tuple[float, float, int]]] = {kind: [] for kind in kinds}
        for seed in range(number):
            for kind, how in kinds.items():
                found[kind].append(server.streamed({**asked, **how, "seed": seed}))
        firsts = {kind: statistics.mean(first for first, _, _ in each) for kind, each in found.items()}
        wholes = {kind: statistics.mean(whole for _, whole, _ in each) for kind, each in found.items()}
        pieces = {kind: statistics.mean(pieces for _, _, pieces in each) for kind, each in found.items()}
        seen = ", ".join(
            f"{kind}: first piece after {firsts[kind]:.2f} s, all {pieces[kind]:.1f} after {wholes[kind]:.2f} s"
            for kind in kinds
        )
        yield tried(f"streams of {STREAMED_TOKENS} tokens, {name}", f"{seen}; {wholes['low'] / wholes['masked']:.2f} times")


def by_rows(server: Server, number: int) -> Iterator[Row]:
    """What texts cost that are read beside each other: masked ones, which share no beginning for long."""
    asked = {"model": server.model, "prompt": PROMPTS[0], "max_tokens": STREAMED_TOKENS, "sampler": "masked"}
    asked["min_tokens"] = STREAMED_TOKENS
    found: dict[int, list[float]] = {wide: [] for wide in (1, 2, 4, 8, 16)}
    for seed in range(-1, number):
        for wide, seconds in found.items():
            used = server.streamed({**asked, "num_particles": wide, "seed": abs(seed)})[1]
            seconds += [used] if seed >= 0 else []
    listed = ", ".join(f"{wide}: {statistics.mean(seconds):.2f} s" for wide, seconds in found.items())
    yield tried(f"CPU seconds of {STREAMED_TOKENS} passes by their rows", listed)


def kills(server: Server, requests: int) -> list[Row]:
    """A worker that dies: those that were running are told, the others have their texts."""
    with ThreadPoolExecutor(32) as pool:
        asked = [pool.submit(server.ask, body(server.model, number)) for number in range(requests)]
        while not any(one.done() for one in asked):
            time.sleep(0.01)
        os.kill(server.worker(), signal.SIGKILL)
        found = Counter(_told(one.result()) for one in asked)
    server.wait()
    again = server.ask(body(server.model, 1))[0]
    return [tried(f"kill -9 of the worker during {requests} requests", f"{listed(found)}; the next request: {again}")]


def half_open(server: Server) -> list[Row]:
    """Connections that send a header a byte at a time; for one that is closed another one is opened."""
    over, opened = threading.Event(), HALF_OPEN
    lines = [socket.create_connection((server.host, server.port)) for _ in range(HALF_OPEN)]

    def drip() -> None:
        nonlocal opened
        sent = [0] * HALF_OPEN
        while not over.is_set():
            for i, line in enumerate(lines):
                try:
                    line.sendall(HEADER[sent[i] : sent[i] + 1])
                    sent[i] += 1
                except OSError:
                    lines[i], sent[i] = socket.create_connection((server.host, server.port)), 0
                    opened += 1

    dripping = threading.Thread(target=drip)
    dripping.start()
    while opened < 2 * HALF_OPEN:
        time.sleep(0.1)
    found = [server.ask(body(server.model, number)) for number in range(10)]
    over.set()
    dripping.join()
    for line in lines:
        line.close()
    statuses, slowest = listed(Counter(map(_told, found))), max(seconds for _, _, seconds in found)
    what = f"{HALF_OPEN} half-open connections, which send a byte at a time and come again"
    return [tried(what, f"10 requests meanwhile: {statuses}, at most {slowest:.2f} s")]


def many_constraints(server: Server, number: int) -> list[Row]:
    """Constraints that were never seen before; memory of the worker before and after."""
    before = resident_memory(server.worker())

    def ask(i: int) -> int:
        rng = random.Random(i)
        words = ["".join(rng.choices("abcdefghij", k=5)) for _ in range(40)]
        return server.ask({**body(server.model, i), "constraint": {"type": "ban", "phrases": words}})[0]

    with ThreadPoolExecutor(8) as pool:
        found = Counter(map(str, pool.map(ask, range(number))))
    grown = (resident_memory(server.worker()) - before) / 1e6
    return [tried(f"{number} different constraints", f"{listed(found)}; the worker grew by {grown:.0f} MB")]


def stopped(server: Server) -> list[Row]:
    """SIGTERM while requests run and wait."""
    with ThreadPoolExecutor(40) as pool:
        asked = [pool.submit(server.ask, {**body(server.model, i), "max_tokens": 200, "num_particles": 64}) for i in range(40)]
        time.sleep(2)
        start = time.perf_counter()
        server.process.send_signal(signal.SIGTERM)
        found = Counter(_told(one.result()) for one in asked)
        server.process.wait(PATIENCE)
    return [tried("SIGTERM during 40 long requests", f"{listed(found)}; gone after {time.perf_counter() - start:.1f} s")]


def _told(found: tuple[int, dict[str, Any], float]) -> str:
    status, answer, _ = found
    return f"{status} {answer['error']['code']}" if "error" in answer else str(status or "cut off")


def listed(found: Counter[str]) -> str:
    """Each with its number, the most frequent first."""
    return ", ".join(f"{count} × {what}" for what, count in found.most_common()) or "none"


@measurement("tried | seen", "{what} | {seen}", quick={"requests": 6, "client": [1, 2], "only": ["latency", "load"]})
def run(
    model: str = "tiny",
    requests: Annotated[int, "of each row under load"] = 100,
    client: Annotated[list[int], "beside each other"] = (1, 4, 16, 100),
    streamed: Annotated[int, "streams of each kind, with seeds of their own"] = 5,
    only: Annotated[Some, f"some of {', '.join(PARTS)}"] = None,
) -> Iterator[Case]:
    server = Server(model)
    work: dict[str, Callable[[], list[Row]]] = {
        "latency": partial(latencies, server),
        "streams": lambda: list(streams(server, streamed)),
        "rows": lambda: list(by_rows(server, streamed)),
        "load": lambda: list(under_load(server, requests, client)),
        "half-open": partial(half_open, server),
        "constraints": partial(many_constraints, server, requests),
        "kill": partial(kills, server, requests),
        "stop": partial(stopped, server),
    }
    try:
        for part in only or PARTS:
            yield {"tried": part}, work[part]
    finally:
        server.process.kill()
