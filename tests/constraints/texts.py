"""Texts and phrases that are hard on purpose: several bytes, cut characters, case and word boundaries that surprise."""

from __future__ import annotations

from hypothesis import strategies as st

from locore.constraints import ban, char_count, choice, contains, count, ends_with, sentence_count, starts_with, word_count
from locore.constraints.text_leaf import PartOfText
from locore.kernel.tokenizer import Tokenizer

BYTES = Tokenizer.from_tokens([bytes([value]) for value in range(256)] + [None], eos_ids=[256])
# Two letters and a space to make phrases meet; then a combining mark, a joiner, NUL, letters from right to left and beyond 16
# bits, letters whose lower case is another (or two, or depends on what follows), and what separates words and sentences.
CHARACTERS = "ab B_.?!,\n\0\u0301\u200déאع𝒳😀İiıIßẞſsSΣσςKkK\ufffd\u3000\u2003\x85"
BROKEN = [b"\x80", b"\xbf", b"\xc0", b"\xc3", b"\xe0\x80", b"\xe3\x80", b"\xed\xa0\x80", b"\xf0\x9f", b"\xf4\x90", b"\xff"]

LETTERS = st.sampled_from(CHARACTERS)
PHRASES = st.text(LETTERS, min_size=1, max_size=3)
FLAGS = st.booleans()


def bounds(limit: int = 3):
    """A least number and a greatest or None, of which one says something."""
    pairs = st.tuples(st.integers(0, limit), st.none() | st.integers(0, limit))
    return pairs.filter(lambda pair: pair != (0, None) and (pair[1] is None or pair[0] <= pair[1]))


def leaves(phrases=PHRASES):
    """Every kind of constraint on the text."""
    lists = st.lists(phrases, min_size=1, max_size=3)
    options = {"words": FLAGS, "ignore_case": FLAGS}
    return st.one_of(
        st.builds(ban, lists, **options),
        st.builds(lambda text, b, **o: contains(text, *b, **o), phrases, bounds(), **options),
        st.builds(contains, lists, ordered=st.just(True), **options),
        st.builds(starts_with, phrases, **options),
        st.builds(ends_with, phrases, **options),
        st.builds(choice, lists, ignore_case=FLAGS),
        st.builds(lambda strings, b, **o: count(strings, *b, **o), lists, bounds(), **options),
        amounts(),
    )


def amounts():
    """The kinds that count words, characters or sentences."""
    return st.builds(lambda kind, b: kind(*b), st.sampled_from([word_count, char_count, sentence_count]), bounds())


def phrases_of(leaf) -> list[str]:
    """What a leaf looks for."""
    values = (getattr(leaf, name, ()) for name in ("phrases", "text", "texts", "strings"))
    return [phrase for value in values for phrase in ([value] if isinstance(value, str) else value)]


@st.composite
def contents(draw, leaf):
    """Bytes of texts in which the phrases of a leaf are likely, in either case, whole or cut."""
    piece = LETTERS | st.sampled_from([*phrases_of(leaf), "a"]) | st.sampled_from([*map(str.swapcase, phrases_of(leaf)), "B"])
    pieces = draw(st.lists(piece.map(str.encode) | st.sampled_from(BROKEN), max_size=7))
    text = b"".join(pieces)
    cut = draw(st.none() | st.integers(0, len(text)))
    return text if cut is None else text[:cut]


def holds(leaf, content: bytes) -> bool:
    """The plain reading of any bytes; `evaluate` refuses those that are no UTF-8."""
    return leaf.truth(PartOfText(content))
