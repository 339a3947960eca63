"""Random constraints with their oracle, and hard token sequences of a vocabulary, for the tests here."""

from __future__ import annotations

import json
import random
import re
import warnings
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from hypothesis import assume
from hypothesis import strategies as st

from locore.constraints import ban, constraint, contains, contains_tokens, count_tokens, finished, json_schema, regex, token
from locore.kernel.errors import InvalidConstraint
from locore.kernel.tokenizer import Tokenizer

from ..constraints.patterns import FLAGS as REGEX_FLAGS
from ..constraints.patterns import patterns
from ..constraints.schemas import schemas
from ..constraints.texts import BROKEN, leaves
from .oracle import Case, Read, closed, has_tokens, truth_of

# Pieces that meet each other: words in several tokens and parts of them, case that surprises, marks and joiners, letters from
# right to left, NUL, characters of several bytes and what stands for broken ones, ends of sentences, JSON.
THEMES = [
    (" the", "he", " a", "ad"),
    ("a", "b", "ab", "B"),
    (" sun", "Sun", "ny", "."),
    ("é", "e\u0301", "É", "e"),
    ("😀", "東", "\ufffd", "𝒳"),
    ("İ", "i", "ı", "I\u0307"),
    ("σ", "ς", "Σ", "a"),
    ("ß", "ẞ", "ss", "ſ"),
    ("א", "ע", " ", "א\u05bc"),
    ("a", "\u200d", "_", "?"),
    ("\0", "\n", "a", "\x85"),
    (".", "!", " ", "A"),
    ('"', "1", "{", ","),
]
LENGTHS = [1, 2, 3, 4, 5, 7]
FLOATS = re.compile(r"\d[.eE]")


@dataclass(frozen=True, eq=False, repr=False)
class Vocabulary:
    """A tokenizer, and random ways to spell a text with it."""

    name: str
    tokenizer: Tokenizer

    def _repr_pretty_(self, printer, cycle):
        printer.text(self.name)  # Hypothesis would write every token

    @cached_property
    def ids_of(self) -> dict[bytes, list[int]]:
        """The tokens of each spelling."""
        found: dict[bytes, list[int]] = {}
        for one, content in enumerate(self.tokenizer.token_bytes):
            if content:
                found.setdefault(content, []).append(one)
        return found

    @cached_property
    def special(self) -> list[int]:
        return [one for one, content in enumerate(self.tokenizer.token_bytes) if content is None]

    @cached_property
    def longest(self) -> int:
        return max(map(len, self.ids_of))

    def spelled(self, content: bytes, generator: random.Random) -> list[int]:
        """Tokens of these bytes, any of the ways to cut them."""
        ids, at = [], 0
        while at < len(content):
            fits = [content[at:end] for end in range(at + 1, min(len(content), at + self.longest) + 1)]
            piece = generator.choice([piece for piece in fits if piece in self.ids_of])
            ids.append(generator.choice(self.ids_of[piece]))
            at += len(piece)
        return ids

    def sequence(self, texts: list[bytes], length: int, generator: random.Random) -> tuple[int, ...]:
        """Ids that spell some of these texts, mostly padded well; now and then a special token, or more after an end."""
        content = b"".join(generator.choice(texts) for _ in range(generator.randrange(4)))
        ids = self.spelled(content, generator)
        if generator.random() < 0.1:
            ids.insert(generator.randrange(len(ids) + 1), generator.choice(self.special))
        if generator.random() < 0.8:
            ids.append(generator.choice(self.tokenizer.eos_ids))
            ids += self.tokenizer.eos_ids[:1] * (length - len(ids))
        while len(ids) < length:
            ids.append(generator.randrange(self.tokenizer.vocab_size))
        return tuple(ids[:length])

    def likely(self, texts: list[bytes], length: int, batch: int, generator: random.Random) -> torch.Tensor:
        """Float[batch, length, vocab]: unnormalised distributions that prefer the tokens of these texts and the end."""
        rows = torch.full((batch, length, self.tokenizer.vocab_size), -6.0, dtype=torch.float64)
        for row in rows[1:]:  # the first one has no preferences
            tokens = [one for text in texts for one in self.spelled(text, generator)]
            row[:, [*tokens, *self.tokenizer.eos_ids]] = 0.0
        return rows


@dataclass(frozen=True)
class Problem:
    """A random constraint for one vocabulary and length, and texts that matter to it."""

    case: Case
    vocabulary: Vocabulary
    length: int
    texts: list[bytes]

    def read(self, ids: list[int] | tuple[int, ...]) -> Read:
        return Read(tuple(ids), self.vocabulary.tokenizer)


# Leaves.


def of_form(leaf) -> Case:
    form = leaf.to_json()
    return Case(leaf, lambda read: truth_of(form, read))


def regexes(pieces):
    """Random patterns, and alternatives of the pieces."""
    simple = st.lists(pieces.map(re.escape), min_size=1, max_size=3).map(lambda found: f"(?:{'|'.join(found)}){{0,3}}")
    return st.builds(regex_of, patterns() | simple, st.sampled_from(REGEX_FLAGS[:4]))


def regex_of(pattern, flags):
    """Patterns that Python does not accept or that are refused are not tried."""
    letters = "".join(letter for letter, flag in zip("ism", (re.I, re.S, re.M), strict=True) if flags & flag)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
        return regex(f"(?{letters}){pattern}" if letters else pattern)
    except (re.error, InvalidConstraint):
        assume(False)


def is_plain(schema) -> bool:
    """Without what Python and ECMA-262 match differently, and without fractions, whose spelling matters."""
    text = json.dumps(schema)
    return not ("\\\\s" in text.lower() or "^.{" in text or FLOATS.search(text))


@st.composite
def functions(draw, ids, length, phrases):
    """Python functions of tokens, with the same said of a plain list of ids."""
    v, w, place, phrase = draw(ids), draw(ids), draw(st.integers(0, length - 1)), draw(phrases)
    says = of_form(contains(phrase))

    @constraint
    def never(tokens):
        return all(not tokens(i, v) for i in range(len(tokens)))

    @constraint
    def few(tokens):
        return (tokens == v).sum() <= 1 or tokens(place, [v, w])

    @constraint
    def depends(tokens):
        if tokens[place] == v:
            return says.constraint
        return tokens[-1].isin([v, w]) and not says.constraint

    pairs = [
        (never, lambda read: v not in read.ids),
        (few, lambda read: read.ids.count(v) <= 1 or has_tokens([[v, w]], Read(read.ids[place : place + 2], read.tokenizer))),
        (depends, lambda read: says.truth(read) if read.ids[place] == v else read.ids[-1] in (v, w) and not says.truth(read)),
    ]
    return Case(*draw(st.sampled_from(pairs)))


def on_tokens(ids, length, phrases):
    """Leaves that speak about token ids."""
    places = st.integers(0, length - 1)
    several = st.lists(ids, min_size=1, max_size=3)
    made = st.one_of(
        st.builds(token, places, several),
        st.builds(count_tokens, several, st.lists(places, unique=True), st.integers(0, 2), st.none() | st.integers(0, 2)),
        st.builds(contains_tokens, st.lists(several, min_size=1, max_size=2)),
        st.builds(ban, st.lists(phrases, min_size=1, max_size=2), st.just("tokens")),
        st.just(finished()),
    )
    return made.map(of_form) | functions(ids, length, phrases)


def on_text(phrases):
    """Leaves that speak about the text."""
    spelling = {"whitespace": "any", "order": "any", "escapes": "any", "integers": "any"}
    schema = schemas().filter(is_plain).map(lambda one: json_schema(closed(one), **spelling))
    return st.one_of(leaves(phrases), leaves(phrases), regexes(phrases), schema).map(of_form)


def combined(cases):
    """Combinations with & | ~ ^ and >>."""
    binary = {
        lambda a, b: a & b: lambda p, q: p and q,
        lambda a, b: a | b: lambda p, q: p or q,
        lambda a, b: a ^ b: lambda p, q: p != q,
        lambda a, b: a >> b: lambda p, q: q or not p,
    }

    def joined(operation, a: Case, b: Case) -> Case:
        make, truth = operation
        return Case(make(a.constraint, b.constraint), lambda read: truth(a.truth(read), b.truth(read)))

    def negated(a: Case) -> Case:
        return Case(~a.constraint, lambda read: not a.truth(read))

    def larger(inner):
        return st.builds(joined, st.sampled_from(list(binary.items())), inner, inner) | inner.map(negated)

    return st.recursive(cases, larger, max_leaves=4)


@cache
def leaves_of(vocabulary: Vocabulary, pieces: tuple[str, ...], length: int) -> st.SearchStrategy[Case]:
    """Constraints whose phrases and ids are made of a few pieces of text."""
    phrases = st.lists(st.sampled_from(pieces), min_size=1, max_size=2).map("".join)
    found = "\n".join(pieces).encode()
    common = [one for content, tokens in vocabulary.ids_of.items() for one in tokens if content in found]
    ids = st.sampled_from([*common, *vocabulary.tokenizer.eos_ids, vocabulary.special[0]])
    ids |= st.integers(0, vocabulary.tokenizer.vocab_size - 1)
    return on_text(phrases) | on_tokens(ids, length, phrases)


@st.composite
def leaf(draw, vocabulary: Vocabulary, pieces: tuple[str, ...], length: int):
    """One of them; behind a function, because Hypothesis writes out what it may recur on."""
    return draw(leaves_of(vocabulary, pieces, length))


@st.composite
def problems(draw, vocabulary: Vocabulary, lengths=LENGTHS, themes=THEMES):
    """A random constraint of a few pieces of text that come again and again.

    Args:
        vocabulary: the tokens.
        lengths: numbers of positions.
        themes: what the phrases are made of.
    """
    pieces, length = draw(st.sampled_from(themes)), draw(st.sampled_from(lengths))
    case = draw(combined(leaf(vocabulary, pieces, length)))
    texts = [piece.encode() for piece in pieces] + [draw(st.sampled_from(BROKEN)), b'"a"', b"1", b"A"]
    return Problem(case, vocabulary, length, texts)
