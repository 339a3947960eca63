"""A small vocabulary, and random constraints and programs over it."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from locore.constraints import Constant, ban, choice, contains, count_tokens, ends_with, token
from locore.kernel.tokenizer import Tokenizer

LENGTH = 3
WORDS = Tokenizer.from_tokens([b"a", b"b", b" ", None, b"ab"], eos_ids=[3])
SPECIAL = Tokenizer.from_tokens([b"a", b"b", None, None, None], eos_ids=[4, 3])
IDS = st.integers(0, WORDS.vocab_size - 1)
POSITIONS = st.integers(0, LENGTH - 1)
TEXTS = st.text("ab", min_size=1, max_size=3)


def sequences(tokenizer=WORDS, length=LENGTH):
    return itertools.product(range(tokenizer.vocab_size), repeat=length)


def is_padded(ids, tokenizer=WORDS):
    ends = [i for i, one in enumerate(ids) if one in tokenizer.eos_ids]
    return not ends or all(one == tokenizer.eos_ids[0] for one in ids[ends[0] + 1 :])


def leaves():
    return st.one_of(
        st.builds(Constant, st.booleans()),
        st.builds(token, POSITIONS, st.sets(IDS)),
        st.builds(
            count_tokens, st.sets(IDS), st.lists(POSITIONS, unique=True), st.integers(0, 3), st.none() | st.integers(0, 3)
        ),
        st.builds(ban, st.lists(TEXTS, min_size=1, max_size=2), st.sampled_from(["text", "tokens"])),
        st.builds(contains, TEXTS),
        st.builds(ends_with, TEXTS),
        st.builds(choice, st.lists(TEXTS, min_size=1, max_size=2)),
    )


def constraints():
    return st.recursive(
        leaves(),
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(lambda a, b: a >> b, inner, inner),
            st.builds(lambda a, b: a ^ b, inner, inner),
            st.builds(lambda a: ~a, inner),
        ),
        max_leaves=8,
    )
