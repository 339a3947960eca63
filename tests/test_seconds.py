"""A budget in seconds: known before anything is drawn, by the pace of the model, the same from every face."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from weakref import WeakKeyDictionary

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import locore
from locore import Seconds, contains
from locore.batch.batch_settings import Settings
from locore.cli import main
from locore.kernel.errors import BudgetExceeded, InvalidArgument
from locore.kernel.models.cursor import Cursor
from locore.kernel.models.language_model import Wrapper
from locore.kernel.request import Request
from locore.kernel.samplers.sampler import promised
from locore.models import TableModel
from locore.models import hardware as module
from locore.models.hardware import MOST_ROWS, OUTSIDE, Pace, pace_of
from locore.samplers import Twisted, sampler_by_name

A_PASS, A_ROW = 0.02, 0.002
ROUNDING = 1e-9  # of a clock that has gone through many tests


class Slow(Wrapper):
    """A model whose passes take a known time, of a clock that nothing else moves."""

    now = 0.0

    def unprompted(self):
        return Slow(self.base.unprompted())

    def fingerprint(self):
        return None  # no table that other tests have prepared is its

    def prompted(self, prompt):
        return Slow(self.base.prompted(prompt))

    def _begin(self, batch):
        return SlowCursor(self.base.begin(batch))

    def _log_probs(self, tokens):
        return self.base.log_probs(tokens)


class SlowCursor(Cursor):
    def __init__(self, inner):
        self.inner = inner

    @property
    def log_probs(self):
        return self.inner.log_probs

    def advance(self, tokens, parents=None):
        Slow.now += A_PASS + A_ROW * len(tokens)
        return SlowCursor(self.inner.advance(tokens, parents))


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: Slow.now, monotonic=time.monotonic))
    monkeypatch.setattr(module, "_paces", WeakKeyDictionary())  # of this clock
    return Slow(locore.load("tiny"))


def test_the_pace_is_measured_and_kept(slow):
    pace = pace_of(slow, "It was")
    assert pace.a_pass == pytest.approx(A_PASS) and pace.a_row == pytest.approx(A_ROW)
    assert pace_of(locore.models.Tempered(slow, 0.5), "Another") is pace


@given(st.floats(1e-4, 0.1), st.floats(1e-6, 0.01), st.integers(1, 50), st.floats(0.01, 100), st.integers(1, 2))
def test_what_is_paid_for_takes_so_long(a_pass, a_row, length, seconds, stages):
    """Never more than the budget, and nearly all of it, up to the rows that help."""
    pace, steps = Pace(a_pass, a_row), max(1, length - 1)
    try:
        tokens = pace.lm_tokens(Seconds(seconds), length, stages)
    except BudgetExceeded:
        assert pace.seconds(stages * steps, stages * steps) > seconds
        return
    assert steps <= tokens <= MOST_ROWS * steps
    assert pace.seconds(stages * steps, tokens) <= seconds * (1 + 1e-6)
    assert tokens == MOST_ROWS * steps or pace.seconds(stages * steps, tokens + 1) > seconds * (1 - 1e-6)


@pytest.mark.parametrize("sampler", [None, "swor"])
def test_a_call_takes_about_as_long_as_it_may(slow, sampler):
    pace_of(slow, "It was")
    start = Slow.now
    p = locore.generate(slow, "It was", contains(" moon"), 10, budget=Seconds(3), sampler=sampler, seed=0)
    assert 1.5 < (Slow.now - start) * OUTSIDE <= 3 and p.run.lm_tokens > 100


@pytest.mark.parametrize("sampler", [None, "auto", "twisted", "smc"])
def test_seconds_that_pay_for_one_way_through_a_text_are_enough(slow, sampler):
    """Not for two: what is learned is learned on the way."""
    pace_of(slow, "It was")
    start, seconds = Slow.now, OUTSIDE * (1.9 * 19 * A_PASS)
    p = locore.generate(slow, "It was", contains(" moon"), 20, budget=Seconds(seconds), sampler=sampler, seed=0)
    assert (Slow.now - start) * OUTSIDE <= seconds + ROUNDING and p.run.passes <= 2 * 20 + 8


def test_samplers_say_how_often_they_go_through_a_text():
    """A table that was prepared is put to a trial first."""
    chain = TableModel.random(3, 4, seed=0)
    names = ("auto", "twisted", "swor", "smc", "lcr")
    assert [sampler_by_name(name).times_through(chain) for name in names] == [1, 1, 1, 1, 3]
    assert Twisted("model").times_through(chain) == 2
    assert promised(lambda *args: None, "times_through")(chain) == 1  # of somebody else


def test_too_few_seconds_are_refused_with_what_a_text_takes(slow):
    with pytest.raises(BudgetExceeded, match=r"0.1 seconds do not pay for a text of 20 tokens, which takes about"):
        locore.generate(slow, "It was", contains(" moon"), budget="0.1s", seed=0)


def test_one_word_in_all_places(capsys, monkeypatch):
    monkeypatch.setattr(module, "_paces", WeakKeyDictionary())
    monkeypatch.setattr(module, "_measured", lambda model: Pace(0.02, 0.01))
    assert Request(budget="5s").budget == Request(budget=Seconds(5)).budget == Seconds(5.0)
    assert Request(budget="1000").budget == Request(budget=1000).budget == 1000
    assert Settings(budget="5s").to_json()["budget"] == "5s" and json.dumps(Settings(budget="5s").to_json())
    assert Settings(**Settings(budget="2.5s").to_json()).budget == Seconds(2.5)
    assert main(["generate", "It was", "--contains", " moon", "--budget", "2s", "--seed", "0"]) == 0
    assert "moon" in capsys.readouterr().out


@pytest.mark.parametrize("given", ["5", "x", "s", "", "-1s", "0s", "infs", "nans", 0, -1, 1.5, True, 2**63, "5 m", Seconds])
def test_what_is_no_budget(given):
    if given == "5":
        assert Request(budget=given).budget == 5
        return
    with pytest.raises(InvalidArgument):
        Request(budget=given)


@pytest.mark.parametrize("given", [0, -1, float("inf"), float("nan"), "5", True, None])
def test_what_are_no_seconds(given):
    with pytest.raises(InvalidArgument, match="positive number"):
        Seconds(given)


def test_parts_of_a_target_share_the_seconds(slow):
    aim = contains(" moon") * locore.bonus(contains(" sun"), 1.0)
    pace_of(slow, "It was")
    start = Slow.now
    assert locore.generate(slow, "It was", aim, 8, budget="3s", seed=0).run.lm_tokens > 50
    assert Slow.now - start <= 3


def test_the_same_seed_and_pace_give_the_same_texts(slow):
    """Given the pace, nothing depends on the clock."""
    first, second = (locore.generate(slow, "It was", contains(" moon"), 8, budget="2s", seed=3) for _ in range(2))
    assert torch.equal(first.tokens, second.tokens) and torch.equal(first.log_weights, second.log_weights)
