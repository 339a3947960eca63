"""Threads share a constraint: what it finds out on the way is found by one of them at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from locore.automata.byte_machine import Numbered
from locore.constraints import json_schema
from locore.kernel.errors import BudgetExceeded
from tests.effort import THOROUGH, some

THREADS = 8 if THOROUGH else 4
FIELDS = {f"f{i}": {"enum": [f"{i}{letter * 30}" for letter in "abcdef"]} for i in range(6)}
SCHEMA = {"type": "object", "properties": FIELDS, "required": list(FIELDS), "additionalProperties": False}
TEXT = b"{" + b", ".join(b'"f%d": "%d%s"' % (i, i, b"a" * 30) for i in range(6)) + b"}"


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(work) -> list:
    """What as many threads find at once."""
    barrier = Barrier(THREADS)

    def one(number: int):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))


def states(leaf, most: int) -> int:
    """Of the automaton; −1 where there are too many."""
    try:
        return len(leaf.automaton_within(most).table)
    except BudgetExceeded:
        return -1


@pytest.mark.parametrize("round_", some(range(4), 4))
def test_threads_that_share_a_schema_find_what_one_finds(round_):
    alone = json_schema(SCHEMA)
    whole, small = states(alone, 100_000), alone.is_small
    shared = json_schema(SCHEMA)
    assert together(lambda number: shared.is_small) == [small] * THREADS
    shared = json_schema(SCHEMA)
    found = together(lambda number: (shared.accepts(TEXT), shared.accepts(TEXT[: 9 * number + 1]), states(shared, 100_000)))
    assert found == [(True, False, whole)] * THREADS


@pytest.mark.parametrize("round_", some(range(4), 4))
def test_threads_that_share_a_machine_read_what_one_reads(round_):
    def read(machine) -> tuple[bool, float]:
        state = 0
        for byte in TEXT:
            state = int(machine.row(state)[byte])
        return machine.accepts(state), machine.least(state)

    shared = json_schema(SCHEMA).machine()
    assert together(lambda number: read(shared)) == [read(json_schema(SCHEMA).machine())] * THREADS


def test_numbers_are_given_once():
    numbered = Numbered[int]([0])
    found = together(lambda number: [(value, numbered.number(value)) for value in range(number, 20_000 + number)])
    assert len(numbered) == len(set(numbered)) == 20_000 + THREADS - 1
    assert all(numbered[number] == value for each in found for value, number in each)
