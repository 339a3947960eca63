"""Laws of GBNF: the texts of random grammars are those that the grammars' trees have, whatever reads them."""

from __future__ import annotations

import random

import pytest

from locore import grammar
from locore.automata.lazily import DEAD
from locore.errors import InvalidConstraint
from locore.tokenizer import Tokenizer
from tests.effort import THOROUGH

from .random_gbnf import is_sentence, random_grammar, some_text, spelled

BYTES = Tokenizer.from_tokens([bytes([byte]) for byte in range(256)] + [None], eos_ids=[256])


def has(leaf, text):
    """Is it a sentence? The machine and the plain reader agree, on every beginning as well."""
    content, machine, state = text.encode(), leaf.machine(), 0
    for place, byte in enumerate(content):
        following = int(machine.row(state)[byte])
        if following == DEAD:
            read = len(text.encode()[:place].decode(errors="ignore").encode())
            assert leaf.reader.read(content) == (read, False), (leaf.text, text)
            return False
        needed = machine.least(state)
        assert 0 < needed <= machine.least(following) + 1 or (needed == 0) == machine.accepts(state), (leaf.text, text)
        state = following
    plain = leaf.reader.read(content)
    assert plain == (len(content), machine.accepts(state)), (leaf.text, text)
    return plain[1]


@pytest.mark.parametrize("block", range(4))
def test_texts_are_those_of_the_tree(block):
    """2,500 grammars and a text of each in a block when there is time; no pair may disagree."""
    true = refused = 0
    number = 2500 if THOROUGH else 100
    for seed in range(block * 10_000, block * 10_000 + number):
        rng = random.Random(seed)
        rules = random_grammar(rng)
        written = spelled(rules, rng)
        try:
            leaf = grammar(written, "gbnf")
        except InvalidConstraint as error:
            assert "ever ends" in str(error) and not any(is_sentence(rules, some_text(rules, rng)) for _ in range(20)), written
            refused += 1
            continue
        text = some_text(rules, rng)
        wanted = is_sentence(rules, text)
        assert has(leaf, text) == wanted, (written, text, wanted)
        true += wanted
    assert number / 4 < true < number * 3 / 4 and refused < number / 3
