"""Enumeration and adaptive rejection: exact draws, exact or unbiased evidence. False alarm: 1e-6 a test."""

from __future__ import annotations

import gc
import math

import pytest
import torch

from locore.compilers import compile
from locore.constraints import Constant, Count, Literal
from locore.kernel.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.models import Counted, TableModel
from locore.models import TopK as TopKModel
from locore.samplers import Enumeration, Rejection, adaptive_rejection, enumeration
from locore.samplers.adaptive_rejection import AdaptiveRejection, log_evidence
from locore.samplers.enumeration import price_of_enumeration
from locore.testing import proper_weighting
from tests.effort import THOROUGH, runs, some

from .chi_square import p_value as chi_square

LENGTH = 3
FALSE_ALARM = 1e-6
REJECTIONS = {"cars": AdaptiveRejection("all"), "ars": AdaptiveRejection("failed")}


def problem(eos):
    # Of the sequences that satisfy α none is rare, so that normal tails may be spoken of.
    model = TableModel.random(3, LENGTH, seed=1, eos=eos, concentration=5.0)
    alpha = Count(tuple(range(LENGTH)), frozenset({1}), 1, 2) & ~Literal(2, frozenset({0}))
    return model, compile(alpha, model, LENGTH)


def brute_force(model, circuit):
    """All sequences that satisfy α and p of each, without walking."""
    every = torch.cartesian_prod(*[torch.arange(model.vocab_size)] * circuit.length)
    tokens = every[circuit.accepts(every)]
    probs = model.score(tokens).exp()
    return tokens[probs > 0], probs[probs > 0]


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def p_value(drawn, model, circuit):
    """Of independent sequences against p(· | α)."""
    return chi_square(drawn, *brute_force(model, circuit))


# Enumeration


@pytest.mark.parametrize("eos", [False, True])
def test_enumeration_is_exact(eos):
    model, circuit = problem(eos)
    tokens, probs = brute_force(model, circuit)
    counted = Counted(model)
    draws = Enumeration()(counted, circuit, 1000, None, seeded(0))
    assert draws.tokens.tolist() == tokens.tolist()
    torch.testing.assert_close(draws.log_weights.exp() / len(tokens), probs)
    torch.testing.assert_close(draws.token_scores, model.token_scores(tokens))
    assert counted.lm_tokens == price_of_enumeration(circuit.reader, model.tokenizer.eos_ids)


@pytest.mark.parametrize("eos", [False, True])
def test_the_price_is_the_number_of_prefixes_that_can_be_completed(eos):
    model, circuit = problem(eos)
    tokens, _ = brute_force(model, circuit)
    prefixes = {tuple(y[:t]) for y in tokens.tolist() for t in range(1, LENGTH)}
    going = [prefix for prefix in prefixes if not eos or 2 not in prefix]
    assert price_of_enumeration(circuit.reader, model.tokenizer.eos_ids) == len(going)


def test_texts_without_end_are_thinned_seldom(monkeypatch):
    """Not at each batch: 4 million texts of the bundled model took minutes."""
    drawn, select = [], enumeration.select
    monkeypatch.setattr(enumeration, "KEPT", 200)
    monkeypatch.setattr(enumeration, "select", lambda *args: drawn.append(len(args[0])) or select(*args))
    model = TableModel.random(6, 5, seed=3)
    draws = Enumeration()(model, compile(Constant(True), model, 5), 8, 10**6, seeded(1))
    assert len(drawn) <= 1 + 6**5 / 200 and all(number > 400 for number in drawn[:-1])
    assert len(draws.tokens) == 8 and draws.log_mean_weight == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("num, kept", [(4, 2**16), (4, 5)])
@pytest.mark.parametrize("eos", some([True, False]))
def test_few_particles_are_proper_and_keep_the_evidence(num, kept, eos, monkeypatch):
    monkeypatch.setattr(enumeration, "KEPT", kept)
    monkeypatch.setattr(enumeration, "CHUNK_PREFIXES", 2)
    model, circuit = problem(eos)
    _, probs = brute_force(model, circuit)
    draws = Enumeration()(model, circuit, num, None, seeded(0))
    assert len(draws.tokens) == num
    found = torch.logsumexp(draws.log_weights, 0) - math.log(num)
    assert float(found) == pytest.approx(math.log(probs.sum()), abs=1e-9)
    result = proper_weighting(Enumeration(), model, circuit, num, runs(300), seed=2)
    assert result.holds(FALSE_ALARM), result.z


@pytest.mark.parametrize("num", some([4, 1]))
def test_one_draw_by_weight_is_an_exact_draw(num):
    model, circuit = problem(True)
    generator, drawn = seeded(5), []
    for _ in range(runs(1000)):
        draws = Enumeration()(model, circuit, num, None, generator)
        chosen = int(torch.multinomial(torch.softmax(draws.log_weights, 0), 1, generator=generator))
        drawn.append(draws.tokens[chosen].tolist())
    assert p_value(drawn, model, circuit) > FALSE_ALARM


def test_enumeration_names_its_price_before_it_spends_anything():
    model, circuit = problem(False)
    price = price_of_enumeration(circuit.reader)
    counted = Counted(model)
    with pytest.raises(BudgetExceeded, match=f"{price:,.0f} LM tokens"):
        Enumeration()(counted, circuit, 4, int(price) - 1, seeded(0))
    with pytest.raises(BudgetExceeded, match="max_contexts"):
        Enumeration(max_contexts=2)(counted, circuit, 4, None, seeded(0))
    assert counted.lm_tokens == 0
    assert len(Enumeration()(counted, circuit, 4, int(price), seeded(0)).tokens) == 4
    huge = compile(Constant(True), 1000, 200)
    assert price_of_enumeration(huge.reader) == math.inf


def test_a_model_that_excludes_tokens_is_walked_as_far_as_the_limit_reaches():
    base, _ = problem(False)
    model = TopKModel(base, 2)
    circuit = compile(Count(tuple(range(LENGTH)), frozenset({1}), 0, 3), model, LENGTH)
    assert price_of_enumeration(circuit.reader) == 3 + 9
    draws = Enumeration(max_contexts=6)(model, circuit, 100, None, seeded(0))
    assert len(draws.tokens) == 8
    assert float(torch.logsumexp(draws.log_weights, 0)) - math.log(8) == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(BudgetExceeded, match="than 5"):
        Enumeration(max_contexts=5)(model, circuit, 100, None, seeded(0))


# Adaptive rejection


def mean_over_histories(model, circuit, num, records):
    """E[w(y)] for each y by summing over all histories of a run until num + 1 are accepted, with sets instead of a trie."""
    every = [tuple(y) for y in torch.cartesian_prod(*[torch.arange(model.vocab_size)] * circuit.length).tolist()]
    probs = dict(zip(every, model.score(torch.tensor(every)).exp().tolist(), strict=True))
    good = {y for y in every if bool(circuit.accepts(torch.tensor([y])).all())}
    live = {y[:t] for y in good for t in range(circuit.length + 1)}
    mean = dict.fromkeys(good, 0.0)

    def learned(y):
        """The prefixes that an attempt at y shows to be dead."""
        way = [y[:t] for t in range(circuit.length + 1) if y[: max(0, t - 1)] in live]
        if records == "failed":
            return {x for x in way if x not in live}
        return {(*x, v) for x in way if x in live and len(x) < circuit.length for v in range(model.vocab_size)} - live

    def go(prob, failed, masses, accepted):
        if len(accepted) == num + 1:
            weight = math.exp(float(log_evidence(torch.tensor(masses, dtype=torch.float64).log(), num)))
            for y in accepted[:-1]:
                mean[y] += prob * weight / num
            return
        open_now = [y for y in every if not any(y[:t] in failed for t in range(circuit.length + 1))]
        mass = sum(probs[y] for y in open_now)
        ways = {}
        for y in open_now:
            way = (y if y in good else None, frozenset(failed | learned(y)))
            ways[way] = ways.get(way, 0.0) + probs[y]
        for (y, known), p in ways.items():
            go(prob * p / mass, known, [*masses, mass], accepted if y is None else [*accepted, y])

    go(1.0, frozenset(), [], [])
    return mean, {y: probs[y] for y in good}


@pytest.mark.parametrize("num", some([1, 2]))
@pytest.mark.parametrize("records", ["all", "failed"])
def test_the_weight_is_proper_over_all_histories(records, num):
    model = TableModel.random(2, 3, seed=1)
    circuit = compile(
        Count((0, 1, 2), frozenset({1}), 1, 2) & ~(Literal(0, frozenset({1})) & Literal(2, frozenset({1}))), model, 3
    )
    mean, truth = mean_over_histories(model, circuit, num, records)
    assert mean == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("budget", some([20, None]))
@pytest.mark.parametrize("eos", some([True, False]))
@pytest.mark.parametrize("name", some(REJECTIONS))  # of both there are sums over all histories above
def test_adaptive_rejection_weights_properly(name, eos, budget):
    model, circuit = problem(eos)
    result = proper_weighting(REJECTIONS[name], model, circuit, 5, runs(200), budget, seed=8)
    assert result.holds(FALSE_ALARM), (result.z, result.estimates, result.truth)


@pytest.mark.slow
def test_the_law_notices_weights_that_forget_what_was_remembered():
    """The test can fail: attempts are not draws from the model."""

    def wrong(*args):
        draws = AdaptiveRejection()(*args)
        return type(draws)(
            draws.tokens,
            torch.full_like(draws.log_weights, math.log(draws.info["accepted"] / draws.info["attempts"])),
            draws.drawn,
        )

    model, circuit = problem(False)
    assert not proper_weighting(wrong, model, circuit, 2, 150, 40, seed=8).holds(FALSE_ALARM)


@pytest.mark.parametrize("eos", some([True, False]))
@pytest.mark.parametrize("name", some(REJECTIONS))
def test_draws_are_exact_and_independent(name, eos):
    """All draws of many runs, of which the later ones come from a trie that has learned; then neighbours in pairs."""
    model, circuit = problem(eos)
    generator = seeded(4)
    runs = [REJECTIONS[name](model, circuit, 12, None, generator).tokens.tolist() for _ in range(50 if THOROUGH else 30)]
    assert all(len(run) == 12 for run in runs)
    assert p_value([y for run in runs for y in run], model, circuit) > FALSE_ALARM
    assert p_value([run[-1] for run in runs] + [run[-2] for run in runs], model, circuit) > FALSE_ALARM
    repeats = torch.tensor([first == second for run in runs for first, second in zip(run[::2], run[1::2], strict=True)])
    _, probs = brute_force(model, circuit)
    chance = float(((probs / probs.sum()) ** 2).sum())
    z = (float(repeats.double().mean()) - chance) / math.sqrt(chance * (1 - chance) / len(repeats))
    assert abs(z) < 4.9


@pytest.mark.parametrize("kept_cursors, memory", some([(1, 2**26), (256, 7), (256, 0)], 2, several=True))
def test_forgetting_changes_the_price_and_not_the_law(kept_cursors, memory, monkeypatch):
    model, circuit = problem(True)
    before = AdaptiveRejection()(model, circuit, 20, None, seeded(3))
    monkeypatch.setattr(adaptive_rejection, "KEPT_CURSORS", kept_cursors)
    monkeypatch.setattr(adaptive_rejection, "MEMORY_NUMBERS", memory)
    counted = Counted(model)
    after = AdaptiveRejection()(counted, circuit, 20, None, seeded(3))
    if kept_cursors == 1:
        assert torch.equal(before.tokens, after.tokens)
        assert counted.lm_contexts < counted.lm_tokens <= after.info["attempts"] * (LENGTH - 1)
    if kept_cursors > 1 or THOROUGH:  # otherwise it draws the same
        assert proper_weighting(AdaptiveRejection(), model, circuit, 5 if THOROUGH else 2, runs(150), seed=1).holds(FALSE_ALARM)


def test_the_evidence_has_its_closed_forms():
    ones = torch.zeros(7, dtype=torch.float64)
    assert float(log_evidence(ones, 3)) == pytest.approx(math.log(3 / 6), abs=1e-11)
    assert float(log_evidence(torch.full((5,), math.log(0.02), dtype=torch.float64), 4)) == pytest.approx(
        math.log(0.02), abs=1e-11
    )
    # Two attempts, M = 1 and m: E[1/G] of a geometric number.
    for m in (0.9, 0.3, 1e-3, 1e-9):
        pair = torch.tensor([0.0, math.log(m)], dtype=torch.float64)
        assert float(log_evidence(pair, 1)) == pytest.approx(math.log(-m * math.log(m) / (1 - m)), abs=1e-10)
    many = torch.zeros(40_000, dtype=torch.float64)
    assert float(log_evidence(many, 2)) == pytest.approx(math.log(2 / 39_999), abs=1e-10)
    padded = torch.tensor([[0.0, 0.0, math.inf], [0.0, 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(log_evidence(padded, 1).exp(), torch.tensor([1.0, 0.5], dtype=torch.float64))


def test_the_evidence_averages_the_draws_that_are_skipped():
    """Against a simulation of the geometric numbers."""
    masses, accepted = torch.tensor([1.0, 0.7, 0.4, 0.2, 0.2], dtype=torch.float64), 2
    uniforms = torch.rand(100_000, len(masses), generator=seeded(0), dtype=torch.float64)
    skipped = torch.where(masses < 1, (uniforms.log() / (1 - masses).clamp_min(1e-300).log()).floor(), 0.0)
    simulated = accepted / ((1 + skipped).sum(-1) - 1)
    error = float(simulated.std()) / math.sqrt(len(simulated))
    assert abs(float(simulated.mean()) - math.exp(float(log_evidence(masses.log(), accepted)))) < 4.9 * error


def test_it_learns_and_its_bounds_close_in():
    model, circuit = problem(False)
    _, probs = brute_force(model, circuit)
    truth = math.log(probs.sum())
    cars, ars = (sampler(model, circuit, 200, None, seeded(2)) for sampler in REJECTIONS.values())
    plain = Rejection()(model, circuit, 200, None, seeded(2))
    assert cars.info["attempts"] < ars.info["attempts"] < plain.info["draws"]
    assert abs(float(cars.log_weights[0]) - truth) < 0.02
    for draws in (cars, ars):
        low, high = draws.info["log_evidence_lower"], draws.info["log_evidence_upper"]
        assert low - 1e-9 <= truth <= high + 1e-9
        assert len(draws.tokens) == 200 and draws.record.guarantee == "proper" and len(set(draws.log_weights.tolist())) == 1


@pytest.mark.parametrize("name", REJECTIONS)
def test_budgets_fix_the_attempts_and_are_kept(name):
    model, circuit = problem(False)
    for budget in (2, 50, 300):
        counted = Counted(model)
        try:
            draws = REJECTIONS[name](counted, circuit, 20, budget, seeded(1))
            assert draws.info["attempts"] == draws.drawn == budget // (LENGTH - 1)
            assert counted.lm_tokens <= draws.info["nominal_lm_tokens"] <= budget
        except ZeroWeights as error:
            assert "attempts" in str(error)
        assert counted.lm_tokens <= budget


@pytest.mark.parametrize("name", REJECTIONS)
def test_seeds_reproduce_and_scores_are_the_models(name):
    model, circuit = problem(True)
    first, second = (REJECTIONS[name](model, circuit, 9, None, seeded(7)) for _ in range(2))
    assert torch.equal(first.tokens, second.tokens) and torch.equal(first.log_weights, second.log_weights)
    torch.testing.assert_close(first.token_scores, model.token_scores(first.tokens))
    assert bool(circuit.accepts(first.tokens).all())


def test_a_run_that_its_limit_ends_says_so(monkeypatch):
    monkeypatch.setattr(adaptive_rejection, "ATTEMPTS_PER_PARTICLE", 1)
    model, circuit = problem(False)
    draws = AdaptiveRejection("failed")(model, circuit, 30, None, seeded(0))
    assert draws.info["accepted"] < 31 and draws.record.guarantee == "asymptotic" and "limit" in draws.record.notes[0]


def test_errors():
    model, circuit = problem(False)
    with pytest.raises(InvalidArgument, match="records"):
        AdaptiveRejection("some")(model, circuit, 3, None, seeded(0))
    for sampler in (AdaptiveRejection(), Enumeration()):
        with pytest.raises(InvalidArgument, match="num_particles"):
            sampler(model, circuit, 0, None, seeded(0))
        with pytest.raises(BudgetExceeded, match="budget"):
            sampler(model, circuit, 3, 1, seeded(0))
    impossible = TableModel([torch.tensor([1.0, 0.0]), torch.tensor([[0.5, 0.5], [0.5, 0.5]])])
    circuit = compile(Literal(0, frozenset({1})), impossible, 2)
    for sampler in (AdaptiveRejection(), AdaptiveRejection("failed"), Enumeration()):
        with pytest.raises(ZeroWeights):
            sampler(impossible, circuit, 4, None, seeded(0))


def test_adaptive_rejection_keeps_nothing():
    """Its nodes know each other, and each holds a row of the vocabulary: a call must not leave them to the collector."""
    model = TableModel.random(3, 4, 0)
    circuit = compile(Literal(2, frozenset({1})), model, 4)
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(one, adaptive_rejection._Node) for one in gc.get_objects())
        AdaptiveRejection()(model, circuit, 8, None, torch.Generator().manual_seed(0))
        assert sum(isinstance(one, adaptive_rejection._Node) for one in gc.get_objects()) == before
    finally:
        gc.enable()
