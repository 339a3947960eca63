"""What follows a free prefix satisfies the constraint, whatever it is: nothing is drawn to find that out."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch

import locore
from locore.circuits import DEAD
from locore.compilers import compile
from locore.constraints import Constraint, Count, Literal
from locore.kernel.errors import Unsatisfiable
from locore.kernel.samplers.sampler import left_to_right
from locore.kernel.tokenizer import Tokenizer
from locore.models import Counted, TableModel
from locore.samplers import BestFirst
from locore.samplers.auto import Auto
from locore.samplers.best_first import Search
from locore.samplers.free import Begun, free_states
from locore.testing import enumerate_posterior, proper_weighting
from tests.effort import THOROUGH, runs, some

# The letter é is a token, and its bytes are: texts may be cut within it. A special token is no text.
CUT = Tokenizer.from_tokens([b"a", b"b", "é".encode(), b"\xc3", b"\xa9", b"a\xc3", None, None], eos_ids=(7,))
WORDS = Tokenizer.from_tokens(["a", "b", "ab", None], eos_ids=(3,))
LENGTH = 4
CONSTRAINTS: list[Constraint] = [
    locore.regex(r"(?s)a(?:b.*)?"),
    locore.regex(r"(?s)(a|éb).*"),
    locore.regex(r"(?s)[^é].*|é"),
    locore.contains("ba"),
    locore.contains("é"),
    locore.ban("é"),
    locore.ban("bb") & locore.starts_with("a"),
    ~locore.starts_with("é"),
    locore.contains("a") | locore.char_count(2, 2),
    locore.starts_with("a") & locore.regex(r"(?s).{0,2}"),
    locore.ends_with("b"),
    locore.starts_with("b") & locore.finished(),
    Literal(1, frozenset({0})),
]


def table(tokenizer: Tokenizer, seed: int) -> TableModel:
    rng, size = np.random.default_rng(seed), tokenizer.vocab_size
    return TableModel([rng.dirichlet(np.full(size, 2.0), size=(size,) * step) for step in range(LENGTH)], (), tokenizer)


def is_text(tokenizer: Tokenizer, tokens: tuple[int, ...]) -> bool:
    """No special token before the end, only padding behind it, and whole characters."""
    ends = [place for place, token in enumerate(tokens) if token in tokenizer.eos_ids]
    before = tokens[: ends[0]] if ends else tokens
    if any(token != tokenizer.eos_ids[0] for token in tokens[len(before) :]):
        return False
    contents = [tokenizer.token_bytes[token] for token in before]
    if None in contents:
        return False
    try:
        b"".join(content or b"" for content in contents).decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("tokenizer", [CUT, WORDS], ids=["bytes", "words"])
@pytest.mark.parametrize("alpha", CONSTRAINTS, ids=str)
def test_a_state_is_free_if_and_only_if_all_texts_that_go_on_from_it_are_accepted(alpha, tokenizer):
    """By asking about each sequence; where the start is free or nothing is, there is no answer."""
    length = LENGTH if THOROUGH or tokenizer is WORDS else 3
    try:
        circuit = compile(alpha, tokenizer, length)
    except Unsatisfiable:
        return
    reader = left_to_right(circuit)
    free = free_states(reader, tokenizer)
    sequences = list(product(range(tokenizer.vocab_size), repeat=length))
    accepted = dict(zip(sequences, circuit.accepts(torch.tensor(sequences)).tolist(), strict=True))
    texts = [one for one in sequences if is_text(tokenizer, one)]
    found = False
    for position in range(length):
        for prefix in product(range(tokenizer.vocab_size), repeat=position):
            state = int(reader.read(torch.tensor([prefix], dtype=torch.long))[0])
            going = [one for one in texts if one[:position] == prefix]
            ended = any(token in tokenizer.eos_ids for token in prefix)
            if state == DEAD or ended or not going:
                continue
            truth = all(accepted[one] for one in going)
            found |= truth
            if free is not None:
                assert bool(free[position][state]) == truth, (prefix, truth)
            elif position == 0 and truth:
                return  # all of it is free
    assert free is not None or not found


@pytest.mark.parametrize("tokenizer", some([CUT, WORDS]))
@pytest.mark.parametrize("alpha", some([*CONSTRAINTS[1:4], CONSTRAINTS[7]], 4), ids=str)
@pytest.mark.parametrize("budget", some([20, None]))
def test_weights_are_proper(alpha, tokenizer, budget):
    """Also where much is left unread, and where the model often breaks characters."""
    model = table(tokenizer, seed=4)
    circuit = compile(alpha, model, LENGTH)

    class Begins(BestFirst):
        def __call__(self, model, circuit, num_particles, _, generator):
            free = free_states(left_to_right(circuit), model.tokenizer)
            begun = None if free is None else Begun(free, LENGTH, generator)
            search = Search(model, circuit, begun).run(budget or 1000, 0.01)
            return search.draws(num_particles, generator, budget=budget)

    result = proper_weighting(Begins(), model, circuit, 6, runs(800), seed=3)
    assert result.holds(1e-6), (result.z, result.estimates, result.truth)


@pytest.mark.parametrize("budget", [8, 20, 40, 200])
def test_a_budget_is_kept(budget):
    model = Counted(table(CUT, seed=4))
    circuit = compile(CONSTRAINTS[1], model, LENGTH)
    free = free_states(left_to_right(circuit), CUT)
    assert free is not None
    generator = torch.Generator().manual_seed(0)
    search = Search(model, circuit, Begun(free, LENGTH, generator)).run(budget, 0.01)
    search.draws(100, generator, budget=budget)
    assert model.lm_tokens <= budget


def test_nothing_is_left_to_chance_where_no_character_can_break():
    """Token ids have none: two distributions are the answer, whatever the horizon."""
    model = TableModel.random(5, 6, seed=1)
    circuit = compile(Literal(0, frozenset({1})) & Literal(1, frozenset({2, 3})), model, 6)
    truth = enumerate_posterior(model, circuit).log_evidence
    for seed in range(3):
        counted = Counted(model)
        draws = Auto()(counted, circuit, 8, 60, torch.Generator().manual_seed(seed))
        assert draws.log_evidence == pytest.approx(truth, abs=1e-6)
        assert draws.log_evidence_bounds[0] <= truth + 1e-9 and truth <= draws.log_evidence_bounds[1] + 1e-9


def test_of_many_beginnings_some_stand_for_all_of_them():
    """The total is exact, whatever is kept."""
    model = TableModel.random(12, 4, seed=1, concentration=5.0)
    circuit = compile(Count((0, 1), frozenset(range(6)), 1), model, 4)
    free = free_states(left_to_right(circuit), model.tokenizer)
    assert free is not None
    begun = Begun(free, 4, torch.Generator().manual_seed(0), most=9)
    search = Search(model, circuit, begun).run(10_000, 0.0)
    assert not search._unread
    assert search.log_found == pytest.approx(enumerate_posterior(model, circuit).log_evidence, abs=1e-9)


def test_the_least_input_costs_two_distributions_and_its_texts():
    """Both seeds know p(α) to a thousandth; without this they were several percent apart at three times the LM tokens."""
    model = locore.load("tiny")
    found = [
        locore.generate(model, "Yesterday I walked the", locore.regex(r"(?s) dog(?:\W.*)?"), 8, seed=seed, num_particles=8)
        for seed in range(2)
    ]
    assert abs(found[0].log_evidence - found[1].log_evidence) < 0.01
    for particles in found:
        assert particles.info["lm_tokens"] <= 10 + (8 + 4) * 7 and len(particles) == 8
        assert all(text.startswith(" dog") for text in particles.texts)
        low, high = particles.log_evidence_interval
        assert low <= -7.858 <= high and math.exp(high - low) < 1.5
