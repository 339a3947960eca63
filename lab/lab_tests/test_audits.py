"""The ruler of audits: truths against enumeration, BEAVER's bounds against truths, and decades that are evenly filled."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from locore_lab.audits.beaver import bounds
from locore_lab.audits.problems import VOCAB, HiddenChain, Known, drawn, event, hidden_truth
from locore_lab.fidelity.problems import chain
from locore_lab.fidelity.truth import first_tokens

import locore
from tests.effort import some

LENGTH = 3
PHRASES = ("!5", "#")


def enumerated(model, length: int = LENGTH) -> float:
    """The log of the probability of all sequences with a phrase."""
    tokens = torch.cartesian_prod(*[torch.arange(VOCAB)] * length)
    has = torch.tensor([any(phrase in model.tokenizer.decode(row) for phrase in PHRASES) for row in tokens.tolist()])
    return float(torch.logsumexp(model.score(tokens[has]), 0))


@pytest.mark.parametrize("seed", some([1, 2]))
def test_truths_are_those_of_all_sequences(seed):
    hidden, markov = HiddenChain.random(seed), chain(VOCAB, seed, 0.1)
    assert hidden_truth(hidden, locore.compile(event(PHRASES), hidden, LENGTH)) == pytest.approx(enumerated(hidden), abs=1e-9)
    assert first_tokens(locore.compile(event(PHRASES), markov, LENGTH), markov)[0] == pytest.approx(
        enumerated(markov), abs=1e-9
    )


def test_a_hidden_chain_is_a_distribution_that_remembers():
    model = HiddenChain.random(3)
    after = model.log_probs(torch.tensor([[0, 1, 5, 0], [0, 7, 5, 0]])).exp()
    assert after.sum(-1) == pytest.approx(torch.ones(2, 4, dtype=torch.float64).numpy())
    assert float((after[0, 3] - after[1, 3]).abs().max()) > 1e-3  # the last token is the same, what came before is not


@pytest.mark.parametrize("spent", [1, 50, 400, 10**6])
def test_beavers_bounds_enclose_the_truth_and_close(spent):
    model = HiddenChain.random(4)
    truth = math.exp(enumerated(model))
    low, high = bounds(Known("a", "hidden", model, PHRASES, LENGTH, math.log(truth)), spent)
    assert low <= truth * (1 + 1e-9) and truth <= high * (1 + 1e-9)
    if spent == 10**6:
        assert low == pytest.approx(truth, rel=1e-9) and high == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("family", some(["chain", "hidden"]))
def test_problems_fill_the_decades_evenly(family):
    found = list(drawn(family, 5, 16, Path("nowhere")))
    counts = Counter(known.decade for known in found)
    assert len(found) == 16 and all(-10 <= decade < -2 for decade in counts) and max(counts.values()) <= 2
