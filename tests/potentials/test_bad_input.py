"""Potentials that misbehave, and what cannot be asked of any: what is said, and what is counted."""

from __future__ import annotations

import itertools
import math
import re
import threading
import time

import numpy as np
import pytest
import torch

import locore
from locore.kernel.errors import BrokenPotential, InvalidArgument, InvalidConstraint, ZeroWeights
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel, TableModel
from locore.testing import check_potential
from tests.effort import some

TOKENIZER = Tokenizer.from_tokens(["a", "b", None], eos_ids=[2])
UNIFORM = TableModel([torch.full((3,) * (t + 1), 1 / 3) for t in range(3)], tokenizer=TOKENIZER)


def sample(target, **options):
    return locore.generate(UNIFORM, "", target, 3, seed=0, **{"sampler": "exact", "num_particles": 16, **options})


def fails(texts):
    raise KeyError("score")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda texts: [math.nan] * len(texts), "returned nan for the text"),
        (lambda texts: [math.inf] * len(texts), "returned inf for the text"),
        (lambda texts: [0.0], r"returned 1 values for \d+ texts"),
        (lambda texts: 0.0, "returned an array of shape"),
        (lambda texts: ["good"] * len(texts), "which is no list of numbers"),
        (lambda texts: None, "returned an array of shape|no list of numbers"),
        (lambda texts: [[0.0]] * len(texts), "returned an array of shape"),
        (fails, "raised KeyError: 'score'"),
    ],
)
@pytest.mark.parametrize("sampler", ["exact", "smc", "twisted"])
def test_answers_that_are_none_are_errors(answer, said, sampler):
    with pytest.raises(BrokenPotential, match=said):
        sample(locore.potential(answer, prefix=answer if sampler == "smc" else None), sampler=sampler)


def test_tensors_and_arrays_are_numbers():
    as_lists = sample(locore.potential(lambda texts: [float(len(text)) for text in texts]))
    as_tensors = sample(locore.potential(lambda texts: torch.tensor([len(text) for text in texts], dtype=torch.float32)))
    assert as_lists.log_evidence == pytest.approx(as_tensors.log_evidence)


def test_a_bound_that_does_not_hold_is_an_error():
    with pytest.raises(BrokenPotential, match="above its bound of 1"):
        sample(locore.potential(lambda texts: [float(len(text)) for text in texts], bound=1.0), sampler="rejection")
    with pytest.raises(InvalidArgument, match="bound="):
        sample(locore.potential(lambda texts: [0.0] * len(texts)), sampler="rejection")


def test_errors_and_timeouts_of_predicates_mean_no_and_are_counted():
    def runs(text):
        if text.startswith("a"):
            raise ValueError("no such table")
        while text.startswith("b"):
            pass
        return True

    p = sample(locore.predicate(runs, timeout=0.02))
    assert p.texts == [""] and p.info["potential_errors"] == 7 and p.info["potential_timeouts"] == 7
    report = p.report(full=True)
    assert "ValueError: no such table" in report and "on 7 a predicate took too long" in report
    with pytest.raises(ZeroWeights, match=r"4 by an error \(predicate\(.*runs\) on 'a.*': ValueError: no such table\) and 4"):
        sample(locore.contains(["a", "b"]) & locore.predicate(runs, timeout=0.02))


@pytest.mark.parametrize("answer", [None, 1, 0.0, "yes", [], re.match("a", "a")], ids=repr)
def test_a_predicate_that_says_neither_yes_nor_no_is_an_error(answer):
    """A forgotten return is no "no": which function it was, and on which text."""

    def forgets(text):
        return True if text == "" else answer

    for options in ({}, {"sampler": "smc"}):
        with pytest.raises(BrokenPotential, match=r"predicate\(.*forgets\) returned .* for the text '[ab]+'.*every path"):
            sample(locore.predicate(forgets), **options)
    with pytest.raises(BrokenPotential, match=r"the prefix function of predicate\(.*\) returned"):
        sample(locore.predicate(lambda text: True, prefix=forgets), sampler="smc")
    assert len(sample(locore.predicate(lambda text: np.bool_(True)))) > 0


def test_a_function_that_is_in_time_is_left_alone():
    """In its own thread, as connections to databases demand, and with nothing pending afterwards."""
    threads = set()

    def slow(text):
        threads.add(threading.get_ident())
        end = time.monotonic() + 0.004
        while time.monotonic() < end:
            pass
        return True

    p = sample(locore.predicate(slow, timeout=0.005))  # some are just in time, some just not
    assert p.info.get("potential_timeouts", 0) + len(set(p.texts)) == 15 and threads == {threading.get_ident()}
    assert sum(range(10_000)) == 49_995_000


def test_a_steering_predicate_that_fails_excludes_nothing():
    p = sample(locore.predicate(lambda text: "ab" in text, prefix=lambda text: 1 / 0), sampler="smc", num_particles=64)
    assert all("ab" in text for text in p.texts)


def test_what_excludes_everything_says_what_to_do():
    with pytest.raises(ZeroWeights, match="give a function of beginnings"):
        sample(locore.ban("bb") & locore.predicate(lambda text: False))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: locore.ban("a") & locore.potential(len), r"multiply with \*"),
        (lambda: locore.potential(len) & locore.ban("a"), r"multiply with \*"),
        (lambda: locore.potential(len) * 2.0, "weight="),
        (lambda: 2.0 * locore.potential(len), "weight="),
        (lambda: locore.predicate(len) & True, "constraints and predicates"),
        (lambda: locore.ban("a") | locore.predicate(len), "multiplied only"),
        (lambda: ~locore.predicate(len), "multiplied only"),
        (lambda: (locore.ban("a") * locore.potential(len)).to_json(), "code and not data"),
        (lambda: locore.from_json({"type": "predicate", "f": "print"}), "neither sent to a server"),
        (lambda: locore.from_json({"type": "and", "of": [{"type": "expert"}]}), r"at of\[0\]\.type"),
        (lambda: bool(locore.predicate(len)), "neither true nor false"),
        (lambda: locore.holds(locore.predicate(len), "a", TOKENIZER), "of a potential ask its function"),
        (lambda: locore.explain(locore.predicate(len), "a", TOKENIZER), "of a potential ask its function"),
        (lambda: locore.compile(locore.ban("a") * locore.potential(len), TOKENIZER, 3), "needs a constraint"),
        (lambda: locore.potential("len"), "must be a function"),
        (lambda: locore.potential(len, weight=math.nan), "finite number"),
        (lambda: locore.potential(len, bound=1.0, weight=-1.0), "negative weight"),
        (lambda: locore.predicate(len, timeout=0), "above 0 seconds"),
        (lambda: locore.predicate(len, prefix=3), "must be a function"),
        (lambda: locore.expert(UNIFORM, weight="high"), "finite number"),
    ],
)
def test_what_has_no_meaning_is_refused(wrong, said):
    with pytest.raises((InvalidConstraint, InvalidArgument), match=said):
        wrong()


def test_experts_and_texts_have_to_fit():
    other = TableModel([torch.full((2,) * (t + 1), 1 / 2) for t in range(3)])
    with pytest.raises(InvalidConstraint, match="tokenizer of the model that is sampled"):
        sample(locore.expert(other))
    with pytest.raises(InvalidConstraint, match="bare ids have no text"):
        locore.generate(other, "", locore.predicate(len), 3)
    never = [torch.full((3,) * (t + 1), 1 / 3) for t in range(3)]
    never[0] = torch.tensor([0.0, 0.5, 0.5])
    sure = TableModel(never, tokenizer=TOKENIZER)
    for sampler in ("exact", "rejection", "oversampling"):
        with pytest.raises((BrokenPotential, InvalidArgument), match=r"infinitely good|bound="):
            sample(locore.expert(sure, weight=-1.0), sampler=sampler)


def test_a_potential_that_changes_its_mind_is_found_out():
    answers = iter(range(1000))
    moody = locore.potential(lambda texts: [float(next(answers)) for _ in texts])
    with pytest.raises(BrokenPotential, match="another answer"):
        check_potential(moody, ["one", "two"])
    crowd = locore.potential(lambda texts: [len(text) / len(texts) for text in texts])  # as with padding that leaks
    with pytest.raises(BrokenPotential, match="another answer"):
        check_potential(crowd, ["one", "two"])
    check_potential(locore.potential(lambda texts: [len(text) for text in texts]), ["one", "two"])
    check_potential(locore.predicate(str.isalpha), ["one", "2"])
    with pytest.raises(InvalidArgument, match="two texts"):
        check_potential(crowd, ["one"])


AHEAD = {
    "above the bound": lambda texts: [1.0] * len(texts),
    "huge": lambda texts: [1e50 * (2 * ("a" in text) - 1) for text in texts],
    "growing": lambda texts: [1e17 * len(text) for text in texts],
    "lowest": lambda texts: [-1e308] * len(texts),
    "highest": lambda texts: [1e308] * len(texts),
}
STEERABLE = ["smc", "swor", "twisted", "auto", "masked-is", "rejection", "exact", "best-first"]


@pytest.mark.parametrize(("ahead", "sampler"), some(itertools.product(AHEAD, STEERABLE), 3, several=True))
def test_what_is_said_of_beginnings_may_be_any_finite_number(ahead, sampler):
    """It is a guess and no weight: neither an error, nor a run without an end, nor one without a text."""
    rows = torch.full((7, 6), 1 / 6, dtype=torch.float64)
    tokenizer = Tokenizer.from_tokens([b"a", b"b", b"ab", b" ", b"c", None], [5])
    model = MarkovModel(rows[0], rows[1:], tokenizer=tokenizer)

    one = locore.potential(lambda texts: [0.5 * ("a" in text) for text in texts], prefix=AHEAD[ahead], bound=0.5)
    options = {"num_particles": 16, "seed": 0, "sampler": sampler, "stop": "eos", "budget": 100}
    p = locore.generate(model, [], locore.ban("cc") * one, 3, **options)
    assert math.isfinite(p.log_evidence) and p.texts and all("cc" not in text for text in p.texts)
