"""Laws of patterns: found is what Python's `re` finds, counted the leftmost-longest, however states are made."""

from __future__ import annotations

import itertools
import json
import math
import pickle
import re

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import locore
from locore import ban, contains, count, ends_with, from_json, pattern, patterns, regex, starts_with
from locore.automata.regex.pattern import parse
from locore.constraints.ready import READY
from locore.kernel.errors import InvalidConstraint, LocoreError, UnsupportedKeyword
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel
from locore.testing import enumerate_posterior
from tests.effort import THOROUGH, examples

from .patterns import TEXTS
from .patterns import patterns as any_expressions

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]  # random expressions, of which some are refused
BOUNDS = st.tuples(st.integers(0, 3), st.none() | st.integers(0, 3)).filter(
    lambda pair: pair != (0, None) and (pair[1] is None or pair[0] <= pair[1])
)


def expressions(short=True):
    """Expressions that do not match the empty text; `short`: with repetitions such as `*?`."""

    def read(one: str) -> str:
        one = one.replace("?P<name>", "")  # which Python takes but once
        one = one if short else re.sub(r"(?<=[*+?}])\?", "", one)
        try:
            least = parse(one).tree.getwidth()[0]
        except InvalidConstraint:
            return one
        return one if least else f"(?:{one})[ab]"

    return any_expressions().map(read)


def accepts(leaf, text: str) -> bool:
    """By the machine, state by state."""
    machine = leaf.machine()
    state = machine.after(text.encode())
    return state >= 0 and machine.accepts(state)


def made(make, *arguments, **options):
    """A constraint; what Locore refuses is no case."""
    try:
        return make(*arguments, **options)
    except LocoreError:
        assume(False)


def longest_matches(text: str, expression: str) -> int:
    """What `count` counts: the leftmost match, of those that begin there the longest, and so on behind it."""
    ending = [re.compile(rf"(?:{expression})(?=(?s:.{{{left}}})\Z)") for left in range(len(text) + 1)]
    start = found = 0
    while start < len(text):
        ends = [end for end in range(len(text), start, -1) if ending[len(text) - end].match(text, start)]
        found += bool(ends)
        start = ends[0] if ends else start + 1
    return found


@settings(max_examples=examples(300), suppress_health_check=SLOW)
@given(expressions(), st.lists(TEXTS, min_size=3, max_size=6), st.booleans())
def test_what_is_found_is_what_python_finds(expression, texts, ignore_case):
    one = made(pattern, expression, ignore_case)
    searched = re.compile(expression, re.IGNORECASE if ignore_case else 0)
    leaves = contains(one), ban(one), starts_with(one)
    for text in texts:
        found = searched.search(text) is not None
        wanted = found, not found, searched.match(text) is not None
        assert tuple(accepts(leaf, text) for leaf in leaves) == wanted, (expression, text)
        assert tuple(leaf.holds_in(text) for leaf in leaves) == wanted, (expression, text)


@settings(max_examples=examples(300), suppress_health_check=SLOW)
@given(expressions(short=False), st.lists(TEXTS, min_size=3, max_size=6), BOUNDS)
def test_what_is_counted_is_leftmost_and_longest(expression, texts, bounds):
    leaf = made(count, made(pattern, expression), *bounds)
    low, high = bounds
    for text in texts:
        number = longest_matches(text, expression)
        wanted = low <= number and (high is None or number <= high)
        assert (accepts(leaf, text), leaf.holds_in(text)) == (wanted, wanted), (expression, text, number)


@settings(max_examples=examples(100), suppress_health_check=SLOW)
@given(
    st.lists(expressions(short=False), min_size=1, max_size=2),
    TEXTS.filter(bool),
    st.lists(TEXTS, min_size=3, max_size=6),
    BOUNDS,
)
def test_counts_of_strings_and_patterns_add_up(several, string, texts, bounds):
    string = string[:2]
    leaf = made(count, [string, *(made(pattern, one) for one in several)], *bounds)
    low, high = bounds
    for text in texts:
        number = sum(text.startswith(string, place) for place in range(len(text)))
        number += sum(longest_matches(text, one) for one in dict.fromkeys(several))
        wanted = low <= number and (high is None or number <= high)
        assert (accepts(leaf, text), leaf.holds_in(text)) == (wanted, wanted), (several, string, text, number)


@settings(max_examples=examples(100), suppress_health_check=SLOW)
@given(expressions(), expressions(), st.lists(TEXTS, min_size=3, max_size=6))
def test_in_order_is_a_search_for_one_after_the_other(first, second, texts):
    leaf = made(contains, [made(pattern, first), "a", made(pattern, second)], ordered=True)
    searched = re.compile(f"(?:{first})(?s:.*)a(?s:.*)(?:{second})")
    for text in texts:
        wanted = searched.search(text) is not None
        assert (accepts(leaf, text), leaf.holds_in(text)) == (wanted, wanted), (first, second, text)


@settings(max_examples=150 if THOROUGH else 4, suppress_health_check=SLOW)
@given(expressions(short=False), st.lists(TEXTS, min_size=3, max_size=6), BOUNDS)
def test_all_states_made_beforehand_are_those_made_as_texts_go(expression, texts, bounds):
    one = made(pattern, expression)
    for leaf in (contains(one), ban(one), ends_with(one), made(count, one, *bounds)):
        assume(leaf.is_small)
        automaton, machine = leaf.automaton(), leaf.machine()
        for text in texts:
            for content in (text.encode(), text.encode()[:-1], text.encode() + b"\xff"):
                state = machine.after(content)
                assert automaton.accepts(content) == (state >= 0 and machine.accepts(state)), (leaf, content)
                # What a text needs at least is no more than what it got.
                for cut in range(len(content) + 1):
                    before = machine.after(content[:cut])
                    assert before < 0 or not automaton.accepts(content) or machine.least(before) <= len(content) - cut


def test_a_search_with_more_states_than_any_table_is_exact():
    """`~regex("(?s).* not .{1,25} but.*")` has over 20,000 states and is refused; the ban is read as texts go."""
    tokens = [b" not", b" but", b" a", b"a", None]
    tokenizer = Tokenizer.from_tokens(tokens, eos_ids=(4,))
    generator = torch.Generator().manual_seed(1)
    transition = torch.softmax(torch.randn(5, 5, generator=generator), -1).double()
    model = MarkovModel(torch.full((5,), 0.2).double(), transition, eos_ids=(4,), tokenizer=tokenizer)
    leaf, searched = ban(pattern(r" not .{1,25} but")), re.compile(r" not .{1,25} but")
    assert not leaf.is_small
    with pytest.raises(locore.kernel.errors.BudgetExceeded):
        (~regex(r"(?s).* not .{1,25} but.*")).of.automaton()
    everything = enumerate_posterior(model, locore.compile(regex("(?s).*"), model, 5)).texts(tokenizer)
    total = sum(share for text, share in everything.items() if not searched.search(text))
    assert 0.5 < total < 0.999
    for alpha, share in ((leaf, total), (~leaf, 1 - total)):
        p = locore.generate(model, "", alpha, max_new_tokens=5, num_particles=4000, ending="eos", seed=0)
        assert p.log_evidence == pytest.approx(math.log(share), abs=1e-6)
        assert all((searched.search(text) is None) == (alpha is leaf) for text in p.texts)


def test_a_reading_without_a_circuit_counts_what_it_lets_through():
    tokenizer = Tokenizer.from_tokens([b" not", b" but", b" a", b"a", None], eos_ids=(4,))
    for leaf in (ban(pattern(r" not .{1,25} but")), contains(pattern(r" not .{1,25} but"))):
        number = sum(leaf.evaluate(ids, tokenizer) for ids in itertools.product(range(5), repeat=5))
        assert locore.compile(leaf, tokenizer, 5).count() == number > 0


GOOD = {
    "email": ["a@b.com", "x.y+z@mail.example.org", "o'hara@b-c.de"],
    "url": ["http://a.de", "https://u:p@a.de:80/b/c?d=e#f", "HTTPS://[::1]/x", "https://a.de/%20"],
    "phone": ["+493012345678", "+1 555 010 2024", "+12"],
    "iban": ["DE89370400440532013000", "DE89 3704 0044 0532 0130 00", "NO93 8601 1117 947", "MT84MALT011000012345MTLCAST001S"],
    "date": ["2024-02-29", "1999-12-31", "2000-02-29"],
    "emoji": ["😀", "❤️", "👍🏽", "🇩🇪", "1️⃣", "👩‍🚀", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"],
    "cyrillic": ["Привет", "ё"],
    "han": ["漢字", "们"],
    "latin": ["é", "abc"],
    "greek": ["λόγος"],
}
BAD = {
    "email": ["@b.com", "a@", "a b"],
    "url": ["ftp://a.de", "http://", "a.de"],
    "phone": ["0301234567", "+0123456", "1+2", "12+34"],
    "iban": ["DE89", "DE00370400440532013000", "de89370400440532013000", "XDE89370400440532013000Y"],
    "date": ["2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31", "12024-01-01"],
    "emoji": ["1", "#", "©", "a", "\u200d", "\ufe0f"],
    "cyrillic": ["Latin", "漢"],
    "han": ["かな", "abc"],
    "latin": ["я", "12"],
    "greek": ["abc"],
}


@pytest.mark.parametrize("name", GOOD)
def test_ready_patterns_match_all_of_what_is_right_and_nothing_of_what_is_wrong(name):
    one = getattr(patterns, name)
    banned, once = ban(one), count(one, exactly=1)
    assert one == pattern(name=name) and name in dir(patterns)
    for text in GOOD[name]:
        assert one.matches(f"<{text}>") == [(1, 1 + len(text))], text
        assert not accepts(banned, f"<{text}>") and accepts(once, f"<{text}>"), text
    for text in BAD[name]:
        assert one.matches(text) == [] and accepts(banned, text), text


def test_every_ready_pattern_is_in_the_schema_and_compiles():
    for name in READY:
        form = ban(pattern(name=name)).to_json()
        assert form == {"type": "ban", "phrases": [{"type": "pattern", "name": name}]}
        assert from_json(form) == ban(pattern(name=name))


D = pattern(r"\d+")


@pytest.mark.parametrize(
    "leaf",
    [
        ban(["x", D]),
        ban(["x", D], ignore_case=True),
        contains(D),
        contains(["x", D], at_least=2, ignore_case=True),
        contains(D, exactly=2),
        contains(["x", D], ordered=True),
        count(["x", D], at_most=3),
        count(["x", D], exactly=3, ignore_case=True),
        count(patterns.emoji, at_most=1),
        starts_with(D),
        ends_with(pattern("a|b", ignore_case=True)),
        locore.after("x", ban(D)),
        locore.before("x", ban(pattern(r" not .{1,25} but"))),
    ],
)
def test_json_round_trip(leaf):
    assert from_json(json.loads(json.dumps(leaf.to_json()))) == leaf
    assert pickle.loads(pickle.dumps(leaf)) == leaf


def test_explain_says_where():
    tokenizer = locore.load("tiny")
    leaf = ban(["bad", pattern(r"\[\d\]")]) & count(D, at_most=1)
    said = [(part.clause, part.reason) for part in locore.explain(leaf, " see [1] and [2]", tokenizer).of]
    assert said == [
        ('ban(["bad"])', "none occurs"),
        (r'ban([pattern("\\[\\d\\]")])', '"[1]" occurs at character 5, "[2]" at 13'),
        (r'count([pattern("\\d+")], at_most=1)', '2 matches, at most 1: "1" occurs at character 6, "2" at 14'),
    ]


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: pattern("a*"), "empty text"),
        (lambda: pattern(""), "empty text"),
        (lambda: pattern("("), "no.* regular expression"),
        (lambda: pattern(3), "as a string"),
        (lambda: pattern(), "not both"),
        (lambda: pattern("a", name="email"), "not both"),
        (lambda: pattern(name="mail"), "no ready pattern"),
        (lambda: pattern(r"(a)\1"), "back-reference"),
        (lambda: ban([D, "x"], words=True), r"write \\b into it"),
        (lambda: ban(D, normalise=True), "normalise"),
        (lambda: ban(D, level="tokens"), "no patterns"),
        (lambda: count(pattern('".*?"'), at_most=1), "short repetition"),
        (lambda: count(D), "no bound"),
        (lambda: contains(["x", D], ordered=True, ignore_case=True), "no ignore_case"),
        (lambda: locore.choice(["a", D]), "takes strings"),
        (lambda: locore.before(D, ban("x")), "takes strings"),
        (lambda: from_json({"type": "ban", "phrases": [{"type": "regex", "pattern": "a"}]}), r"phrases\[0\] must be"),
        (lambda: from_json({"type": "ban", "phrases": [{"type": "pattern", "regex": "a*"}]}), r"at phrases\[0\]"),
        (lambda: from_json({"type": "contains", "text": {"type": "pattern"}}), "at text"),
    ],
)
def test_mistakes_are_named(make, said):
    with pytest.raises(InvalidConstraint, match=said):
        make()


def test_what_is_too_large_says_so():
    for leaf in (ban(pattern("(a{1000}b){1000}")), count(pattern("(a{1000}b){1000}"), at_most=1)):
        with pytest.raises(locore.kernel.errors.BudgetExceeded, match=r"pattern\(.* is too large: .*Repeat less often"):
            leaf.machine()


def test_unknown_fields_are_named():
    with pytest.raises(UnsupportedKeyword, match="no field 'flags'"):
        from_json({"type": "ban", "phrases": [{"type": "pattern", "regex": "a", "flags": "i"}]})
