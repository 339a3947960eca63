"""Text constraints: plain string search, their automata, and bad phrases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locore.constraints import (
    AutomatonLeaf,
    Ban,
    TokenPhrases,
    ban,
    check_vocabulary,
    choice,
    contains,
    contains_tokens,
    ends_with,
    minimise,
)
from locore.errors import InvalidConstraint
from locore.tokenizer import Tokenizer

from .strategies import TEXTS, WORDS, is_padded, leaves, sequences


@given(leaves().filter(lambda leaf: isinstance(leaf, AutomatonLeaf)))
def test_automata_of_text_agree_with_evaluation(leaf):
    automaton = minimise(leaf.automaton())
    for ids in sequences():
        accepted = automaton.accepts(WORDS.text_bytes(ids))
        assert leaf.evaluate(ids, WORDS) == (accepted and is_padded(ids))


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=3))
def test_token_phrases_agree_with_their_automaton(phrases):
    leaf = contains_tokens(phrases)
    for ids in filter(is_padded, sequences()):
        assert leaf.evaluate(ids, WORDS) == leaf.automaton().accepts(ids)


@given(TEXTS)
def test_not_contains_is_ban(text):
    for ids in sequences():
        assert (~contains(text)).evaluate(ids, WORDS) == ban([text]).evaluate(ids, WORDS)


def test_meaning_on_bytes():
    tokenizer = Tokenizer.from_tokens([" ha", "te", "n", "é".encode()[:1], "é".encode()[1:], None], [5])
    hate, n, first, second, eos = [0, 1], 2, 3, 4, 5
    assert not ban(" hate").evaluate([*hate, eos], tokenizer)  # straddles tokens
    assert ban(["Hate"]).evaluate([*hate, eos], tokenizer)
    assert contains("é").evaluate([n, first, second], tokenizer)
    assert not contains("é").evaluate([first, n, second], tokenizer)
    assert ends_with("te").evaluate([*hate, eos], tokenizer)
    assert not ends_with("te").evaluate([*hate, n], tokenizer)
    assert choice([" hate"]).evaluate([*hate, eos], tokenizer)
    assert not choice("hate").evaluate([*hate, eos], tokenizer)  # nothing is stripped


def test_token_level_ban_is_the_papers():
    tokenizer = Tokenizer.from_tokens(["ha", "te", " ", " hate", "hate", "h", "ate", None], [7])
    constraint = ban(["hate"], level="tokens")
    bound = constraint.bind(tokenizer)
    assert bound == ~TokenPhrases(((4,), (3,)))
    assert constraint.evaluate([0, 1, 7], tokenizer)  # another tokenisation passes
    assert not constraint.evaluate([2, 4, 7], tokenizer)
    assert not bound.evaluate([5, 3, 7], tokenizer)
    assert contains("a").bind(tokenizer) == contains("a")
    check_vocabulary(bound, 8)


def test_one_string_is_one_phrase():
    assert ban("ab") == ban(["ab"]) == ban(("ab", "ab")) == Ban(("ab",))
    assert choice("ab") == choice(["ab"])


@pytest.mark.parametrize("make", [ban, choice, lambda p: ban(p, level="tokens")])
@pytest.mark.parametrize("wrong", [[], "", ["a", ""], [1], 5, None, b"a", ["\ud800"]])
def test_bad_phrases(make, wrong):
    with pytest.raises(InvalidConstraint, match=r"ban|choice"):
        make(wrong)


@pytest.mark.parametrize("make", [contains, ends_with])
@pytest.mark.parametrize("wrong", ["", ["a"], 1, None])
def test_bad_texts(make, wrong):
    with pytest.raises(InvalidConstraint, match=r"contains|ends_with"):
        make(wrong)


def test_unknown_level():
    with pytest.raises(InvalidConstraint, match="words"):
        ban("a", level="words")
