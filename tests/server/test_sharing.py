"""Nobody stops the others: turns, lanes, bounds of each owner, requests that end processes, what is stopped is paid for."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locore.server.access import Metrics
from locore.server.api_errors import ApiError, worker_died
from locore.server.jobs import Job, Request, Turns
from locore.server.offences import DEATHS, KEPT_AWAY, SECONDS, Offences, digests_of
from locore.server.process import KILLS, Loss, WorkerProcess
from locore.server.queue import Queue
from locore.server.settings import Settings
from locore.server.task import Task

FACTS = {"meets": True}
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

    def end(self, job, lm_tokens=0, seconds=0.0, **message):
        del self.jobs[job.number]
        self._finish(job, {"lm_tokens": lm_tokens, "seconds": seconds, **message})


def law(play, **settings):
    """A queue with one worker that is ready."""

    async def run():
        queue = Queue(Settings(**settings), Metrics())
        worker = queue.workers[0] = Pretended(queue.settings, queue.metrics, queue.offences, queue._turns.charge)
        worker.facts = FACTS
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
        assert queue.state(mine) == {"state": "running", "phase": "compiling", "lm_tokens": 0}

    law(play, queue_size=3, together=2)


def test_of_one_owner_requests_take_turns():
    def play(queue, worker):
        many = queue.submit(prompts(100), "a").jobs
        assert list(worker.jobs.values()) == many[:4]  # nobody else wants the places
        one, other = (queue.submit([SMALL], "a").jobs[0] for _ in range(2))
        assert [queue.state(job)["position"] for job in (one, other)] == [2, 3]

    law(play, together=4)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([1, 64, 256, 4096])), min_size=1, max_size=30),
    st.integers(1, 6),
    st.data(),
)
def test_everybody_has_a_place_and_nobody_more_than_a_share_while_others_wait(asked, together, data):
    """Whatever fills the places: an owner of whom nothing runs is let in, as long as there are not more owners than places."""

    def play(queue, worker):
        for owner, rows in asked:
            queue.submit([Task("", 1, num_particles=rows)], owner)
            if worker.jobs and data.draw(st.booleans()):
                worker.end(data.draw(st.sampled_from(sorted(worker.jobs.values(), key=lambda job: job.number))), result={})
                queue._dispatch()
            running = Counter(one.owner for one in worker.jobs.values())
            waiting = Counter(one.owner for one in queue._turns)
            assert running.total() <= 2 * together and worker.rows <= 2 * queue.settings.max_rows
            for one in waiting:
                others = running.total() - running[one]
                full = running.total() >= 2 * together or worker.rows + 256 > 2 * queue.settings.max_rows
                assert running[one] or full, (running, waiting)
                assert others or running[one] >= min(together, 4)
            if waiting:
                assert running.total() >= together or worker.rows + 256 > queue.settings.max_rows

    law(play, together=together)


def test_who_comes_late_is_let_in_beside_one_who_has_all_places():
    def play(queue, worker):
        queue.submit(prompts(100), "many")
        assert len(worker.jobs) == 4
        good = [queue.submit([SMALL], f"good {number}").jobs[0] for number in range(4)]
        assert all(job.number in worker.jobs for job in good)
        assert queue.submit([SMALL], "late").jobs[0].number not in worker.jobs  # twice the places is all there is
        for job in [job for job in worker.jobs.values() if job.owner == "many"][:2]:
            worker.end(job, result={})
            queue._dispatch()
        running = Counter(job.owner for job in worker.jobs.values())
        assert running["late"] == 1 and running["many"] == 2  # and as long as others are there he gets no place anew

    law(play, together=4)


def test_who_has_had_the_least_comes_first():
    def play(queue, worker):
        worker.has_room = lambda job, times: not worker.jobs
        (first,) = queue.submit([SMALL], "dear").jobs
        for owner in ("dear", "cheap", "dear", "cheap"):
            queue.submit([SMALL], owner)
        worker._progress(first, {"phase": "sampling", "lm_tokens": 0, "seconds": 2.0})
        worker.end(first, seconds=3.0, result={})
        order = []
        for _ in range(4):
            queue._dispatch()
            (job,) = worker.jobs.values()
            order.append(job.owner)
            worker.end(job, seconds=1.0, result={})
        assert order == ["cheap", "cheap", "dear", "dear"]

    law(play)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 5.0)), min_size=30, max_size=60))
def test_time_is_shared_equally_whatever_runs_cost(costs):
    """While all three have something waiting, none has had more than another by more than the dearest run."""

    def play(queue, worker):
        worker.has_room = lambda job, times: not worker.jobs
        price = {}
        for owner, seconds in costs:
            price[queue.submit([SMALL], owner).jobs[0].number] = seconds
        had = Counter()
        while {job.owner for job in queue._turns} == set("abc"):
            (job,) = worker.jobs.values()
            had[job.owner] += price[job.number]
            worker.end(job, seconds=price[job.number], result={})
            queue._dispatch()
            assert max(had[one] for one in "abc") - min(had[one] for one in "abc") <= 2 * max(price.values())

    law(play, queue_size=100)


def test_who_comes_anew_has_saved_nothing():
    async def run():
        turns = Turns()
        turns.charge("a", 100.0)
        turns.enter("b", ["a"])
        for owner in ("a", "b"):
            turns.add(Job(SMALL, 60.0, Request(owner)))
        turns.charge("b", 1.0)
        assert [job.owner for job in turns] == ["a", "b"]

    asyncio.run(run())


def test_who_was_there_when_a_process_died_runs_alone_and_who_was_alone_is_refused():
    async def play(queue, worker):
        jobs = [queue.submit([Task(text, 1)], "a").jobs[0] for text in ("good", "bad", "other")]
        again = await worker._given_up(worker._loss(worker_died()))
        assert again == jobs and all(job.alone for job in jobs)
        worker.facts = FACTS
        for job in reversed(again):
            queue._turns.add(job, again=True)
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


def test_a_run_outlives_processes_that_somebody_kills_but_not_three():
    async def play(queue, worker):
        (job,) = queue.submit([SMALL], "a", key="a").jobs
        for deaths in range(1, KILLS):
            assert await worker._given_up(worker._loss(worker_died(), certain=False)) == [job]
            assert (job.deaths, job.alone, job.done) == (deaths, deaths > 1, False)
            worker.facts, worker.jobs = FACTS, {job.number: job}
        await worker._given_up(worker._loss(worker_died(), certain=False))
        assert job.answer.exception().code == "worker_died"
        assert refused(lambda: queue.submit([SMALL], "a")).code == "ended_a_worker"

    law(play)


def test_a_run_that_is_done_again_has_the_same_seed_and_tells_only_what_is_new():
    async def play(queue, worker):
        (job,) = queue.submit([SMALL], "a").jobs
        assert job.task.seed is not None
        for piece in ("The ", "sun"):
            job.say(piece, "0")
        job.begin_again()
        heard = []
        job.when_said(lambda: heard.append(job.pieces[-1]))
        for piece in ("The", " sun sh", "ines"):
            job.say(piece, "0")
        assert "".join(job.pieces) == "The sun shines" and heard == [" sh", "ines"]
        job.begin_again()
        job.say("The moon", "0")
        assert job.answer.exception().code == "worker_died"  # rounding has led elsewhere, and what was told stays

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
        bundle[3].progress = {"phase": "sampling", "lm_tokens": 13, "seconds": 1.0}
        await worker._given_up(Loss(worker_died(), {bundle[3].number}))
        assert spent == [5, 7, 11, 13]
        assert b"locore_lm_tokens_total 36.0" in queue.metrics.text()

    law(play)
