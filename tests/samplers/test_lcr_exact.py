"""Law 3, exactly: the paper's weight has the right mean, by summing over every pair (ỹ, y)."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from locore.compilers import compile
from locore.constraints import Constant, Count, Literal, contains
from locore.kernel.tokenizer import Tokenizer
from locore.local import Exact, Forward, Lazy, TopK, Window
from locore.models import Mixture, TableModel, Tempered, TopP
from locore.samplers import LocallyConstrainedResampling
from locore.samplers.lcr import audit, conditional, log_mixture, log_weights, padded_circuit
from tests.effort import THOROUGH, some

from ..circuits import brute_force

LENGTH = 3


def constraint(vocab_size):
    one = Count(tuple(range(LENGTH)), frozenset({1}), 1, 2)
    return one & ~Literal(2, frozenset({0})) | Literal(0, frozenset({vocab_size - 1}))


def expected_weights(model, draft, kernel, circuit, reverse_condition=None):
    """Σ_ỹ r(ỹ) p̃_ỹ(y | α) w(ỹ, y) for every y that satisfies the constraint, and p(y)."""
    every = brute_force.all_sequences(model.vocab_size, LENGTH)
    padded = padded_circuit(model, LENGTH)
    every = every[padded.accepts(every)]
    models = every[circuit.accepts(every)]
    around = {id(s): kernel.distributions(model, s) for s in (every, models)}
    log_r, log_p = draft.score(every), model.score(models)
    totals = []
    for y, log_target, around_y in zip(models, log_p, around[id(models)], strict=True):
        reachable = log_r > float("-inf")
        proposal = conditional(circuit, around[id(every)], y.expand(len(every), -1))
        reverse = conditional(reverse_condition or padded, around_y.expand(len(every), -1, -1), every)
        weights = log_weights(log_target, log_r, proposal, reverse)
        pairs = (log_r + proposal + weights)[reachable & (proposal > float("-inf"))]
        totals.append(torch.logsumexp(pairs, 0).exp() if len(pairs) else torch.tensor(0.0).double())
    return torch.stack(totals), log_p.exp()


MODELS = {
    "without an end": lambda: TableModel.random(3, LENGTH, seed=1, eos=False),
    "with an end": lambda: TableModel.random(3, LENGTH, seed=2, eos=True),
}
KERNELS = {
    "exact": Exact(),
    "exact, tempered": Exact(temperature=0.5),
    "top 1": TopK(k=1),
    "top 2, tempered": TopK(k=2, temperature=0.3, floor=0.2),
    "top 1 and the own token": TopK(k=1, own=True),
    "the authors' candidates": TopK(k=1, own=True, off_candidates=-300.0, floor=0.0),
    "the authors' candidates, tempered": TopK(k=2, own=True, off_candidates=-3.0, temperature=0.5, floor=0.0),
    "forward": Forward(),
    "window 1": Window(w=1, k=2),
    "window 2, tempered": Window(w=2, k=1, temperature=0.5, floor=0.2),
    "lazy top 1": Lazy(0.2, TopK(k=1)),
    "lazy window": Lazy(0.5, Window(w=1, k=1)),
    "lazy forward": Lazy(0.1, Forward()),
    "lazy exact": Lazy(0.2, Exact()),
}


@pytest.mark.parametrize("kernel", some(KERNELS, 6))
@pytest.mark.parametrize("model", MODELS)
def test_the_mean_weight_is_the_target_for_every_sequence(model, kernel):
    p = MODELS[model]()
    circuit = compile(constraint(p.vocab_size), p, LENGTH)
    found, truth = expected_weights(p, p, KERNELS[kernel], circuit)
    torch.testing.assert_close(found, truth, rtol=1e-6, atol=1e-12)
    assert audit(p, p, KERNELS[kernel])[0] == "proper"


@pytest.mark.parametrize("model", MODELS)
def test_any_draft_with_full_support_will_do(model):
    p = MODELS[model]()
    circuit = compile(constraint(p.vocab_size), p, LENGTH)
    for draft in (Tempered(p, 0.5), Tempered(p, 2.0), Mixture(TopP(p, 0.5), p, 0.1)):
        found, truth = expected_weights(p, draft, TopK(k=2), circuit)
        torch.testing.assert_close(found, truth, rtol=1e-6, atol=1e-12)


def test_a_nucleus_as_the_target_is_reached_from_the_full_model():
    p = TableModel.random(3, LENGTH, seed=2, eos=True)
    target = TopP(p, 0.7)
    circuit = compile(constraint(p.vocab_size), p, LENGTH)
    assert LocallyConstrainedResampling()._draft(target) is p
    found, truth = expected_weights(target, p, TopK(k=2), circuit)
    torch.testing.assert_close(found, truth, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_the_papers_cut_supports_are_biased_and_say_so(model):
    p = MODELS[model]()
    circuit = compile(constraint(p.vocab_size), p, LENGTH)
    for draft, kernel in ((p, TopK(k=1, floor=0.0)), (TopP(p, 0.6), Exact())):
        found, truth = expected_weights(p, draft, kernel, circuit)
        assert found.sum() < 0.97 * truth.sum()
        guarantee, notes = audit(p, draft, kernel)
        assert guarantee == "biased" and notes


def test_the_end_of_the_text_breaks_the_plain_reverse_kernel_and_conditioning_it_repairs_it():
    """Algorithm 2 as printed puts mass of p̃_y on sequences that go on after their end, which no model writes."""
    p = MODELS["with an end"]()
    circuit = compile(constraint(p.vocab_size), p, LENGTH)
    kernel = Exact(floor=0.0)
    plain = compile(Constant(True), p.vocab_size, LENGTH)
    found, truth = expected_weights(p, p, kernel, circuit, reverse_condition=plain)
    assert found.sum() < 0.97 * truth.sum()
    found, truth = expected_weights(p, p, kernel, circuit)
    torch.testing.assert_close(found, truth, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_the_exact_kernel_needs_no_floor(model):
    p = MODELS[model]()
    circuit = compile(constraint(p.vocab_size), p, LENGTH)
    found, truth = expected_weights(p, p, Exact(floor=0.0), circuit)
    torch.testing.assert_close(found, truth, rtol=1e-6, atol=1e-12)
    assert audit(p, p, Exact(floor=0.0))[0] == "proper"


@pytest.mark.parametrize("model", MODELS)
def test_a_lazy_exact_kernel_needs_no_floor_either(model):
    p = MODELS[model]()
    kernel = Lazy(0.3, Exact(floor=0.0))
    circuit = compile(constraint(p.vocab_size), p, LENGTH)
    found, truth = expected_weights(p, p, kernel, circuit)
    torch.testing.assert_close(found, truth, rtol=1e-6, atol=1e-12)
    assert audit(p, p, kernel)[0] == "proper"


def expected_mixture_weights(model, kernel, circuit, contexts):
    """1/M Σ_j Σ_y p̃_ỹj(y | α) w(y) at every y that satisfies the constraint, given the contexts; and p(y)."""
    every = brute_force.all_sequences(model.vocab_size, LENGTH)
    models = every[circuit.accepts(every)]
    around = kernel.distributions(model, contexts)
    laws = torch.stack([conditional(circuit, q.expand(len(models), -1, -1), models) for q in around])
    log_p = model.score(models)
    weights = log_p - (log_mixture(circuit, around, models) - math.log(len(contexts)))
    drawn = laws.exp().mean(0)
    return torch.where(drawn > 0, drawn * weights.exp(), 0.0), log_p.exp()


@pytest.mark.parametrize("kernel", some(KERNELS, 6))
@pytest.mark.parametrize("model", some(MODELS))
def test_the_mixture_weight_is_proper_given_any_contexts(model, kernel):
    p = MODELS[model]()
    circuit = compile(constraint(p.vocab_size), p, LENGTH)
    every = brute_force.all_sequences(p.vocab_size, LENGTH)
    every = every[padded_circuit(p, LENGTH).accepts(every)]
    pairs = itertools.combinations_with_replacement(range(len(every)), 2)
    for pair in itertools.islice(pairs, 0, None, 1 if THOROUGH else 21):
        found, truth = expected_mixture_weights(p, KERNELS[kernel], circuit, every[list(pair)])
        torch.testing.assert_close(found, truth, rtol=1e-6, atol=1e-12)
    assert audit(p, p, KERNELS[kernel], "mixture")[0] == "proper"


def test_mixtures_ask_nothing_of_the_law_of_the_contexts():
    p = MODELS["with an end"]()
    assert audit(p, TopP(p, 0.5), TopK(k=1), "mixture")[0] == "proper"
    assert audit(p, TopP(p, 0.5), TopK(k=1), "augmented")[0] == "biased"


def test_mixtures_of_cut_kernels_are_biased_and_say_so():
    p = MODELS["with an end"]()
    circuit = compile(constraint(p.vocab_size), p, LENGTH)
    contexts = p.sample(2, LENGTH, seed=0).tokens
    for kernel in (TopK(k=1, floor=0.0), Exact(floor=0.0)):
        found, truth = expected_mixture_weights(p, kernel, circuit, contexts)
        assert found.sum() < 0.97 * truth.sum()
        assert audit(p, p, kernel, "mixture")[0] == "biased"


def test_text_constraints_too():
    tokenizer = Tokenizer.from_tokens([b"a", b"b", None], eos_ids=(2,))
    tables = [torch.softmax(torch.randn((3,) * (t + 1), generator=torch.Generator().manual_seed(t)), -1) for t in range(LENGTH)]
    p = TableModel(tables, eos_ids=(2,), tokenizer=tokenizer)
    circuit = compile(contains("ab"), p, LENGTH)
    found, truth = expected_weights(p, p, TopK(k=1), circuit)
    torch.testing.assert_close(found, truth, rtol=1e-6, atol=1e-12)
