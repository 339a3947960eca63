"""What a call costs is said: while it runs, and afterwards, beside what a masked text takes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import locore
from locore import ban, contains, ends_with, regex, watching, word_count
from locore.evidence.advice import DEAR, SLOW
from tests.effort import some

LEAVES = (
    lambda draw: ban(draw.choice(["the", "z", " rain"])),  # likely: rejection
    lambda draw: contains(draw.choice([" sun", "a", "e"])),
    lambda draw: ends_with(draw.choice([".", " day."])),
    lambda draw: word_count(1, draw.randint(2, 5)),
    lambda draw: regex(r" [a-z]{2,4}( [a-z]+)*\.?"),
)


def _asked(seed: int) -> dict:
    """A request drawn by the seed."""
    draw = random.Random(seed)
    constraint = draw.choice(LEAVES)(draw)
    if draw.random() < 0.5:
        constraint &= draw.choice(LEAVES)(draw)
    asked = {"constraint": constraint, "max_new_tokens": draw.randint(3, 9), "num_particles": draw.choice([1, 4, 16])}
    return asked | {"seed": seed, "sampler": draw.choice([None, None, None, "rejection", "masked", "swor"])}


@pytest.fixture(scope="module")
def tiny():
    return locore.load("tiny")


def _answer(tiny, **asked):
    try:
        return locore.generate(tiny, "The weather is", **asked)
    except (locore.kernel.errors.Unsatisfiable, locore.kernel.errors.ZeroWeights):
        return None


@pytest.mark.parametrize("seed", some(range(12), 4))
def test_no_call_spends_more_than_it_says_while_it_runs(tiny, monkeypatch, seed):
    monkeypatch.setattr(watching, "BETWEEN", 0.0)
    seen = []
    p = _answer(tiny, **_asked(seed), progress=seen.append)
    said = [each for each in seen if each.most is not None]
    assert said and all(each.lm_tokens <= each.most for each in said)
    if p is not None:
        assert seen[-1].most is not None and p.info["lm_tokens"] <= seen[-1].most


@pytest.mark.parametrize("seed", range(12))
def test_a_masked_text_takes_no_more_than_is_said(tiny, seed):
    seen = []
    p = _answer(tiny, **_asked(seed) | {"sampler": "masked", "num_particles": 1}, progress=seen.append)
    assert p is None or all(p.info["lm_tokens"] <= each.masked for each in seen)


@pytest.mark.parametrize("seed", some(range(12), 4))
def test_a_slow_call_that_is_dear_says_so_and_no_other(tiny, seed):
    asked = _asked(seed)
    p, masked = _answer(tiny, **asked), asked["max_new_tokens"] - 1
    if p is None:
        return
    for seconds in (SLOW / 2, 2 * SLOW):
        slow = replace(p, run=replace(p.run, seconds=seconds))
        told = [line for line in slow.report().splitlines() if line.startswith("Cost: ")]
        assert bool(told) == (seconds > SLOW and p.info["lm_tokens"] > DEAR * masked)
        assert all(f"{p.info['lm_tokens']:,} LM tokens" in line and f"at most {masked:,}" in line for line in told)
