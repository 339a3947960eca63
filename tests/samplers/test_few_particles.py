"""No more particles come back than were asked for, and few of them are as proper, and as well judged, as many."""

from __future__ import annotations

import pytest
import torch

from locore import generate
from locore.compilers import compile
from locore.constraints import Count
from locore.models import MarkovModel, TableModel
from locore.samplers import BY_NAME, Twisted, WithoutReplacement
from locore.testing import proper_weighting
from tests.effort import THOROUGH, some

LENGTH = 8
RARE = Count(tuple(range(LENGTH)), frozenset({1}), 6)
DEFAULT = 96 * (LENGTH - 1)  # LM tokens of the default sampler's final rounds


def chain():
    transition = torch.softmax(torch.randn(6, 6, generator=torch.Generator().manual_seed(1)), -1).double()
    return MarkovModel(torch.full((6,), 1 / 6).double(), transition)


@pytest.mark.parametrize("num", some([1, 2, 3, 7], 2))
@pytest.mark.parametrize("name", BY_NAME)
def test_no_more_come_back_than_were_asked_for(name, num):
    alpha = Count((0, 1, 2), frozenset({1, 2}), 2)
    assert len(generate(chain(), "", alpha, max_new_tokens=3, num_particles=num, sampler=name, seed=0)) <= num


@pytest.mark.parametrize("num", [pytest.param(1, marks=pytest.mark.slow), 5])
@pytest.mark.parametrize(
    "sampler", some([WithoutReplacement(blocks=4), Twisted(None, blocks=4)]), ids=lambda sampler: sampler.name
)
def test_what_is_left_after_thinning_is_proper(sampler, num):
    model = TableModel.random(3, 3, seed=5, concentration=20.0)
    circuit = compile(Count((0, 1, 2), frozenset({1}), 1, 2), model, 3)
    result = proper_weighting(sampler, model, circuit, num, 800 if THOROUGH else 40, 48, seed=3)
    assert result.holds(1e-6), (result.z, result.estimates, result.truth)


def test_thinning_keeps_the_evidence_of_the_blocks():
    p = generate(chain(), "", RARE, max_new_tokens=LENGTH, num_particles=1, sampler=Twisted(None, blocks=4), budget=700, seed=0)
    assert p.blocks is not None
    blocks = torch.tensor(p.blocks.log_evidence)
    assert len(p) == 1 and len(blocks) == 4
    assert p.log_mean_weight == pytest.approx(float(blocks.logsumexp(0)) - torch.log(torch.tensor(4.0)).item())


@pytest.mark.parametrize("budget", [None, DEFAULT, DEFAULT + 20, DEFAULT + 60, 2 * DEFAULT])
def test_one_particle_is_judged_where_the_budget_allows_it(budget):
    """The pilot takes nothing that the verdict needs."""
    p = generate(chain(), "", RARE, max_new_tokens=LENGTH, num_particles=1, budget=budget, seed=0)
    assert len(p) == 1 and p.info["chosen"] == "twisted"
    assert p.verdict.level != "not judged"
    assert budget is None or p.info["lm_tokens"] <= budget


@pytest.mark.parametrize("num", [1, 2, 6, 30])
@pytest.mark.parametrize("alpha", [RARE, Count((0, 1), frozenset({1, 2}), 0, 1)])
def test_few_texts_cost_little(num, alpha):
    """Without a budget one text costs 16 unconstrained ones at most; more than six a verdict, a search and a pilot."""
    for seed in range(10 if THOROUGH else 1):
        p = generate(chain(), "", alpha, max_new_tokens=LENGTH, num_particles=num, seed=seed)
        assert p.info["lm_tokens"] <= (LENGTH - 1) * (16 * num if num < 6 else 96 * 10 // 8)
