"""Parts of parts of a text: `before`, `after` and `template` inside each other, below & | ~, to depth 4.

Circuits, machines, plain reading, `explain`, JSON and drawn texts are each compared with a reading that is written down twice.
"""

from __future__ import annotations

import itertools
import math
import random

import pytest
import torch

import locore
from locore.constraints.text_leaf import PartOfText, machine_of
from locore.kernel.errors import BudgetExceeded, Unsatisfiable
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel
from locore.testing import enumerate_posterior

from ..effort import THOROUGH
from .views import LETTERS, leaf, view, whole

pytest.importorskip("llguidance")
TOKENS = [None, b"a", b"b", b"ab", b"c", b" ", b'"', "é".encode(), "é".encode()[:1], "é".encode()[1:], b"1"]
SMALL = Tokenizer.from_tokens(TOKENS, eos_ids=[0])
LENGTH = 3
SEQUENCES = [
    y
    for y in itertools.product(range(len(TOKENS)), repeat=LENGTH)
    if 0 not in y or not any(y[y.index(0) :])  # nothing but padding after the end
]
TOTAL = 2000 if THOROUGH else 10


def chain():
    """A Markov chain over the tokens."""
    rows = torch.randn(len(TOKENS) + 1, len(TOKENS), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return MarkovModel(rows.softmax(-1)[0], rows.softmax(-1)[1:], tokenizer=SMALL)


MODEL = chain()
SCORES = dict(zip(SEQUENCES, MODEL.score(torch.tensor(SEQUENCES)).tolist(), strict=True))


def contents(rng):
    """Texts that views cut in many places, some of them broken."""
    pieces = [*LETTERS, "ab", "a", "c", " "]
    texts = ["".join(rng.choice(pieces) for _ in range(rng.randint(0, 9))).encode() for _ in range(12)]
    broken = [b"".join(rng.choice([*TOKENS[1:], b"\xc3"]) for _ in range(4)) for _ in range(4)]
    return [*texts, b"", *broken]


@pytest.mark.parametrize("block", range(10))
def test_every_road_reads_nested_views_alike(block):
    for number in range(block * TOTAL // 10, (block + 1) * TOTAL // 10):
        rng = random.Random(number)
        case = view(rng, rng.randint(1, 4))
        again = locore.from_json(case.constraint.to_json())
        assert again == case.constraint, number
        try:
            machine = machine_of(case.constraint)
        except BudgetExceeded:
            continue
        for text in contents(rng):
            expected = case.truth(text)
            state = machine.after(text)
            assert case.constraint.truth(PartOfText(text)) == expected, (number, case.constraint, text)
            assert (state >= 0 and machine.accepts(state)) == expected, (number, case.constraint, text)
            if not text.isascii() and text.decode("utf-8", errors="replace").encode() != text:
                continue
            string = text.decode()
            assert locore.holds(case.constraint, string, SMALL) == expected
            assert locore.explain(case.constraint, string, SMALL).holds == expected
            assert locore.explain(again, string, SMALL).holds == expected
        if number % 3 == 0:
            check_circuit(case, number)


def check_circuit(case, number):
    """The circuit's sequences and its mass against enumeration, and what is drawn."""
    truth = {y for y in SEQUENCES if whole(SMALL.text_bytes(y)) is not None and case.truth(SMALL.text_bytes(y))}
    assert {y for y in SEQUENCES if case.constraint.evaluate(y, SMALL)} == truth
    if not truth:
        with pytest.raises(Unsatisfiable):
            locore.compile(case.constraint, MODEL, LENGTH)
        return
    found = enumerate_posterior(MODEL, locore.compile(case.constraint, MODEL, LENGTH))
    assert {tuple(y) for y in found.tokens.tolist()} == truth, (number, case.constraint)
    mass = math.fsum(math.exp(SCORES[y]) for y in truth)
    assert found.log_evidence == pytest.approx(math.log(mass), abs=1e-9)
    drawn = locore.generate(MODEL, [], case.constraint, LENGTH, num_particles=4, seed=0, ending="eos")
    assert all(tuple(y) in truth for y in drawn.tokens.tolist())


def test_leaves_alone():
    for number in range(100):
        case = leaf(random.Random(number))
        for text in contents(random.Random(number)):
            assert case.constraint.truth(PartOfText(text)) == case.truth(text)
