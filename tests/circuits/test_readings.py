"""Nodes and reading agree, whichever came first; a reading on demand says what the table of all its states says."""

from __future__ import annotations

import itertools
import pickle
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from locore.circuits import Circuit, TableReader
from locore.circuits.conditioned import conditioned
from locore.circuits.downward import allowed_by_conditioning
from locore.circuits.masks import MaskReader
from locore.circuits.reached import Reached
from locore.compilers import compile
from locore.constraints import (
    ban,
    contains,
    contains_tokens,
    count_tokens,
    finished,
    grammar,
    json_schema,
    regex,
    template,
    token,
)
from locore.constraints.text_leaf import NestedLeaf
from locore.kernel.circuits.reading import DEAD
from locore.kernel.errors import Unsatisfiable
from locore.kernel.tokenizer import Tokenizer
from locore.puzzles.combinatorial import all_different, token_sum
from locore.testing import check
from tests.effort import examples

from . import brute_force

TOKENIZER = Tokenizer.from_tokens([b"a", b"1", b"[", b"]", b'"', b"a1", b"", None], eos_ids=(7,))
LENGTH = 3
SCHEMAS = (
    {"type": "integer"},
    {"type": "array", "items": {"type": "integer"}, "maxItems": 1},
    {"type": "string", "maxLength": 2},
    {"enum": ["a", 1, [1], []]},
    {},
)
GRAMMARS = ('start: "[" start "]" | "a"', 'start: "[" start "]" | "a" | "11"', "start: (A | B)+\nA: /a+/\nB: /1?]/")


def leaves():
    """Of every kind that compiles: by automaton, machine, schema, grammar, template, position, count and search."""
    words = st.sampled_from(["a", "aa", "a1", "1", "[1"])
    ids = st.frozensets(st.integers(0, 7), min_size=1, max_size=4).map(sorted)
    return st.one_of(
        st.builds(ban, st.lists(words, min_size=1, max_size=2)),
        st.builds(contains, words),
        st.sampled_from(["[a[]*1?", "a(1|a1a)*", '"[a1]*"']).map(regex),
        st.sampled_from(GRAMMARS).map(grammar),
        st.sampled_from(SCHEMAS).map(lambda schema: json_schema(schema)),
        words.map(lambda word: template("[{x}]", x=regex(f"({re.escape(word)})*"))),
        st.builds(token, st.integers(0, LENGTH - 1), ids),
        st.builds(lambda chosen, least: count_tokens(chosen, range(LENGTH), at_least=least), ids, st.integers(0, 2)),
        st.builds(contains_tokens, st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=2), min_size=1, max_size=2)),
        st.sampled_from([finished(), all_different(range(LENGTH)), token_sum(range(LENGTH), {0: 1, 1: 2, 2: 3}, at_most=5)]),
    )


constraints = st.recursive(
    leaves(), lambda inner: st.builds(lambda a, b: a & b, inner, inner) | inner.map(lambda a: ~a), max_leaves=3
)


def compiled(alpha, **options):
    try:
        return compile(alpha, TOKENIZER, LENGTH, use_cache=False, **options)
    except Unsatisfiable:
        return None


def masks(reading):
    """After every prefix that can be completed, its mask; and which whole sequences are accepted."""
    found, pending = {}, [((), reading.start)]
    while pending:
        prefix, state = pending.pop()
        if len(prefix) == reading.length:
            found[prefix] = bool(reading.accepting(torch.tensor([state])))
            continue
        mask = reading.mask(len(prefix), state)
        found[prefix] = mask.tolist()
        rows = torch.tensor([state])
        assert torch.equal(mask, reading.allowed_tokens(len(prefix), rows)[0])
        for number in mask.nonzero()[:, 0].tolist():
            after = reading.state_after(len(prefix), state, number)
            assert after == int(reading.step(len(prefix), rows, torch.tensor([number]))) != DEAD
            pending.append(((*prefix, number), after))
        for number in (~mask).nonzero()[:, 0].tolist():
            assert reading.state_after(len(prefix), state, number) == DEAD
    return found


def tabled(reading):
    """The same as a table of all states."""
    return TableReader(reading.token_class, reading.rows, reading.live, reading.start)


@settings(max_examples=examples(40), deadline=None)
@given(constraints, st.booleans())
def test_nodes_and_reading_agree(alpha, on_demand):
    """On every mask, on the number of models, and on them one by one, which the plain meaning of the constraint names."""
    with pytest.MonkeyPatch.context() as patch:
        if on_demand:
            patch.setattr(NestedLeaf, "is_small", False)
        circuit = compiled(alpha)
    every = list(itertools.product(range(TOKENIZER.vocab_size), repeat=LENGTH))
    models = {y for y in every if is_model(alpha, y)}
    assert (circuit is None) == (not models)
    if circuit is None:
        return
    said = masks(circuit.reader)
    assert {y for y in said if len(y) == LENGTH and said[y]} == models
    assert circuit.count() == len(models)
    check(circuit, num_models=16)
    prefixes = torch.tensor([y for y in said if len(y) == LENGTH - 1])
    by_nodes = allowed_by_conditioning(circuit.chain, prefixes)
    assert by_nodes.tolist() == [said[tuple(y)] for y in prefixes.tolist()]
    log_probs = brute_force.random_log_probs(2, LENGTH, TOKENIZER.vocab_size, len(models))
    truth = brute_force.log_mass(log_probs, torch.tensor(sorted(models)))
    torch.testing.assert_close(circuit.log_mass(log_probs), truth, rtol=1e-9, atol=1e-9)
    assert masks(tabled(circuit.reader)) == said
    if circuit.written is not None:
        assert Circuit(tabled(circuit.reader)).count() == len(models)


def is_model(alpha, y):
    """By the plain meaning; an end is followed by padding only, and where text is asked for it is whole characters."""
    first = next((place for place, number in enumerate(y) if number in TOKENIZER.eos_ids), LENGTH)
    return all(number == 7 for number in y[first + 1 :]) and alpha.at(LENGTH).bind(TOKENIZER).evaluate(y, TOKENIZER)


@settings(max_examples=examples(10), deadline=None)
@given(constraints)
def test_a_reading_that_was_pickled_says_the_same(alpha):
    circuit = compiled(alpha)
    if circuit is not None:
        assert masks(pickle.loads(pickle.dumps(circuit)).reader) == masks(circuit.reader)


def test_conditioning_reads_what_the_table_reads():
    """A reading of nodes that were derived from a reading is that reading."""
    circuit = compile(count_tokens([0], range(4), at_least=2) & token(1, [0, 1]), 3, 4, use_cache=False)
    whole = compile(all_different(range(3)), 4, 3, use_cache=False)
    assert isinstance(whole.reader, Reached) and circuit.written is None
    assert masks(conditioned(whole.written)) == masks(tabled(whole.reader))


def test_nothing_is_written_for_a_reading():
    circuit = compile(ban(["a1"]), TOKENIZER, 50, use_cache=False)
    reader = MaskReader(circuit.reader)
    for number in (0, 0, 2):
        assert reader.mask()[number]
        reader.advance(number)
    assert "chain" not in vars(circuit) and circuit.count() and "chain" in vars(circuit)


def test_masks_agree_is_a_law_that_can_fail():
    circuit = compile(ban(["a1"]), TOKENIZER, LENGTH, use_cache=False)
    rows = list(circuit.reader.rows)
    rows[1] = torch.from_numpy(np.where(rows[1].numpy() == 0, DEAD, rows[1].numpy()))
    broken = TableReader(circuit.reader.token_class, tuple(rows), circuit.reader.live)
    assert masks(broken) != masks(circuit.reader)
