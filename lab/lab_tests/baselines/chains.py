"""A tiny problem with its exact posterior, transition matrices, and whether draws have a law; for tests of Markov chains."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare

from locore.compilers import compile
from locore.constraints import Count, Literal
from locore.kernel.errors import BudgetExceeded, InvalidArgument
from locore.models import Counted, TableModel
from locore.testing import enumerate_posterior
from tests.effort import THOROUGH

LENGTH = 3
DRAWS = 20_000 if THOROUGH else 4_000


def problem(eos, seed=7, vocab=3):
    model = TableModel.random(vocab, LENGTH, seed=seed, eos=eos)
    alpha = Count(tuple(range(LENGTH)), frozenset({1}), 1, 2) & ~Literal(2, frozenset({0}))
    circuit = compile(alpha, model, LENGTH)
    return model, circuit, enumerate_posterior(model, circuit)


def indices(tokens, models):
    """Long[num]: which of the models each row is."""
    same = (tokens[:, None] == models[None]).all(-1)
    assert same.any(-1).all(), "a sequence that violates the constraint"
    return same.long().argmax(-1)


def fits(tokens, models, probabilities):
    """Do independent draws have this law? Chi-square, rare sequences together."""
    observed = torch.bincount(indices(tokens, models), minlength=len(models)).double()
    expected = probabilities * len(tokens)
    rare = expected < 10
    assert not observed[expected == 0].any()
    observed = torch.cat([observed[~rare], observed[rare].sum()[None]])
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    keep = expected > 0
    observed, expected = observed[keep], expected[keep]
    return bool(chisquare(observed.numpy(), (expected * observed.sum() / expected.sum()).numpy()).pvalue > 1e-6)


def exact_draws(truth, num, seed):
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.multinomial(truth.probabilities, num, replacement=True, generator=generator)
    return truth.tokens[chosen]


def run(sampler, num=12, budget=None, seed=0, eos=True):
    model, circuit, _ = problem(eos)
    counted = Counted(model)
    return sampler(counted, circuit, num, budget, torch.Generator().manual_seed(seed)), counted


def with_refusals(accepted):
    """The transition matrix: what is not accepted stays."""
    off = accepted - torch.diag(accepted.diagonal())
    return off + torch.diag(1 - off.sum(1))


def check_matrix(accepted, truth):
    """Detailed balance, and so invariance."""
    matrix = with_refusals(accepted)
    assert (matrix >= -1e-12).all()
    flow = truth.probabilities[:, None] * matrix
    torch.testing.assert_close(flow, flow.T, rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(truth.probabilities @ matrix, truth.probabilities)
    return matrix


def check_budgets_seeds_and_scores(sampler):
    """Budgets are kept, seeds reproduce, scores are the model's, and what pays for nothing is refused."""
    model, circuit, _ = problem(True)
    for budget in (150, 700):
        first, counted = run(sampler, budget=budget)
        second, _ = run(sampler, budget=budget)
        assert torch.equal(first.tokens, second.tokens)
        assert torch.equal(first.log_weights, second.log_weights)
        assert 0 < counted.lm_tokens <= budget and 0 < len(first.tokens) <= 12
        assert circuit.accepts(first.tokens).all()
        torch.testing.assert_close(first.token_scores, model.token_scores(first.tokens))
    with pytest.raises(BudgetExceeded, match="budget"):
        run(sampler, budget=1)
    with pytest.raises(InvalidArgument, match="num_particles"):
        run(sampler, num=0)
