"""A model that gives no distribution somewhere is refused, whoever asks it: nothing hangs, nothing is dropped silently."""

from __future__ import annotations

import math

import pytest
import torch

from locore import generate
from locore.constraints import Literal
from locore.kernel.errors import BrokenModel
from locore.models import Counted, MarkovModel, Tempered
from locore.samplers import BY_NAME

LENGTH = 4
ALPHA = Literal(LENGTH - 1, frozenset({0, 1}))


class Broken(MarkovModel):
    """A chain over 0, 1, 2 that gives `log_prob` for the token 0 after the token 1."""

    def __init__(self, log_prob):
        super().__init__([1 / 3] * 3, [[1 / 3] * 3] * 3)
        self.log_prob = log_prob

    def _log_probs(self, tokens):
        rows = super()._log_probs(tokens).clone()
        rows[:, 1:, 0][tokens[:, :-1] == 1] = self.log_prob
        return rows


@pytest.mark.parametrize("log_prob", [math.nan, math.inf, math.log(0.5), -math.inf])
@pytest.mark.parametrize("name", BY_NAME)
def test_every_sampler_refuses(name, log_prob):
    """After 1 the probabilities sum to NaN, to infinity, to 7/6 or to 2/3."""
    with pytest.raises(BrokenModel, match=r"next-token distributions|logarithm"):
        generate(Broken(log_prob), "", ALPHA, max_new_tokens=LENGTH, sampler=name, seed=0)


@pytest.mark.parametrize("name", BY_NAME)
def test_no_sampler_refuses_a_model_that_is_whole(name):
    assert len(generate(Broken(math.log(1 / 3)), "", ALPHA, max_new_tokens=LENGTH, sampler=name, seed=0))


@pytest.mark.parametrize("wrap", [lambda model: model, Counted, lambda model: Tempered(model, 2.0)])
def test_every_way_to_ask_refuses(wrap):
    model = wrap(Broken(math.nan))
    tokens = torch.tensor([[2, 2, 2], [2, 1, 0]])
    for ask in (model.log_probs, model.token_scores, model.score):
        assert ask(tokens[:1]) is not None
        with pytest.raises(BrokenModel):
            ask(tokens)
    cursor = model.begin(2).advance(torch.tensor([2, 1]))
    with pytest.raises(BrokenModel, match="1 of 2"):
        cursor.log_probs  # noqa: B018
    with pytest.raises(BrokenModel):
        model.neighbours(torch.tensor([2, 1, 2]), torch.tensor([[0], [0], [0]]))


def test_what_comes_after_an_end_is_never_looked_at():
    """As before: a model need not know of ends, so it may say anything after one."""
    model = Broken(math.nan)
    ending = MarkovModel([1 / 3] * 3, [[1 / 3] * 3] * 3, eos_ids=(1,))
    model.tokenizer = ending.tokenizer
    tokens = torch.tensor([[2, 1, 1]])
    assert torch.equal(model.log_probs(tokens), ending.log_probs(tokens))
    assert torch.equal(model.token_scores(tokens), ending.token_scores(tokens))
