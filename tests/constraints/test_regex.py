"""`regex`: its automaton, its plain reading and Python's own `re.fullmatch` agree."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from locore.automata.regex.pattern import occurs_in
from locore.constraints import AutomatonLeaf, from_json, minimise, regex
from locore.kernel.errors import BudgetExceeded, InvalidConstraint, UnsupportedKeyword
from tests.effort import THOROUGH, examples, some

from .bytewise import accepts, holds
from .patterns import CHARACTERS, FLAGS, TEXTS, accepted_strings, patterns, plain_patterns

SEEDS = st.integers(0, 2**32 - 1)


def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """What Python makes of a pattern; patterns that it does not accept are not tried."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return re.compile(pattern, flags)
        except re.error:
            assume(False)
            raise


def leaf_of(pattern: str, flags: int = 0) -> AutomatonLeaf:
    """The constraint with flags written at the start; patterns that are refused are not tried."""
    letters = "".join(letter for letter, flag in zip("isma", (re.I, re.S, re.M, re.A), strict=True) if flags & flag)
    try:
        return regex(f"(?{letters}){pattern}" if letters else pattern)
    except InvalidConstraint as error:
        assume("not supported" not in str(error))
        raise


def check(leaf: AutomatonLeaf, truth: re.Pattern[str], text: str) -> None:
    wanted = truth.fullmatch(text) is not None
    assert accepts(leaf, text.encode()) == wanted, (leaf, text)
    assert holds(leaf, text.encode()) == wanted, (leaf, text)


LONGEST = 12  # Python's own matching can take a time exponential in the length where a text does not quite match


@settings(max_examples=examples(400))
@given(patterns(), st.sampled_from(FLAGS), st.lists(TEXTS, min_size=10, max_size=20), SEEDS)
@example(r"\B", re.NOFLAG, [""], 0)
@example(r"(?:a|ab)(?:c|bcd)(?:d*)", re.NOFLAG, ["abcd"], 0)
@example("\u0130", re.IGNORECASE, ["i", "I", "i\u0307", "\u0130"], 0)
@example("[^\u03c3]", re.IGNORECASE, ["\u03c2", "\u03a3", "\u03c3", "s"], 0)
@example("(?i:a)(?<=A)b", re.NOFLAG, ["Ab", "ab", "aB"], 0)
@example(r"(?<=\ba)b|(?<!\Ba)b", re.NOFLAG, ["b", "ab"], 0)
@example(r"(?:(?=a)|b)*a", re.NOFLAG, ["a", "ba", "bba"], 0)
@example(r"\w(?a:\w)(?-i:k)", re.IGNORECASE, ["\u00e9ak", "a\u00e9k", "aaK", "aak"], 0)
@example(r"\w(?u:\w)", re.ASCII, ["\u00e9a", "a\u00e9", "aa"], 0)
def test_agrees_with_python(pattern, flags, texts, seed):
    truth = compiled(pattern, flags)
    leaf = leaf_of(pattern, flags)
    for text in texts:
        check(leaf, truth, text)
        # Not `search`: CPython looks for where a match may begin without heeding the flags of a group, as in (?a:\W) on "é".
        assert occurs_in(leaf.parsed, text) == any(truth.match(text, at) for at in range(len(text) + 1))
    for string in accepted_strings(leaf.automaton(), np.random.default_rng(seed), 5):
        assert truth.fullmatch(string.decode())


@given(st.data(), plain_patterns())
def test_accepts_what_matches_and_judges_what_nearly_does(data, pattern):
    truth = compiled(pattern)
    leaf = leaf_of(pattern)
    matching = st.from_regex(truth, fullmatch=True)
    for text in data.draw(st.lists(matching, min_size=3, max_size=6)):
        assume(not re.search("[\ud800-\udfff]", text))
        if len(text) > LONGEST:
            continue
        check(leaf, truth, text)
        place, one = data.draw(st.integers(0, len(text))), data.draw(st.sampled_from(CHARACTERS))
        check(leaf, truth, text[:place] + one + text[place:])
        check(leaf, truth, text[:place] + one + text[place + 1 :])
        check(leaf, truth, text[:place] + text[place + 1 :])


@given(patterns(), st.binary(max_size=6), TEXTS)
@example(".", b"\xc0\x80", "")  # longer than need be
@example("(?s).*", b"\xed\xa0\x80", "")  # a surrogate
@example("(?s).*", b"\xf4\x90\x80\x80", "")  # beyond the last code point
@example("(?s).*", b"\xe2\x82", "")  # cut off
@example("(?s).*", b"\xf0\x8f\xbf\xbf", "")
def test_only_valid_utf8_matches(pattern, junk, text):
    truth, leaf = compiled(pattern), leaf_of(pattern)
    for string in (junk, text.encode() + junk, junk + text.encode()):
        try:
            wanted = truth.fullmatch(string.decode("utf-8")) is not None
        except UnicodeDecodeError:
            wanted = False
        assert accepts(leaf, string) == holds(leaf, string) == wanted


@given(patterns(), st.sampled_from(FLAGS))
def test_the_automaton_is_minimal(pattern, flags):
    compiled(pattern, flags)
    automaton = leaf_of(pattern, flags).automaton()
    assert automaton.num_states == minimise(automaton).num_states
    assert automaton.table.dtype == np.int32


def test_every_character_by_itself():
    """Sets of characters are Python's own, code point by code point; in `make test` one in 50 beyond the first plane."""
    codes = (*range(0x10000), *range(0x10000, 0x110000, 1 if THOROUGH else 50))
    everything = [chr(code) for code in codes if not 0xD800 <= code <= 0xDFFF]
    for pattern in (r"\w", r"(?i)[k\u00e0-\u00fe]", r"(?a)\W"):
        truth, leaf = re.compile(pattern), regex(pattern)
        automaton = leaf.automaton()
        column = [automaton.column.get(byte, automaton.default) for byte in range(256)]
        table, accepting = automaton.table.tolist(), automaton.accepting.tolist()
        for one in everything:
            state = automaton.start
            for byte in one.encode():
                state = table[state][column[byte]]
            assert accepting[state] == (truth.fullmatch(one) is not None), (pattern, one)


# What other engines get wrong, or what is easily got wrong: pattern, texts that match, texts that do not.

TRICKY = [
    (r"[0-9]+(\.[0-9]+)?", ["12", "12.5", "0.25"], ["12.", ".5", "12.5.1", ""]),
    (r"a(, a)*", ["a", "a, a", "a, a, a"], ["a,", "a, ", ""]),
    (r"(.|\n){0,3}", ["", "\u00e9", "\u20ac\U0001f600\n", "abc"], ["abcd", "\u00e9\u00e9\u00e9\u00e9"]),
    (r"[a-z.]+@[a-z]+(\.[a-z]+)+", ["x@y.co.uk", "a.b@c.de"], ["x@y", "x@y.", "@y.uk"]),
    (r"((?!ball|play|mom|happy)(.|\n))*", ["", "a bal mo", "baball"[:4]], ["a ball", "happy", "unhappy end"]),
    (r"(?=.*\d)(?=.*[a-z]).{3,5}", ["ab1", "1xxxx"], ["abc", "123", "a1", "a12345"]),
    (r"(?!(?:true|false)$)\w+", ["truest", "not"], ["true", "false", ""]),
    (r"\w+(?<!ed)", ["go", "need"[:3]], ["need", "ed"]),
    (r"(?:\bno\b|\byes\b| )+", ["no yes", " no "], ["noyes", "nono"]),
    ("\u05d0\u0301*", ["\u05d0", "\u05d0\u0301\u0301"], ["\u0301", "\u05d1"]),
    ("a\0b", ["a\0b"], ["ab", "a"]),
    ("(?x) a  # comment\n b", ["ab"], ["a b", "a  # comment\n b"]),
    ("(?i)stra\u00dfe", ["Stra\u00dfe", "STRA\u1e9eE"], ["strasse", "STRASSE"]),
    (r"(?m)^a$\n^b$", ["a\nb"], ["a b", "a\n\nb"]),
    (r"a$", ["a"], ["a\n", "ab"]),
    (r"a$\n?", ["a", "a\n"], ["a\n\n"]),
    (r"\d", ["1", "\u0663"], ["\u00b2", "a"]),
    (r"(?a)\d", ["1"], ["\u0663"]),
    (r"a*+b", ["b", "aab"], ["a"]),
    (r"a*+a", [], ["a", "aa", ""]),
    (r"a{1,2}+a", ["aaa"], ["a", "aa", "aaaa"]),
    (r"(?!)", [], ["", "a"]),
    (r"(?s).*", ["", "a\n\U0001f600"], []),
    (r"a\bb", [], ["ab", "a b"]),
    (r"(a*)*b", ["b", "aaab"], ["a" * 40, "aaba"]),
    (r"(\w+\s?)*\.", ["so it is."], ["so it is, " * 5]),
]


@pytest.mark.parametrize(("pattern", "matching", "others"), TRICKY, ids=[pattern for pattern, _, _ in TRICKY])
def test_tricky_cases(pattern, matching, others):
    leaf = regex(pattern)
    for text in matching + others:
        wanted = text in matching
        assert accepts(leaf, text.encode()) == wanted, text
        assert holds(leaf, text.encode()) == wanted, text
        if len(text) < 20:  # Python's own matcher is exponential on some
            assert (re.fullmatch(pattern, text) is not None) == wanted, text


def test_case_can_be_ignored():
    assert accepts(regex("abc", ignore_case=True), b"aBC")
    assert not accepts(regex("abc"), b"aBC")
    assert regex("abc", ignore_case=True) != regex("abc")
    assert regex("abc", ignore_case=True).to_json() == {"type": "regex", "pattern": "abc", "ignore_case": True}


@given(plain_patterns(), st.booleans())
def test_json_form(pattern, ignore_case):
    leaf = regex(pattern, ignore_case)
    assert from_json(json.loads(json.dumps(leaf.to_json()))) == leaf
    with pytest.raises(UnsupportedKeyword, match="flags"):
        from_json({**leaf.to_json(), "flags": 2})


REFUSED = [
    (r"(?<=a)(?<=b(?=c))d", r"look-behind with a look-ahead .* \(at index 6\)"),
    (r"(?<=a$)b", r"look-behind with \$"),
    (r"a(", "unterminated"),
    (r"(?<=a*(?=b))b", "look-behind with a look-ahead"),
    (r"\p{Nonsense}", "no class of characters"),
    (r"\pp", "bad escape"),
    (r"(?&x)a", "which it does not have"),
    (r"(?(?=a)b|c|d)", "more than two ways"),
    (r"(?(?=a)b|c", "bad character in group name"),
    (r"(?1)(a", "unknown extension"),
    (r"(?<n>a(", "unknown extension"),
    (r"a{99999999999}", "too large"),
    ("(" * 5000 + ")" * 5000, "nested"),
    ("(a|" * 70 + ")" * 70, "nested deeper than 64"),
]


@pytest.mark.parametrize(("pattern", "message"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_what_is_refused_is_named(pattern, message):
    with pytest.raises(InvalidConstraint, match=message):
        regex(pattern)


@pytest.mark.parametrize("wrong", [None, 3, b"a", ["a"]])
def test_patterns_are_strings(wrong):
    with pytest.raises(InvalidConstraint, match="string"):
        regex(wrong)


def test_ignore_case_is_a_truth_value():
    with pytest.raises(InvalidConstraint, match="ignore_case"):
        regex("a", ignore_case=2)
    with pytest.raises(InvalidConstraint, match="ignore_case"):
        from_json({"type": "regex", "pattern": "a", "ignore_case": "yes"})


TOO_LARGE = ["(a{1000}){1000}", "(a|b)*a(a|b){20}", r"(a?b?){2000}", r"\w{1,5000}", "a" * 110_000, "((ab?){1,300}c){1,300}"]


@pytest.mark.parametrize("pattern", some(TOO_LARGE, 6), ids=[pattern[:20] for pattern in TOO_LARGE])
def test_what_is_too_large_says_what_to_change(pattern):
    leaf = regex(pattern)
    with pytest.raises(BudgetExceeded, match=r"too large.*Repeat less often"):
        leaf.automaton()


LONG = 5000 if THOROUGH else 1500


@pytest.mark.parametrize(
    ("pattern", "shortest", "longest"),
    [(f".{{1,{LONG}}}", 1, LONG), (f"(a?){{{LONG}}}", 0, LONG), ("(.{0,20}){0,30}", 0, 600), ("(a{3}){2,40}", 6, 120)],
)
def test_long_repetitions(pattern, shortest, longest):
    automaton = regex(pattern).automaton()
    for length in (shortest, longest):
        assert automaton.accepts(b"a" * length)
    assert not automaton.accepts(b"a" * (longest + 1))
    assert shortest == 0 or not automaton.accepts(b"a" * (shortest - 1))
