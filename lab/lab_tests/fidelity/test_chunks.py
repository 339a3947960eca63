"""Runs, and the chunks they are added up in."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from locore_lab.fidelity.entries import Entry
from locore_lab.fidelity.measures import merged, summarise
from locore_lab.fidelity.runs import Chunk, run_chunk

from lab_tests.fidelity.laws import small_task
from locore import samplers
from locore.kernel.errors import ZeroWeights
from locore.samplers import Draws

weight = st.floats(0, 1e6, allow_subnormal=False)
chunks = st.builds(
    Chunk,
    runs=st.integers(0, 9),
    failed=st.integers(0, 9),
    violating=weight,
    log_z=st.lists(st.floats(-1e3, 1e3) | st.just(-math.inf), max_size=4),
    lm_tokens=st.integers(0, 10**6),
    seconds=weight,
    verdicts=st.dictionaries(st.sampled_from(["trust", "rough"]), st.integers(1, 9)).map(Counter),
    law=st.dictionaries(st.tuples(st.integers(0, 99), st.integers(0, 99)), weight, max_size=5),
    first=st.dictionaries(st.integers(0, 99), weight, max_size=5),
)


@given(chunks)
def test_chunks_are_read_back_as_they_were_written(chunk):
    """The first writing rounds, nothing after it does."""
    once = Chunk.from_json(json.loads(json.dumps(chunk.to_json())))
    assert Chunk.from_json(json.loads(json.dumps(once.to_json()))) == once
    assert once.law.keys() == chunk.law.keys() and once.first.keys() == chunk.first.keys()
    assert list(once.law.values()) == pytest.approx(list(chunk.law.values()), rel=1e-8, abs=1e-300)
    assert once.log_z == pytest.approx(chunk.log_z, abs=1e-7)
    exact = ("runs", "failed", "violating", "lm_tokens", "seconds", "verdicts")
    assert all(getattr(once, name) == getattr(chunk, name) for name in exact)


def test_runs_depend_on_their_seeds_only():
    task, entry = small_task(), Entry("masked", samplers.BY_NAME["masked"])
    whole = run_chunk(task, entry, entry.sampler, 20, [1, 2, 3, 4])
    parts = merged(run_chunk(task, entry, entry.sampler, 20, seeds) for seeds in ([1, 2], [3, 4]))
    assert whole.log_z == parts.log_z
    assert whole.law == pytest.approx(parts.law)
    assert (whole.lm_tokens, whole.lm_contexts, whole.verdicts) == (parts.lm_tokens, parts.lm_contexts, parts.verdicts)
    assert run_chunk(task, entry, entry.sampler, 20, [5, 6]).log_z != whole.log_z[:2]


def test_no_sampler_sees_the_truth():
    """What a sampler is called with holds no answer, and another answer changes nothing of what it returns."""
    seen = []

    def spy(*arguments):
        seen.extend(arguments)
        return samplers.BY_NAME["smc"](*arguments)

    spy.name = "spy"
    task = small_task()
    wrong = replace(task, truth=replace(task.truth, log_z=-99.0, tokens=[[0, 0, 0]], log_probs=[-99.0], first={}))
    first, second = (run_chunk(t, Entry("spy", spy), spy, 20, [1, 2]) for t in (task, wrong))
    assert first.log_z == second.log_z and first.law == second.law
    assert {type(argument).__name__ for argument in seen} == {"Counted", "Circuit", "int", "Generator"}


def constant(tokens, weights):
    """A sampler that returns always the same."""

    def sampler(model, circuit, num, budget, generator):
        model.score(tokens)
        return Draws(tokens, weights)

    sampler.name = "constant"
    return sampler


def test_what_violates_the_constraint_is_counted_apart():
    task = small_task()
    good = torch.tensor(task.truth.tokens[:1])
    bad = torch.zeros(1, 3, dtype=torch.long)  # no token 1
    assert task.circuit.accepts(good).all() and not task.circuit.accepts(bad).any()
    sampler = constant(torch.cat([good, bad]), torch.tensor([0.75, 0.25], dtype=torch.float64).log())
    chunk = run_chunk(task, Entry("constant", sampler), sampler, 20, [1, 2])
    assert chunk.violating == pytest.approx(0.5)
    assert chunk.law == {tuple(good[0].tolist()): pytest.approx(1.5)}
    row = summarise([chunk], task.truth, task.score)
    assert row["violating"] == pytest.approx(0.25)
    assert row["tv"] == pytest.approx(1 - min(0.75, task.truth.top[tuple(good[0].tolist())]))
    assert task.score(torch.cat([good, bad])).tolist() == [pytest.approx(task.truth.log_probs[0]), -math.inf]


def test_runs_that_find_nothing():
    def empty(*arguments):
        raise ZeroWeights("nothing")

    task = small_task()
    weighted = run_chunk(task, Entry("empty", empty), empty, 20, [1, 2])
    assert (weighted.runs, weighted.failed, weighted.log_z) == (2, 2, [-math.inf] * 2)
    row = summarise([weighted] * 4, task.truth, task.score)
    assert [row["tv"], row["tv_first"], row["failed"]] == pytest.approx([1, 1, 1])
    assert row["rmse"] == pytest.approx(-task.truth.log_z) and row["unbiased"] is None
    assert run_chunk(task, Entry("empty", empty, weighted=False), empty, 20, [1]).log_z == []
