"""A call does no work that it was not asked for: no sampler makes a model's table, and what is spent is what is reported."""

from __future__ import annotations

import pytest

import locore
from locore.kernel.errors import ZeroWeights
from locore.kernel.limits import watched
from locore.samplers import BY_NAME, Twisted
from locore.samplers.twist import ngram
from tests.effort import THOROUGH

BUDGET = 80
LOOKING = ("twisted", "auto", "quick") if THOROUGH else ("twisted", "auto")  # for a table that was prepared


def prepare(model, folder):
    """A small table under the name of a whole one."""
    small = locore.prepare(model, 300).path
    small.rename(small.with_name(small.name.replace("-300.", f"-{ngram.POSITIONS}.")))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCORE_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def model(stories260k):
    return locore.load(stories260k)


def sampled(model, sampler, **more):
    """Texts, and the LM tokens that the call asked of the model, whoever counted them."""
    spent = []
    with watched(None, spent.append):
        p = locore.generate(model, "I", locore.ends_with("."), 5, num_particles=4, seed=0, sampler=sampler, **more)
    return p, sum(spent)


@pytest.mark.parametrize("sampler", sorted(set(BY_NAME) - {"exact"}))
def test_no_sampler_prepares_a_table(model, folder, sampler):
    try:
        p, spent = sampled(model, sampler, **({} if sampler in ("quick", "auto", "lcr-published") else {"budget": BUDGET}))
    except ZeroWeights:
        spent = 0
    else:
        assert spent == p.info["lm_tokens"]
        assert sampler != "twisted" or spent <= BUDGET
    assert not (folder / "ngram").exists()


@pytest.mark.slow
def test_twisted_takes_the_table_that_is_there_learns_without_and_makes_one_where_it_is_told(model, folder):
    learned, _ = sampled(model, "twisted", budget=400)
    assert learned.record.table.origin in ("learned in the call", "left aside")
    made, _ = sampled(model, Twisted("model"), budget=400)
    assert made.record.table.origin in ("of the model", "left aside") and made.record.table.lm_tokens >= 10_000
    found, again = sampled(model, "twisted", budget=400)
    assert found.record.table.lm_tokens == 0 and again <= 400
    assert found.texts == made.texts and list(found.log_weights) == list(made.log_weights)


@pytest.mark.parametrize("there", [False, True])
def test_a_process_that_has_settled_answers_alike_whatever_is_prepared_later(model, folder, monkeypatch, there):
    monkeypatch.setattr(ngram, "_in_memory", {})
    if there:
        prepare(model, folder)
        ngram._in_memory.clear()
    assert ngram.settle(model) is there
    before = [sampled(model, name)[0] for name in LOOKING]
    with monkeypatch.context() as others:  # another process makes the table
        others.setattr(ngram, "_in_memory", {})
        prepare(model, folder)
    after = [sampled(model, name)[0] for name in LOOKING]
    assert [p.texts for p in before] == [p.texts for p in after]
    # And one that comes later can be told what the first one had.
    monkeypatch.setattr(ngram, "_in_memory", {})
    assert ngram.settle(model, there) is there
    assert [sampled(model, name)[0].texts for name in LOOKING] == [p.texts for p in before]
