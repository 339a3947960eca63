"""Counts of words, characters and sentences: their definitions, by Python's own functions and by example."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import locore
from locore.constraints import char_count, from_json, sentence_count, word_count
from locore.kernel.errors import BudgetExceeded, InvalidConstraint

from .texts import BROKEN, CHARACTERS, amounts, bounds, holds

CONTENTS = st.lists(st.sampled_from([*map(str.encode, CHARACTERS), *BROKEN]), max_size=8).map(b"".join)


def sentences(text: str) -> int:
    """Ends of sentences that stand before whitespace or nothing, one character after the other."""
    followers = [*text[1:], " "]
    return sum(character in ".!?" and follower.isspace() for character, follower in zip(text, followers, strict=False))


TRUTH = {word_count: lambda text: len(text.split()), char_count: len, sentence_count: sentences}


@pytest.mark.parametrize("kind", TRUTH)
@given(CONTENTS, bounds(6))
def test_counts_are_those_of_the_decoded_text(kind, content, limits):
    number = TRUTH[kind](content.decode("utf-8", errors="replace"))
    leaf = kind(*limits)
    within = limits[0] <= number and (limits[1] is None or number <= limits[1])
    assert holds(leaf, content) == within
    assert leaf.automaton().accepts(content) == within


@given(amounts(), CONTENTS)
def test_a_range_is_two_bounds(leaf, content):
    kind, (low, high) = (
        {"word_count": word_count, "char_count": char_count, "sentence_count": sentence_count}[leaf.kind],
        leaf.bounds(),
    )
    parts = [kind(low)] if low else []
    parts += [] if high is None else [kind(0, high)]
    assert holds(leaf, content) == all(holds(part, content) for part in parts)


@pytest.mark.parametrize(
    ("text", "words", "characters", "ends"),
    [
        ("", 0, 0, 0),
        ("   ", 0, 3, 0),
        (" one  two\n", 2, 10, 0),
        ("a\u3000b\u2003c\x85d", 4, 7, 0),
        ("zero\u200bwidth", 1, 10, 0),
        ("Hi. Ho!", 2, 7, 2),
        ("Wait... what?!", 2, 14, 2),
        ("Pi is 3.14.", 3, 11, 1),
        ("Mr. X came.", 3, 11, 2),
        ("One. Two", 2, 8, 1),
        ('He said "Go."', 3, 13, 0),
        ("e\u0301", 1, 2, 0),
        ("👩\u200d🚀", 1, 3, 0),
        (". . .", 3, 5, 3),
    ],
)
def test_edge_cases(text, words, characters, ends):
    content = text.encode()
    for leaf in (word_count(words, words), char_count(characters, characters), sentence_count(ends, ends)):
        assert holds(leaf, content)
        assert leaf.automaton().accepts(content)


def test_forms():
    assert word_count(3, 5).to_json() == {"type": "word_count", "lo": 3, "hi": 5}
    assert char_count(hi=140).to_json() == {"type": "char_count", "hi": 140}
    assert from_json({"type": "sentence_count", "lo": 2}) == sentence_count(2)
    assert repr(char_count(hi=140)) == "char_count(hi=140)"


@pytest.mark.parametrize("kind", TRUTH)
@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ((3, 2), "lo=3 above hi=2"),
        ((-1, 2), "lo=-1 .* is negative"),
        ((0, -2), "hi=-2 .* is negative"),
        ((True, 2), "lo .* must be an integer, got True"),
        ((1, 2.0), "hi .* must be an integer"),
        (("1", None), "lo .* must be an integer"),
        ((None, 1), "lo .* must be an integer"),
        ((0, None), "got no bound"),
    ],
)
def test_bad_bounds(kind, limits, message):
    with pytest.raises(InvalidConstraint, match=message):
        kind(*limits)


def test_a_bound_that_is_too_high_is_refused():
    with pytest.raises(BudgetExceeded, match=r"counting up to 10,000,001 .* lower the bounds"):
        char_count(hi=10_000_000).automaton()
    assert char_count(hi=5000).automaton().num_states < 50_000


def test_many_numbers_fit_into_few_states():
    """An automaton of a count has its states once for each number, not more."""
    small, large = (word_count(0, high).automaton().num_states for high in (10, 20))
    assert (large - small) % 10 == 0
    assert large < 2 * small


@pytest.mark.parametrize(
    "constraint",
    [
        word_count(2, 3) & locore.ends_with("."),
        pytest.param(char_count(5, 9), marks=pytest.mark.slow),
        pytest.param(sentence_count(1, 1) & locore.ends_with("."), marks=pytest.mark.slow),
        pytest.param(locore.count(["a", "A"], exactly=2, words=True), marks=pytest.mark.slow),
        pytest.param(
            locore.contains(["e", "s"], ordered=True) & locore.ban("THE", words=True, ignore_case=True), marks=pytest.mark.slow
        ),
    ],
    ids=str,
)
def test_generated_texts_are_right(constraint):
    """The texts that come back, read by Python's own functions, here where `generate` has checked them too."""
    particles = locore.generate("tiny", "The weather is", constraint, max_new_tokens=6, num_particles=8, seed=0)
    assert len(particles) > 0
    for text in particles.texts:
        assert locore.holds(constraint, text, locore.load("tiny"))
        for leaf in constraint.leaves():
            low, high = leaf.bounds()
            truth = {k.__name__: rule for k, rule in TRUTH.items()}.get(leaf.kind)
            assert truth is None or low <= truth(text) <= high


FORMS = [{"type": "word_count"}, {"type": "char_count"}, {"type": "sentence_count"}]
OCCURRENCES = [{"type": "count", "strings": ["a"]}, {"type": "contains", "text": "a"}]


@pytest.mark.parametrize("bound", [10**18, 2**63, 10**30])
@pytest.mark.parametrize(
    ("form", "name"),
    [
        *((form, name) for form in FORMS for name in ("lo", "hi")),
        *((form, name) for form in OCCURRENCES for name in ("at_most", "exactly")),
    ],
)
def test_bounds_beyond_any_integer_of_an_array_are_too_many(form, name, bound):
    """What no array can hold is refused like what no memory can hold."""
    with pytest.raises(BudgetExceeded, match=r"counting up to .* leave out one that no text of the length reaches"):
        from_json({**form, name: bound}).automaton()
