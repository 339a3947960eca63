r"""Patterns of no regular language: back-references, conditions on groups, groups that call themselves, atomic groups."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest
import regex as library
from hypothesis import given, settings
from hypothesis import strategies as st

import locore
from locore import choice, from_json, regex
from locore.automata.regex import backtracking
from locore.automata.regex.backtracking import matches_trying
from locore.automata.walking import DEAD
from locore.constraints.regular_expression import FollowedRegex
from locore.constraints.text_leaf import machine_of
from locore.kernel.errors import BudgetExceeded, InvalidConstraint
from tests.effort import THOROUGH, examples, some

from .bytewise import holds

SHORT = ["".join(letters) for length in range(6) for letters in itertools.product("abcA\n", repeat=min(length, 4))]
LONG = ["".join(letters) for length in range(7 if THOROUGH else 6) for letters in itertools.product("abc", repeat=length)]
TEXTS = sorted({*SHORT, *LONG, "aßẞ", "ab ab", "a a", "éé", "kK", "\u212ak", "k\u212a", "s\u017f", "\u017fs", "ss"})
PYTHON = [
    r"(a|b)\1",
    r"(a|b)+\1",
    r"(.+)\1",
    r"(a*)+\1b",
    r"(a|ab)(c|bcd)?\1",
    r"(?i)(a|k)\1",
    r"(?i:(a)\1)b",
    r"(?i)([ks])\1",  # a back-reference knows fewer letters for the same than a set
    r"(?ai)([ks])\1",
    r"((.)(?!\2))+",
    r"(?!.*(.).*\1)[abc]+",
    r"(\w)(\w)(?:\2\1)+",
    r"(?:(a)|(b))(?<=\1)a",
    r"\b(a+)\b.\1",
    r"(?m)^(a)$\n\1",
    r"(a|)*\1",
    r"(?:(a)|b)*\1",
    r"(a+?)\1*$",
    r"(a)?(?(1)b|c)",
    r"(a)?(b)?(?(1)(?(2)c|b)|a)",
    r"(?>(a+)|b)\1",
    r"(?>(?:a|ab)(?!b)|abb?)(c)?(?(1)a|b)",
    r"(?>a+b?|b)(?!a)(c)?(?(1)a|b)?",
    r"((?>a|b(?=(?:c|a)))+)\1",
    r"a++b(c)?(?(1)a)",
    r"(?>(?>a*(?=a)))ab?",
    r"(?>(?>(?>a*(?=a))b?(?=a)))ab?",
    r"(?>(?:(?>a*?(?=[ab]))b?)*(?=a))ab?",
    r"(?>(?:a|bc)*b)c?",
    r"(?<=\b)(?:ab)*(?<!\bb)",
    r"(a)?(?>(?:b??)*)b?\1",
    r"(a)?(?>(?:b??){2,3})b?\1",
]
CALLS = [
    r"a(?:b(?0)c)?",
    r"(a|b(?1)c)",
    r"(?<x>a(?&y)?c)(?<y>b|(?&x))",
    r"(?(DEFINE)(?<e>a|b(?&e)c))(?&e)+",
    r"(.)(?1)\1",
    r"((.)(?1)\2|a)",
    r"(?|(a)|(b)|(c))\1",
    r"(?|a(.)|(.)b)c\1",
    r"(a)b\g<1>",
    r"\Gab(c)?(?(1)a)",
    r"(?(DEFINE)(?<x>a))(b)(c)\3",
    r"(?(DEFINE)(?<x>a))(b)(c)?(?(3)\3|a)",
    r"((?2)(?1)|c)(b)",  # the group calls itself, behind another call that has read something
    r"((?2)?a(?1)?|c)(b)",
]


def reads(leaf, text):
    """Does the machine, or the automaton, read a text?"""
    if leaf.is_small:
        return leaf.automaton().accepts(text.encode())
    machine = leaf.machine()
    state = machine.after(text.encode())
    return state != DEAD and machine.accepts(state)


@pytest.mark.parametrize("pattern", some(PYTHON, 4))
def test_all_short_texts_as_python_reads_them(pattern):
    leaf, judge = regex(pattern), re.compile(pattern)
    assert isinstance(leaf, FollowedRegex)
    for text in TEXTS:
        assert reads(leaf, text) == matches_trying(leaf.parsed, text) == (judge.fullmatch(text) is not None), text


@pytest.mark.parametrize("pattern", some(CALLS, 2))
def test_all_short_texts_as_the_library_regex_reads_them(pattern):
    leaf, judge = regex(pattern), library.compile(pattern)
    for text in TEXTS:
        assert reads(leaf, text) == holds(leaf, text) == (judge.fullmatch(text) is not None), text


PIECES = st.recursive(
    st.sampled_from(["a", "b", "[ab]", "(?:)", "(a|b)", "(a?)", r"\1", r"\2", "(?(1)a|b)", r"\b", "(?!b)", r"(?=\1)"]),
    lambda part: st.one_of(
        st.lists(part, max_size=3).map("".join),
        st.lists(part, min_size=1, max_size=3).map(lambda ways: f"(?:{'|'.join(ways)})"),
        st.tuples(part, st.sampled_from(["?", "*", "+", "{1,2}", "??", "*?", "*+"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        part.map(lambda one: f"({one})"),
        part.map(lambda one: f"(?>{one})"),
    ),
    max_leaves=7,
)


@settings(max_examples=examples(150))
@given(PIECES)
def test_random_patterns_have_one_meaning(piece):
    """The machine and the matcher that tries one way after the other share nothing but the parser."""
    pattern = f"(a|bb?)(?:{piece})"
    try:
        leaf = regex(pattern)
    except InvalidConstraint as error:
        assert re.search("refers|invalid group|open group|outside of a look|Python", str(error)), error
        return
    for text in ("".join(letters) for length in range(6) for letters in itertools.product("ab", repeat=length)):
        assert accepted(leaf, text) == holds(leaf, text), (pattern, text)


def accepted(leaf, text):
    return reads(leaf, text) if isinstance(leaf, FollowedRegex) else leaf.automaton().accepts(text.encode())


def test_every_reachable_state_needs_no_more_than_it_says():
    """A lower bound: what is read from a state on to an end is never shorter."""
    machine = regex(r"(ab?)-\1(?:\((?R)\))?").machine()
    for text in ("ab-ab", "a-a(ab-ab)", "ab-ab(a-a(ab-ab))"):
        for cut in range(len(text)):
            assert machine.least(machine.after(text[:cut].encode())) <= len(text) - cut
    assert machine.least(machine.after(b"ab-a")) == 1.0
    assert regex("(a(?R)b)").machine().least(0) == np.inf  # no text ends


def test_bytes_that_are_no_characters():
    machine = regex(r"(.)x\1").machine()
    for content in (b"\xc0\xaf", b"\xed\xa0\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xff"):
        assert machine.after(content) == DEAD, content
    for letter in ("\x7f", "\x80", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"):
        state = machine.after(f"{letter}x{letter}".encode())
        assert state != DEAD and machine.accepts(state), letter


@pytest.mark.parametrize(
    ("pattern", "texts"), [(r" (good|bad) \1", [" good good", " bad bad"]), (r"( a| b)?(?(1)!|c)", [" a!", " b!", "c"])]
)
def test_few_texts_are_an_automaton_and_as_probable_as_listed(pattern, texts):
    leaf = regex(pattern)
    assert leaf.is_small
    model = locore.load("tiny")
    found, listed = (locore.generate(model, "It is", one, 6, sampler="exact") for one in (leaf, choice(texts)))
    assert found.log_evidence == pytest.approx(listed.log_evidence, abs=1e-9)


def test_texts_of_a_model_that_are_followed():
    leaf = regex(r"( ?\((?:[a-z ]+|(?1))*\))")
    assert not leaf.is_small
    particles = locore.generate(locore.load("tiny"), "She said", leaf, 10, num_particles=4, seed=0)
    assert all(library.fullmatch(leaf.pattern, text) for text in particles.texts)


REFUSED = [
    (r"(?=(a))\1", "outside of a look-around"),
    (r"(a+)(?<=\1)", "look-behind of any length"),
    (r"(a)(?<=b(?=c))\1", "looks ahead"),
    (r"((?1)a|b)", "calls itself before"),
    (r"(a?(?1)|b)", "calls itself before"),
    (r"a(?2)", "which it does not have"),
    ("(a)" + "(" * 70 + ")" * 70 + r"\1", "deeper than 64"),
    (r"((?1)a|b)\1(", "Python"),
]


@pytest.mark.parametrize(("pattern", "reason"), REFUSED)
def test_refused(pattern, reason):
    with pytest.raises(InvalidConstraint, match=reason):
        regex(pattern)


def test_too_many_ways_to_match_are_said_so(monkeypatch):
    monkeypatch.setattr(backtracking, "MOST_STEPS", 20_000)
    leaf = regex(r"(a*)(a*)(a*)(a*)\1\2\3\4!")
    with pytest.raises(BudgetExceeded, match=r"in more than 20,000 ways"):
        matches_trying(leaf.parsed, "a" * 80)


def test_too_many_places_at_once_are_said_so():
    machine = regex(r"(a*)(a*)(a*)(a*)\1\2\3\4").machine()
    with pytest.raises(BudgetExceeded, match="20,000 places of a text at once"):
        machine.after(b"a" * 80)


@pytest.mark.parametrize("pattern", [r"(.)\1.*", r"(\w+)-\1"])
def test_single_steps_are_those_of_rows(pattern):
    """Of a machine, and of what is made of it and others."""
    one, two = regex(pattern), regex(r"[a-c-]*")
    for constraint in (one, ~one, one & two, one | ~two, ~(one & two)):
        steps, rows = machine_of(constraint), machine_of(constraint)
        assert steps.has_dear_rows
        for text in ("aab", "ab-ab", "cc", "é-é", "b-"):
            state, other = 0, 0
            for byte in text.encode():
                state = int(steps.after_each(np.array([state], dtype=np.int32), np.array([byte]))[0]) if state != DEAD else DEAD
                other = int(rows.row(other)[byte]) if other != DEAD else DEAD
                assert (state == DEAD) == (other == DEAD), (constraint, text)
                if state != DEAD:
                    assert steps.accepts(state) == rows.accepts(other), (constraint, text)


def test_json_form():
    leaf = regex(r"(a)\1", ignore_case=True)
    assert from_json(json.loads(json.dumps(leaf.to_json()))) == leaf
    assert leaf.to_json() == {"type": "regex", "pattern": r"(a)\1", "ignore_case": True}
