"""Every sampler runs on a circuit that was not compiled from left to right, and has the right law. False alarm: 1e-6 a test."""

from __future__ import annotations

import math

import pytest
import torch

import locore
from locore.circuits import reached
from locore.circuits.reached import Reached
from locore.compilers import compile
from locore.constraints import contains, token
from locore.kernel.tokenizer import Tokenizer
from locore.models import TableModel
from locore.puzzles.combinatorial import all_different, sudoku, token_sum
from locore.samplers import BY_NAME, Enumeration
from locore.testing import enumerate_posterior, proper_weighting
from tests.effort import runs, some

from .combinatorial import Chain
from .samplers.chi_square import p_value
from .test_combinatorial_sudoku import GRIDS

DIGITS = Tokenizer.integers(4)
PUZZLE = "12.." + "34.." + "2..." + "4..."
RUNS = {"cars": 60, "ars": 60, "mcmc": 100, "lcr": 100}
BIASED = {"asap", "isir", "particle-gibbs"}


def puzzle():
    """A puzzle, and a model that nearly knows its solutions, so that rejection finds some too."""
    circuit = compile(sudoku(PUZZLE, box=2), 4, 16, use_cache=False)
    assert isinstance(circuit.reader, Reached)
    given = {cell: int(c) for cell, c in enumerate(PUZZLE) if c != "."}
    solutions = [grid for grid in GRIDS if all(grid[cell] == value for cell, value in given.items())]
    assert len(solutions) == circuit.count() > 2
    likely = [{grid[cell] - 1 for grid in solutions} for cell in range(16)]
    return Chain.nearly(likely, seed=3, tokenizer=DIGITS), circuit


@pytest.mark.parametrize("tabulated", some([False, True]))
@pytest.mark.parametrize("name", BY_NAME)
def test_samplers_run_on_a_sudoku(name, tabulated, monkeypatch):
    if not tabulated:
        monkeypatch.setattr(reached, "MOST_STATES", 2)
    model, circuit = puzzle()
    if name == "exact" and not tabulated:
        pytest.skip("enumeration names its price first, and there is none")
    posterior = enumerate_posterior(model, circuit)
    particles = 2_000 if name == "oversampling" else 16
    draws = BY_NAME[name](model, circuit, particles, None, torch.Generator().manual_seed(0))
    known = {tuple(y): p for y, p in zip(posterior.tokens.tolist(), posterior.log_joint.tolist(), strict=True)}
    assert len(draws.tokens) and all(tuple(y) in known for y in draws.tokens.tolist())
    scores = draws.token_scores.sum(-1).tolist()
    assert scores == pytest.approx([known[tuple(y)] for y in draws.tokens.tolist()])


@pytest.mark.parametrize("name", some(["masked", "masked-is", "smc", "swor", "twisted"], 5))
def test_samplers_weight_properly_on_a_sudoku(name):
    model, circuit = puzzle()
    result = proper_weighting(BY_NAME[name], model, circuit, 8, runs(60), None, seed=2)
    assert result.holds(1e-6), (result.z, result.estimates, result.truth)


@pytest.mark.parametrize("name", some(sorted(set(BY_NAME) - BIASED), 20))
def test_samplers_weight_properly_on_a_small_problem(name):
    model = TableModel.random(3, 3, seed=5, concentration=20.0)
    alpha = token_sum([0, 1, 2], {0: 0, 1: 1, 2: 2}, at_least=2, at_most=4) & ~token(0, 2)
    circuit = compile(alpha, model, 3, use_cache=False)
    assert isinstance(circuit.reader, Reached)
    result = proper_weighting(BY_NAME[name], model, circuit, 4, runs(RUNS.get(name, 400)), None, seed=4)
    assert result.holds(1e-6), (result.z, result.estimates, result.truth)


def test_solutions_are_drawn_as_the_model_prefers_them():
    model, circuit = puzzle()
    posterior = enumerate_posterior(model, circuit)
    assert len(posterior.tokens) == circuit.count() >= 3
    generator, drawn = torch.Generator().manual_seed(1), []
    for _ in range(runs(300)):
        draws = Enumeration()(model, circuit, 1, None, generator)
        drawn += draws.tokens.tolist()
    assert p_value(drawn, posterior.tokens, posterior.log_joint.exp()) > 1e-6


def test_mixtures_are_sampled_by_their_law():
    tokenizer = Tokenizer.from_tokens(["1", "2", "3", "12", None], eos_ids=(4,))
    tables = [
        torch.rand((5,) * (t + 1), generator=torch.Generator().manual_seed(t), dtype=torch.float64) + 0.2 for t in range(3)
    ]
    model = TableModel([t / t.sum(-1, keepdim=True) for t in tables], tokenizer=tokenizer)
    circuit = compile(all_different([0, 1, 2]) & contains("12"), model, 3, use_cache=False)
    for name in ("masked", "swor", "twisted"):
        assert proper_weighting(BY_NAME[name], model, circuit, 4, runs(400), None, seed=1).holds(1e-6)


@pytest.mark.parametrize("sampler", ["auto", "masked", "swor"])
def test_a_real_model_writes_the_solution(sampler):
    solution = "".join(map(str, GRIDS[100]))
    givens = "".join("." if i % 5 == 0 else c for i, c in enumerate(solution))
    model = locore.load("tiny")
    p = locore.generate(model, "", sudoku(givens, box=2), max_new_tokens=17, num_particles=4, sampler=sampler, seed=0)
    assert set(p.texts) == {solution}
    assert math.isfinite(p.log_evidence)
