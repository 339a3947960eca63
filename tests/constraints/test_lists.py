"""Where a list is meant, what iterates as something else is refused: by every public function that takes one, and in JSON."""

from __future__ import annotations

import inspect
from collections import Counter, OrderedDict
from types import MappingProxyType

import pytest

import locore
from locore import (
    all_different,
    all_equal,
    at_least,
    at_most,
    ban,
    before,
    choice,
    classify,
    contains,
    contains_tokens,
    count,
    count_tokens,
    digit_sum,
    exactly,
    generate_many,
    permutation,
    simple_moves,
    simple_path,
    template,
    token,
    token_sum,
)
from locore.constraints import json_forms
from locore.kernel.constraints.serial import _KINDS
from locore.kernel.errors import InvalidArgument, InvalidConstraint
from locore.kernel.tokenizer import Tokenizer
from locore.models import EndingAt, MarkovModel
from locore.testing import check_potential

WORDS = Tokenizer.from_tokens([b"a", b"b", b"c", None], eos_ids=[3])
MODEL = MarkovModel([0.25] * 4, [[0.25] * 4] * 4, tokenizer=WORDS)
EDGES = [(0, 1), (1, 2)]
# The list that is meant, a function of it, and whether the order matters.
TEXTS = {
    "ban": (["a", "b"], ban, False),
    "ban tokens": (["a"], lambda v: ban(v, level="tokens"), False),
    "contains": (["a", "b"], contains, False),
    "contains in order": (["a", "b"], lambda v: contains(v, ordered=True), True),
    "choice": (["a", "b"], choice, False),
    "count": (["a", "b"], lambda v: count(v, exactly=1), False),
    "before": (["a", "b"], lambda v: before(v, choice("c")), False),
    "EndingAt": (["a", "b"], lambda v: EndingAt(MODEL, v), False),
    "classify": (["a", "b"], lambda v: classify(MODEL, ["a"], v), True),
    "classify prompts": (["a", "b"], lambda v: classify(MODEL, v, ["a", "b"]), True),
    "generate_many": (["a", "b"], lambda v: generate_many(MODEL, v, choice("a"), max_new_tokens=2, seed=0), True),
    "joint": (["x", "y"], lambda v: template("{x:choice(a)}{y:choice(b)}").joint([("ab", 1.0)], v), True),
    "check_potential": (["a", "ab"], lambda v: check_potential(locore.potential(lambda ts: [0.0] * len(ts)), v), False),
}
NUMBERS = {
    "token": ([1, 2], lambda v: token(0, v), False),
    "count_tokens": ([1, 2], lambda v: count_tokens(v, [0, 1], 1), False),
    "count_tokens positions": ([0, 1], lambda v: count_tokens([1], v, 1), False),
    "contains_tokens": ([1, 2], lambda v: contains_tokens([v]), True),
    "contains_tokens sequences": ([(1, 2)], contains_tokens, False),
    "all_different": ([0, 1], all_different, False),
    "all_equal": ([0, 1], all_equal, False),
    "all_equal values": ([1, 2], lambda v: all_equal([0, 1], v), False),
    "permutation": ([1, 2], lambda v: permutation([0, 1], v), False),
    "permutation positions": ([0, 1], lambda v: permutation(v, [1, 2]), False),
    "digit_sum": ([0, 1], lambda v: digit_sum(v, total=3), False),
    "digit_sum weights": ([1, 2], lambda v: digit_sum([0, 1], total=3, weights=v), True),
    "token_sum": ([0, 1], lambda v: token_sum(v, {1: 1}, total=2), False),
    "simple_path": (EDGES, lambda v: simple_path(v, 0, 2), True),
    "simple_moves": ([(1, 1)], lambda v: simple_moves(2, 2, (0, 0), (0, 1), blocked=v), False),
    "at_least": ([choice("a"), choice("b")], lambda v: at_least(1, v), False),
    "at_most": ([choice("a"), choice("b")], lambda v: at_most(1, v), False),
    "exactly": ([choice("a"), choice("b")], lambda v: exactly(1, v), False),
}
EVERY = {**TEXTS, **NUMBERS}


def mappings(items):
    """The items as keys of all kinds of mappings."""
    keyed = dict.fromkeys(items, 1)
    return [keyed, OrderedDict(keyed), MappingProxyType(keyed), Counter(items), {items[0]: items}]


@pytest.mark.parametrize("name", EVERY)
def test_what_is_no_list_is_refused(name):
    items, make, ordered = EVERY[name]
    keyed = mappings(items)[:-1] if name == "classify" else mappings(items)  # a label with its list of texts is a group
    wrong = [*keyed, b"ab", bytearray(b"\x00\x01"), memoryview(b"ab"), 1.5]
    for value in wrong + ([set(items), frozenset(items)] if ordered else []):
        with pytest.raises((InvalidConstraint, InvalidArgument), match=r"needs|must be|takes"):
            make(value)


@pytest.mark.parametrize("name", EVERY)
def test_lists_tuples_and_iterators_are_the_same_list(name):
    items, make, ordered = EVERY[name]
    made = [make(items), make(tuple(items)), make(iter(items))]
    made += [] if ordered else [make(set(items)), make(frozenset(items))]
    if isinstance(made[0], locore.Constraint) and (ordered or name not in ("at_least", "at_most", "exactly")):
        assert all(one == made[0] for one in made)


def test_every_constructor_that_takes_a_list_is_tried():
    tried = {name.split()[0] for name in EVERY}
    homes = ("locore.constraints", "locore.puzzles.combinatorial", "locore.puzzles.paths")
    for name in (name for name, home in locore._HOME.items() if home in homes):
        made = getattr(locore, name)
        if inspect.isfunction(made) and any(
            "Iterable" in str(p.annotation) for p in inspect.signature(made).parameters.values()
        ):
            assert name in tried, name


def test_lists_in_json_are_lists():
    """Every field of every type that takes a list and no object."""
    tried = 0
    for name, kind in _KINDS.items():
        for field, read in (kind.required | kind.optional).items():
            forms = [json_forms("#")[f"constraint_{name}"]["properties"][field]]
            forms += forms[0].get("anyOf", [])
            if any(form.get("type") == "array" for form in forms):
                tried += 1
                with pytest.raises(InvalidConstraint, match=field):
                    read({"a": 1}, field)
    assert tried > 15


def test_the_message_says_what_to_do():
    with pytest.raises(InvalidConstraint, match=r"ban needs a string or a list of strings, got a mapping \(dict\).*values"):
        ban({"slurs": ["x", "y"]})
    with pytest.raises(InvalidArgument, match="labels, in order, got a set"):
        classify(MODEL, ["a"], {"a", "b"})
