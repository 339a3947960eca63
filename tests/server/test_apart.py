"""What takes long is read and compiled in a process of its own: the same circuits, the same errors, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from locore.kernel.limits import Limits
from locore.models.by_name import load
from locore.server.apart import UNNOTICED, Apart, dumped, loaded
from locore.server.compute import read
from locore.server.settings import CAN_FORK
from tests.constraints.strategies import constraints
from tests.server.apart_alone import CONSTRAINTS, LIMITS, LONG, TASKS, busy

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="compiles are made in place here")


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What became of compiles in a process without threads."""
    command = [sys.executable, "-m", "tests.server.apart_alone"]
    return json.loads(subprocess.run(command, capture_output=True, check=True, cwd=Path(__file__).parents[2]).stdout)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_it_is_what_would_be_made_in_place(found, name):
    here, there = found[name]
    assert here == there


@pytest.mark.parametrize("name", TASKS)
def test_what_is_read_elsewhere_means_the_same(found, name):
    here, there = found[name + ", read"]
    assert here == there


@pytest.mark.parametrize("name", [name for name in TASKS if name != "no pattern"])
def test_what_was_read_can_be_sent(name):
    tokenizer = load("tiny").tokenizer
    aim = read(TASKS[name], tokenizer, LIMITS)
    assert repr(loaded(dumped(aim, tokenizer), tokenizer)) == repr(aim)


@given(constraints())
def test_any_constraint_can_be_sent(constraint):
    tokenizer = load("tiny").tokenizer
    assert loaded(dumped(constraint, tokenizer), tokenizer) == constraint


def test_what_it_took_elsewhere_is_told(found):
    assert all(LONG <= seconds < 10 for seconds in found["seconds"][: len(CONSTRAINTS) + len(TASKS)])


def test_the_system_ends_what_asks_nobody(found):
    assert (found["large"], found["endless"]) == ("BudgetExceeded", "BudgetExceeded")


def test_a_fault_happens_where_it_is_told(found):
    assert found["broken"] == "ZeroDivisionError"


def test_it_ends_with_whoever_waits(found):
    assert (found["left"], found["still there"]) == ("Left", 0)


def test_all_is_made_in_place_once_nothing_forks(found):
    assert found["without"] == "7"


def test_what_is_known_on_both_sides_is_not_sent():
    tokenizer = load("tiny").tokenizer
    content = dumped([tokenizer, tokenizer.token_bytes, {"a": 1}], tokenizer)
    again = loaded(content, tokenizer)
    assert len(content) < 200
    assert again[0] is tokenizer and again[1] is tokenizer.token_bytes and again[2] == {"a": 1}


def test_in_place_nothing_is_stopped_and_short_ones_are_never_sent():
    tokenizer = load("tiny").tokenizer
    assert Apart(None, tokenizer, Limits(), 1).compute("me", lambda: busy(2 * UNNOTICED) or 1, pytest.fail) == 1  # type: ignore


def test_one_owner_has_one_place():
    apart, order = Apart(None, load("tiny").tokenizer, Limits(), 2), list[str]()

    def work(owner: str, seconds: float) -> None:
        with apart._place(owner):
            order.append(owner)
            time.sleep(seconds)

    threads = [threading.Thread(target=work, args=(owner, 0.3)) for owner in ("many", "many", "many", "one")]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    assert order == ["many", "one", "many", "many"]
