"""Nobody stops the others: turns, lanes, bounds of each owner, requests that end processes, what is stopped is paid for."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locore.server.access import Metrics
from locore.server.errors import ApiError, worker_died
from locore.server.jobs import Job, Request
from locore.server.offences import DEATHS, KEPT_AWAY, SECONDS, Offences, digests_of
from locore.server.process import Loss, WorkerProcess
from locore.server.queue import Queue
from locore.server.settings import Settings
from locore.server.task import Task
from locore.server.turns import Turns

SMALL = Task("", 1, num_particles=4)


def prompts(number, **more):
    return [Task(f"{index}", 1, **{"num_particles": 4, **more}) for index in range(number)]


class Pretended(WorkerProcess):
    """A worker that computes nothing until it is told what came of it."""

    running = True

    def _send(self, message):
        pass

    async def stop(self):
        self.facts = None

    def end(self, job, lm_tokens=0, **message):
        del self.jobs[job.number]
        self._finish(job, {"lm_tokens": lm_tokens, **message})


def law(play, **settings):
    """A queue with one worker that is ready."""

    async def run():
        queue = Queue(Settings(**settings), Metrics())
        worker = queue.workers[0] = Pretended(queue.settings, queue.metrics, queue.offences)
        worker.facts = {}
        result = play(queue, worker)
        if asyncio.iscoroutine(result):
            await result

    asyncio.run(run())


def refused(call):
    with pytest.raises(ApiError) as raised:
        call()
    return raised.value


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1, max_size=30))
def test_between_two_turns_of_one_request_everybody_else_has_one(asked):
    async def run():
        turns, requests = Turns(), {}
        jobs = [Job(SMALL, 60.0, requests.setdefault(who, Request(who[0]))) for who in asked]
        for job in jobs:
            turns.add(job)
        order, taken = list(turns), []
        while turns.first() is not None:
            before = {job.owner for job in turns}
            taken.append(turns.first())
            turns.take(taken[-1])
            if len(taken) > 1 and taken[-1].owner == taken[-2].owner:
                assert before == {taken[-1].owner}
        assert taken == order and Counter(taken) == Counter(jobs)
        # Of one owner, too: no request is two runs ahead of another one that still has some.
        for owner in "abc":
            mine = [job for job in taken if job.owner == owner]
            for index, job in enumerate(mine):
                waiting = {other.request for other in mine[index + 1 :]}
                had = Counter(other.request for other in mine[: index + 1])
                assert all(had[job.request] - had[other] <= 1 for other in waiting)

    asyncio.run(run())


def test_a_queue_that_is_full_is_full_for_its_owner_alone():
    def play(queue, worker):
        queue.submit(prompts(100), "a")  # one request, however many runs
        for _ in range(2):
            queue.submit(prompts(2), "a")
        assert refused(lambda: queue.submit([SMALL], "a")).code == "queue_full"
        (mine,) = queue.submit([SMALL], "b").jobs
        assert queue.state(mine) == {"state": "queued", "position": 2}

    law(play, queue_size=3, together=2)


def test_without_owners_a_request_of_many_runs_is_not_before_others():
    def play(queue, worker):
        queue.submit(prompts(100))
        assert len(worker.jobs) == 2  # half of what may run
        (other,) = queue.submit([SMALL]).jobs
        assert other.number in worker.jobs
        (another,) = queue.submit([SMALL]).jobs
        assert another.number in worker.jobs
        (late,) = queue.submit([SMALL]).jobs
        assert queue.state(late)["position"] == 2

    law(play, together=4)


@given(st.lists(st.sampled_from([1, 64, 128, 129, 500, 1024, 1025, 4096]), min_size=1, max_size=12))
def test_small_runs_wait_for_no_large_one(rows):
    def play(queue, worker):
        jobs = [queue.submit([Task("", 1, num_particles=number)]).jobs[0] for number in rows]
        running = [job for job in jobs if job.number in worker.jobs]
        small = [job for job in jobs if job.rows <= 128]
        assert sum(job.rows > 128 for job in running) == min(1, len(jobs) - len(small))
        assert sum(job.rows for job in running if job.rows <= 128) <= 1024
        waiting = [job for job in small if job not in running]
        if waiting:  # the first of them has no room, and nobody behind it was let in before it
            assert sum(job.rows for job in running if job in small) + waiting[0].rows > 1024
            assert all(jobs.index(job) < jobs.index(waiting[0]) for job in running if job in small)

    law(play)


def test_who_was_there_when_a_process_died_runs_alone_and_who_was_alone_is_refused():
    async def play(queue, worker):
        jobs = [queue.submit([Task(text, 1)], "a").jobs[0] for text in ("good", "bad", "other")]
        again = await worker._given_up(worker._loss(worker_died()))
        assert again == jobs and all(job.alone for job in jobs)
        worker.facts = {}
        for job in reversed(again):
            queue._lane(job).add(job, again=True)
        queue._dispatch()
        assert list(worker.jobs.values()) == jobs[:1]  # one by one
        worker.end(jobs[0], result={})
        queue._dispatch()
        assert list(worker.jobs.values()) == jobs[1:2]
        assert await worker._given_up(worker._loss(worker_died())) == []
        assert jobs[1].answer.exception().code == "worker_died"
        error = refused(lambda: queue.submit([Task("bad", 1, seed=9)], "b"))  # whoever asks, and by whatever seed
        assert (error.status_code, error.code) == (429, "ended_a_worker")
        assert 0 < int(error.headers["Retry-After"]) <= SECONDS
        assert not queue.submit([Task("good", 1)], "b").jobs[0].alone and queue.submit([Task("other", 1)], "b").jobs[0].alone

    law(play)


def test_a_process_that_somebody_kills_makes_its_run_a_suspect_first():
    async def play(queue, worker):
        for _ in range(2):
            (job,) = queue.submit([SMALL], "a").jobs
            await worker._given_up(worker._loss(worker_died(), certain=False))
            worker.facts = {}
            assert job.answer.exception().code == "worker_died"
        assert refused(lambda: queue.submit([SMALL], "a")).code == "ended_a_worker"

    law(play)


def test_a_key_whose_requests_end_processes_is_kept_away_for_a_while():
    now = [0.0]
    offences = Offences(lambda: now[0])
    for number in range(DEATHS):
        offences.admit("a", [str(number)])
        offences.convict("a", str(number))
    error = refused(lambda: offences.admit("a", ["new"]))
    assert (error.code, error.headers["Retry-After"], error.headers["x-should-retry"]) == ("kept_away", "120", "false")
    offences.admit("b", ["new"])
    assert refused(lambda: offences.admit("b", ["0"])).code == "ended_a_worker"
    now[0] = KEPT_AWAY
    offences.admit("a", ["new"])
    now[0] = SECONDS
    offences.admit("a", ["0"])
    for number in range(DEATHS):
        offences.convict("", str(number))
    offences.admit("", ["new"])  # without keys nobody knows whose they were


def test_a_request_is_the_same_whatever_its_seed():
    one, two = digests_of([Task("a", 3, seed=1), Task("b", 3, seed=2)])
    assert one != two
    assert digests_of([Task("a", 3, seed=7)]) == [one] != digests_of([Task("a", 4, seed=1)])


def test_what_is_stopped_or_killed_is_charged():
    async def play(queue, worker):
        spent = []
        bundle = [queue.submit([SMALL], "a", charge=spent.append).jobs[0] for _ in range(4)]
        worker.end(bundle[0], 5, error={"kind": "Stopped", "message": ""})
        worker.end(bundle[1], 7, error={"kind": "ZeroWeights", "message": "none"})
        worker.end(bundle[2], 11, result={})
        bundle[3].progress = {"phase": "sampling", "lm_tokens": 13}
        await worker._given_up(Loss(worker_died(), {bundle[3].number}))
        assert spent == [5, 7, 11, 13]
        assert b"locore_lm_tokens_total 36.0" in queue.metrics.text()

    law(play)
