"""Text constraints: plain string search, their automata, and bad phrases."""

from __future__ import annotations

import re

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
    count,
    ends_with,
    from_json,
    minimise,
    starts_with,
)
from locore.kernel.errors import BudgetExceeded, InvalidConstraint, UnsupportedKeyword
from locore.kernel.tokenizer import Tokenizer

from .strategies import WORDS, is_padded, leaves, sequences
from .texts import holds


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


def holding(constraint, *texts):
    """Those of some texts on which a constraint holds, plainly and by its automaton."""
    found = [text for text in texts if holds(constraint, text.encode())]
    if isinstance(constraint, AutomatonLeaf):
        automaton = constraint.automaton()
        assert found == [text for text in texts if automaton.accepts(text.encode())]
    return found


def test_words():
    clean = ("class", "as", "ass_1", "assé", "asse\u0301", "ass\u200dx", "אass")
    assert holding(~ban("ass", words=True), "ass", "an ass", "ass!", "ass-like", "(ass", "😀ass😀", "ass\ufffd", *clean) == [
        "ass",
        "an ass",
        "ass!",
        "ass-like",
        "(ass",
        "😀ass😀",
        "ass\ufffd",
    ]
    # An end that is no part of a word needs no boundary there.
    assert holding(contains(" hate", words=True), "I hate it", "I hated it", " hate") == ["I hate it", " hate"]
    assert holding(contains("C++", words=True), "C++", "C++11", "in C++.", "ABC++") == ["C++", "C++11", "in C++."]
    assert holding(contains("é", words=True), "é", "éa", "aé", "a é!") == ["é", "a é!"]
    assert holding(starts_with("the", words=True), "the", "the end", "then", " the") == ["the", "the end"]
    assert holding(ends_with("end", words=True), "end", "the end", "bend", "end.") == ["end", "the end"]
    assert holding(ban("אב", words=True), "אבג", "אב ג") == ["אבג"]


def test_a_cut_character_ends_a_word():
    """Bytes that are no UTF-8 read as U+FFFD, which is no character of a word."""
    assert not holds(ban("ass", words=True), b"ass\xc3")
    assert holds(ban("ass", words=True), b"ass\xc3\xa9")
    assert not ban("ass", words=True).automaton().accepts(b"ass\xc3")
    assert not holds(ban("\ufffd"), b"a\xc3")


def test_ignoring_case():
    assert holding(contains("STRASSE", ignore_case=True), "strasse", "Straße", "StraSSe") == ["strasse", "StraSSe"]
    assert holding(contains("οδός", ignore_case=True), "ΟΔΌΣ", "οδός", "Οδόσ", "οδο") == ["ΟΔΌΣ", "οδός", "Οδόσ"]
    assert holding(contains("k", ignore_case=True), "K", "K", "k", "x") == ["K", "K", "k"]
    assert holding(contains("ẞ", ignore_case=True), "ß", "ss") == ["ß"]
    # İ becomes i and a dot above, which is a mark.
    assert holding(choice("i̇x", ignore_case=True), "İX", "ix", "i̇x") == ["İX", "i̇x"]
    assert holding(contains("i", ignore_case=True), "İ", "I", "ı") == ["İ", "I"]
    assert holding(contains("i", ignore_case=True, words=True), "İ", "I", "ı") == ["I"]
    assert holding(ban("sun", words=True, ignore_case=True), "Sun", "SUNNY", "the SUN.") == ["SUNNY"]


def test_in_order():
    wanted = contains(["aba", "ab"], ordered=True)
    assert holding(wanted, "abaab", "abab", "ababa ab", "ab aba") == ["abaab", "ababa ab"]
    assert holding(contains(["a", "a"], ordered=True), "a", "aa", "a a") == ["aa", "a a"]
    assert holding(contains(["a", ", ", "b"], ordered=True, words=True), "a, b", "a, bc, b", "xa, b") == ["a, b", "a, bc, b"]
    assert holding(contains(["a", ",", "."], ordered=True, words=True), "a,.", "a,", "ab,.", "ab, a,.") == ["a,.", "ab, a,."]
    assert contains(["a", "b"]) == contains("a") & contains("b")
    assert holding(contains(["a", "b"]), "ba", "a", "b") == ["ba"]


def test_how_often():
    assert holding(contains("aa", exactly=2), "aa", "aaa", "aaaa", "aa aa") == ["aaa", "aa aa"]
    assert holding(contains("a", at_least=2), "a", "aa", "aaa") == ["aa", "aaa"]
    assert holding(contains("a", at_most=2), "b", "a", "aa", "aaa") == ["a", "aa"]
    assert holding(contains("a", exactly=0), "", "a") == [""]
    assert holding(contains(["a", "b"], at_least=2), "abab", "aab", "abb") == ["abab"]


@pytest.mark.parametrize("make", [ban, choice, count, lambda p: ban(p, level="tokens")])
@pytest.mark.parametrize("wrong", [[], "", ["a", ""], [1], 5, None, b"a", ["\ud800"]])
def test_bad_phrases(make, wrong):
    with pytest.raises(InvalidConstraint, match=r"ban|choice|count"):
        make(wrong)


@pytest.mark.parametrize("make", [contains, ends_with, starts_with])
@pytest.mark.parametrize("wrong", ["", [""], [], 1, None, b"a"])
def test_bad_texts(make, wrong):
    with pytest.raises(InvalidConstraint, match=r"contains|ends_with|starts_with"):
        make(wrong)


BAD = {
    "level": (lambda: ban("a", level="words"), "ban knows the levels"),
    "words of tokens": (lambda: ban("a", level="tokens", words=True), 'need level="text"'),
    "words": (lambda: ban("a", words="yes"), "words of ban must be True or False, got 'yes'"),
    "ignore_case": (lambda: starts_with("a", ignore_case=1), "ignore_case of starts_with"),
    "ordered": (lambda: contains(["a"], ordered=2), "ordered of contains"),
    "bounds of an order": (lambda: contains(["a", "b"], ordered=True, at_least=2), "repeat a text"),
    "empty order": (lambda: contains([], ordered=True), "contains got no phrase at all"),
    "no bound": (lambda: count("a"), "count got no bound"),
    "no bound of contains": (lambda: contains("a", at_least=0), "contains got no bound"),
    "negative": (lambda: count("a", at_most=-1), "at_most=-1 of count is negative"),
    "crossed": (lambda: count("a", 3, 2), "at_least=3 above at_most=2"),
    "crossed by the default": (lambda: contains("a", at_most=0), "at_least=1 above at_most=0"),
    "twice": (lambda: count("a", at_most=2, exactly=1), "exactly=1 and other bounds"),
    "bool": (lambda: count("a", at_most=True), "at_most of count must be an integer, got True"),
    "float": (lambda: contains("a", exactly=1.0), "exactly of contains must be an integer"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options(name):
    call, message = BAD[name]
    with pytest.raises(InvalidConstraint, match=re.escape(message)):
        call()


BAD_FORMS = [
    ({"type": "ban", "phrases": ["a"], "words": 1}, InvalidConstraint, "words"),
    ({"type": "contains", "text": ["a", 5]}, InvalidConstraint, r"text\[1\]"),
    ({"type": "count", "strings": ["a"], "at_most": True}, InvalidConstraint, "at_most must be an integer"),
    ({"type": "count", "strings": "a", "at_most": 1}, InvalidConstraint, "strings must be a list"),
    ({"type": "choice", "texts": ["a"], "words": True}, UnsupportedKeyword, "words"),
]


@pytest.mark.parametrize(("form", "error", "message"), BAD_FORMS)
def test_bad_forms(form, error, message):
    with pytest.raises(error, match=message):
        from_json(form)


def test_how_they_are_written():
    assert repr(ban(["a", '"'], words=True)) == 'ban(["a", "\\""], words=True)'
    assert repr(count(list("abcdefgh"), at_most=2, ignore_case=True)) == (
        'count(["a", "b", "c", "d", "e", … 3 more], at_most=2, ignore_case=True)'
    )
    assert contains("a").to_json() == {"type": "contains", "text": "a"}
    assert contains(["a", "b"], ordered=True).to_json() == {"type": "contains", "text": ["a", "b"], "ordered": True}
    assert from_json({"type": "contains", "text": "a", "exactly": 2}) == contains("a", 2, 2)
    assert repr(contains("a", 1, 1, words=True)) == 'contains("a", exactly=1, words=True)'


def test_thousands_of_phrases():
    phrases = [f"{number:04d}" for number in range(10_000)]
    leaf = ban(phrases, words=True)
    assert holding(leaf, "no 123 digit", "0123", "x0123", "01234", "(0123)") == ["no 123 digit", "x0123", "01234"]


def test_too_many_states():
    with pytest.raises(BudgetExceeded, match=r"counting up to 1,000,000.*lower the bounds"):
        contains("sunny", at_least=1_000_000).automaton()
