"""Reading and compiling apart without a server, for test_apart.

`python -m tests.server.apart_alone` forks before anything has threads.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from locore.circuits import Circuit
from locore.compilers import compile
from locore.constraints import contains, json_schema, regex, word_count
from locore.kernel.errors import LocoreError
from locore.kernel.limits import Limits, check_progress, watched
from locore.models.by_name import load
from locore.server import apart
from locore.server.apart import Value
from locore.server.compute import read
from locore.server.task import Task

LONG = 0.3  # seconds: more than a moment
LIMITS = Limits(seconds=1.0, memory=500_000_000)
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 12}}}
CONSTRAINTS = {
    "regex": regex("(a|b| )*a(a|b| ){7}.*"),
    "words": word_count(3, 5),
    "schema": json_schema(SCHEMA),
    "contains": contains(" dog"),
    "impossible": contains(" dog") & regex("[a-c]*"),
}


def lark(rules: int) -> str:
    """A chain of rules."""
    return "\n".join(["start: r0", *(f"r{i}: r{i + 1}" for i in range(rules)), f'r{rules}: "a"'])


TASKS = {
    "stop and bad words": Task("It was", 8, contains(" dog").to_json(), stop=["."], bad_words=["cat"]),
    "a chain of rules": Task("It was", 8, {"type": "grammar", "text": lark(300)}),
    "a long constant": Task("It was", 8, {"type": "json_schema", "schema": {"const": "ab" * 400}}),
    "no pattern": Task("It was", 8, {"type": "regex", "pattern": "("}),
}


def busy(seconds: float, asks: bool = True) -> None:
    """Work that may be stopped, or none."""
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        if asks:
            check_progress("a hog", "take less")


def slowly(make: Callable[[], Value]) -> Value:
    """What it returns, after longer than a moment."""
    busy(LONG)
    return make()


def large() -> Circuit:
    """More memory at once than a compile may have, which nobody asks for."""
    busy(LONG)
    raise AssertionError(len(bytearray(5_000_000_000)))


def endless() -> Circuit:
    """Longer than a compile may take, without asking any more once it is apart."""
    busy(LONG)
    busy(60.0, asks=False)
    raise AssertionError("it was to be ended")


def broken() -> Circuit:
    """A fault of the library."""
    busy(LONG)
    raise ZeroDivisionError("a fault")


class Left(BaseException):
    """Nobody waits any more."""


def outcome(make: Callable[[], Any]) -> str:
    """The name of an error, or a value."""
    try:
        return str(make())
    except (LocoreError, ZeroDivisionError, Left) as error:
        return type(error).__name__


def children(pid: int) -> list[int]:
    """Processes of a process."""
    return [int(number) for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def main() -> None:
    """A line of JSON: what became of each."""
    apart.LATE = 0.0
    line = apart.forking()
    assert line is not None
    model, seconds = load("tiny"), list[float]()
    (fork,) = children(os.getpid())
    compiles = apart.Apart(line, model.tokenizer, LIMITS, 2)
    there, found = partial(compiles.compute, "me", charge=seconds.append), dict[str, Any]()
    for name, constraint in CONSTRAINTS.items():
        make = partial(compile, constraint, model.tokenizer, 8, limits=LIMITS, use_cache=False)
        found[name] = [outcome(partial(_content, make)), outcome(partial(_content, partial(there, partial(slowly, make))))]
    for name, task in TASKS.items():
        reading = partial(read, task, model.tokenizer, LIMITS)
        found[name + ", read"] = [outcome(reading), outcome(partial(there, partial(slowly, reading)))]
    found["seconds"] = seconds
    for make in (large, endless, broken):
        found[make.__name__] = outcome(partial(there, make))
    end = time.monotonic() + 1.0

    def check() -> None:
        if time.monotonic() > end:
            raise Left

    with watched(check):
        found["left"] = outcome(partial(there, partial(slowly, partial(busy, 60.0))))
    time.sleep(0.5)
    found["still there"] = len(children(fork))
    os.kill(fork, signal.SIGKILL)
    found["without"] = outcome(partial(there, partial(slowly, partial(int, 7))))
    print(json.dumps(found))


def _content(make: Callable[[], Circuit]) -> str:
    circuit = make()
    return f"{circuit.length} {circuit.count():,}"


if __name__ == "__main__":
    main()
