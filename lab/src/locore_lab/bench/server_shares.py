"""What one client of `locore serve` can take from the others: hostile mixes beside eight good clients.

A server for each mix. Eight good clients, each at an address of its own, send small requests one after the other, first
alone and then beside the hostile ones, who are at one address together. Every row says what the good ones had, and what
became of the worker. `memory`, `deaths` and `rounding` are rows without hostile clients: growth over many constraints, a
worker that is killed again and again, answers alone and beside others. `hostile` has nobody else.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from multiprocessing import get_context
from multiprocessing.queues import Queue
from typing import Annotated, Any

from locore.kernel.limits import resident_memory
from locore_lab.bench.serving import PATIENCE, Server, body, listed
from locore_lab.harness import Case, Row, Some, measurement

GOOD = 8
SECONDS = 30  # for an answer
LOOK = 0.1  # seconds between looks at the memory of the worker
WORDS = ("sun", "rain", "dog", "day", "good", "little", "house", "red", "king", "night", "cold", "old")
Made = Callable[[int], dict[str, Any]]


def regex(pattern: str) -> dict[str, Any]:
    """A constraint."""
    return {"type": "regex", "pattern": pattern}


def schema_of(number: int) -> dict[str, Any]:
    """Two fields, whose names tell the schemas apart."""
    fields = {f"a{number}": {"type": "string", "maxLength": 12}, f"b{number}": {"type": "integer", "minimum": 0, "maximum": 99}}
    return {"type": "json_schema", "schema": {"type": "object", "properties": fields, "required": list(fields)}}


def various(number: int) -> dict[str, Any]:
    """One of forty small constraints of eight kinds."""
    rng = random.Random(number % 40)
    word = rng.choice(WORDS)
    kinds: list[dict[str, Any]] = [
        {"type": "contains", "text": f" {word}"},
        {"type": "ends_with", "text": f" {word}."},
        {"type": "ban", "phrases": rng.sample(WORDS, 4)},
        {"type": "word_count", "lo": rng.randint(2, 4), "hi": 6},
        {"type": "choice", "texts": [f" {one}" for one in rng.sample(WORDS, 3)]},
        regex(f"[A-Za-z ]+{word}[a-z ,]*\\.?"),
        schema_of(number % 40),
        {"type": "and", "of": [{"type": "contains", "text": f" {word}"}, {"type": "char_count", "lo": 5, "hi": 40}]},
    ]
    return kinds[number % len(kinds)]


def mixed(number: int) -> dict[str, Any]:
    """A small request of those constraints."""
    constraint = various(number)
    return {"prompt": "It was", "max_tokens": 30 if constraint["type"] == "json_schema" else 8, "constraint": constraint}


def lark(rules: int) -> str:
    """A chain of rules."""
    return "\n".join(["start: r0", *(f"r{i}: r{i + 1}" for i in range(rules)), f'r{rules}: "a"'])


# By name: clients that send it at the same time, again and again, and what they send.
MIXES: dict[str, tuple[int, Made]] = {
    "good ones more": (8, lambda i: {"prompt": f"It was {i}", "max_tokens": 8, "constraint": various(i)}),
    "F1 two fields of JSON, many schemas": (16, lambda i: {"max_tokens": 30, "constraint": schema_of(i)}),
    "F1 forty constraints of eight kinds": (20, mixed),
    "F2 1,025 particles": (1, lambda i: {"max_tokens": 60, "num_particles": 1025, "sampler": "smc"}),
    "F2 4,096 particles": (1, lambda i: {"max_tokens": 150, "num_particles": 4096, "sampler": "smc"}),
    "F2 eight of 256 × 500": (8, lambda i: {"max_tokens": 500, "num_particles": 256, "sampler": "smc"}),
    "F2 sixteen of 128 × 500": (16, lambda i: {"max_tokens": 500, "num_particles": 128, "sampler": "smc"}),
    "F3 two of 128 independent runs": (
        2,
        lambda i: {"n": 128, "independent": True, "max_tokens": 40, "constraint": various(i)},
    ),
    "F4 stop of 300 KB": (2, lambda i: {"stop": ["ab" * 150_000], "constraint": regex("[a-z ]+")}),
    "F4 64 stops of 5 KB": (2, lambda i: {"stop": [f"{j}" * 2_500 for j in range(10, 74)], "constraint": regex("[a-z ]+")}),
    "F6 fifty who leave at once": (50, lambda i: {"max_tokens": 200, "num_particles": 64, "leave": 0.3, "prompt": f"{i}"}),
    "F7 ends with 300 KB": (2, lambda i: {"constraint": {"type": "ends_with", "text": f"{i} a" * 100_000}}),
    "F7 bad words of 300 KB": (2, lambda i: {"bad_words": [f"{i} a" * 100_000]}),
    "F7 choice of 300 KB": (2, lambda i: {"constraint": {"type": "choice", "texts": [f"{i} a" * 100_000]}}),
    "F7 const of 30 KB": (2, lambda i: {"constraint": {"type": "json_schema", "schema": {"const": f"{i} a" * 10_000}}}),
    "F8 chain of 5,000 rules": (2, lambda i: {"constraint": {"type": "grammar", "text": f"// {i}\n{lark(5_000)}"}}),
    "patterns that explode": (4, lambda i: {"constraint": regex(f"{i}?(a|b| )*a(a|b| ){{{14 + i % 4}}}.*")}),
    "six patterns at once": (
        4,
        lambda i: {"constraint": {"type": "and", "of": [regex(f".*{w}.{{{i % 9}}}[a-m].*") for w in WORDS[:6]]}},
    ),
    "a hundred connections": (100, lambda i: {**mixed(i), "num_particles": 8}),
    "prompts of 900 KB": (4, lambda i: {"prompt": f"{i} it was" * 90_000, "max_tokens": 2}),
    "forty seconds of search": (4, lambda i: {"max_tokens": 60, "temperature": 0, "constraint": various(i), "prompt": f"{i}"}),
    "effort high": (16, lambda i: {"max_tokens": 40, "effort": "high", "constraint": various(i), "prompt": f"It was {i}"}),
    "worker killed every 5 s": (1, lambda i: {"kill": 5.0}),
}


class Client:
    """Sends requests from an address of its own, and remembers what came of them."""

    def __init__(self, server: Server, address: str) -> None:
        self._server, self._address = server, address
        self._line: HTTPConnection | None = None
        self.found: list[tuple[str, float]] = []  # status and code, and seconds

    def ask(self, asked: dict[str, Any]) -> None:
        """One request; one that says `leave` is left after so many seconds, and `kill` ends the worker after them."""
        asked = {"model": self._server.model, "prompt": "It was", **asked}
        if "kill" in asked:
            time.sleep(asked["kill"])
            return kill(self._server)
        timeout = asked.pop("leave", PATIENCE)
        if self._line is None or timeout != PATIENCE:
            self._line = self._server.line(timeout, self._address)
        status, answer, seconds = self._server.ask(asked, self._line)
        if status == 0:
            self._line = None
        self.found.append((told(status, answer), seconds))


def told(status: int, answer: dict[str, Any]) -> str:
    """What an answer is counted as."""
    return f"{status} {answer['error']['code']}" if "error" in answer else str(status or "cut off")


def kill(server: Server) -> None:
    """The worker, if there is one."""
    try:
        os.kill(server.worker(), signal.SIGKILL)
    except (OSError, IndexError):
        time.sleep(LOOK)


def run_for(seconds: float, calls: list[Callable[[], None]]) -> list[threading.Thread]:
    """Threads, each of which calls its own again and again for so long."""
    end = time.monotonic() + seconds

    def work(call: Callable[[], None]) -> None:
        while time.monotonic() < end:
            call()

    threads = [threading.Thread(target=work, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    return threads


def good_ones(server: Server, seconds: float, first: int) -> list[tuple[str, float]]:
    """What eight good clients had in so many seconds."""
    clients = [Client(server, f"127.0.1.{number + 1}") for number in range(GOOD)]
    numbers = itertools.count(first)
    threads = run_for(seconds, [partial(_next_good, client, numbers) for client in clients])
    for thread in threads:
        thread.join()
    return [one for client in clients for one in client.found]


def _next_good(client: Client, numbers: Iterator[int]) -> None:
    asked = body("", next(numbers))
    del asked["model"]
    client.ask(asked)


@contextmanager
def seen_memory(server: Server) -> Iterator[list[int]]:
    """The most that the worker had, as looks go on."""
    most, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(LOOK):
            try:
                most[0] = max(most[0], resident_memory(server.worker()))
            except (OSError, IndexError):
                continue

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def percentile(found: list[tuple[str, float]], share: float) -> float | None:
    """Of the seconds of those that had a text."""
    seconds = sorted(took for status, took in found if status == "200")
    return seconds[min(len(seconds) - 1, int(share * len(seconds)))] if seconds else None


@contextmanager
def serving(model: str, seconds: int, options: list[str]) -> Iterator[Server]:
    """A server that is gone afterwards, whatever happens."""
    server = Server(model, seconds, *options)
    try:
        yield server
    finally:
        server.process.kill()


def beside(model: str, name: str, seconds: float, options: list[str]) -> Row:
    """The good ones alone, and beside a mix."""
    with serving(model, SECONDS, options) as server:
        good_ones(server, seconds / 3, 0)  # what is compiled once
        alone = good_ones(server, seconds / 2, 0)
        context = get_context("fork")
        had: Queue[Counter[str]] = context.Queue()
        others = context.Process(target=hostile_ones, args=(server, name, seconds, had), daemon=True)
        with seen_memory(server) as most:
            others.start()
            time.sleep(min(1.0, seconds / 10))
            found = good_ones(server, seconds, 0)
        statuses = Counter(status for status, _ in found)
        refused = sum(count for status, count in statuses.items() if status[:3] in ("429", "400"))
        slow, usual = percentile(found, 0.95), percentile(alone, 0.95)
        return {
            "alone": usual,
            "p50": percentile(found, 0.5),
            "p95": slow,
            "times": slow / usual if slow and usual else None,
            "answered": statuses["200"],
            "refused": refused,
            "lost": sum(statuses.values()) - statuses["200"] - refused,
            "kills": int(server.metric("locore_worker_restarts_total")),
            "megabytes": most[0] / 1e6,
            "hostile": listed(had.get(timeout=PATIENCE)),
        }


def hostile_ones(server: Server, name: str, seconds: float, had: Queue[Counter[str]]) -> None:
    """In a process of its own, so that the good ones have Python to themselves: tells what became of the requests of a mix."""
    number, made = MIXES[name]
    numbers, clients = itertools.count(), [Client(server, "127.0.2.1") for _ in range(number)]
    run_for(seconds, [partial(_next_hostile, client, made, numbers) for client in clients])
    time.sleep(seconds)
    had.put(Counter(status for client in clients for status, _ in client.found))


def _next_hostile(client: Client, made: Made, numbers: Iterator[int]) -> None:
    client.ask(made(next(numbers)))


def answered(server: Server, address: str, asked: dict[str, Any]) -> str:
    """What became of one request."""
    client = Client(server, address)
    client.ask(asked)
    return client.found[0][0]


def small(number: int) -> dict[str, Any]:
    """One of the mixed requests, with a seed."""
    return {**mixed(number), "seed": number, "num_particles": 8}


def survived(server: Server, had: str, seen: str) -> Row:
    """A row without hostile clients beside good ones."""
    return {"kills": int(server.metric("locore_worker_restarts_total")), "hostile": had, "seen": seen}


def memory(model: str, requests: int, options: list[str]) -> Row:
    """The worker after the tenth hundred of mixed requests, or a third of them, and after all."""
    found, first, sizes = Counter[str](), min(1000, requests // 3), []
    with serving(model, SECONDS, options) as server, ThreadPoolExecutor(16) as pool, seen_memory(server) as most:
        for some in (range(first), range(first, requests)):
            found.update(pool.map(lambda number: answered(server, "127.0.1.1", small(number)), some))
            time.sleep(2 + LOOK)
            sizes.append(resident_memory(server.worker()) / 1e6)
        seen = f"{sizes[0]:.0f} MB after {first:,}, {sizes[1]:.0f} MB after {requests:,}, at most {most[0] / 1e6:.0f} MB"
        return survived(server, listed(found), seen)


def deaths(model: str, requests: int, kills: int, options: list[str]) -> Row:
    """A worker that is killed again and again, the requests between evenly: each has one answer."""
    over, died, done = threading.Event(), 0, list[int]()
    with serving(model, 10 * SECONDS, options) as server:

        def ask(number: int) -> str:
            status = answered(server, f"127.0.1.{number % GOOD + 1}", small(number))
            done.append(number)
            return status

        def killing() -> None:
            nonlocal died
            while died < kills and not over.wait(LOOK):
                if len(done) >= (died + 0.5) * requests / kills and server.get("/ready") == 200:
                    kill(server)
                    died += 1

        thread = threading.Thread(target=killing)
        thread.start()
        with ThreadPoolExecutor(16) as pool:
            found = Counter(pool.map(ask, range(requests)))
        over.set()
        thread.join()
        return survived(server, listed(found), f"{died} kills")


def rounding(model: str, requests: int, options: list[str]) -> Row:
    """The same seeded requests alone, and beside each other: how many have another answer in anything but its cost."""
    with serving(model, 10 * SECONDS, options) as server:

        def ask(number: int) -> tuple[int, Any]:
            answer = server.ask({"model": model, **small(number), "n": 2})[1]
            texts = [choice["text"] for choice in answer.get("choices", ())]
            return number, (texts, answer.get("locore", {}).get("log_evidence"))

        alone = dict(map(ask, range(requests)))
        with ThreadPoolExecutor(20) as pool:
            beside = dict(pool.map(ask, range(requests)))
        texts, bits = (sum(alone[i][:part] != beside[i][:part] for i in alone) for part in (1, 2))
        seen = f"{texts} of {requests} have other texts beside others than alone, {bits} other texts or another log_evidence"
        return survived(server, f"{2 * requests} requests", seen)


HOSTILE = [name for name in MIXES if name.startswith(("F4", "F7", "F8", "patterns", "six", "prompts"))]
FIELDS = ["prompt", "max_tokens", "constraint", "stop", "n", "seed", "temperature", "sampler", "budget", "bad_words"]
ODD = (None, -1, 0, 1e400, True, "", "\ud800", "a" * 5_000, [], [[]], {}, {"type": "regex"}, {"$ref": "#"}, 2**70)


def hostile(model: str, requests: int, options: list[str]) -> Row:
    """Requests of all hostile kinds, every other one with odd values in fields that it has or has not, from 32 clients."""
    with serving(model, 10 * SECONDS, options) as server:

        def ask(number: int) -> str:
            draw = random.Random(number)
            asked = {"max_tokens": 8, "num_particles": 4, **MIXES[draw.choice(HOSTILE)][1](number)}
            if number % 2:
                asked |= {draw.choice(FIELDS): draw.choice(ODD) for _ in range(2)}
            return answered(server, f"127.0.1.{number % 32 + 1}", asked)

        with ThreadPoolExecutor(32) as pool, seen_memory(server) as most:
            found = Counter(pool.map(ask, range(requests)))
        wrong = sum(count for status, count in found.items() if status.startswith("500"))
        return survived(server, listed(found), f"{wrong} internal errors, at most {most[0] / 1e6:.0f} MB")


OTHERS = ("memory", "deaths", "rounding", "hostile")


@measurement(
    "mix | p95 alone | p50 beside | p95 beside | times | answered | refused | lost | worker kills | worker MB | hostile had",
    "{mix} | {alone:.2f} s | {p50:.2f} s | {p95:.2f} s | {times:.1f} | {answered} | {refused} | {lost} | {kills} | "
    "{megabytes:.0f} | {hostile}",
    quick={"seconds": 3.0, "requests": 30, "attacks": 30, "only": ["good ones more", "memory"]},
    others=("run | what requests had | worker kills | seen", "{mix} | {hostile} | {kills} | {seen}"),
)
def run(
    model: str = "tiny",
    seconds: Annotated[float, "of each row beside hostile clients"] = 20.0,
    requests: Annotated[int, "of the row on memory"] = 3000,
    killed: Annotated[int, "times, in the row on deaths, during 50 requests each"] = 10,
    attacks: Annotated[int, "requests of the row on hostile ones alone"] = 10_000,
    only: Annotated[Some, f"mixes that begin like that, {', '.join(OTHERS)}"] = None,
    option: Annotated[Some, "of the server, as --memory=4e9"] = None,
) -> Iterator[Case]:
    options = ["--compile-seconds", "10", *(option or ())]
    begins = tuple(only or ("",))
    for name in filter(lambda name: name.startswith(begins), MIXES):
        yield {"mix": name}, partial(beside, model, name, seconds, options)
    others = {
        "memory": partial(memory, model, requests, options),
        "deaths": partial(deaths, model, 50 * killed, killed, options),
        "rounding": partial(rounding, model, 200, options),
        "hostile": partial(hostile, model, attacks, options),
    }
    for name in filter(lambda name: name.startswith(begins), OTHERS):
        yield {"part": "others", "mix": name}, others[name]
