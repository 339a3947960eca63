"""A mask reader says at every prefix what enumeration and the plain path `circuit.allowed` say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from locore.circuits.masks import MaskReader, stack_masks
from locore.compilers import compile
from locore.constraints import ban, contains, regex
from locore.kernel.errors import InvalidArgument, Unsatisfiable
from locore.kernel.tokenizer import Tokenizer
from tests.effort import examples

from .test_queries import layered, machines, models_of

TOKENIZER = Tokenizer.from_tokens([b"a", b"b", b"ab", b"ba", None, None], eos_ids=(4,))
LENGTH = 12


def circuits():
    """Of satisfiable constraints, in a text that may end before the horizon."""
    words = st.text("ab", min_size=1, max_size=4)
    bans = st.builds(ban, st.lists(words, min_size=1, max_size=3))
    alphas = st.one_of(bans, st.builds(contains, words), st.sampled_from([regex("(a|bb)*"), regex("a{3,9}b?")]))
    return st.builds(circuit_of, alphas, st.integers(0, 3)).filter(lambda circuit: circuit is not None)


def circuit_of(alpha, min_length):
    try:
        return compile(alpha, TOKENIZER, LENGTH, min_length=min_length)
    except Unsatisfiable:
        return None


@settings(max_examples=examples(100))
@given(machines(), st.data(), st.integers(0, 20))
def test_masks_are_those_of_enumeration(machine, data, memory_bytes):
    """Whatever is read, allowed or not, and however few masks are kept."""
    rows, final, token_class = machine
    models = models_of(rows, final, token_class, len(rows)).tolist()
    circuit = layered(rows, final, token_class)
    first = MaskReader(circuit.reader, memory_bytes)
    for _ in range(3):
        reader, prefix = first.copy(), []
        for time in range(len(rows)):
            truth = [any(m[:time] == prefix and m[time] == v for m in models) for v in range(len(token_class))]
            assert reader.mask().tolist() == truth
            prefix.append(data.draw(st.integers(0, len(token_class) - 1)))
            reader.advance(prefix[-1])


@settings(max_examples=examples(60))
@given(circuits(), st.integers(0, 10**6))
def test_walks_agree_with_the_plain_path_up_to_the_horizon(circuit, seed):
    rng = np.random.default_rng(seed)
    first = MaskReader(circuit.reader)
    for _ in range(4):
        reader, prefix = first.copy(), []
        for _ in range(LENGTH):
            mask = reader.mask()
            assert torch.equal(mask, circuit.allowed(torch.tensor(prefix, dtype=torch.long)))
            assert mask.any()  # only allowed tokens were taken, so the text can be completed
            prefix.append(int(rng.choice(mask.nonzero()[:, 0].numpy())))
            reader.advance(prefix[-1])
        assert circuit.accepts(torch.tensor([prefix])).tolist() == [True]


def test_readers_at_different_positions_are_stacked():
    circuit = compile(ban(["aba", "bb"]), TOKENIZER, LENGTH)
    prefixes = [[], [0], [0, 1], [2, 3, 0], [1], [0], [4, 4], [1, 1], [5], [0] * (LENGTH - 1)]
    first = MaskReader(circuit.reader)
    readers = []
    for prefix in prefixes:
        readers.append(first.copy())
        for token in prefix:
            readers[-1].advance(token)
    expected = torch.stack([circuit.allowed(torch.tensor(prefix, dtype=torch.long)) for prefix in prefixes])
    assert torch.equal(stack_masks(readers), expected)
    out = torch.empty_like(expected)
    assert stack_masks(readers, out=out) is out
    assert torch.equal(out, expected)
    assert first.position == 0


@given(machines(), st.data())
def test_all_states_of_a_batch_get_their_tokens(machine, data):
    rows, final, token_class = machine
    reader = layered(rows, final, token_class).reader
    position = data.draw(st.integers(0, len(rows) - 1))
    states = torch.tensor(data.draw(st.lists(st.integers(-1, len(rows[position]) - 1), max_size=6)), dtype=torch.long)
    expected = reader.allowed(position, states)[:, reader.token_class]
    assert torch.equal(reader.allowed_tokens(position, states), expected)


@settings(max_examples=examples(30))
@given(circuits())
def test_positions_of_one_kind_allow_the_same(circuit):
    reader = circuit.reader
    states = torch.arange(len(reader.rows[0]))
    allowed = [reader.allowed(position, states) for position in range(LENGTH)]
    for first in range(LENGTH):
        for second in range(first):
            if reader.kinds[first] == reader.kinds[second]:
                assert torch.equal(allowed[first], allowed[second])


def test_far_positions_share_their_masks():
    circuit = compile(contains("abab"), TOKENIZER, 50)
    assert len(set(circuit.reader.kinds)) <= 5  # "abab" needs at most four more tokens
    reader = MaskReader(circuit.reader)
    first = reader.mask()
    reader.advance(1)
    reader.advance(1)
    assert reader.mask() is first


def test_few_masks_are_kept():
    circuit = compile(ban(["abaabb", "bbabab"]), TOKENIZER, 30)
    reader = MaskReader(circuit.reader, memory_bytes=3 * TOKENIZER.vocab_size)
    for token in [0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0]:
        reader.mask()
        reader.advance(token)
    assert len(reader._masks) == 3


@pytest.mark.parametrize("token", [6, -1, 0.5, "a"])
def test_what_is_no_token_is_refused(token):
    reader = MaskReader(compile(ban(["ab"]), TOKENIZER, 3).reader)
    with pytest.raises(InvalidArgument, match=r"0\.\.5"):
        reader.advance(token)
    assert reader.position == 0
    reader.advance(torch.tensor(1))
    assert reader.position == 1


def test_nothing_comes_after_the_last_position():
    reader = MaskReader(compile(ban(["ab"]), TOKENIZER, 2).reader)
    reader.advance(0)
    reader.advance(0)
    with pytest.raises(InvalidArgument, match="greater length"):
        reader.mask()
    with pytest.raises(InvalidArgument, match="greater length"):
        reader.advance(0)
