"""Constraints on the text: the decoded bytes of the tokens before the end of sequence.

A phrase is its UTF-8 bytes, so every tokenisation counts and phrases may straddle tokens.
Everything is case-sensitive and nothing is stripped: `choice(["yes"])` does not match " yes".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal as OneOf

from locore.constraints.automaton import Automaton, aho_corasick, ends_with_one_of, one_of
from locore.constraints.base import Json
from locore.constraints.leaves import AutomatonLeaf
from locore.constraints.sequence import TokenSequence
from locore.constraints.serial import list_of, read_string, register
from locore.constraints.tokens import BanTokens
from locore.errors import InvalidConstraint


def ban(phrases: str | Iterable[str], level: OneOf["text", "tokens"] = "text") -> Ban | BanTokens:
    """None of `phrases` occurs.

    Args:
        phrases: one string or several, none empty.
        level: "text": not as a substring of the text, whatever its tokens. "tokens": not as the
            token ids that the tokenizer gives to the phrase, plain or after a space, from any
            position on, as in Ahmed et al., ICLR 2025; other tokenisations pass.

    Raises:
        InvalidConstraint: no phrases, an empty phrase, or an unknown level.
    """
    known = _phrases(phrases, "ban")
    if level == "text":
        return Ban(known)
    if level == "tokens":
        return BanTokens(known)
    raise InvalidConstraint(f'ban knows the levels "text" and "tokens", not {level!r}')


def contains(text: str) -> Contains:
    """The text has `text` as a substring. `InvalidConstraint` when `text` is empty."""
    return Contains(_phrase(text, "contains"))


def ends_with(text: str) -> EndsWith:
    """The finished text ends with `text`. `InvalidConstraint` when `text` is empty."""
    return EndsWith(_phrase(text, "ends_with"))


def choice(texts: str | Iterable[str]) -> Choice:
    """The whole text is one of `texts`. `InvalidConstraint` for no texts or an empty one."""
    return Choice(_phrases(texts, "choice"))


@dataclass(frozen=True, eq=False)
class Ban(AutomatonLeaf):
    """None of `phrases` is a substring of the text."""

    over = "bytes"
    phrases: tuple[str, ...]

    def automaton(self) -> Automaton:
        """Rejects once a phrase has been read."""
        return aho_corasick(phrase.encode() for phrase in self.phrases).complement()

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Substring search for each phrase."""
        return not any(phrase.encode() in sequence.text for phrase in self.phrases)

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "ban", "phrases": [...]}`."""
        return {"type": "ban", "phrases": list(self.phrases)}


@dataclass(frozen=True, eq=False)
class Contains(AutomatonLeaf):
    """The text has `text` as a substring."""

    over = "bytes"
    text: str

    def automaton(self) -> Automaton:
        """Accepts once the text has been read."""
        return aho_corasick([self.text.encode()])

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Substring search."""
        return self.text.encode() in sequence.text

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "contains", "text": ...}`."""
        return {"type": "contains", "text": self.text}


@dataclass(frozen=True, eq=False)
class EndsWith(AutomatonLeaf):
    """The text ends with `text`."""

    over = "bytes"
    text: str

    def automaton(self) -> Automaton:
        """Accepts while the bytes read last are the text."""
        return ends_with_one_of([self.text.encode()])

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Comparison of the last bytes."""
        return sequence.text.endswith(self.text.encode())

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "ends_with", "text": ...}`."""
        return {"type": "ends_with", "text": self.text}


@dataclass(frozen=True, eq=False)
class Choice(AutomatonLeaf):
    """The whole text is one of `texts`."""

    over = "bytes"
    texts: tuple[str, ...]

    def automaton(self) -> Automaton:
        """Accepts exactly the texts."""
        return one_of(text.encode() for text in self.texts)

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Comparison with each text."""
        return any(sequence.text == text.encode() for text in self.texts)

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "choice", "texts": [...]}`."""
        return {"type": "choice", "texts": list(self.texts)}


def _phrases(value: object, where: str) -> tuple[str, ...]:
    """One string or several as a tuple of distinct phrases, in the user's order."""
    if isinstance(value, str):
        return (_phrase(value, where),)
    if not isinstance(value, Iterable) or isinstance(value, bytes):
        raise InvalidConstraint(f"{where} needs a string or a list of strings, got {value!r}")
    phrases = tuple(dict.fromkeys(_phrase(phrase, where) for phrase in value))
    if not phrases:
        raise InvalidConstraint(f"{where} got no phrase at all; pass at least one")
    return phrases


def _phrase(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidConstraint(f"{where} needs a string, got {value!r}")
    if not value:
        raise InvalidConstraint(f"{where} got an empty phrase, which occurs in every text; remove it")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidConstraint(
            f"{where} got {value!r}, which has no UTF-8 bytes ({error.reason}); remove the lone surrogate"
        ) from error
    return value


register("ban", ban, {"phrases": list_of(read_string)}, {"level": read_string})
register("contains", contains, {"text": read_string})
register("ends_with", ends_with, {"text": read_string})
register("choice", choice, {"texts": list_of(read_string)})
