"""`sampler="search"`: the most probable texts, and what is proven of them, against plain enumeration of a small table model."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import locore
from locore import ban, bonus, choice, contains, ends_with, regex
from locore.kernel.errors import CannotScore, InvalidArgument, InvalidConstraint, TimedOut, ZeroWeights
from locore.models import Tempered, TopK
from locore.samplers.most_probable import Frontier
from tests.effort import examples
from tests.test_laws_of_requests import LENGTH, LETTERS, exact, model_of, sequences

AIMS = {"ban": ban("aa"), "ends": ends_with("ba"), "contains": contains("ab"), "bonus": ban("aa") * bonus(contains("b"), 2.0)}
LAWS = {
    "own": ({}, lambda model: model),
    "sharper": ({"temperature": 0.5, "top_k": 3}, lambda model: TopK(Tempered(model, 0.5), 3)),
}


def ranked(model, aim: str) -> list[tuple[float, str]]:
    """All texts by the log probability of their likeliest tokenisation, times what they are worth."""
    of_constraint = AIMS["ban"] if aim == "bonus" else AIMS[aim]
    best: dict[str, float] = {}
    for y, p in sequences(model):
        text = LETTERS.decode(list(y))
        if p > 0 and of_constraint.bind(LETTERS).evaluate(list(y), LETTERS):
            best[text] = max(best.get(text, -math.inf), math.log(p) + (2.0 if aim == "bonus" and "b" in text else 0.0))
    return sorted(((log, text) for text, log in best.items()), reverse=True)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 7), st.sampled_from([16, 40, 150, 5000]), st.sampled_from(list(AIMS)),
       st.sampled_from(list(LAWS)))  # fmt: skip
def test_what_is_proven_is_the_ranking_of_all_texts(seed, number, budget, aim, law):
    model = model_of(seed)
    options, changed = LAWS[law]
    truth = ranked(changed(model), aim)
    call = {"num_particles": number, "sampler": "search", "budget": budget, "seed": seed, "ending": "eos"}
    try:
        p = locore.generate(model, "", AIMS[aim], LENGTH, **call, **options)
    except ZeroWeights:  # where the law has tokens of probability 0, prefixes may lead nowhere
        assert law == "sharper" and budget < 5000
        return
    mode, worth = p.record.mode, dict((text, log) for log, text in truth)
    assert len(set(p.texts)) == len(p) <= number and set(p.texts) <= worth.keys()
    logs = p.log_weights.tolist()
    assert logs == sorted(logs, reverse=True)
    for text, log in zip(p.texts, logs, strict=True):
        assert log <= worth[text] + 1e-9  # by one of its tokenisations
    for (log, _), found in zip(truth[: mode.proven], logs[: mode.proven], strict=True):
        assert found == pytest.approx(log, abs=1e-9)
    others = [log for log, text in truth if text not in p.texts]
    assert not others or max(others) <= mode.log_unread + 1e-9
    assert p.info["proven"] == mode.proven and p.info["lm_tokens"] <= budget
    assert (p.verdict.level == "trust") == (mode.proven > 0)
    if budget == 5000:
        assert mode.proven == len(p) == min(number, len(truth))


def test_fewer_texts_than_were_asked_for_are_all_there_are():
    p = locore.generate(
        model_of(3), "", choice(["ab", "ba"]), LENGTH, num_particles=9, sampler="search", budget=5000, ending="eos"
    )
    assert sorted(p.texts) == ["ab", "ba"] and p.record.mode.proven == 2
    assert repr(p).startswith("<the most probable 2 texts found: trust>\n") and repr(p.best) in repr(p)
    for log in p.log_weights.tolist():  # not their shares among each other
        assert f"  {math.exp(log):.2g}  " in repr(p) and f"<td>{math.exp(log):.2g}</td>" in p._repr_html_()


def test_what_is_asked_for_comes_in_order_and_not_by_chance():
    """From the first again where there are fewer; with temperature 0 the first alone, and by name as many as wanted."""
    call = (model_of(5), "", contains("b"))
    p = locore.generate(*call, LENGTH, num_particles=3, sampler="search", budget=5000)
    assert p.resample(5, seed=1).texts == [*p.texts, *p.texts[:2]] and p.draw(seed=7) == p.texts[0]
    assert locore.sample(*call, 2, LENGTH, sampler="search", budget=5000) == p.texts[:2]
    assert locore.sample(*call, 2, LENGTH, temperature=0, budget=5000) == [p.texts[0]] * 2
    assert locore.generate(*call, LENGTH, num_particles=3, sampler="search", budget=5000, temperature=0).texts == p.texts
    assert "".join(locore.stream(*call, LENGTH, sampler="search", budget=5000)) == p.texts[0]


def test_a_search_is_no_draw():
    call = (model_of(1), "", contains("b"), LENGTH)
    with pytest.raises(CannotScore, match="search"):
        locore.rollouts(*call, sampler="search")
    with pytest.raises(InvalidArgument, match="search"):
        locore.log_odds(model_of(1), "", contains("b"), contains("a"), LENGTH, sampler="search")
    with pytest.raises(InvalidArgument, match="search"):
        locore.log_odds(model_of(1), "", contains("b"), contains("a"), LENGTH, temperature=0)
    with pytest.raises(InvalidArgument, match=r"temperature=0.*'search'"):
        locore.generate(*call, temperature=0, sampler="smc")
    with pytest.raises(InvalidConstraint):
        locore.generate(model_of(1), "", "b", LENGTH, sampler="search")


@pytest.mark.parametrize("stop", ["a", "b", " c"])
def test_texts_that_are_cut_alike_are_one(stop):
    model = model_of(2)
    p = locore.generate(
        model, "", regex("[abc ]*"), LENGTH, num_particles=6, sampler="search", budget=5000, stop=stop, ending="eos"
    )
    assert len(set(p.texts)) == len(p) > 1 and not any(stop in text for text in p.texts)
    every = exact(model, regex("[abc ]*"), stop=stop, ending="eos")
    best: dict[str, float] = {}
    for text, scores in zip(every.texts, every.token_scores.sum(-1).tolist(), strict=True):
        best[text] = max(best.get(text, -math.inf), scores)
    assert p.log_weights.tolist() == pytest.approx(sorted(best.values(), reverse=True)[:6])


@pytest.mark.parametrize("passes", range(1, 14))
def test_what_was_not_read_when_time_was_up_is_no_proof(passes, monkeypatch):
    """Whatever pass is the last: what is claimed is still true."""
    read, made = Frontier._read, itertools.count(1)

    def until(self, prefixes):
        if next(made) > passes:
            raise TimedOut("the time is up.")
        return read(self, prefixes)

    monkeypatch.setattr(Frontier, "_read", until)
    truth = ranked(model_of(4), "ban")
    try:
        p = locore.generate(model_of(4), "", ban("aa"), LENGTH, num_particles=2, sampler="search", budget=300, ending="eos")
    except TimedOut:
        assert passes < LENGTH
        return
    mode = p.record.mode
    assert any("was ended after" in note for note in p.info["notes"]) or mode.proven == 2
    assert max(log for log, text in truth if text not in p.texts) <= mode.log_unread + 1e-9
    assert [text for _, text in truth[: mode.proven]] == p.texts[: mode.proven]
