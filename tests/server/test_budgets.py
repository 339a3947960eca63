"""What an owner has, what it costs, and what there is: addresses, turns before the queue, shares of places, waits, memory."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from functools import lru_cache
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locore.server import model_worker
from locore.server.access import InTurn, Metrics, address_of, owner_of
from locore.server.api_errors import ApiError
from locore.server.jobs import Job
from locore.server.model_worker import Shares
from locore.server.process import FULL, StartFailed, WorkerProcess
from locore.server.queue import Queue
from locore.server.schema import CompletionRequest, refusal
from locore.server.settings import Settings
from locore.server.task import Task


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("a socket in a folder", ""),
    ],
)
def test_addresses(host, expected):
    assert address_of({"client": (host, 1)}) == owner_of({"client": (host, 1)}) == expected
    assert owner_of({"client": (host, 1), "state": {"owner": "key"}}) == "key"
    assert address_of({}) == ""


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=30))
def test_between_two_that_are_read_of_one_owner_one_of_every_other_is(owners):
    """All come at once, in any order; each is read once."""

    async def law():
        read = []

        async def app(scope, receive, send):
            read.append(scope["client"][0])

        turns = InTurn(app)
        scopes = [{"type": "http", "method": "POST", "client": (f"::{owner}:0:0:0:0", 1)} for owner in owners]
        await asyncio.gather(*(turns(scope, None, None) for scope in scopes))
        assert Counter(read) == Counter(scope["client"][0] for scope in scopes)
        left = Counter(read)
        for index, one in enumerate(read):
            left[one] -= 1
            following = read[index + 1 : index + 1 + sum(count > 0 for other, count in left.items() if other != one)]
            assert one not in following
        await turns({"type": "http", "method": "POST", "client": ("::1", 1)}, None, None)  # and later, too

    asyncio.run(law())


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=40), st.integers(1, 16))
def test_no_owner_has_more_than_a_share_that_need_not_wait(events, places):
    """Runs begin and end in any order; the oldest of an owner never waits."""
    shares, running = Shares(places), {}
    for number, (owner, ends) in enumerate(events):
        if ends and running:
            oldest = next(iter(running))
            shares.end(oldest)
            del running[oldest]
        shares.begin(number, owner)
        running[number] = owner
        share = max(1, places // len(set(running.values())))
        for one in set(running.values()):
            mine = [number for number, other in running.items() if other == one]
            assert [shares.has_to_wait(number) for number in mine] == [index >= share for index in range(len(mine))]


def test_who_would_wait_until_the_deadline_is_told_at_once():
    """By what requests took lately: with ten seconds each and two places, the 13th would begin after the minute that it has."""

    async def play():
        queue = Queue(Settings(timeout=60, together=2), Metrics())
        queue._seconds = 10.0
        for _ in range(13):
            queue.submit([Task("", 1)], "a")
        with pytest.raises(ApiError, match="13 requests are waiting already, for about 65 seconds") as raised:
            queue.submit([Task("", 1)], "a")
        assert (raised.value.code, raised.value.headers["Retry-After"]) == ("queue_full", "60")
        queue.submit([Task("", 1)], "b")

    asyncio.run(play())


def test_a_worker_that_is_nearly_full_forgets_and_takes_nothing_beside_what_runs():
    """One that is over its memory is given up; one that is idle takes what comes whatever it has."""

    async def play():
        process, sent = WorkerProcess(Settings(memory=2_000_000, workers=2), Metrics()), []
        process._process = SimpleNamespace(returncode=None)
        process.facts, process._send = {"meets": True}, sent.append
        first, second = (Job(Task("", 1), 60.0) for _ in range(2))
        process.jobs = {first.number: first}
        for memory, room in ((500_000, True), (int(FULL * 1_000_000) + 1, False), (500_000, True)):
            process._memory = lambda memory=memory: memory
            assert process._look(set()) is None and process.has_room(second) is room
        assert sent == [{"forget": True}]
        process._memory = lambda: 900_000
        process._look(set())
        assert len(sent) == 1  # not again and again
        process.jobs = {}
        assert process.has_room(second)
        process.jobs = {first.number: first}
        process._memory = lambda: 1_000_001
        lost = process._look(set())
        assert lost.error.code == "out_of_memory" and lost.guilty == {first.number}

    asyncio.run(play())


def test_memory_that_the_model_alone_goes_beyond_is_told_at_the_start():
    """It would be killed before its first request, and again after each start."""

    async def play():
        process = WorkerProcess(Settings(memory=10_000_000), Metrics())
        with pytest.raises(
            StartFailed, match=r"a worker takes \d+ MB with its model alone, more than its part of --memory, 10 MB"
        ):
            await process.start()
        assert not process.running and process.facts is None

    asyncio.run(play())


def test_what_functions_remember_is_forgotten(monkeypatch):
    calls = []
    module = SimpleNamespace(kept=lru_cache(lambda value: calls.append(value)))
    monkeypatch.setitem(sys.modules, "locore.pretended", module)
    for _ in range(2):
        module.kept(1)
    model_worker.forget()
    module.kept(1)
    assert calls == [1, 1]


@pytest.mark.parametrize(("budget", "fits"), [("29.9s", True), ("30s", False), ("1e9s", False), (1000, True), (None, True)])
def test_seconds_that_no_answer_may_take_are_refused_when_they_come(budget, fits):
    asked = {"model": "tiny", "prompt": "It was"} | ({} if budget is None else {"budget": budget})
    found = refusal(CompletionRequest(**asked).tasks(16), Settings(timeout=30))
    assert found is None if fits else found[0] == "budget" and "more than an answer may take here, which is 30 s" in found[1]
