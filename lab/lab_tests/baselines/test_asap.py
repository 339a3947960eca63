"""ASAp, tested for what it promises in the limit. False alarm: 1e-6 a test."""

from __future__ import annotations

import math

import pytest
import torch
from locore_lab.baselines import ASAp

from lab_tests.baselines.test_awrs import FALSE_ALARM, LENGTH, problem, seeded
from locore.compilers import compile
from locore.constraints import Literal
from locore.kernel.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.models import Counted, TableModel
from locore.testing import enumerate_posterior, proper_weighting
from tests.effort import THOROUGH, some
from tests.samplers.chi_square import p_value


def masked_law(model, circuit, tokens):
    """f64[sequences]: Π_t p(y_t | y_<t) 1[allowed] / Z_t, by hand."""
    log_probs, law = model.log_probs(tokens).double(), torch.ones(len(tokens), dtype=torch.float64)
    states = circuit.reader.initial(len(tokens))
    for position in range(circuit.length):
        allowed = circuit.reader.allowed(position, states)[:, circuit.reader.token_class]
        masked = log_probs[:, position].exp() * allowed
        law *= masked.gather(1, tokens[:, position, None])[:, 0] / masked.sum(-1)
        states = circuit.reader.step(position, states, tokens[:, position])
    return law


@pytest.mark.slow
@pytest.mark.parametrize("eos", [False, True])
def test_asap_begins_as_masking(eos):
    model, circuit = problem(eos)
    truth = enumerate_posterior(model, circuit)
    generator = seeded(1)
    first = [ASAp()(model, circuit, 1, None, generator).tokens[0].tolist() for _ in range(700)]
    assert p_value(first, truth.tokens, masked_law(model, circuit, truth.tokens)) > FALSE_ALARM
    assert p_value(first, truth.tokens, truth.probabilities) < FALSE_ALARM  # which is not p(· | α)


@pytest.mark.parametrize("eos", some([True, False]))
def test_asap_ends_at_the_conditional(eos):
    """Once the prefixes that matter were visited its approximation is p(α | ·), and its draws are exact."""
    model, circuit = problem(eos)
    truth = enumerate_posterior(model, circuit)
    draws = ASAp()(model, circuit, 700, 1200 * (LENGTH - 1), seeded(2))
    assert draws.info["iterations"] == 1200 and len(draws.tokens) == 700
    assert draws.info["log_evidence_upper"] == pytest.approx(truth.log_evidence, abs=1e-4)
    assert p_value(draws.tokens.tolist(), truth.tokens, truth.probabilities) > FALSE_ALARM


def test_asap_says_that_it_is_biased_and_its_evidence_is_a_bound_that_falls():
    model, circuit = problem(False)
    truth = enumerate_posterior(model, circuit).log_evidence
    uppers = []
    for num in (1, 2, 4, 8, 16, 32):
        draws = ASAp()(model, circuit, num, None, seeded(3))
        assert draws.record.guarantee == "biased" and draws.record.notes
        assert len(draws.tokens) == num and bool(circuit.accepts(draws.tokens).all())
        uppers.append(draws.info["log_evidence_upper"])
    assert uppers == sorted(uppers, reverse=True)
    assert uppers[0] > uppers[-1] >= truth - 1e-12
    assert not proper_weighting(ASAp(), model, circuit, 4, 200 if THOROUGH else 100, seed=1).holds(FALSE_ALARM)


def test_asap_reads_a_prefix_once_and_keeps_the_budget():
    model, circuit = problem(True)
    counted = Counted(model)
    draws = ASAp()(counted, circuit, 5, 100, seeded(0))
    assert counted.lm_tokens == counted.lm_contexts <= draws.info["nominal_lm_tokens"] <= 100
    assert draws.info["iterations"] == 33 and len(draws.tokens) == 5


def test_asap_goes_around_what_the_model_never_writes():
    model = TableModel([torch.tensor([0.9, 0.1]), torch.tensor([[1.0, 0.0], [0.5, 0.5]])])
    circuit = compile(Literal(1, frozenset({1})), model, 2)
    draws = ASAp()(model, circuit, 30, None, seeded(0))
    assert len(draws.tokens) in (29, 30) and draws.tokens[:, 0].tolist() == [1] * len(draws.tokens)
    assert math.exp(draws.info["log_evidence_upper"]) == pytest.approx(0.05)


def test_asap_says_what_is_wrong():
    model, circuit = problem(True)
    with pytest.raises(BudgetExceeded, match="budget"):
        ASAp()(model, circuit, 8, 2, seeded(0))
    with pytest.raises(InvalidArgument, match="num_particles"):
        ASAp()(model, circuit, 0, None, seeded(0))
    impossible = TableModel([torch.tensor([1.0, 0.0]), torch.tensor([[0.5, 0.5], [0.5, 0.5]])])
    circuit = compile(Literal(0, frozenset({1})), impossible, 2)
    with pytest.raises(ZeroWeights):
        ASAp()(impossible, circuit, 4, None, seeded(0))
