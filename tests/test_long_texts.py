"""Whatever a constraint does with a long text looks at the clock on its way: few calls of functions lie between two looks."""

from __future__ import annotations

import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import locore
from locore.kernel.errors import BudgetExceeded, LocoreError
from locore.kernel.limits import Limits, watched

SIZE = 30_000 if os.environ.get("LOCORE_THOROUGH") else 300
HORIZON = 6
ORDINARY, PARSED = 4, 150  # calls a byte; Python's own parser of regular expressions, and lark's, do not look


@pytest.fixture(scope="module")
def model():
    return locore.load("tiny")


def written(size):
    generator = random.Random(size)
    return "".join(generator.choice("abcdefghij") for _ in range(size))


def closed(name):
    return {"type": "object", "properties": {name: {"type": "integer"}}, "required": [name], "additionalProperties": False}


KINDS = {
    "ends_with": (locore.ends_with, ORDINARY),
    "starts_with": (locore.starts_with, ORDINARY),
    "choice": (lambda text: locore.choice([text, text[:-1] + "z"]), ORDINARY),
    "ban": (lambda text: locore.ban([text]), ORDINARY),
    "ban words": (lambda text: locore.ban([text], words=True, ignore_case=True), ORDINARY),
    "contains": (lambda text: locore.contains([text, text[::-1]], ordered=True), ORDINARY),
    "count": (lambda text: locore.count([text], at_most=3), ORDINARY),
    "before": (lambda text: locore.before([text], locore.ends_with(".")), ORDINARY),
    "const": (lambda text: locore.json_schema({"const": text}), PARSED),
    "enum": (lambda text: locore.json_schema({"enum": [text, text[:-1] + "z"]}), PARSED),
    "name": (lambda text: locore.json_schema(closed(text)), PARSED),
    "regex": (locore.regex, PARSED),
    "pattern": (lambda text: locore.json_schema({"type": "string", "pattern": f"^{text}$"}), PARSED),
}


def longest_gap(work):
    """Calls of functions between two looks, at most."""
    calls, gaps = 0, [0]

    def look():
        nonlocal calls
        gaps.append(calls)
        calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    def looked_at() -> None:
        with watched(look):
            sys.setprofile(count)
            try:
                work()
            finally:
                sys.setprofile(None)

    # In a thread of its own: where other tests had switched stacks (Playwright's greenlets), a profiler did not come back.
    with ThreadPoolExecutor(1) as own:
        own.submit(looked_at).result()
    return max(*gaps, calls)


@pytest.mark.parametrize("kind", KINDS)
def test_work_on_a_long_text_looks_at_the_clock(model, kind):
    build, calls = KINDS[kind]

    def work():
        with suppress(LocoreError):  # no text of so many tokens is so long
            locore.compile(build(written(SIZE)), model, HORIZON)

    with suppress(LocoreError):
        locore.compile(build("ab"), model, 4)  # what is made once, whatever the text
    assert longest_gap(work) < calls * SIZE + 20_000


@pytest.mark.parametrize("kind", KINDS)
def test_without_time_it_ends_at_once(model, kind):
    with pytest.raises(BudgetExceeded), Limits(seconds=1e-9).enforced():
        locore.compile(KINDS[kind][0](written(SIZE + 1)), model, HORIZON)
