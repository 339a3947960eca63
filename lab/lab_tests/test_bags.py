"""Bag-of-future heads and the measure by which they are judged."""

from __future__ import annotations

import torch
from locore_lab import bags
from locore_lab.bench.heads import Texts, chi2

import locore


def test_the_measure_is_the_variance_of_a_selection_step():
    """Nothing is left by the truth; without look-ahead the variance of the truth, relative to its mean's square."""
    truth = torch.tensor([0.1, 0.2, 0.9, 0.4], dtype=torch.float64)
    twice = torch.stack([truth, truth])
    assert abs(chi2(twice, truth)) < 1e-12 and abs(chi2(twice, 3 * truth)) < 1e-12
    plain = float(truth.var(unbiased=False) / truth.mean() ** 2)
    assert abs(chi2(twice, torch.ones(4, dtype=torch.float64)) - plain) < 1e-12


def test_heads_learn_what_comes(monkeypatch):
    """On the texts they were made of, tokens that come within eight are thought likelier than by their mean frequency."""
    monkeypatch.setattr(bags, "EPOCHS", 4)
    model = locore.load("tiny").prompted("")
    texts = Texts.of(model, 16, 40, seed=0)
    heads = bags.learned(model, texts.hidden, texts.tokens)
    tokens = torch.arange(model.vocab_size)
    places = heads.place(texts.hidden[:, 4:30].flatten(0, 1), texts.tokens[:, 5:31].flatten())
    within = heads.within(places, tokens, 8)
    assert bool((within > 0).all()) and bool((within < 1).all())
    assert torch.equal(heads.within(places, tokens, 0), torch.zeros_like(within))
    comes = torch.stack([texts.tokens[:, 6 + j : 32 + j].flatten() for j in range(8)], 1)
    base = heads.within(torch.zeros_like(places[:1]), tokens, 8)[0]
    assert float((within.gather(1, comes) / base[comes]).log().mean()) > 0.2
