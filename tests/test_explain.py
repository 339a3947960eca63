"""`explain`: the answer is that of `holds`, and its reasons point at the right places."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import locore
from locore import ban, choice, contains, count, ends_with, explain, json_schema, regex, starts_with, token, word_count
from locore.cli import main
from locore.constraints import Automaton, AutomatonLeaf, Constant, constraint, contains_tokens, count_tokens
from locore.explanation import Explanation
from locore.kernel.errors import InvalidArgument, InvalidConstraint
from locore.kernel.tokenizer import Tokenizer

from .constraints.strategies import WORDS, constraints
from .constraints.texts import BYTES, contents, leaves

TEXTS = st.text("ab ", min_size=2, max_size=6)


@given(constraints(), TEXTS)
def test_the_answer_is_that_of_holds(a, text):
    """Positions that the text does not have are an error in both."""
    try:
        truth = locore.holds(a, text, WORDS)
    except InvalidConstraint:
        with pytest.raises(InvalidConstraint, match="position"):
            explain(a, text, WORDS)
        return
    found = explain(a, text, WORDS)
    assert found.holds == truth
    assert json.loads(json.dumps(found.to_json())) == found.to_json()
    assert str(found).splitlines()[0].startswith("yes" if truth else "no ")


def value(node: Explanation, changed: dict[int, bool]) -> bool:
    """The truth of an explained constraint when some of its leaves have another one."""
    parts = [value(part, changed) for part in node.of]
    if not parts:
        return changed.get(id(node), node.holds)
    return not parts[0] if node.clause == "not" else all(parts) if node.clause == "and" else any(parts)


def leaves_of(node: Explanation) -> list[Explanation]:
    return [leaf for part in node.of for leaf in leaves_of(part)] or [node]


@given(constraints(), TEXTS)
def test_what_is_not_decisive_could_be_anything(a, text):
    try:
        found = explain(a, text, WORDS)
    except InvalidConstraint:
        return
    decisive = {id(leaf) for leaf in found.decisive()}
    others = [leaf for leaf in leaves_of(found) if id(leaf) not in decisive][:6]
    for truths in itertools.product([True, False], repeat=len(others)):
        changed = {id(leaf): truth for leaf, truth in zip(others, truths, strict=True)}
        assert value(found, changed) == found.holds
    if len(decisive) == 1:
        only = found.decisive()[0]
        assert value(found, {id(only): not only.holds}) != found.holds or only in others


@given(st.data())
def test_places_are_in_the_text(data):
    leaf = data.draw(leaves())
    content = data.draw(contents(leaf))
    text = content.decode("utf-8", errors="replace")
    reason = explain(leaf, text, BYTES).reason
    assert reason
    for place in re.findall(r"occurs at character (\d+)", reason):
        assert int(place) < len(text)


@given(TEXTS, st.text("ab", min_size=1, max_size=2))
def test_the_first_place_is_named(text, phrase):
    reason = explain(ban(phrase), text, WORDS).reason
    place = text.find(phrase)
    assert reason == "none occurs" if place < 0 else f'"{phrase}" occurs at character {place}' in reason


MODEL = Tokenizer.from_tokens([*(bytes([byte]) for byte in range(256)), " hate", "hate", None], eos_ids=[258])

REASONS = [
    (ban(["hate", "awful"]), "I hate awful hats, I hate it", '"hate" occurs at character 2, "awful" at 7, "hate" at 21'),
    (ban("x"), "xxxxx", '"x" occurs at character 0, "x" at 1, "x" at 2 and 2 more'),
    (ban("hate", ignore_case=True), "İ HATE", '"hate" occurs at character 2'),
    (ban("hate", words=True), "hated", "none occurs"),
    (contains("sun"), "rain", '"sun" does not occur'),
    (contains("a", exactly=2), "xa", '1 time, exactly 2: "a" occurs at character 1'),
    (contains(["b", "a"], ordered=True), "ab", '"b" at character 1, then "a" does not occur after that'),
    (contains(["c", "a"], ordered=True), "ab", '"c" does not occur'),
    (count(["a", "b"], at_most=1), "ab", '2 occurrences, at most 1: "a" occurs at character 0, "b" at 1'),
    (word_count(2, 3), "one", "1 word, between 2 and 3"),
    (word_count(0, 1), "one two", "2 words, at most 1"),
    (word_count(3), "one two", "2 words, at least 3"),
    (starts_with("The"), "A dog", 'the text starts with "A dog"'),
    (ends_with("!"), "Ther is a dog.", 'the text ends with " is a dog."'),
    (choice(["yes"]), " yes", '" yes" is not one of the texts'),
    (token(0, 5), "a", 'token 0 is 97, "a"'),
    (token(1, 5), "a", "token 1 is 258, a special token"),
    (count_tokens(97, [0, 1], at_least=2), "ab", "1 of the 2 positions hold one, at least 2"),
    (contains_tokens([[97, 98]]), "ab", 'holds from token 1 on, 98, "b"'),
    (contains_tokens([[97, 98]]), "b", "ends too early: what could follow may satisfy it"),
    (ban("hate", level="tokens"), "I hate", 'the ids of a phrase end at token 1, 256, " hate"'),
    (ban("hate", level="tokens"), "I", ""),
    (Constant(False), "a", ""),
    (regex(" (very )?good"), " very goud", 'fails from character 8 on, "u", after " very go"'),
    (json_schema({"type": "boolean"}), "tru", "ends too early: what could follow may satisfy it"),
]


@pytest.mark.parametrize(("leaf", "text", "reason"), REASONS, ids=str)
def test_reasons(leaf, text, reason):
    assert explain(leaf, text, MODEL).reason == reason


class Plain(AutomatonLeaf):
    """A leaf that does not explain itself: letters "é", then "9"."""

    reads = "bytes"

    def automaton(self):
        table = np.array([[1, 3, 3], [3, 0, 3], [3, 3, 3], [3, 3, 3]])  # 0: start, 1: half a letter, 2: done, 3: failed
        table[0, 2] = 2
        column = {0xC3: 0, 0xA9: 1, ord("9"): 2}
        table = np.column_stack([table, np.full(4, 3)])
        return Automaton(table.astype(np.int32), np.array([False, False, True, False]), column, default=3)

    def holds_on(self, sequence, parts):
        return re.fullmatch("é*9", sequence.text.decode()) is not None

    def json_of(self, parts):
        return {"type": "plain"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("éé9", ""),
        ("éé", "ends too early: what could follow may satisfy it"),
        ("éà9", 'fails from character 1 on, "à", after "é"'),
        ("éㄱ", 'fails from character 1 on, "ㄱ", after "é"'),
        ("x", 'fails from character 0 on, "x"'),
        ("é99", 'fails from character 2 on, "9", after "é9"'),
    ],
)
def test_leaves_that_give_no_reasons_say_where_they_were_settled(text, reason):
    assert explain(Plain(), text, MODEL).reason == reason
    assert explain(Plain(), text, MODEL).clause == "plain()"


def test_it_prints_as_a_tree():
    @constraint
    def no_a(tokens):
        return not any(one == 97 for one in tokens)

    found = explain((ban("a") | word_count(2)) & ~ends_with("b") & no_a, "ab", MODEL)
    assert str(found).splitlines() == [
        "no   and",
        "  no   or",
        '    no   ban(["a"]): "a" occurs at character 0',
        "    no   word_count(lo=2): 1 word, at least 2",
        "  no   not",
        '    yes  ends_with("b"): the text ends with "ab"',
        "  no   function no_a: the function returned False",
    ]


def test_schemas_are_written_as_json():
    leaf = json_schema({"const": "é", "title": None, "default": True})
    assert explain(leaf, '"e"', MODEL).clause == 'json_schema({"const": "é", "title": null, "default": true})'
    long = json_schema({"enum": ["x" * 100]}, order="schema")
    assert explain(long, "1", MODEL).clause.startswith('json_schema({"enum": ["xxx')
    assert len(explain(long, "1", MODEL).clause) == 72


def test_a_position_that_only_some_paths_of_a_function_read_is_an_error():
    """As in `holds`, whatever path the text takes."""

    @constraint
    def either(tokens):
        return tokens[0] == 97 or tokens[3] == 97

    for text in ("a", "b"):
        for ask in (locore.holds, explain):
            with pytest.raises(InvalidConstraint, match="position 3"):
                ask(either, text, MODEL)


def test_large_constraints_have_short_explanations():
    many = locore.constraints.conjunction(contains("b") | ban(str(number)) for number in range(400))
    assert len(str(explain(many & contains("a"), "b", MODEL)).splitlines()) < 100
    deep = ban("a")
    for number in range(200):
        deep = (deep | contains(f"{number}")) & ban(f"{number}b")
    assert len(str(explain(deep, "x", MODEL)).splitlines()) < 100
    assert explain(deep, "x", MODEL).holds


@pytest.mark.parametrize("wrong", [5, None, b"a"])
def test_bad_texts(wrong):
    with pytest.raises(InvalidArgument, match="explain needs a text"):
        explain(ban("a"), wrong, MODEL)


def test_on_the_command_line(capsys):
    form = json.dumps((ban("hate") & contains(" sun")).to_json())
    arguments = ["check", "--constraint", form, "--text", "I hate sun"]
    assert main([*arguments, "--explain"]) == 1
    expected = explain(ban("hate") & contains(" sun"), "I hate sun", BYTES)
    assert capsys.readouterr().out == f"{expected}\n"
    assert main([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == expected.to_json()
    assert main(["check", "--constraint", form, "--text", " sun", "--explain"]) == 0
