"""What a key may ask for in a minute, by a clock of the test's own."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locore.server.access import JsonLines
from locore.server.api_errors import ApiError
from locore.server.quota import Quotas


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def admitted(quotas: Quotas, owner: str, runs: int = 1) -> int | None:
    """None, or after how many seconds to come again."""
    try:
        quotas.admit(owner, runs)
    except ApiError as error:
        assert (error.status_code, error.code) == (429, "rate_limit_exceeded")
        return int(error.headers["Retry-After"])
    return None


@given(st.integers(1, 30), st.lists(st.tuples(st.floats(0, 40), st.integers(1, 3)), min_size=1, max_size=60))
def test_nobody_gets_more_than_a_minute_holds(limit, asked):
    """In any stretch of time: what the bucket held, and what has come since; and who waits as told is let in."""
    clock = Clock()
    quotas = Quotas(limit, None, clock)
    taken = 0
    for pause, runs in asked:
        clock.now += pause
        wait = admitted(quotas, "a", runs)
        taken += runs if wait is None else 0
        assert taken <= limit + clock.now * limit / 60 + 3 + 1e-6  # a request of several runs may owe some
        if wait is not None:
            clock.now += wait
            assert admitted(quotas, "a", runs) is None
            taken += runs


def test_lm_tokens_are_owed_and_keys_are_apart():
    clock = Clock()
    quotas = Quotas(None, 600, clock)
    assert admitted(quotas, "a") is None
    quotas.spend("a", 1200)
    assert admitted(quotas, "b") is None
    assert admitted(quotas, "a") == 61  # 600 owed at 10 a second, and one to begin with
    clock.now = 61
    assert admitted(quotas, "a") is None


def test_without_limits_nothing_is_refused():
    quotas = Quotas(None, None)
    quotas.spend("", 10**12)
    assert all(admitted(quotas, "", 100) is None for _ in range(100))


def test_a_line_of_the_log_is_json():
    record = logging.makeLogRecord({"levelname": "INFO", "msg": "%s", "args": ("x=1",), "seen": {"route": "/", "status": 200}})
    assert json.loads(JsonLines().format(record)).items() >= {"route": "/", "status": 200, "level": "info"}.items()
    other = logging.makeLogRecord({"levelname": "WARNING", "msg": 'a "worker"\n ended'})
    assert json.loads(JsonLines().format(other))["message"] == 'a "worker"\n ended'


@pytest.mark.parametrize("wrong", [(), ("short",), ("a-long-enough-key-123", "short")])
def test_every_key_is_checked(wrong):
    from locore.kernel.errors import InvalidArgument
    from locore.server import Settings

    with pytest.raises(InvalidArgument, match="fewer than"):
        Settings(api_key=wrong)
    assert Settings(host="0.0.0.0", api_key=("a-long-enough-key-123", "another-long-enough-key")).keys[1].startswith("another")
