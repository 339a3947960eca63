"""The rows of `locore reproduce detox`: their laws by enumeration."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from locore_lab.detox import methods
from locore_lab.detox.methods import (
    alone,
    by_adaptive_rejection,
    constrained,
    first_token_banning,
    greedy_masking,
    masked,
    word_banning,
)
from locore_lab.detox.published import Reading, published
from locore_lab.detox.task import Races, Task, bill, draw, sources
from scipy.stats import chisquare

import locore
from locore.models import Counted, MarkovModel, TopP
from tests.effort import THOROUGH

FALSE_ALARM = 1e-4  # of each statistical test here


def chain(seed: int = 0) -> MarkovModel:
    """Five tokens, of which "ab" may be spelt by two, and an end."""
    generator = np.random.default_rng(seed)
    tokenizer = locore.Tokenizer.from_tokens(["a", "b", "ab", " ", None], eos_ids=[4])
    return MarkovModel(generator.dirichlet(np.ones(5)), generator.dirichlet(np.ones(5), size=5), tokenizer=tokenizer)


TASK = Task(("ab",), length=3, particles=4, pairs=2)


def law_without(phrase: str, law: str = "plain") -> dict[str, float]:
    """p(text | phrase does not occur) after the prompt " ", from all sequences, without any code of the library's samplers."""
    model = chain().prompted(" ")
    model = model if law == "plain" else TopP(model, 0.9)
    rows = [y for y in itertools.product(range(5), repeat=3) if 4 not in y or set(y[y.index(4) :]) == {4}]
    scores = model.score(torch.tensor(rows)).exp().tolist()
    law: Counter[str] = Counter()
    for y, p in zip(rows, scores, strict=True):
        text = model.tokenizer.decode(y)
        if phrase not in text:
            law[text] += p
    total = sum(law.values())
    return {text: p / total for text, p in law.items()}


def assert_law(texts: list[str], law: dict[str, float]) -> None:
    counted = Counter(texts)
    assert set(counted) <= set(law)
    common = [text for text, p in law.items() if p * len(texts) >= 5]
    seen = [counted[text] for text in common]
    wanted = [law[text] * len(texts) for text in common]
    rest = len(texts) - sum(wanted)
    assert chisquare([*seen, len(texts) - sum(seen)], [*wanted, rest]).pvalue > FALSE_ALARM


def texts_of(method, num: int, task: Task = TASK) -> list[str]:
    model = chain()
    answers = method(model, " ", task, list(range(num)))
    assert all(answer.tokens is not None for answer in answers)
    return [model.tokenizer.decode(answer.tokens) for answer in answers]


@pytest.mark.parametrize("level", ["text", "tokens"])
def test_rejection_is_the_exact_law(level):
    """On tokens too: what spells "ab" as "a", "b" is not canonical, and its canonical tokens are banned."""
    assert_law(texts_of(methods.exact(level), 2000), law_without("ab"))


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("law", ["plain", "nucleus"])
def test_rejection_and_the_model_alone_follow_either_law_however_they_draw(law, paired):
    task = replace(TASK, races=Races() if paired else None)
    assert_law(texts_of(methods.exact("text", law), 1500, task), law_without("ab", law))
    assert_law(texts_of(masked(alone, law), 1500, task), law_without("no such phrase", law))


def test_a_race_with_equal_seeds_changes_only_what_is_banned():
    """A row under a ban draws what the model alone draws wherever that keeps the ban; drawn by inversion it would not."""
    task, model = replace(TASK, races=Races()), chain()
    plain, banned = (masked(each)(model, " ", task, list(range(200))) for each in (alone, word_banning))
    kept = [one.tokens == other.tokens for one, other in zip(plain, banned, strict=True)]
    assert kept == [2 not in one.tokens for one in plain]


def test_the_authors_word_banning_bans_first_tokens_whatever_follows():
    answers = masked(first_token_banning)(chain(), " ", replace(TASK, phrases=("b a",)), list(range(300)))
    first = chain().tokenizer.encode(" b a")[0]
    assert first == 3 and not any(first in answer.tokens for answer in answers)  # the space: nothing with it is left


@pytest.mark.slow
def test_adaptive_rejection_gives_one_exact_draw():
    assert_law(texts_of(by_adaptive_rejection(), 200), law_without("ab"))


def test_one_of_the_particles_of_a_sampler_follows_the_law():
    assert_law(texts_of(constrained("exact"), 150 if THOROUGH else 60), law_without("ab"))


def test_masking_has_no_leak_and_word_banning_has():
    assert not any("ab" in text for text in texts_of(masked(greedy_masking), 300))
    banned = texts_of(masked(word_banning), 300)
    model = chain()
    answers = masked(word_banning)(model, " ", TASK, list(range(300)))
    assert any("ab" in text for text in banned)  # as "a", "b"
    assert not any(2 in answer.tokens for answer in answers)


@pytest.mark.parametrize("races", [None, Races()], ids=["inversion", "races"])
def test_each_run_has_its_own_randomness_and_bill(races):
    model = chain().prompted(" ")
    together = draw(model, 3, sources(range(6), races))
    for seed in range(6):
        assert draw(model, 3, sources([seed], races and Races())).tolist() == together[seed : seed + 1].tolist()
    counted = Counted(model)
    counted.score(together)
    assert sum(bill(together, model.tokenizer)) == counted.lm_tokens


def test_rejection_pays_for_every_draw():
    answers = methods.exact("text")(chain(), " ", TASK, list(range(500)))
    accepted = 500 / sum(answer.notes["draws"] for answer in answers)
    model, low = chain().prompted(" "), 0.0
    truth = math.exp(locore.testing.enumerate_posterior(model, locore.compile(TASK.constraint("text"), model, 3)).log_evidence)
    low, high = truth - 4 * math.sqrt(truth / 500), truth + 4 * math.sqrt(truth / 500)
    assert low < accepted < high  # four standard errors at least: a false alarm in 15,000


READINGS = (
    Reading(3, 0.7),
    *(
        pytest.param(reading, marks=pytest.mark.slow)
        for reading in (Reading(2, 0.7, own=True), Reading(2, 0.7, own=True, rest=-2.0), Reading(1, 1.0, own=True, rest=-300.0))
    ),
    Reading(2, 0.7, own=True, rest=-2.0, law="nucleus"),
    Reading(1, 0.7, own=True, rest=-2.0, banned=2),
)
IN_PHRASES = (0, 1, 2)


NUM = 400 if THOROUGH else 100  # draws


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: reading.name)
def test_the_published_sampler_by_enumeration(reading):
    """Two pairs of two tokens over four; every pair of pairs is enumerated from the formulas of the paper."""
    rng = np.random.default_rng(3)
    initial, transition = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4), size=4)
    model = MarkovModel(initial, transition)
    alpha = ~locore.constraints.contains_tokens([[0, 0], [1, 2]])
    circuit = locore.compile(alpha, model, 2)
    k, tau = reading.k, reading.tau
    sequences = list(itertools.product(range(4), repeat=2))

    def p(y):
        return initial[y[0]] * transition[y[0], y[1]]

    def nucleus_of(row):
        order = np.argsort(-row)
        kept = order[: int(np.searchsorted(np.cumsum(row[order]), 0.9)) + 1]
        return {int(v): row[v] / row[kept].sum() for v in kept}

    def score(y):
        if reading.law == "plain":
            return p(y)
        return nucleus_of(initial).get(y[0], 0.0) * nucleus_of(transition[y[0]]).get(y[1], 0.0)

    def completed(kept):
        total = sum(kept.values())
        given = {v: max(kept.get(v, 0.0) / total, math.exp(reading.rest)) for v in range(4)}
        return {v: x / sum(given.values()) for v, x in given.items() if x}

    def likeliest(row):
        order = [int(v) for v in np.argsort(-row)]
        if not reading.banned:
            return order[:k]
        kinds = [v for v in order if v not in IN_PHRASES][:k], [v for v in order if v in IN_PHRASES][: reading.banned]
        return [*kinds[0], *kinds[1]]

    def local(y):
        candidates = [
            [*likeliest(row), *([own] if reading.own else [])] for row, own in ((initial, y[0]), (transition[y[0]], y[1]))
        ]
        first = {int(v): p((v, y[1])) ** (1 / tau) for v in candidates[0]}
        second = {int(v): p((y[0], v)) ** (1 / tau) for v in candidates[1]}
        return [completed(each) for each in (first, second)]

    def q(around, y):
        return around[0].get(y[0], 0.0) * around[1].get(y[1], 0.0)

    pairs = []  # (probability of the pair, y, weight)
    for draft in sequences:
        start = nucleus_of(initial).get(draft[0], 0.0) * nucleus_of(transition[draft[0]]).get(draft[1], 0.0)
        if start:
            good = {y: q(local(draft), y) for y in sequences if y not in ((0, 0), (1, 2))}
            for y, mass in good.items():
                if mass:
                    proposal = mass / sum(good.values())
                    pairs.append((start * proposal, y, score(y) * q(local(y), draft) / (score(draft) * proposal)))
    law: Counter[tuple[int, int]] = Counter()
    zeros = 0.0
    for (a, y, w), (b, z, v) in itertools.product(pairs, pairs):
        share = w / (w + v) if w + v else 0.5
        zeros += a * b * (w + v == 0)
        law[y] += a * b * share
        law[z] += a * b * (1 - share)
    assert sum(law.values()) == pytest.approx(1)
    generator = torch.Generator().manual_seed(0)
    always = lambda y: torch.ones(len(y), dtype=torch.bool)  # noqa: E731
    found = [published(model, circuit, 2, reading, always, generator, IN_PHRASES) for _ in range(NUM)]
    assert_law([str(tuple(one.tokens)) for one in found], {str(y): mass for y, mass in law.items()})
    none = sum(one.positive == 0 for one in found)
    assert abs(none - NUM * zeros) <= 4 * math.sqrt(NUM * zeros * (1 - zeros)) + 1
