"""Biases, floors, penalties and stop strings: models with their own density, step by step and at once."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import locore
from locore import before, contains, ends_with, regex
from locore.kernel.errors import InvalidArgument, InvalidConstraint, Unsatisfiable
from locore.kernel.tokenizer import Tokenizer
from locore.models import Biased, EndingAt, MarkovModel, MinP, Penalised, TableModel

from . import zoo

BASE = TableModel([[0.5, 0.3, 0.15, 0.05]])
WORDS = Tokenizer.from_tokens(["a", "b", "ab.", "<end>"], eos_ids=[3])
CHAIN = MarkovModel(
    [0.4, 0.3, 0.2, 0.1], [[0.2, 0.5, 0.2, 0.1], [0.6, 0.1, 0.2, 0.1], [0.3, 0.3, 0.3, 0.1], [0, 0, 0, 1]], tokenizer=WORDS
)
LENGTH = 4
ALL = torch.tensor(list(itertools.product(range(4), repeat=LENGTH)))


def first_row(model) -> list[float]:
    return model.log_probs(torch.tensor([[0]]))[0, 0].exp().tolist()


@pytest.mark.parametrize(
    ("model", "row"),
    [
        (Biased(BASE, {1: math.log(2.0), 3: 0.0}), [0.5 / 1.3, 0.6 / 1.3, 0.15 / 1.3, 0.05 / 1.3]),
        (MinP(BASE, 0.5), [0.625, 0.375, 0, 0]),
        (MinP(BASE, 0.0), [0.5, 0.3, 0.15, 0.05]),
        (MinP(BASE, 1.0), [1, 0, 0, 0]),
        (Penalised(BASE, 1.0, 2.0), [0.5, 0.3, 0.15, 0.05]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_densities_by_hand(model, row):
    assert first_row(model) == pytest.approx(row, abs=1e-8)


def test_penalties_are_those_of_what_was_written():
    """Each token of every sequence, by the formula of OpenAI's documentation."""
    model = Penalised(CHAIN, 0.7, -0.4)
    plain, rows = CHAIN.log_probs(ALL), model.log_probs(ALL)
    for y, before_y, after in zip(ALL.tolist(), plain, rows, strict=True):
        for time in range(LENGTH):
            if 3 in y[:time]:
                continue
            lowered = [float(before_y[time, v]) - 0.7 * y[:time].count(v) + 0.4 * (y[:time].count(v) > 0) for v in range(4)]
            total = math.log(sum(map(math.exp, lowered)))
            assert after[time].tolist() == pytest.approx([value - total for value in lowered], abs=1e-6)


def test_a_text_ends_where_a_stop_string_is_complete():
    model = EndingAt(CHAIN, ["ba", "."])
    rows = model.log_probs(ALL)
    for y, row in zip(ALL.tolist(), rows, strict=True):
        for time in range(1, LENGTH):
            text = WORDS.text_bytes(y[:time])
            if 3 not in y[:time] and (b"ba" in text or b"." in text):
                assert row[time].exp().tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda base: Biased(base, {0: 0.3, 2: -1.0}),
        lambda base: MinP(base, 0.3),
        lambda base: Penalised(base, 0.5, 0.25),
        lambda base: EndingAt(base, ["ba", "ab."]),
    ],
)
def test_step_by_step_as_at_once_and_the_whole_is_one(wrap):
    model = wrap(CHAIN)
    cursor, rows = model.begin(len(ALL)), model.log_probs(ALL)
    for time in range(LENGTH):
        possible = model.token_scores(ALL)[:, :time].sum(1) > -math.inf
        torch.testing.assert_close(cursor.log_probs[possible], rows[possible, time])
        cursor = cursor.advance(ALL[:, time])
    ends = model.score(ALL)
    assert float(ends.exp().sum()) == pytest.approx(1.0)
    assert wrap(CHAIN).fingerprint() == model.fingerprint()
    forked = model.begin(2).advance(torch.tensor([0, 1])).advance(torch.tensor([1, 1, 0]), torch.tensor([0, 1, 1]))
    expected = model.log_probs(torch.tensor([[0, 1, 0], [1, 1, 0], [1, 0, 0]]))[:, 2]
    torch.testing.assert_close(forked.log_probs, expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Biased(BASE, {9: 1.0}),
        lambda: Biased(BASE, {0: math.inf}),
        lambda: MinP(BASE, 1.5),
        lambda: Penalised(BASE, math.nan),
        lambda: EndingAt(BASE, ["a"]),
        lambda: EndingAt(CHAIN, [""]),
        lambda: EndingAt(CHAIN, []),
    ],
)
def test_what_is_no_model_is_refused(make):
    with pytest.raises(InvalidArgument):
        make()


def test_prompts_reach_the_base():
    chain = zoo.markov()
    for model in (Biased(chain, {0: 1.0}), MinP(chain, 0.2)):
        whole = torch.cat([torch.full((36, 1), 1), zoo.all_sequences(6, 2)], 1)
        conditional = model.token_scores(whole)[:, 1:].sum(1)
        torch.testing.assert_close(model.prompted([1]).score(zoo.all_sequences(6, 2)), conditional)


CASES = [ends_with("b"), contains("ab"), ~ends_with("a") & regex("(a|b|\\.)*"), ends_with("a") | contains("bb")]


@pytest.mark.parametrize("stops", [["ba"], ["ab", "."], ["b", "bab", "aa"]], ids=str)
@pytest.mark.parametrize("alpha", CASES, ids=str)
def test_a_constraint_before_a_stop_string_is_that_of_the_cut_text(alpha, stops):
    """The posterior of texts, cut, against enumeration of all sequences; the automaton against plain reading."""
    model, cut = EndingAt(CHAIN, stops), before(stops, alpha)
    assert locore.from_json(cut.to_json()) == cut
    expected: dict[str, float] = {}
    for y, log_p in zip(ALL.tolist(), model.score(ALL).tolist(), strict=True):
        text = WORDS.decode(y)
        ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
        text = text[: min(ends)[1]] if ends else text
        if log_p > -math.inf and locore.holds(alpha, text, WORDS):
            expected[text] = expected.get(text, 0.0) + math.exp(log_p)
    if not expected:
        with pytest.raises(Unsatisfiable):
            locore.compile(cut, model, LENGTH)
        return
    p = locore.generate(model, [], cut, max_new_tokens=LENGTH, num_particles=300, sampler="exact", seed=1, ending="eos")
    found: dict[str, float] = {}
    for text, share in p:
        ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
        text = text[: min(ends)[1]] if ends else text
        found[text] = found.get(text, 0.0) + share
    total = sum(expected.values())
    assert p.log_evidence == pytest.approx(math.log(total), abs=1e-6)
    assert found == pytest.approx({text: mass / total for text, mass in expected.items()}, abs=1e-6)


def test_before_refuses_what_it_cannot_say():
    with pytest.raises(InvalidConstraint):
        before([], ends_with("a"))
    with pytest.raises(InvalidConstraint):
        before([""], ends_with("a"))
    with pytest.raises(InvalidConstraint, match="at"):
        before(["a"], locore.constraint(lambda tokens: tokens[0] == 1))
