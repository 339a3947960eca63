"""Local kernels: each against its formula written out, normalised, with full support, at the price it says."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from locore.kernel.errors import InvalidArgument
from locore.local import Exact, Forward, Lazy, TopK, Window, kernel_by_name, pseudolikelihood
from locore.models import Counted, TableModel, TopP

LENGTH, VOCAB = 4, 3
MODELS = {
    "without an end": lambda: TableModel.random(VOCAB, LENGTH, seed=1),
    "with an end": lambda: TableModel.random(VOCAB, LENGTH, seed=2, eos=True),
    "that excludes tokens": lambda: TopP(TableModel.random(VOCAB, LENGTH, seed=3, eos=True), 0.7),
}
KERNELS = {
    "exact": Exact(),
    "exact, tempered": Exact(temperature=0.5),
    "top 2": TopK(k=2),
    "top 1 and the own token": TopK(k=1, own=True),
    "the authors' candidates": TopK(k=1, own=True, off_candidates=-300.0, floor=0.0),
    "window 1": Window(w=1, k=2),
    "window 2": Window(w=2, k=3, temperature=0.7),
    "forward": Forward(),
    "lazy": Lazy(0.2, TopK(k=2)),
    "lazy exact": Lazy(0.5, Exact()),
}


def every_sequence(model):
    """All sequences of positive probability under the model or its base, with those of none."""
    every = torch.tensor(list(itertools.product(range(VOCAB), repeat=LENGTH)))
    padded = getattr(model, "base", model).score(every) > float("-inf")
    return every[padded]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("model", MODELS)
def test_kernels_are_normalised_and_exclude_nothing(model, kernel):
    p, k = MODELS[model](), KERNELS[kernel]
    logs = k.distributions(p, every_sequence(p))
    assert logs.dtype == torch.float64
    torch.testing.assert_close(logs.logsumexp(-1), torch.zeros(logs.shape[:2]).double())
    assert (logs > float("-inf")).all() and not k.excludes


@pytest.mark.parametrize("model", ["without an end", "with an end"])
def test_exact_is_the_conditional_of_the_joint(model):
    p = MODELS[model]()
    for y in p.sample(8, LENGTH, seed=0).tokens:
        found = pseudolikelihood(p, y)
        for i in range(LENGTH):
            rows = y.repeat(VOCAB, 1)
            rows[:, i] = torch.arange(VOCAB)
            torch.testing.assert_close(found[i], torch.log_softmax(p.score(rows), 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", ["without an end", "with an end"])
@pytest.mark.parametrize("off", [float("-inf"), -2.0])
def test_the_own_token_is_a_candidate_and_the_others_have_what_was_asked_for(model, off):
    """Against the definition, token by token: tempered, normalised over the candidates, the others at `off`, normalised."""
    p, tau = MODELS[model](), 0.5
    tokens = p.sample(6, LENGTH, seed=0).tokens
    found = TopK(k=1, own=True, off_candidates=off, temperature=tau, floor=0.0).distributions(p, tokens)
    forward = p.log_probs(tokens)
    for y, rows, before in zip(tokens, found, forward, strict=True):
        for i in range(LENGTH):
            kept = {int(before[i].argmax()), int(y[i])}
            scores = {v: float(p.score(torch.cat([y[:i], torch.tensor([v]), y[i + 1 :]])[None])) / tau for v in kept}
            total = math.log(sum(math.exp(score) for score in scores.values()))
            wanted = [max(off, scores[v] - total) if v in kept else off for v in range(VOCAB)]
            torch.testing.assert_close(rows[i], torch.tensor(wanted).double().log_softmax(0), rtol=1e-5, atol=1e-6)


def test_the_own_token_costs_nothing():
    p = MODELS["without an end"]()
    tokens = p.sample(4, LENGTH, seed=1).tokens
    paid = []
    for kernel in (TopK(k=2), TopK(k=2, own=True, off_candidates=-300.0)):
        counted = Counted(p)
        kernel.distributions(counted, tokens)
        paid.append(counted.lm_tokens)
        assert counted.lm_tokens <= 4 * kernel.price(LENGTH, VOCAB)
    assert paid[0] == paid[1]


@pytest.mark.parametrize("off", [0.0, 1.0, float("nan")])
def test_what_is_off_the_candidates_has_a_log_probability_below_zero(off):
    with pytest.raises(InvalidArgument, match="off_candidates"):
        TopK(off_candidates=off)


@pytest.mark.parametrize("model", ["without an end", "with an end"])
@pytest.mark.parametrize("w", [1, 2, 3])
def test_a_window_reads_the_next_tokens_only(model, w):
    p = MODELS[model]()
    tokens = every_sequence(p)
    found = Window(w=w, k=VOCAB, floor=0.0).distributions(p, tokens)
    for y, rows in zip(tokens, found, strict=True):
        for i in range(LENGTH):
            changed = y.repeat(VOCAB, 1)
            changed[:, i] = torch.arange(VOCAB)
            scores = p.token_scores(changed)[:, : i + w + 1].sum(-1)
            torch.testing.assert_close(rows[i], torch.log_softmax(scores, 0), rtol=1e-6, atol=1e-9)


def test_a_window_over_everything_and_all_candidates_are_the_exact_kernel():
    p = MODELS["with an end"]()
    tokens = every_sequence(p)
    exact = Exact(floor=0.1).distributions(p, tokens)
    for kernel in (Window(w=LENGTH, k=VOCAB, floor=0.1), TopK(k=99, floor=0.1)):
        torch.testing.assert_close(kernel.distributions(p, tokens), exact, rtol=1e-9, atol=1e-9)


def test_top_k_normalises_over_the_likeliest_tokens():
    p = MODELS["without an end"]()
    tokens = every_sequence(p)
    forward, exact = p.log_probs(tokens), Exact(floor=0.0).distributions(p, tokens)
    for kernel, full in ((TopK(k=2, floor=0.0), exact), (Window(w=3, k=2, floor=0.0), exact)):
        found = kernel.distributions(p, tokens)
        kept = torch.zeros_like(forward, dtype=torch.bool).scatter_(-1, forward.topk(2).indices, True)
        expected = full.masked_fill(~kept, float("-inf")).log_softmax(-1)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_forward_is_what_the_model_says():
    p = MODELS["without an end"]()
    tokens = every_sequence(p)
    torch.testing.assert_close(Forward(floor=0.3).distributions(p, tokens), p.log_probs(tokens))


@pytest.mark.parametrize("rho", [0.1, 1.0])
def test_lazy_keeps_a_token_with_probability_one_minus_rho(rho):
    p = MODELS["with an end"]()
    tokens = every_sequence(p)
    inner = TopK(k=2, floor=0.2)
    stay = torch.nn.functional.one_hot(tokens, VOCAB)
    expected = (1 - rho) * stay + rho * inner.distributions(p, tokens).exp()
    kernel = Lazy(rho, inner)
    torch.testing.assert_close(kernel.distributions(p, tokens).exp(), expected)
    assert kernel.floor == pytest.approx(0.2 * rho)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("model", ["without an end", "with an end"])
def test_asking_for_some_positions_gives_the_same_numbers_there_for_less(model, kernel):
    p, k = MODELS[model](), KERNELS[kernel]
    tokens = every_sequence(p)
    where = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    whole, part = Counted(p), Counted(p)
    found = k.distributions(part, tokens, where)
    assert torch.equal(found[where], k.distributions(whole, tokens)[where])
    assert part.lm_tokens < whole.lm_tokens or k == Forward()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("positions", [None, 1, 2])
def test_kernels_cost_at_most_their_price(kernel, positions):
    k = KERNELS[kernel]
    p = Counted(MODELS["without an end"]())
    tokens = torch.tensor([[0, 1, 2, 1]])
    where = torch.arange(LENGTH)[None] < (LENGTH if positions is None else positions)
    k.distributions(p, tokens, where)
    assert 0 < p.lm_tokens <= k.price(LENGTH, VOCAB, positions)
    assert k.price(LENGTH, VOCAB, LENGTH) == k.price(LENGTH, VOCAB)


def test_batches_change_nothing(monkeypatch):
    p = MODELS["with an end"]()
    tokens = every_sequence(p)
    whole = Window(w=2, k=2).distributions(p, tokens)
    monkeypatch.setattr("locore.local.NUMBERS", 1)
    assert torch.equal(Window(w=2, k=2).distributions(p, tokens), whole)


def test_names_and_arguments():
    for name in ("forward", "window", "topk", "exact", "lazy"):
        assert kernel_by_name(name).floor > 0
    assert kernel_by_name(own := Lazy(0.3, Forward())) is own
    with pytest.raises(InvalidArgument, match="window"):
        kernel_by_name("bottomk")
    for wrong in (
        lambda: TopK(k=0),
        lambda: Window(w=0),
        lambda: Window(k=0),
        lambda: Lazy(0.0),
        lambda: Lazy(1.5),
        lambda: Exact(floor=1.5),
        lambda: Forward(temperature=0.0),
    ):
        with pytest.raises(InvalidArgument):
            wrong()
