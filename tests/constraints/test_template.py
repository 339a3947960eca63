"""Laws of free text before an answer, and of templates: automaton, plain reading and Python's own search agree; marginals."""

from __future__ import annotations

import itertools
import json
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import locore
from locore import after, ban, char_count, choice, contains, from_json, regex, template, token
from locore.constraints.text_leaf import PartOfText
from locore.kernel.errors import InvalidArgument, InvalidConstraint
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel
from locore.testing import enumerate_posterior
from tests.effort import examples

from .texts import BROKEN

TOKENS = [b"a", b"b", b"ab", b"=", b"= ", "é".encode()[:1], "é".encode()[1:], b"1", None]
SMALL = Tokenizer.from_tokens(TOKENS, eos_ids=[len(TOKENS) - 1])


def chain(seed):
    """A Markov chain over the tokens."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(len(TOKENS) + 1, len(TOKENS), generator=generator, dtype=torch.float64).softmax(-1)
    return MarkovModel(rows[0], rows[1:], tokenizer=SMALL)


INNER = st.sampled_from(
    [choice(["a", "b1"]), ban("="), ~contains("a"), regex("[ab]*"), char_count(1, 2) & ban("b"), regex("é|1")]
)
PATTERNS = [
    "a+b",
    "=|é",
    "(?i)A(?=b)b",
    r"\b1",
    "b$",
    r"\p{L}1",
    "(?<name>ab)+",
    r"[\w--b]",
    "(?>a+)b",
    "a++",
    "b(?!a)",
    "(?<=a)",
]
MARKERS = st.sampled_from(["=", "ab", "aba", "aa", "é", *map(regex, PATTERNS), regex("(?x) a b # c")])
CONTENTS = st.lists(st.sampled_from([b"a", b"b", b"=", b"1", " é".encode(), b"\n", b"ab", *BROKEN]), max_size=7).map(b"".join)


@settings(max_examples=examples(25), deadline=None)
@given(MARKERS, INNER, st.lists(CONTENTS, min_size=5, max_size=10))
def test_after_is_what_the_plain_reading_says(marker, inner, texts):
    leaf = after(marker, inner)
    for text in texts:
        assert leaf.automaton().accepts(text) == leaf.truth(PartOfText(text)), (marker, inner, text)


@given(st.sampled_from(["=", "ab", "aba", "aa"]), st.text("ab=1", max_size=8))
def test_after_a_string_is_a_regular_expression(marker, text):
    """The free part is the shortest that a lazy repetition finds."""
    found = re.match(f"(?s:.*?){re.escape(marker)}(?P<rest>.*)", text)
    assert after(marker, regex("[ab]+")).truth(PartOfText(text.encode())) == bool(
        found and re.fullmatch("[ab]+", found["rest"])
    )


FIXED = st.sampled_from(["", "a", "=", "b="])
PATTERNS = st.sampled_from(["a*", "[ab]+", "(ab)?", "b|ab", "1?a", ""])


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(PATTERNS, min_size=2, max_size=3),
    st.lists(st.sampled_from(["", "a", "=", "b="]), min_size=4, max_size=4),
    st.data(),
)
def test_templates_are_regular_expressions(patterns, fixed, data):
    """Texts, and in them the values: holes of which each is as short as those before it allow are lazy groups."""
    names = ["x", "y", "z"][: len(patterns)]
    text = fixed[0] + "".join(f"{{{name}}}{piece}" for name, piece in zip(names, fixed[1:], strict=False))
    leaf = template(text, **{name: regex(pattern) for name, pattern in zip(names, patterns, strict=True)})
    for content in data.draw(st.lists(st.text("ab=1", max_size=6), min_size=5, max_size=10)):
        cuts = [
            cut
            for cut in itertools.combinations_with_replacement(range(len(content) + 1), 2 * len(names))
            if all(a <= b for a, b in itertools.pairwise(cut)) and fits(content, cut, fixed, patterns)
        ]
        assert leaf.automaton().accepts(content.encode()) == leaf.truth(PartOfText(content.encode())) == bool(cuts)
        if cuts:
            shortest = min(cuts, key=lambda cut: [b - a for a, b in zip(cut[0::2], cut[1::2], strict=True)])
            spans = zip(shortest[0::2], shortest[1::2], strict=True)
            assert leaf.values(content) == {name: content[a:b] for name, (a, b) in zip(names, spans, strict=True)}


def fits(content, cut, fixed, patterns):
    """Are these starts and ends of the holes right?"""
    edges = [0, *cut, len(content)]
    outside = [content[a:b] for a, b in zip(edges[0::2], edges[1::2], strict=True)]
    inside = [content[a:b] for a, b in zip(cut[0::2], cut[1::2], strict=True)]
    return outside == fixed[: len(outside)] and all(map(re.fullmatch, patterns, inside))


LEAVES = [
    after("=", choice(["a", "1"])),
    after(regex("a|b"), ~contains("b")) & ban("=="),
    ~after("b", regex("[^=]*")),
    template("{x}={y:choice(a, b, ab)}"),
    template("{x:regex([ab]+)}{y}=", y=ban("a")) | contains("é"),
]


@pytest.mark.parametrize("leaf", LEAVES, ids=str)
def test_circuits_have_the_models_of_the_plain_reading(leaf):
    rows = torch.randn(len(TOKENS) + 1, len(TOKENS), generator=torch.Generator().manual_seed(1), dtype=torch.float64).softmax(
        -1
    )
    model = MarkovModel(rows[0], rows[1:], tokenizer=SMALL)
    every = itertools.product(range(len(TOKENS)), repeat=3)
    truth = {y for y in every if leaf.evaluate(y, SMALL)}
    found = enumerate_posterior(model, locore.compile(leaf, model, 3))
    assert {tuple(y) for y in found.tokens.tolist()} == truth
    log_p = model.score(torch.tensor(sorted(truth)))
    assert found.log_evidence == pytest.approx(float(torch.logsumexp(log_p, 0)), abs=1e-9)


def test_marginals_of_holes_are_those_of_the_posterior():
    """A later hole weighs on an earlier one: exact sums on a table."""
    leaf = template("{x:choice(a, b, ab)}={y:choice(1, a)}")
    rows = torch.randn(len(TOKENS) + 1, len(TOKENS), generator=torch.Generator().manual_seed(2), dtype=torch.float64).softmax(
        -1
    )
    model = MarkovModel(rows[0], rows[1:], tokenizer=SMALL)
    particles = locore.generate(
        model, "", leaf & ban("a=a"), max_new_tokens=4, sampler="exact", num_particles=200, ending="eos"
    )
    weight = {"x": {}, "y": {}}
    for y in itertools.product([0, 1, 2, 3, 7, 8], repeat=4):  # other tokens spell no text of it
        match = re.fullmatch("(?P<x>a|b|ab)=(?P<y>1|a)", SMALL.decode(y))
        if match and match[0] != "a=a" and ban("!").evaluate(y, SMALL):
            for name, values in weight.items():
                values[match[name]] = values.get(match[name], 0.0) + float(model.score(torch.tensor([y])).exp())
    for name, values in weight.items():
        total = sum(values.values())
        assert leaf.marginal(particles, name) == pytest.approx({value: p / total for value, p in values.items()})
    joint = leaf.joint(particles, ["x", "y"])
    assert sum(joint.values()) == pytest.approx(1.0) and ("a", "a") not in joint


def test_json_forms():
    for leaf in (*LEAVES, template("{{a}} {b}"), after(regex("x+", ignore_case=True), ban("y") | choice("z"))):
        assert from_json(json.loads(json.dumps(leaf.to_json()))) == leaf


def test_braces_and_holes_that_say_nothing():
    leaf = template("{{{name}}}: {rest}")
    assert leaf.values("{Ann}: any {text} }: at all") == {"name": "Ann", "rest": "any {text} }: at all"}
    assert template("fixed").values("fixed") == {} and template("").values("") == {}
    assert (
        'is "Ann"' in locore.explain(template("{name}!"), "Ann!", Tokenizer.from_tokens([b"A", b"n", b"!", None], [3])).reason
    )


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: after("", choice("a")), "empty phrase"),
        (lambda: after(regex("a*"), choice("a")), "matches the empty text"),
        (lambda: after("x", "y"), "needs a constraint"),
        (lambda: after("x", token(0, 1)), "Literal has no meaning"),
        (lambda: template("{a} {"), "'{' by itself at character 4"),
        (lambda: template("{a b}"), "'{' by itself at character 0"),
        (lambda: template("{a}{b}"), "another hole follows"),
        (lambda: template("{a} {a}"), "the hole 'a' twice"),
        (lambda: template("{a:int(3)}"), r"int\(…\), which is not known"),
        (lambda: template("{a:regex([)}"), "the hole 'a' of template: "),
        (lambda: template("{a} x", b=choice("q")), "no hole 'b'; its holes are: a"),
        (lambda: template("{a:choice(x)}", a=choice("q")), "said twice"),
        (lambda: template("{a}", a="q"), "hole 'a' of template needs a constraint"),
        (lambda: template(3), "needs a string"),
        (lambda: from_json({"type": "after", "marker": 3, "of": {"type": "true"}}), "marker must be a string"),
        (lambda: from_json({"type": "template", "text": "{a}", "holes": []}), "object of constraints"),
    ],
)
def test_what_has_no_meaning(make, message):
    with pytest.raises(InvalidConstraint, match=message):
        make()


def test_texts_and_holes_that_are_none():
    leaf = template("{a}!")
    with pytest.raises(InvalidArgument, match="no text of the template"):
        leaf.values("Ann")
    with pytest.raises(InvalidArgument, match="no hole 'b'"):
        leaf.marginal([("Ann!", 1.0)], "b")
