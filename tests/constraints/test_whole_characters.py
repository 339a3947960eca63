"""A constraint on text holds of whole characters only, and so does its negation: by every road, where tokens cut them."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import locore
from locore import after, ban, char_count, contains, regex, template, token
from locore.automata.regex import byte_automaton
from locore.automata.regex.dfa import co_reachable
from locore.automata.regex.language import ANYTHING
from locore.kernel.automata.tables import minimise, product, utf8
from locore.kernel.errors import Unsatisfiable
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel
from locore.testing import enumerate_posterior
from tests.effort import examples

from .texts import leaves

EURO, E_ACUTE = "€".encode(), "é".encode()
TOKENS = [b"a", b" ", E_ACUTE[:1], E_ACUTE[1:], EURO[:2], EURO[:1], EURO[1:2], EURO[2:], b"a" + EURO[:1], b"\xff", None, None]
CUT = Tokenizer.from_tokens(TOKENS, eos_ids=[11])
LENGTH = 3
EVERY = [
    y for y in itertools.product(range(len(TOKENS)), repeat=LENGTH) if 11 not in y or all(one == 11 for one in y[y.index(11) :])
]
SPELLED = {y: b"".join(TOKENS[one] or b"" for one in y) for y in EVERY if 10 not in y}


def chain():
    """A Markov chain over the tokens."""
    rows = torch.randn(len(TOKENS) + 1, len(TOKENS), generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return MarkovModel(rows.softmax(-1)[0], rows.softmax(-1)[1:], tokenizer=CUT)


MODEL = chain()
SCORES = dict(zip(EVERY, MODEL.score(torch.tensor(EVERY)).tolist(), strict=True))


def is_whole(content):
    """Does a strict decoder take it?"""
    try:
        content.decode("utf-8", errors="strict")
    except UnicodeDecodeError:
        return False
    return True


VIEWS = st.sampled_from([after("a", ban(" ")), ~after("a", regex("é*")), template("{x}a"), char_count(1, 2) | token(0, 0)])
CASES = st.one_of(leaves(st.text("aé €", min_size=1, max_size=2)), VIEWS)


@settings(max_examples=examples(40), deadline=None)
@given(CASES, st.booleans(), st.booleans())
def test_texts_are_whole_and_the_rest_is_as_before(leaf, negated, beside):
    alpha = ~leaf if negated else leaf
    alpha = alpha | token(0, 2) if beside else alpha
    truth = {y for y, content in SPELLED.items() if is_whole(content) and alpha.truth(locore_sequence(y))}
    assert {y for y in EVERY if alpha.evaluate(y, CUT)} == truth
    try:
        found = enumerate_posterior(MODEL, locore.compile(alpha, MODEL, LENGTH))
    except Unsatisfiable:
        assert not truth
        return
    assert {tuple(y) for y in found.tokens.tolist()} == truth
    assert found.log_evidence == pytest.approx(math.log(math.fsum(math.exp(SCORES[y]) for y in truth)), abs=1e-9)


def locore_sequence(y):
    """What the plain reading of a leaf reads."""
    return locore.kernel.constraints.sequence.TokenSequence(y, CUT)


@pytest.mark.parametrize("alpha", [ban("x"), ~regex("a"), ~contains("a"), ban("x") & ~regex(" ")], ids=str)
def test_no_text_that_is_drawn_ends_within_a_character(alpha):
    for sampler in ("auto", "smc", "masked", "rejection", "swor"):
        p = locore.generate(MODEL, [], alpha, LENGTH, num_particles=30, seed=0, sampler=sampler, ending="eos")
        assert all("\ufffd" not in text for text in p.texts)


def test_a_constraint_on_tokens_says_nothing_of_characters():
    p = locore.generate(MODEL, [], token(0, 2), LENGTH, num_particles=30, seed=0, sampler="masked", ending="eos")
    assert any("\ufffd" in text for text in p.texts) and "no UTF-8" in p.report(full=True)
    whole = locore.generate(MODEL, [], token(0, 2) & regex("(?s).*"), LENGTH, seed=0)
    assert not any("\ufffd" in text for text in whole.texts) and "no UTF-8" not in whole.report(full=True)


def test_vocabularies_that_cut_nothing_cost_nothing():
    words = Tokenizer.from_tokens([b"a", "é".encode(), None], eos_ids=[2])
    problem = locore.kernel.compilers.problem.Problem(ban("a"), words, 2, 0)
    assert problem.of_whole_characters() is problem


def test_utf8_is_what_a_pattern_for_anything_accepts():
    """Written down from its standard, and determinised from all code points."""
    standard, made = minimise(utf8()), byte_automaton(ANYTHING)
    assert standard.table.shape == made.table.shape
    differs = product(standard, made.complement(), True)
    assert not co_reachable(differs.table, differs.accepting)[differs.start]
