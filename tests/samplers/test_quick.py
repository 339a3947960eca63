"""`quick` costs what plain draws cost, says why it did what it did, and is proper whatever it chooses."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch
from scipy.stats import chisquare

from locore.compilers import compile
from locore.constraints import Constant, Count, Literal
from locore.models import Counted, TableModel
from locore.samplers import Quick
from locore.samplers.auto import PATIENCE
from locore.samplers.few import few_draws, nothing_breaks
from locore.testing import proper_weighting
from tests.effort import THOROUGH, runs, some
from tests.samplers.test_auto import chain

ALPHAS = {
    "exact": (Literal(0, frozenset({1})) & Literal(1, frozenset({2})) & Literal(2, frozenset({3})), 3),
    "rejection": (Constant(True), 8),
    "swor": (Count(tuple(range(8)), frozenset({1}), 6), 8),
}

COUNTS = [Count((0, 1, 2, 3), frozenset({1}), low, high) for low, high in ((0, 4), (0, 2), (0, 0), (1, 4), (4, 4))]


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


@pytest.mark.parametrize("eos", some([True, False]))
@pytest.mark.parametrize("alpha", [Count((0, 1, 2), frozenset({1}), 1, 2), ~Literal(1, frozenset({0}))], ids=str)
def test_it_is_proper(alpha, eos):
    model = TableModel.random(3, 3, seed=5, eos=eos, concentration=20.0)
    result = proper_weighting(Quick(), model, compile(alpha, model, 3), 4, runs(600), seed=3)
    assert result.holds(1e-6), (result.z, result.estimates, result.truth)


@pytest.mark.parametrize("eos", some([True, False]))
def test_a_few_draws_are_exact_and_cost_a_row_each(eos):
    """Chi-square against the law itself, with a false alarm in a million; of what only forbids, and what cannot break."""
    length, num = (4, 3000) if THOROUGH else (3, 120)
    model = TableModel.random(3, length, seed=5, eos=eos, concentration=20.0)
    ends = Count(tuple(range(length)), frozenset({1}), 0, 2)
    for alpha in (ends, Constant(True)):
        circuit = compile(alpha, model, length)
        everything = torch.tensor(list(itertools.product(range(3), repeat=length)))
        weight = model.score(everything).exp() * circuit.accepts(everything)
        counted, generator = Counted(model), torch.Generator().manual_seed(1)
        found, exact = Counter(), 0
        for _ in range(num):
            draws = few_draws(counted, circuit, 1, 60, generator)
            assert draws is not None and len(draws) == 1
            low, high = draws.record.interval
            exact += low <= float(weight.sum().log()) <= high + 1e-9
            found[tuple(draws.tokens[0].tolist())] += 1
        seen = [found[tuple(y)] for y in everything.tolist()]
        expected = weight / weight.sum() * num
        assert not sum(count for count, much in zip(seen, expected.tolist(), strict=True) if not much)
        kept = expected > 5
        rest = [sum(count for count, keep in zip(seen, kept.tolist(), strict=True) if not keep), float(expected[~kept].sum())]
        counts, right = [*torch.tensor(seen)[kept].tolist(), rest[0]], [*expected[kept].tolist(), rest[1]]
        pairs = [(count, much) for count, much in zip(counts, right, strict=True) if much > 1e-9]
        assert chisquare(*zip(*pairs, strict=True)).pvalue > 1e-6
        assert exact >= 0.9 * num
        if alpha == Constant(True):
            assert counted.lm_tokens <= (length - 1) * num


def test_what_cannot_be_broken():
    """By reading every sequence that a model can write."""
    model = TableModel.random(4, 4, seed=1, eos=True)
    written = [y for y in itertools.product(range(4), repeat=4) if 3 not in y or set(y[y.index(3) :]) == {3}]
    for alpha in (Constant(True), Literal(0, frozenset({0, 1, 2, 3})), ~Literal(3, frozenset({0})), *COUNTS):
        circuit = compile(alpha, model, 4)
        assert nothing_breaks(circuit.reader, (3,)) == bool(circuit.accepts(torch.tensor(written)).all()), alpha


@pytest.mark.parametrize("alpha", COUNTS, ids=str)
def test_draws_alone_satisfy_the_constraint(alpha):
    """Also where plain draws do not; then they are those of a few prefixes, with no pilot before them."""
    model = TableModel.random(4, 4, seed=1, eos=True)
    circuit = compile(alpha, model, 4)
    for seed in range(10):
        counted = Counted(model)
        draws = Quick(draws=2)(counted, circuit, 8, None, torch.Generator().manual_seed(seed))
        assert bool(circuit.accepts(draws.tokens).all()) and draws.info["why"]
        assert counted.lm_tokens <= PATIENCE * 8 * 3
