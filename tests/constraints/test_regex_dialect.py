r"""`regex` takes what other engines write: properties, sets, calls, conditions, look-behinds of any width, atomic groups."""

from __future__ import annotations

import itertools
import re

import pytest
import regex as truth
from hypothesis import given, settings
from hypothesis import strategies as st

from locore import regex
from locore.automata.regex.dialect import as_python
from locore.kernel.errors import InvalidConstraint
from tests.effort import examples, some

from .bytewise import accepts, holds

# As the library `regex` reads them, beside texts that match and texts that nearly do.
CASES = [
    (r"(?<year>\d{4})-(?<month>\d\d)", ["2026-11", "2026-1", "x"]),
    (r"(?<b>0|1(?<b>0|1)*0)", ["0", "10", "1010", "101", ""]),
    (r"\p{Lu}\p{Ll}+", ["Abc", "\u00c9t\u00e9", "abc", "ABc", "A1"]),
    (r"\P{L}+", ["12 !", "a", "1a"]),
    (r"[\p{Greek}\d]+", ["\u03b1\u03b21", "a1", ""]),
    (r"[^\p{L}]", ["1", "a", "\u05d0"]),
    (r"[\p{L}&&[^\p{Lu}]]+", ["abc", "aBc", "\u05d0"]),
    (r"[\p{L}--[a-c]]+", ["xyz", "xay", "\u00e9"]),
    (r"[\d--[13579]]+", ["0246", "012", ""]),
    (r"[\w--\d]+", ["abc_", "a1"]),
    (r"[[a-z]--[\p{Lu}aeiou]][]a]", ["b]", "ba", "b[", "a]"]),
    (r"x[\p{Lu}]]", ["xA]", "xA", "x]"]),
    (r"(?<d>\d)-(?&d)(?&d)", ["1-23", "1-2", "12-3"]),
    (r"([ab]|c)(?1)(?1)", ["abc", "ccc", "ab", "abd"]),
    (r"(?(DEFINE)(?<byte>25[0-5]|2[0-4]\d|1?\d?\d))(?&byte)(?:\.(?&byte)){3}", ["127.0.0.1", "256.0.0.1", "1.2.3"]),
    (r"(?(?=a)a+|b{2})", ["a", "aaa", "bb", "b", "abb"]),
    (r"(?(?!a)[^a]{3}|a{2})", ["bcd", "aa", "abc", "bc"]),
    (r"x(?(?<=x)y|z)", ["xy", "xz", "x"]),
    (r"(?(?=a)a)b?", ["a", "ab", "b", ""]),
    (r"(?:a|b)*(?<=ab*)c", ["abbc", "ac", "bc", "c"]),
    (r"(?:a|b)*(?<!a{2,4})b", ["ab", "aab", "b", "aaaab"]),
    (r".*(?<=\s|^)word", ["word", "a word", "sword"]),
    (r"(?>one|two|three)s?", ["one", "twos", "threes", "on"]),
    (r"(?>a|ab)c", ["ac", "abc"]),
    (r"(?>ab|a)c", ["ac", "abc"]),
    (r"(?>a{2,4})b", ["aab", "aaaab", "aaaaab", "ab"]),
    (r"(?>a{2,4})ab", ["aaab", "aaaaab", "aaaaaab"]),
    (r"(?>a*?)b", ["b", "ab"]),
    (r"(?>\d+\.\d+)5", ["1.25", "12.5", "1.2"]),
    (r"(?>\d+(?:\.\d+)?)\.1", ["12.1", "1.2.1", "12"]),
    (r"(?:ab|c){1,3}+c", ["abc", "abccc", "ccc", "cccc"]),
    (r"(?>(?i:a|AB))c", ["Ac", "abc"]),
    (r"\Q(?<n>a)", ["Qa", "a"]),
    (r"(?#(?<n>)a(?<m>b)", ["ab", "b"]),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("pattern", "texts"), some(CASES, 2, several=True), ids=[pattern for pattern, _ in CASES])
def test_they_mean_what_they_mean_elsewhere(pattern, texts):
    try:
        judge = truth.compile(pattern, truth.V1)
    except truth.error:
        with pytest.raises(InvalidConstraint):
            regex(pattern)
        return
    leaf = regex(pattern)
    for text in texts:
        wanted = judge.fullmatch(text) is not None
        assert accepts(leaf, text.encode()) == wanted, text
        assert holds(leaf, text.encode()) == wanted, text
    assert regex(pattern).to_json() == {"type": "regex", "pattern": pattern}


SMALL = [st.sampled_from(["a", "b", "[ab]", "(?:)", "a?", "a*", "b{1,2}", "a+?", "b??", "^", r"\b", "(?=a)", "(?<=a)"])]
PIECES = st.recursive(
    SMALL[0],
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda ways: f"(?:{'|'.join(ways)})"),
        st.tuples(inner, st.sampled_from(["?", "*", "+", "{1,2}", "{2}", "??", "*?", "?+", "*+", "{0,2}+"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda one: f"(?>{one})"),
    ),
    max_leaves=6,
)
TEXTS = ["".join(letters) for length in range(6) for letters in itertools.product("ab", repeat=length)]


@settings(max_examples=examples(200))
@given(PIECES, PIECES)
def test_atomic_groups_are_those_of_python(group, rest):
    pattern = f"(?>{group}){rest}"
    try:
        leaf = regex(pattern)
    except InvalidConstraint as error:
        assert "may end in many places" in str(error) or "look-behind" in str(error)
        return
    for text in TEXTS:
        wanted = re.fullmatch(pattern, text) is not None
        assert accepts(leaf, text.encode()) == wanted, (pattern, text)
        assert holds(leaf, text.encode()) == wanted, (pattern, text)


def test_what_python_knows_is_left_alone():
    with pytest.warns(FutureWarning, match="Possible nested set"):  # Python's own
        assert regex("[[a]&&b]").parsed.text == "[[a]&&b]"
    for pattern in ("(?P<n>a)", r"a(?#(?<n>)", "[a--b]"):
        assert regex(pattern).parsed.text == pattern
    assert as_python(r"a\\p{L}[(?<n>]") == (r"a\\p{L}[(?<n>]", {})


def test_patterns_of_json_schema_too():
    from locore import json_schema

    leaf = json_schema({"type": "string", "pattern": r"^(?<first>\p{Lu})\p{Ll}+$"})
    assert leaf.accepts(b'"Ab"') and not leaf.accepts(b'"ab"')
