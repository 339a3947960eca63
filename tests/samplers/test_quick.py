"""`quick` costs what plain draws cost, says why it did what it did, and is proper whatever it chooses."""

from __future__ import annotations

import pytest
import torch

from locore.compilers import compile
from locore.constraints import Constant, Count, Literal
from locore.models import Counted, TableModel
from locore.samplers import Quick
from locore.samplers.quick import PATIENCE
from locore.testing import proper_weighting
from tests.effort import runs
from tests.samplers.test_auto import chain

ALPHAS = {
    "exact": (Literal(0, frozenset({1})) & Literal(1, frozenset({2})) & Literal(2, frozenset({3})), 3),
    "rejection": (Constant(True), 8),
    "swor": (Count(tuple(range(8)), frozenset({1}), 6), 8),
}


@pytest.mark.parametrize("num", [2, 8, 32])
@pytest.mark.parametrize("chosen", ALPHAS)
def test_it_suits_the_problem_at_the_price_of_plain_draws(chosen, num):
    model, _ = chain()
    alpha, length = ALPHAS[chosen]
    counted = Counted(model)
    draws = Quick()(counted, compile(alpha, model, length), num, None, torch.Generator().manual_seed(0))
    if num >= 8:  # what is too few for a pilot is too few for rejection
        assert draws.info["chosen"] == chosen and draws.info["why"]
    factor = PATIENCE if draws.info["chosen"] == "rejection" else 1
    assert counted.lm_tokens <= factor * num * (length - 1)


@pytest.mark.parametrize("eos", [False, True])
@pytest.mark.parametrize("alpha", [Count((0, 1, 2), frozenset({1}), 1, 2), ~Literal(1, frozenset({0}))], ids=str)
def test_it_is_proper(alpha, eos):
    model = TableModel.random(3, 3, seed=5, eos=eos, concentration=20.0)
    result = proper_weighting(Quick(), model, compile(alpha, model, 3), 4, runs(600), seed=3)
    assert result.holds(1e-6), (result.z, result.estimates, result.truth)
