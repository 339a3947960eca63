"""How far a comparison is: told by events, of which the last is the answer or an error."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locore.server.access import Metrics
from locore.server.answers import server_sent_events
from locore.server.jobs import Bundle, Job
from locore.server.queue import Queue
from locore.server.settings import Settings
from locore.server.task import Task
from tests.server.conftest import Server

ASKED = {"model": "tiny", "prompt": "The girl was", "constraint": {"type": "contains", "text": " dragon"}, "seed": 2}
LONG = {**ASKED, "max_tokens": 8, "num_particles": 128, "effort": "high", "stream": True}
PATH = "/page/compare"


def events(body: bytes) -> list[dict]:
    """Those of a stream, which has nothing else but comments and its end."""
    parts = body.decode().split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    assert all(part.startswith((":", "data: ")) for part in parts[:-1])
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2] if part.startswith("data: ")]


def ask(server: Server, body: dict) -> tuple[int, dict[str, str], bytes]:
    return server.request("POST", PATH, json.dumps(body).encode())


def test_a_stream_says_how_far_it_is_and_brings_the_answer(server):
    status, headers, body = ask(server, LONG)
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    *told, last = events(body)
    assert all(event["state"] in ("queued", "running") for event in told)
    running = [event for event in told if event["state"] == "running"]
    phases = ["compiling", "sampling", "masking"]
    assert [event["phase"] for event in running] == sorted((event["phase"] for event in running), key=phases.index)
    spent = [event["lm_tokens"] for event in running]
    assert spent == sorted(spent)
    answer = last["answer"]
    assert last["state"] == "done" and max(spent, default=0) <= sum(side["lm_tokens"] for side in answer["sides"].values())
    whole = server.post({**LONG, "stream": False}, PATH)[2]
    assert all(answer[name] == whole[name] for name in ("texts", "divergence", "circuit"))


def test_a_quick_error_has_its_status(server):
    status, _, answer = server.post({**LONG, "constraint": {"type": "false"}}, PATH)
    assert (status, answer["error"]["code"]) == (422, "unsatisfiable_constraint")


@pytest.mark.slow  # a server of its own; below is the same without one
def test_a_later_error_is_the_last_event(tmp_path):
    slow = Server(tmp_path, "--timeout", "1", key=None).wait()
    status, _, body = ask(slow, {**LONG, "max_tokens": 200, "num_particles": 512})
    slow.stop()
    *told, last = events(body)
    assert status == 200 and told
    assert last["error"]["code"] == "timeout"


async def _streamed(end) -> list[str]:
    """What is sent of a job that is first second and then first in the queue, then runs, and then ends."""
    job = Job(Task("", 1), 60.0)
    states = iter([2, 2, 1, "running", "running"])

    def state() -> dict:
        found = next(states, None)
        if found is None:
            end(job)
        return {"state": found}

    return [part.decode() async for part in server_sent_events(Bundle([job]), lambda: [job.answer.result()], 0.001, state)]


@pytest.mark.parametrize("fails", [False, True])
def test_only_what_is_new_is_told(fails):
    parts = asyncio.run(_streamed(lambda job: job.time_out() if fails else job.succeed({"a": 1})))
    told = [json.loads(part[6:]) for part in parts[:-1] if part.startswith("data: ")]
    assert [event.get("state") for event in told[:3]] == [2, 1, "running"]
    assert parts.count(": keep-alive\n\n") == 2
    assert "error" in told[-1] if fails else told[-1] == {"a": 1}
    assert parts[-1] == "data: [DONE]\n\n"


def test_who_is_too_late_hears_what_the_time_went_for():
    async def told(begins: bool) -> str:
        job = Job(Task("", 1), 60.0)
        if begins:
            job.begin()
            job.progress = {**job.progress, "lm_tokens": 12_345}
        job.time_out()
        return str(job.answer.exception())

    assert asyncio.run(told(False)).startswith("504: not begun within 60 seconds")
    assert "within 60 seconds: it waited for" in (late := asyncio.run(told(True))) and "spent 12,345 LM tokens" in late


class _Recorder:
    """A worker that takes whatever it is given."""

    def __init__(self) -> None:
        self.jobs: dict = {}
        self.rows = 0
        self.facts = None
        self.taken: list[int] = []

    def has_room(self, job: Job, times: int) -> bool:
        return True

    def take(self, job: Job) -> None:
        self.taken.append(job.number)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.data())
def test_positions_are_the_order_in_which_runs_begin(owners, data):
    """Whoever came from whom, and whoever has left."""

    async def law() -> None:
        queue = Queue(Settings(), Metrics())
        jobs = [queue.submit([Task("", 1)], owner).jobs[0] for owner in owners]
        for job in jobs:
            if data.draw(st.booleans()) and job is not jobs[0]:
                job.leave()
        await asyncio.sleep(0)
        waiting = {job.number: queue.state(job) for job in jobs if not job.done}
        assert all(state["state"] == "queued" for state in waiting.values())
        recorder = _Recorder()
        queue.workers = [recorder]  # type: ignore[list-item]
        queue._dispatch()
        assert sorted(waiting, key=lambda number: waiting[number]["position"]) == recorder.taken
        assert sorted(state["position"] for state in waiting.values()) == list(range(1, len(waiting) + 1))
        assert all(queue.state(job)["state"] == "running" for job in jobs)

    asyncio.run(law())
