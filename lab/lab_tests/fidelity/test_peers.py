"""Laws of other people's samplers behind our protocol. False alarm: 1e-6 a test."""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
import pytest
import torch
import transformers
from locore_lab.fidelity import entries, peers
from locore_lab.fidelity.peers import GenLM, TransformersMasking

from locore.compilers import compile
from locore.constraints import Count, Literal
from locore.kernel.errors import BudgetExceeded, InvalidArgument, MissingExtra, ZeroWeights
from locore.models import Counted, TableModel
from locore.samplers import Masking
from locore.samplers.masking import read
from locore.testing import enumerate_posterior, proper_weighting
from tests.effort import runs
from tests.models.zoo import huggingface
from tests.samplers.chi_square import p_value

LENGTH = 4
GENLM = {
    "smc": GenLM(),
    "smc, resampled at every step": GenLM(ess_threshold=1.0),
    "sis": GenLM(ess_threshold=0.0),
    "awrs": GenLM(rejection=True),
}
needs_genlm = pytest.mark.skipif(peers.missing("genlm-control") is not None, reason="genlm-control is not installed")


def problem(eos):
    model = TableModel.random(4, LENGTH, seed=3, eos=eos, concentration=0.7)
    alpha = Count(tuple(range(LENGTH)), frozenset({1}), 1, 2) & ~Literal(2, frozenset({0}))
    return model, compile(alpha, model, LENGTH)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@needs_genlm
@pytest.mark.parametrize("eos", [False, True])
@pytest.mark.parametrize("name", GENLM)
def test_weights_are_proper(name, eos):
    model, circuit = problem(eos)
    result = proper_weighting(GENLM[name], model, circuit, 12, runs(400), seed=4)
    assert result.holds(1e-6), (result.z, result.estimates, result.truth)


@needs_genlm
@pytest.mark.parametrize("eos", [False, True])
def test_potentials_keep_the_contract_of_genlm(eos):
    from locore_lab.fidelity.genlm_potentials import CircuitPotential, ModelPotential

    model, circuit = problem(eos)
    found = enumerate_posterior(model, circuit).tokens.tolist()
    contexts = [list(y) for y in sorted({tuple(y[:size]) for y in found for size in range(LENGTH + 1)})]
    language, constraint = ModelPotential(model, LENGTH), CircuitPotential(circuit.reader)
    for potential in (language, constraint, language * constraint):
        asyncio.run(potential.assert_contract(contexts, rtol=1e-9, atol=1e-9))
    every = [list(y) for y in itertools.product(range(4), repeat=LENGTH)]
    weights = asyncio.run((language * constraint).batch_complete(every))
    exact = model.score(torch.tensor(every)).masked_fill(~circuit.accepts(torch.tensor(every)), -torch.inf)
    np.testing.assert_allclose(weights, exact, rtol=1e-9)


@needs_genlm
@pytest.mark.parametrize("name", GENLM)
def test_each_particle_asks_once_a_position_and_the_prompt_is_free(name):
    model, circuit = problem(False)
    counted = Counted(model)
    draws = GENLM[name](counted, circuit, 1000, 80, seeded(0))
    assert draws.drawn == 80 // (LENGTH - 1) == 26
    assert counted.lm_tokens == 26 * (LENGTH - 1)
    assert counted.lm_contexts <= 4 + 4**2 + 4**3


@needs_genlm
@pytest.mark.parametrize("eos", [False, True])
def test_distinct_contexts_are_the_distinct_beginnings(eos):
    model, circuit = problem(eos)
    counted = Counted(model)
    tokens = GENLM["sis"](counted, circuit, 30, None, seeded(0)).tokens.tolist()
    ends = set(model.tokenizer.eos_ids)
    asked = [tuple(y[:size]) for y in tokens for size in range(1, LENGTH) if not ends & set(y[:size])]
    assert counted.lm_tokens == len(asked)
    assert counted.lm_contexts == len(set(asked))


@needs_genlm
@pytest.mark.parametrize("name", GENLM)
def test_the_generator_is_the_only_randomness_and_global_states_stay(name):
    model, circuit = problem(True)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = GENLM[name](model, circuit, 16, None, seeded(9))
    assert torch.equal(torch.get_rng_state(), before[0]) and (np.random.get_state()[1] == before[1]).all()
    torch.rand(3), np.random.rand(3)
    second = GENLM[name](model, circuit, 16, None, seeded(9))
    other = GENLM[name](model, circuit, 16, None, seeded(10))
    assert torch.equal(first.tokens, second.tokens) and torch.equal(first.log_weights, second.log_weights)
    assert not torch.equal(first.tokens, other.tokens)
    assert bool(circuit.accepts(first.tokens).all())


@needs_genlm
@pytest.mark.parametrize("name", GENLM)
def test_particles_that_die_count_as_zero(name):
    """After 0 the model never writes what α asks for, but the mask cannot know."""
    model = TableModel([torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 0.0], [0.5, 0.5]])])
    circuit = compile(Literal(1, frozenset({1})), model, 2)
    assert proper_weighting(GENLM[name], model, circuit, 4, runs(300), seed=5).holds(1e-6)
    impossible = TableModel([torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])])
    with pytest.raises(ZeroWeights):
        GENLM[name](impossible, circuit, 8, None, seeded(0))


def test_budgets_that_pay_for_nothing_are_refused():
    model, circuit = problem(False)
    with pytest.raises(BudgetExceeded, match="budget"):
        GenLM()(model, circuit, 4, LENGTH - 2, seeded(0))


def masked_problem():
    """A model whose files ask for anything but its own law, and texts that may end."""
    model = huggingface()
    model.causal.module.generation_config = transformers.GenerationConfig(
        temperature=0.2, top_k=2, repetition_penalty=3.0, suppress_tokens=[7]
    )
    alpha = Count((0, 1, 2), frozenset({2, 5, 7}), 2, 3) & Literal(0, frozenset({3, 7, 9, 11}))
    return model, compile(alpha, model, 3)


@pytest.mark.parametrize("sampler", [TransformersMasking(), Masking()], ids=["transformers", "ours"])
def test_masking_without_weights_has_the_myopic_law(sampler):
    model, circuit = masked_problem()
    tokens = enumerate_posterior(model, circuit).tokens
    every = read(model, circuit, tokens)
    law = (every.log_prob - every.log_weight).exp()
    assert float(law.sum()) == pytest.approx(1.0, abs=1e-5)
    draws = sampler(model, circuit, 3000, None, seeded(1))
    assert len(draws.tokens) == 3000
    assert p_value(draws.tokens.tolist(), tokens, law) > 1e-6


def test_the_law_notices_a_model_that_was_changed():
    """The test above can fail: the temperature that the model's files ask for gives another law."""
    model, circuit = masked_problem()
    tokens = enumerate_posterior(model, circuit).tokens
    every = read(model, circuit, tokens)
    wrong = (every.log_prob - every.log_weight).mul(1.5).softmax(0)
    draws = TransformersMasking()(model, circuit, 3000, None, seeded(1))
    assert p_value(draws.tokens.tolist(), tokens, wrong) < 1e-6


def test_what_transformers_asked_for_is_counted_up_to_the_end():
    model, circuit = masked_problem()
    counted = Counted(model)
    draws = TransformersMasking()(counted, circuit, 1000, 80, seeded(2))
    ends = set(model.tokenizer.eos_ids)
    asked = [tuple(y[:size]) for y in draws.tokens.tolist() for size in (1, 2) if not ends & set(y[:size])]
    assert draws.drawn == 40 and counted.lm_tokens == len(asked) < 80
    assert counted.lm_contexts == len(set(asked))
    assert draws.record.guarantee == "biased" and bool(circuit.accepts(draws.tokens).all())


def test_transformers_generates_from_its_own_models_only():
    model, circuit = problem(False)
    with pytest.raises(InvalidArgument, match="TableModel"):
        TransformersMasking()(Counted(model), circuit, 4, None, seeded(0))


def test_what_is_not_installed_is_left_out_and_said_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(entries, "missing", lambda package: f"{package} is missing; do this")
    found = [entry.name for entry in entries.choose(None)]
    assert "smc" in found and "transformers-masking" in found and not any(name.startswith("genlm") for name in found)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["left out genlm-smc, genlm-sis, genlm-awrs: genlm-control is missing; do this"]
    with pytest.raises(InvalidArgument, match="installed"):
        entries.choose(["genlm-smc"])


def test_without_genlm_the_error_says_how_to_install_it(monkeypatch):
    model, circuit = problem(False)
    assert "pip install './lab[peers]'" in peers.missing("no-such-package")
    monkeypatch.setattr(peers, "missing", lambda package: "do this")
    with pytest.raises(MissingExtra, match="do this"):
        GenLM()(model, circuit, 4, None, seeded(0))
