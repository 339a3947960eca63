"""A compile that takes long gives way to the passes of others; alone it does not."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from locore.kernel.errors import BudgetExceeded
from locore.kernel.limits import Limits, check_progress
from locore.server import model_worker
from locore.server.model_worker import Shares, Slices

SECONDS = 1.2


def used(slices: Slices, seconds: float = SECONDS) -> float:
    """Share of a processor that busy work takes, which asks now and then."""
    begun, start = time.monotonic(), time.thread_time()
    while time.monotonic() - begun < seconds:
        sum(range(2_000))
        slices.check()
    slices.end()
    return (time.thread_time() - start) / (time.monotonic() - begun)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(model_worker, "UNNOTICED", 0.05)


def test_several_together_take_less_than_half_of_a_processor():
    turn = threading.Lock()
    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(lambda _: used(Slices(turn, lambda: True)), range(4)))
    assert sum(shares) < 0.5 + 4 * 0.05 / SECONDS  # and each its first moments
    assert not turn.locked()


def test_a_short_one_and_one_alone_never_wait():
    for slices in (Slices(threading.Lock(), lambda: False), Slices(threading.Lock(), lambda: True)):
        before = time.monotonic()
        for _ in range(1_000):
            slices.check()
        assert time.monotonic() - before < 0.05 + model_worker.PAUSE
    begun = time.monotonic()
    slices = Slices(threading.Lock(), lambda: False)
    while time.monotonic() - begun < 0.3:
        before = time.monotonic()
        slices.check()
        assert time.monotonic() - before < model_worker.PAUSE


def test_what_it_waits_is_not_counted_as_its_own():
    with Limits(seconds=0.4).enforced():
        used(Slices(threading.Lock(), lambda: True), 0.5)
        check_progress("compiling", "")
        begun = time.monotonic()
        with pytest.raises(BudgetExceeded):
            while time.monotonic() - begun < 3:
                check_progress("compiling", "")


def test_only_another_owner_who_reads_the_model_is_disturbed():
    shares = Shares(4)
    shares.begin(1, "a")
    shares.begin(2, "a")
    shares.reads(2)
    shares.begin(3, "b")
    assert not shares.has_readers_beside(1)  # b compiles as well
    shares.reads(3)
    assert shares.has_readers_beside(1)
    shares.end(2)
    assert shares.has_readers_beside(1) and not shares.has_readers_beside(3)
    shares.end(3)
    assert not shares.has_readers_beside(1)
