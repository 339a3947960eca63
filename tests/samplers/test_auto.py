"""`auto` chooses by the problem, says why, and stays proper whatever it chooses."""

from __future__ import annotations

import random
import re
from contextlib import suppress

import numpy as np
import pytest
import torch

from locore import ban, contains, ends_with, regex
from locore.compilers import compile
from locore.constraints import Constant, Count, Literal
from locore.kernel.errors import Unsatisfiable, ZeroWeights
from locore.kernel.tokenizer import Tokenizer
from locore.models import Counted, MarkovModel, TableModel
from locore.potentials.outcomes import Outcomes
from locore.samplers import Quick
from locore.samplers.auto import FEW, Auto
from locore.samplers.enumeration import price_of_enumeration
from locore.testing import proper_weighting
from tests.effort import THOROUGH, runs, some


def chain(length=8):
    transition = torch.softmax(torch.randn(6, 6, generator=torch.Generator().manual_seed(1)), -1).double()
    return MarkovModel(torch.full((6,), 1 / 6).double(), transition), length


@pytest.mark.parametrize(
    ("alpha", "length", "chosen"),
    [
        (Literal(0, frozenset({1})) & Literal(1, frozenset({2})) & Literal(2, frozenset({3})), 3, "exact"),
        (~Literal(0, frozenset({1})), 8, "best-first"),
        (~Literal(7, frozenset({1})), 8, "rejection"),
        (Count(tuple(range(8)), frozenset({1}), 6), 8, "twisted"),
    ],
)
def test_it_chooses_what_suits_the_problem_and_says_why(alpha, length, chosen):
    model, _ = chain()
    draws = Auto()(model, compile(alpha, model, length), 40, None, torch.Generator().manual_seed(0))
    assert draws.info["chosen"] == chosen and draws.info["why"]


def test_few_particles_take_a_pass_for_each_token():
    """Of a likely constraint too: what two draws say of it would take as many passes again."""
    model, _ = chain()
    counted, likely = Counted(model), ~(Literal(6, frozenset({1})) & Literal(7, frozenset({1})))
    draws = Auto()(counted, compile(likely, model, 8), 1, None, torch.Generator().manual_seed(0))
    assert draws.info["chosen"] == "twisted" and counted.passes == 7
    assert counted.lm_tokens <= 7 * 96 / 4  # a quarter of what a verdict would cost


LETTERS = Tokenizer.from_tokens([b"a", b"b", b"ab", b" c", b"d", b"e", None], eos_ids=(6,))


def any_problem(seed):
    """A chain over letters and an end, from peaked to flat, and a constraint of up to two parts."""
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(7, pick.choice([0.1, 0.5, 1, 3])), size=8) + 1e-6
    rows[7] = np.eye(7)[6]  # behind an end
    rows /= rows.sum(1, keepdims=True)
    model, length = MarkovModel(torch.tensor(rows[0]), torch.tensor(rows[1:]), tokenizer=LETTERS), pick.randint(2, 48)

    def word():
        return "".join(pick.choice("abde") for _ in range(pick.randint(1, 4)))

    def part():
        return pick.choice(
            [
                lambda: contains(word()),
                lambda: ban([word(), word()]),
                lambda: ends_with(word()),
                lambda: regex(f"({word()}|{word()}| c)*"),
                lambda: Literal(pick.randrange(length), frozenset(pick.sample(range(6), pick.randint(1, 4)))),
                lambda: Count(tuple(range(length)), frozenset({pick.randrange(6)}), pick.randint(0, length // 3)),
            ]
        )()

    first = part()
    return model, pick.choice([lambda: first, lambda: first & part(), lambda: first | part()])(), length


@pytest.mark.parametrize("seed", some(range(200), 60))
def test_a_call_takes_two_passes_for_each_token_and_eight_at_most(seed):
    """Whatever is looked at, drawn or learned in them; without a budget, with little and with much."""
    model, alpha, length = any_problem(seed)
    counted, (num, prefixes) = (
        Counted(model),
        random.Random(seed).choice([(1, None), (8, None), (32, None), (32, 20), (32, 150)]),
    )
    budget = None if prefixes is None else prefixes * max(1, length - 1)
    with suppress(Unsatisfiable, ZeroWeights):
        Auto()(counted, compile(alpha, model, length), num, budget, torch.Generator().manual_seed(seed))
    assert counted.passes <= 2 * length + 8


@pytest.mark.parametrize("chance", some([0.3, 0.2]))
def test_draws_that_a_pilot_promises_are_drawn_at_once(chance):
    """A second go for the last of them would take as many passes again."""
    law = torch.tensor([chance, *[(1 - chance) / 5] * 5]).double()
    model, length, chosen = MarkovModel(law, law.expand(6, 6)), 40, set()
    circuit = compile(Literal(20, frozenset({0})), model, length)
    for seed in range(6 if THOROUGH else 3):
        counted = Counted(model)
        draws = Auto()(counted, circuit, 32, None, torch.Generator().manual_seed(seed))
        chosen.add(draws.info["chosen"])
        assert counted.passes <= 2 * length and len(draws.tokens) >= 8
    assert "rejection" in chosen


@pytest.mark.parametrize("alpha", ["likely", "rare"])
@pytest.mark.parametrize("prefixes", [12, 23, 60])
def test_a_budget_is_spent_in_a_pass_for_each_token(alpha, prefixes):
    """What a pilot and a trial would say of the constraint is not worth as many passes again."""
    model, _ = chain(12)
    positions = Count(tuple(range(12)), frozenset({1}), 9)
    circuit = compile(positions if alpha == "rare" else ~positions, model, 12)
    for seed in range(3 if THOROUGH else 1):
        counted = Counted(model)
        Auto()(counted, circuit, 32, prefixes * 11, torch.Generator().manual_seed(seed))
        assert counted.passes <= 11 and counted.lm_tokens <= prefixes * 11


def test_a_circuit_without_a_reading_is_sampled_too():
    pytest.importorskip("pysdd")
    model, _ = chain()
    alpha = Literal(0, frozenset({1})) & Literal(3, frozenset({1})) & Literal(1, frozenset({0}))
    circuit = compile(alpha, model, 4, vtree=((0, 3), (1, 2)))
    draws = Auto()(model, circuit, 16, None, torch.Generator().manual_seed(0))
    assert circuit.accepts(draws.tokens).all()


@pytest.mark.parametrize("eos", [False, True])
def test_it_is_proper(eos):
    model = TableModel.random(3, 3, seed=5, eos=eos, concentration=20.0)
    alpha = Count((0, 1, 2), frozenset({1}), 1, 2)
    circuit = compile(alpha, model, 3)
    result = proper_weighting(Auto(pilot_draws=8), model, circuit, 8, runs(800), seed=3)
    assert result.holds(1e-6), (result.z, result.estimates, result.truth)


def test_the_pilot_is_part_of_the_budget():
    model, length = chain()
    circuit = compile(Count(tuple(range(length)), frozenset({1}), 6), model, length)
    counted = Counted(model)
    Auto()(counted, circuit, 32, 700, torch.Generator().manual_seed(0))
    assert counted.lm_tokens <= 700


def test_everything_goes_when_nothing_is_asked():
    model, length = chain()
    draws = Auto()(model, compile(Constant(True), model, length), 10, None, torch.Generator().manual_seed(0))
    assert draws.info["chosen"] == "rejection" and len(draws.tokens) == 10


def test_what_costs_no_more_than_a_pilot_is_read_whole_where_no_text_is_likelier_than_others():
    """Best first would read nearly all of it, a few prefixes at a time, and still leave something to chance."""
    rng = np.random.default_rng(0)
    model = MarkovModel(rng.dirichlet(np.full(3, 50.0)), rng.dirichlet(np.full(3, 50.0), size=3))
    circuit = compile(~Literal(5, frozenset({0})), model, 6)
    draws = Auto()(model, circuit, 1000, None, torch.Generator().manual_seed(0))
    prefixes = price_of_enumeration(circuit.reader, model.tokenizer.eos_ids)
    assert prefixes > FEW and draws.info["chosen"] == "exact" and draws.info["evidence"] == "exact"
    assert len(draws.tokens) == 2 * 3**5


@pytest.mark.parametrize("sampler", [Auto, Quick])
@pytest.mark.parametrize("seed", some(range(20), 10))
def test_what_is_said_of_unconstrained_draws_is_what_was_drawn(sampler, seed):
    """At random budgets, which pay for none, for a few, or for all that a pilot takes."""
    rng = np.random.default_rng(seed)
    model, length = chain()
    alpha = Count(tuple(range(length)), frozenset({1}), int(rng.integers(1, 7)))
    worth = AllAlike() if rng.random() < 0.5 else None
    budget = int(rng.integers(8, 900))
    draws = sampler(worth=worth)(
        model, compile(alpha, model, length), int(rng.integers(1, 40)), budget, torch.Generator().manual_seed(seed)
    )
    said = re.search(r"(\d+) of (\d+) unconstrained draws", draws.info["why"])
    if said is not None:
        assert 0 < int(said[2]) <= budget / (length - 1)
        assert ("potentials were not asked" in draws.info["why"]) == (worth is not None)


class AllAlike:
    """Says of every text that it is worth the same."""

    ahead = None
    log_most = 0.0

    def of(self, tokens):
        return torch.zeros(len(tokens), dtype=torch.float64)

    def lessons(self):
        return Outcomes(self.of, self.of)
