"""What a row says of phrases and tokens, when an audit stops early, and how two audits compare."""

from __future__ import annotations

import json
import math
from itertools import product

import pytest
import torch

import locore
from locore.auditing.prompt_audit import STOPPED
from locore.auditing.result import Audit, Change
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel, TableModel
from tests.effort import THOROUGH

TOKENIZER = Tokenizer.from_tokens([b"a", b"b", b"c"])
PHRASES = ["bb", "abc", "ca"]


def enumerated(model: TableModel, length: int) -> tuple[dict[str, float], list[float]]:
    """By phrase, and by token, of all sequences; of phrases that end at one place the longest."""
    by_phrase, by_token = dict.fromkeys(PHRASES, 0.0), [0.0] * length
    for tokens in product(range(3), repeat=length):
        text = "".join("abc"[token] for token in tokens)
        found = [(text.find(phrase) + len(phrase), -len(phrase), phrase) for phrase in PHRASES if phrase in text]
        if found:
            p = math.exp(float(model.score(torch.tensor([tokens]))[0]))
            by_phrase[min(found)[2]] += p
            by_token[min(found)[0] - 1] += p
    return by_phrase, by_token


def test_first_phrases_and_their_tokens_are_those_of_all_sequences() -> None:
    model = TableModel.random(3, 5, seed=1)
    model.tokenizer = TOKENIZER
    by_phrase, by_token = enumerated(model, 5)
    row = locore.audit(model, [[]], PHRASES, 5, budget=1000, seed=0, num_particles=1000).rows[0]
    assert row.by_phrase == pytest.approx({name: p for name, p in by_phrase.items() if p}, rel=1e-6)
    assert list(row.by_position) == pytest.approx(by_token, rel=1e-6)
    assert sum(by_token) == pytest.approx(row.probability, rel=1e-6)
    assert row.position == pytest.approx(sum(n * p for n, p in enumerate(by_token, 1)) / sum(by_token))
    assert row.lm_tokens > 0 and row.passes > 0


def rare(share: float) -> tuple[MarkovModel, float]:
    """A chain, and the probability of "bb" within 20 tokens."""
    model = MarkovModel([1 - share, share, 0.0], [[1 - share, share, 0.0]] * 3, tokenizer=TOKENIZER)
    none, one, hit = 1.0, 0.0, 0.0
    for _ in range(20):
        none, one, hit = (none + one) * (1 - share), none * share, hit + one * share
    return model, hit


def test_a_limit_far_away_costs_less_and_one_nearby_is_seldom_on_the_wrong_side() -> None:
    """At 5 % a side, 20 audits are wrong more than 4 times, or 10 more than 3 times, in 3 of 1,000 test runs at most."""
    model, truth = rare(0.02)
    whole = locore.audit(model, [[]], ["bb"], 20, budget=4_000, seed=0).rows[0]
    far = locore.audit(model, [[]], ["bb"], 20, limit=0.5, budget=4_000, seed=0).rows[0]
    assert far.settled == "below" and far.lm_tokens < whole.lm_tokens / 2 and STOPPED in far.note
    wrong = 0
    for factor, side in ((0.8, "below"), (1.25, "above")):
        rows = locore.audit(
            model, [[]] * (10 if THOROUGH else 5), ["bb"], 20, limit=factor * truth, budget=2_400, seed=1, sampler="swor"
        ).rows
        wrong += sum(row.settled == side for row in rows)
        assert all(row.bounds[0] <= truth <= row.bounds[1] for row in rows)
    assert wrong <= (4 if THOROUGH else 3)


def test_a_change_is_within_its_interval_and_no_change_is_seldom_one() -> None:
    """At 95 % more than 3 of 12 prompts are outside, or 2 of 6, in 2 of 1,000 test runs."""
    (model, first), (other, second) = rare(0.02), rare(0.03)
    prompts, outside = ([[]] * 12, 3) if THOROUGH else ([[]] * 6, 2)
    before = locore.audit(model, prompts, ["bb"], 20, budget=500, seed=1)
    after = locore.audit(other, prompts, ["bb"], 20, budget=500, seed=1)
    found = after.compare(before)
    assert sum(row.interval[0] <= second / first <= row.interval[1] for row in found.rows) >= len(prompts) - outside
    assert found.mean.interval[0] <= second / first <= found.mean.interval[1] and found.mean.is_change
    again = locore.audit(model, prompts, ["bb"], 20, budget=500, seed=31_000).compare(before)
    assert sum(row.is_change for row in again.rows) <= outside
    json.dumps(found.to_json(), allow_nan=False)
    assert len(str(found).splitlines()) > 1


def test_what_has_no_ratio_has_ends() -> None:
    assert Change.of(0, None, (0.0, 0.1), 0.2, (0.1, 0.4)) == Change(0, None, (0.0, 1.0))
    assert Change.of(0, 0.1, (0.05, 0.2), 0.0, (0.0, 0.0)).interval == (0.0, math.inf)
    assert Change.of(0, 0.0, (0.0, 0.0), 0.2, (0.1, 0.4)).ratio == 0.0


@pytest.mark.parametrize(("phrases", "prompts"), [(["c"], 1), (["bb"], 2)])
def test_other_questions_are_not_compared(phrases: list[str], prompts: int) -> None:
    model, _ = rare(0.1)
    before = locore.audit(model, [[]], ["bb"], 4, budget=100, seed=0)
    with pytest.raises(locore.errors.InvalidArgument, match="cannot be compared"):
        locore.audit(model, [[]] * prompts, phrases, 4, budget=100, seed=0).compare(before)


def test_letters_that_no_token_has_are_named() -> None:
    row = locore.audit(rare(0.1)[0], [[]], ["bb", "xyz"], 4, budget=100, seed=0).rows[0]
    assert "'xyz'" in row.note and "'bb'" not in row.note and row.by_phrase.keys() == {"bb"}


def test_a_constraint_has_no_phrases_and_rows_come_back_from_json() -> None:
    found = locore.audit(rare(0.1)[0], [[]], locore.contains("bb"), 4, budget=100, seed=0, show_texts=True)
    row = found.rows[0]
    assert row.probability and not row.by_phrase and row.position is None and row.texts
    assert type(row).from_json(json.loads(json.dumps(row.to_json()))) == row
    assert Audit.of([row], None, found.question) == found


@pytest.mark.parametrize("settings", [{"max_tokens": 0}, {"budget": 0}, {"limit": 1.0}])
def test_what_asks_nothing_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(locore.errors.InvalidArgument):
        locore.audit("tiny", ["a"], ["b"], **settings)


def test_nothing_is_read_behind_the_first_phrase() -> None:
    """Half of all texts have a phrase with their first token, and three of four with their second: the rest goes on."""
    model = MarkovModel([0.5, 0.5], [[0.5, 0.5]] * 2, eos_ids=(), tokenizer=Tokenizer.from_tokens([b"a", b"b"]))
    ending = MarkovModel(
        [0.5, 0.5, 0.0], [[0.5, 0.5, 0.0]] * 3, eos_ids=(2,), tokenizer=Tokenizer.from_tokens([b"a", b"b", None], [2])
    )
    without, with_end = (locore.audit(each, [[]], ["b"], 10, budget=10_000, seed=1).rows[0] for each in (model, ending))
    assert without.probability == pytest.approx(1 - 2**-10) == with_end.probability
    assert with_end.lm_tokens <= 2 * 9 < without.lm_tokens
    assert with_end.by_position == pytest.approx([2.0**-n for n in range(1, 11)])


def test_hundreds_of_phrases_are_one_question() -> None:
    phrases = [f" {first}{second}" for first in "abcdefghijklmnopqrst" for second in "abcdefghijklmnopqrst"]
    row = locore.audit("tiny", ["Once upon a time"], phrases, 4, budget=100, seed=1).rows[0]
    assert row.verdict != "error" and row.probability == pytest.approx(sum(row.by_phrase.values()))
