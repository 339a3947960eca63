"""Temperature, cuts, penalties, stops, ends and temperature 0: each against plain enumeration of a small table model."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import locore
from locore import ban, bonus, choice, contains, ends_with, regex, word_count
from locore.kernel.errors import InvalidArgument, LocoreWarning, Unsatisfiable
from locore.kernel.request import Law, Request
from locore.kernel.tokenizer import Tokenizer
from locore.models import Biased, MinP, Penalised, TableModel, Tempered, TopK, TopP
from locore.testing import total_variation
from tests.chatting import talking
from tests.effort import examples

LENGTH, VOCAB = 5, 5
LETTERS = Tokenizer.from_tokens([b"a", b"b", b"ab", b" c", None], eos_ids=(4,))
FALSE_ALARM = 1e-6


def model_of(seed: int) -> TableModel:
    generator = np.random.default_rng(seed)
    tables = []
    for step in range(LENGTH):
        table = generator.dirichlet(np.full(VOCAB, 0.6), size=(VOCAB,) * step).reshape(*(VOCAB,) * step, VOCAB) + 1e-9
        tables.append(torch.from_numpy(table / table.sum(-1, keepdims=True)))
    return TableModel(tables, tokenizer=LETTERS)


def sequences(model) -> list[tuple[tuple[int, ...], float]]:
    """All sequences with the end as padding, and their probabilities."""
    everything = torch.tensor([y for y in itertools.product(range(VOCAB), repeat=LENGTH) if is_padded(y)])
    scores = model.token_scores(everything).sum(-1).exp().tolist()
    return list(zip(map(tuple, everything.tolist()), scores, strict=True))


def is_padded(y: tuple[int, ...]) -> bool:
    """Does nothing follow an end but the padding?"""
    return 4 not in y or set(y[y.index(4) :]) == {4}


def exact(model, constraint, **options):
    return locore.generate(model, "", constraint, LENGTH, num_particles=4000, sampler="exact", seed=0, **options)


LAWS = {
    "temperature": ({"temperature": 0.5}, lambda model: Tempered(model, 0.5)),
    "top_p": ({"top_p": 0.7}, lambda model: TopP(model, 0.7)),
    "top_k": ({"top_k": 2}, lambda model: TopK(model, 2)),
    "min_p": ({"min_p": 0.2}, lambda model: MinP(model, 0.2)),
    "penalties": ({"frequency_penalty": 0.5, "presence_penalty": -0.3}, lambda model: Penalised(model, 0.5, -0.3)),
    "bias": ({"logit_bias": {1: 2.0}}, lambda model: Biased(model, {1: 2.0})),
    "all": (
        {"temperature": 2.0, "top_p": 0.9, "top_k": 4, "min_p": 0.01, "logit_bias": {0: -1.0}, "presence_penalty": 0.5},
        lambda model: TopP(TopK(MinP(Tempered(Biased(Penalised(model, 0.0, 0.5), {0: -1.0}), 2.0), 0.01), 4), 0.9),
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_an_option_is_the_model_of_that_name(name):
    options, changed = LAWS[name]
    for seed in range(3):
        model = model_of(seed)
        asked, meant = exact(model, contains("a"), **options), exact(changed(model), contains("a"))
        assert asked.log_evidence == pytest.approx(meant.log_evidence, abs=1e-9)
        assert total_variation(asked.posterior(), meant.posterior()) < 1e-9
        assert all(f"{option} " in asked.info["law"] for option in options)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.integers(0, 10_000),
    st.lists(st.sampled_from(["a", "b", "ab", "ba", " c", "c a", "bab"]), min_size=1, max_size=3),
    st.sampled_from([ban("aa"), contains("b"), ends_with("a"), regex("(?s).*"), word_count(1, 1)]),
)
def test_a_text_ends_before_the_first_stop_string_and_the_constraint_is_about_what_is_left(seed, stops, constraint):
    """Against Python's own search, on every sequence; behind a stop string everything may be written, and is cut off.

    A text ends behind the token in which it stops, so that what would follow there is not asked about.
    """
    model = model_of(seed)
    truth: Counter[str] = Counter()
    for y, p in sequences(model):
        text = LETTERS.decode(list(y))
        found = [(text.find(stop) + len(stop), -len(stop)) for stop in stops if stop in text]
        end, size = min(found) if found else (len(text), 0)
        left = text[: end + size]
        if locore.holds(constraint, left, LETTERS):
            truth[left] += p
    try:
        answer = exact(model, constraint, stop=stops, ending="eos")
    except Unsatisfiable:
        assert sum(truth.values()) < 1e-12
        return
    total = sum(truth.values())
    assert answer.log_evidence == pytest.approx(math.log(total), abs=1e-6)
    assert total_variation(answer.posterior(), {text: p / total for text, p in truth.items()}) < 1e-6


def test_finished_texts_have_an_end():
    for seed in range(3):
        model = model_of(seed)
        truth: Counter[str] = Counter()
        for y, p in sequences(model):
            if 4 in y and "b" in LETTERS.decode(list(y)):
                truth[LETTERS.decode(list(y))] += p
        answer = exact(model, contains("b"), finished=True, ending="eos")
        total = sum(truth.values())
        assert answer.log_evidence == pytest.approx(math.log(total), abs=1e-9)
        assert total_variation(answer.posterior(), {text: p / total for text, p in truth.items()}) < 1e-9


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([16, 24, 60, 400]), st.sampled_from(["ban", "ends", "bonus", "potential"]))
def test_temperature_0_is_proven_only_where_nothing_is_more_probable(seed, budget, kind):
    """And it never is more probable than the most probable; with a large budget it is that."""
    model = model_of(seed)
    aims = {
        "ban": ban("aa"),
        "ends": ends_with("ba"),
        "bonus": ban("aa") * bonus(contains("b"), 2.0),
        "potential": ends_with("a") * locore.potential(lambda texts: [float(text.count("b")) for text in texts], bound=5.0),
    }
    worth = {"bonus": lambda text: 2.0 * ("b" in text), "potential": lambda text: float(text.count("b"))}
    holds = {"ban": lambda text: "aa" not in text, "ends": lambda text: text.endswith("ba")}
    holds |= {"bonus": holds["ban"], "potential": lambda text: text.endswith("a")}
    best = max(
        math.log(p) + worth.get(kind, lambda text: 0.0)(text)
        for y, p in sequences(model)
        if holds[kind](text := LETTERS.decode(list(y)))
    )
    answer = locore.generate(model, "", aims[kind], LENGTH, temperature=0, budget=budget, seed=seed, ending="eos")
    mode = answer.record.mode
    assert mode.log_found <= best + 1e-9
    assert len(answer) == 1 and holds[kind](answer.best)
    assert best <= max(mode.log_found, mode.log_unread) + 1e-9
    assert (answer.verdict.level == "trust") == mode.is_proven
    assert answer.info["lm_tokens"] <= budget
    if mode.is_proven:
        assert mode.log_found == pytest.approx(best, abs=1e-9)
    low, high = answer.log_evidence_bounds
    assert low <= high


def test_temperature_0_finds_the_most_probable_text_where_it_may_read_all():
    for seed in range(10):
        model = model_of(seed)
        best = max((p, LETTERS.decode(list(y))) for y, p in sequences(model) if "b" in LETTERS.decode(list(y)))
        answer = locore.generate(model, "", contains("b"), LENGTH, temperature=0, budget=20_000, ending="eos")
        assert answer.verdict.level == "trust"
        assert answer.record.mode.log_found == pytest.approx(math.log(best[0]))


@settings(max_examples=examples(20), deadline=None)
@given(seed=st.integers(0, 10**6), budget=st.sampled_from([25, 100, 5000]), mode=st.sampled_from(["only", "alpha"]))
def test_the_most_probable_text_is_one_that_no_filter_takes_away(seed, budget, mode):
    """Canonical tokenisations alone, and texts whose canonical tokenisation fits: against enumeration."""
    model, aim = model_of(seed), contains("ab")
    bound = aim.bind(LETTERS)

    def kept(y: tuple[int, ...]) -> bool:
        own = tuple(LETTERS.canonize(list(y)))
        own = (*own, *(4,) * (LENGTH - len(own)))
        return bound.evaluate(list(y), LETTERS) and (own == y if mode == "only" else bound.evaluate(list(own), LETTERS))

    best = max(p for y, p in sequences(model) if kept(y))
    answer = locore.generate(
        model, "", aim, LENGTH, temperature=0, canonical=mode, budget=budget, seed=seed, ending="eos", finished=False
    )
    assert kept(tuple(answer.tokens[0].tolist()))
    assert answer.record.mode.log_found <= math.log(best) + 1e-9
    assert math.log(best) <= max(answer.record.mode.log_found, answer.record.mode.log_unread) + 1e-9


def test_samples_are_draws():
    """Chi-square of 4,000 draws of one call; false alarm 1e-6."""
    model = model_of(1)
    truth = exact(model, contains("b")).posterior()
    counts = Counter(locore.sample(model, "", contains("b"), 4000, LENGTH, sampler="exact", num_particles=4000, seed=3))
    often = [text for text in truth if truth[text] * 4000 >= 5]
    rest = 1 - sum(truth[text] for text in often)
    expected = [*(4000 * truth[text] for text in often), 4000 * rest]
    found = [*(counts[text] for text in often), 4000 - sum(counts[text] for text in often)]
    assert chisquare(found, expected).pvalue > FALSE_ALARM
    assert all(locore.sample(model, "", choice(["ab"]), 3, LENGTH, temperature=0)[i] == "ab" for i in range(3))


def test_sample_warns_where_the_draws_cannot_be_trusted():
    with pytest.warns(LocoreWarning, match="do not trust"):
        locore.sample(model_of(0), "", ends_with("ba"), 1, LENGTH, sampler="masked", num_particles=2, seed=0)


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["smc", "swor", "rejection", "auto", "masked"]))
def test_the_most_probable_texts_come_first(seed, sampler):
    answer = locore.generate(model_of(seed), "", ban("aa"), LENGTH, sampler=sampler, num_particles=12, seed=seed)
    posterior = answer.posterior()
    probabilities = [posterior[text] for text in answer.texts]
    assert probabilities == pytest.approx(sorted(probabilities, reverse=True), rel=1e-3)
    assert posterior[answer.best] == pytest.approx(probabilities[0], rel=1e-3)
    assert {answer.draw(seed) for seed in range(5)} <= set(answer.texts)
    assert repr(answer.best) in repr(answer) and answer.verdict.level in repr(answer)
    assert "<table>" in answer._repr_html_()


def test_what_ending_says_now_is_read_from_stop_too():
    assert Request(stop="eos") == Request(ending="eos")
    assert Request(stop="complete") == Request(ending="complete")
    assert Request(stop="\n").stop == ("\n",)
    assert Request(stop=["a", "b"]).stop == ("a", "b")


BAD = [
    *({"temperature": value} for value in (-1, "hot", True, math.nan, math.inf, None)),
    *({"top_p": value} for value in (0, 1.5, -0.1, "x")),
    *({"top_k": value} for value in (-2, 1.5, True)),
    *({"min_p": value} for value in (-0.1, 2)),
    *({"frequency_penalty": value} for value in (math.nan, 1000)),
    *({"logit_bias": value} for value in ({"a": 1}, {1: "b"}, [1], {1: math.nan}, {-1: 1.0}, {10_000: 1.0})),
    *({"stop": value} for value in ("", [""], [1], {"a": 1}, ["x"] * 65)),
    *({"ending": value} for value in ("never", 1)),
    *({"finished": value} for value in (1, "yes")),
    *({"sampling": value} for value in ("greedy", 1)),
    {"temperature": 0, "sampler": "smc"},
]


@pytest.mark.parametrize("options", BAD, ids=repr)
def test_what_is_out_of_range_is_refused_by_name(options):
    with pytest.raises(InvalidArgument, match=next(iter(options)) + "|token"):
        locore.generate(model_of(0), "", ban("aa"), LENGTH, **options)


def test_what_a_model_suggests_is_taken_on_request_only(tmp_path):
    folder = talking(tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.25, "top_p": 0.9, "do_sample": True}))
    model = locore.load(folder)
    assert model.info.sampling == {"temperature": 0.25, "top_p": 0.9}
    assert locore.generate(model, "The", ban(" a"), 4, seed=0, sampling="model").info["law"] == "temperature 0.25, top_p 0.9"
    suggested = {"temperature": 0.25, "top_p": 0.9}
    law = Law(sampling="model").suggested(suggested)
    assert (law.temperature, law.top_p) == (0.25, 0.9)
    assert Law(sampling="model", temperature=0.7).suggested(suggested).temperature == 0.7
    assert Law().suggested(suggested) == Law()
    with pytest.raises(InvalidArgument, match="repetition_penalty"):
        Law(sampling="model").suggested({"repetition_penalty": 1.1})
    assert locore.generate(model, "The", ban(" a"), 4, seed=0).info["law"] == "the model's own"
