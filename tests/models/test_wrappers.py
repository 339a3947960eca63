"""Wrapper models have their true density."""

import math

import numpy as np
import pytest
import torch

from locore.kernel.errors import InvalidArgument
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel, Mixture, TableModel, Tempered, TopK, TopP
from locore.models.wrappers import nucleus

from . import zoo

BASE = TableModel([[0.5, 0.3, 0.15, 0.05]])
FIRST = torch.tensor([[0]])


def first_row(model) -> list[float]:
    return [round(x, 9) for x in model.log_probs(FIRST)[0, 0].exp().tolist()]


@pytest.mark.parametrize(
    ("model", "row"),
    [
        (TopP(BASE, 0.4), [1, 0, 0, 0]),
        (TopP(BASE, 0.79), [0.625, 0.375, 0, 0]),
        (TopP(BASE, 0.9), [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        (TopP(BASE, 1), [0.5, 0.3, 0.15, 0.05]),
        (TopK(BASE, 2), [0.625, 0.375, 0, 0]),
        (TopK(BASE, 9), [0.5, 0.3, 0.15, 0.05]),
        (Tempered(BASE, 1), [0.5, 0.3, 0.15, 0.05]),
        (Tempered(BASE, 0.5), [x * x / 0.365 for x in (0.5, 0.3, 0.15, 0.05)]),
        (Tempered(BASE, 1e-320), [1, 0, 0, 0]),
        (Mixture(TopP(BASE, 0.4), BASE, 0.2), [0.9, 0.06, 0.03, 0.01]),
        (Mixture(TopP(BASE, 0.4), BASE, 0), [1, 0, 0, 0]),
        (Mixture(TopP(BASE, 0.4), BASE, 1), [0.5, 0.3, 0.15, 0.05]),
    ],
)
def test_densities_by_hand(model, row):
    assert first_row(model) == pytest.approx(row, abs=1e-8)


@pytest.mark.parametrize("vocab_size", [7, 2000, 9000])
def test_a_nucleus_is_that_of_a_row_in_order(vocab_size):
    """Where the likeliest 512 tokens are enough, where 4,096 are, where neither are, and where many are alike."""
    generator = np.random.default_rng(1)
    flat, sharp = np.ones(vocab_size), np.full(vocab_size, 0.01)
    rows = torch.tensor(np.log(np.array([generator.dirichlet(each) for each in (flat, sharp, flat)]) + 1e-12)).float()
    rows = torch.cat([rows, (rows * 2).round() / 2]).log_softmax(-1)
    ordered, order = rows.sort(dim=-1, descending=True, stable=True)
    mass = ordered.double().exp()
    outside = mass.cumsum(-1) - mass >= 0.9
    outside[:, 0] = False
    expected = torch.empty_like(rows).scatter_(-1, order, ordered.masked_fill(outside, -math.inf).log_softmax(-1))
    assert torch.allclose(nucleus(rows, 0.9), expected, atol=1e-5)


def test_ties_go_to_the_lower_id():
    even = TableModel([[0.25, 0.25, 0.25, 0.25]])
    assert first_row(TopK(even, 2)) == [0.5, 0.5, 0, 0]
    assert first_row(TopP(even, 0.4)) == [0.5, 0.5, 0, 0]


def test_full_support():
    base = zoo.table()
    assert base.full_support
    assert Tempered(base, 0.5).full_support
    assert not TopP(base, 0.9).full_support
    assert TopP(base, 1).full_support
    assert not TopK(base, 2).full_support
    assert Mixture(TopP(base, 0.9), base, 0.1).full_support
    assert not Mixture(TopP(base, 0.9), base, 0.0).full_support


def test_prompts_reach_the_base():
    chain = zoo.markov()
    for wrapped in (Tempered(chain, 0.7), TopP(chain, 0.7), TopK(chain, 2), Mixture(TopK(chain, 1), chain, 0.5)):
        assert wrapped.base is not None
        around = type(wrapped)
        assert isinstance(wrapped.prompted([1]), around)
        tokens = zoo.all_sequences(6, 2)
        whole = torch.cat([torch.full((36, 1), 1), tokens], 1)
        conditional = wrapped.token_scores(whole)[:, 1:].sum(1)
        torch.testing.assert_close(wrapped.prompted([1]).score(tokens), conditional)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tempered(BASE, 0),
        lambda: Tempered(BASE, math.inf),
        lambda: Tempered(BASE, math.nan),
        lambda: TopP(BASE, 0),
        lambda: TopP(BASE, 1.1),
        lambda: TopK(BASE, 0),
        lambda: Mixture(BASE, BASE, -0.1),
        lambda: Mixture(BASE, MarkovModel([0.5, 0.5], [[0.5, 0.5]] * 2), 0.5),
        lambda: Mixture(BASE, TableModel([[0.25] * 4], tokenizer=Tokenizer.integers(4, (3,))), 0.5),
    ],
)
def test_wrong_settings(make):
    with pytest.raises(InvalidArgument):
        make()
