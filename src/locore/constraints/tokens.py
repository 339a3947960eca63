"""Constraints on token ids: one position, a number of positions, sequences anywhere."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from locore.constraints.automaton import Automaton, aho_corasick
from locore.constraints.base import Constant, Constraint, Json, negation
from locore.constraints.leaves import AutomatonLeaf, Count, Literal
from locore.constraints.sequence import TokenizerLike, TokenSequence
from locore.constraints.serial import list_of, read_integer, register
from locore.errors import InvalidConstraint


def token(position: int, ids: int | Iterable[int]) -> Constraint:
    """The token at `position` (0-based) is one of `ids`; never true when there are none.

    Whether the position and the ids exist is checked when length and vocabulary are known.

    Raises:
        InvalidConstraint: a negative position, or what is no token id.
    """
    chosen = frozenset(id_list(ids, "token"))
    return Literal(_position(position, "token"), chosen) if chosen else Constant(False)


def count_tokens(
    ids: int | Iterable[int],
    positions: Iterable[int],
    at_least: int = 0,
    at_most: int | None = None,
) -> Count:
    """Between `at_least` and `at_most` of `positions` hold one of `ids`; None: no upper bound.

    Raises:
        InvalidConstraint: repeated or negative positions, what is no token id, bounds that are
            no numbers.
    """
    where = "count_tokens"
    if not isinstance(positions, Iterable):
        raise InvalidConstraint(f"{where} needs a list of positions, got {positions!r}")
    places = tuple(_position(position, where) for position in positions)
    if len(set(places)) < len(places):
        raise InvalidConstraint(f"{where} got a position twice in {places}; name each once")
    low = as_integer(at_least, f"at_least of {where}")
    high = None if at_most is None else as_integer(at_most, f"at_most of {where}")
    return Count(places, frozenset(id_list(ids, where)), low, high)


def contains_tokens(sequences: Iterable[Iterable[int]]) -> TokenPhrases:
    """One of these sequences of token ids occurs, starting at any position.

    Raises:
        InvalidConstraint: no sequences, an empty one, or what is no token id.
    """
    where = "contains_tokens"
    if not isinstance(sequences, Iterable):
        raise InvalidConstraint(f"{where} needs a list of sequences of ids, got {sequences!r}")
    listed = list(sequences)
    if not all(isinstance(ids, Iterable) for ids in listed):
        raise InvalidConstraint(f"{where} needs a list of sequences, as in [[5, 6]]: got {listed}")
    known = tuple(dict.fromkeys(id_list(ids, where) for ids in listed))
    if not known or not all(known):
        raise InvalidConstraint(f"{where} needs sequences of at least one token id each")
    return TokenPhrases(known)


@dataclass(frozen=True, eq=False)
class TokenPhrases(AutomatonLeaf):
    """One of `sequences` of token ids occurs at some position."""

    over = "tokens"
    sequences: tuple[tuple[int, ...], ...]

    def automaton(self) -> Automaton:
        """Accepts once one of the sequences has been read."""
        return aho_corasick(self.sequences)

    def named_ids(self) -> Iterable[int]:
        """The ids of all sequences."""
        return {token for sequence in self.sequences for token in sequence}

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Comparison at every position."""
        tokens = sequence.tokens
        return any(tokens[start : start + len(ids)] == ids for ids in self.sequences for start in range(len(tokens)))

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "contains_tokens", "sequences": [[ids], ...]}`."""
        return {"type": "contains_tokens", "sequences": [list(ids) for ids in self.sequences]}


@dataclass(frozen=True, eq=False)
class BanTokens(Constraint):
    """No phrase, plain or after a space, as the ids that a tokenizer gives it, at any position.

    `bind` names these ids; before it the constraint belongs to no tokenizer.
    """

    phrases: tuple[str, ...]

    def leaf_bound(self, tokenizer: TokenizerLike) -> Constraint:
        """The negation of the `TokenPhrases` of this tokenizer."""
        spellings = [text for phrase in self.phrases for text in (phrase, " " + phrase)]
        return negation(contains_tokens(tokenizer.encode(text) for text in spellings))

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """That of the bound constraint."""
        return self.leaf_bound(sequence.known_tokenizer).truth(sequence)

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "ban", "phrases": [...], "level": "tokens"}`."""
        return {"type": "ban", "phrases": list(self.phrases), "level": "tokens"}


def id_list(value: Any, where: str) -> tuple[int, ...]:
    """One token id or several as a tuple of Python ints.

    Raises:
        InvalidConstraint: what is no token id, bools included; the message names `where`.
    """
    if isinstance(value, str) or not (hasattr(value, "__iter__") or hasattr(value, "__index__")):
        raise InvalidConstraint(
            f"{where} needs a token id or a list of them, got {value!r}; a tokenizer's `encode` gives the ids of a text"
        )
    several = hasattr(value, "__iter__") and getattr(value, "ndim", 1) > 0
    what = f"a token id of {where}"
    ids = tuple(as_integer(one, what) for one in (value if several else [value]))
    negative = [one for one in ids if one < 0]
    if negative:
        raise InvalidConstraint(f"{where} got the token id {negative[0]}; ids start at 0")
    return ids


def _position(value: Any, where: str) -> int:
    position = as_integer(value, f"a position of {where}")
    if position < 0:
        raise InvalidConstraint(f"{where} got the position {position}; positions start at 0")
    return position


def as_integer(value: Any, what: str) -> int:
    """A Python, numpy or torch integer as an int; `InvalidConstraint` naming `what` otherwise."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise InvalidConstraint(f"{what} must be an integer, got {value!r}")
    return operator.index(value)


# `in` is the name of the set of ids in JSON, but a word of Python.
register(
    "token",
    lambda **fields: token(fields["position"], fields["in"]),
    {"position": read_integer, "in": list_of(read_integer)},
)
register(
    "count_tokens",
    lambda **fields: count_tokens(ids=fields.pop("in"), **fields),
    {"positions": list_of(read_integer), "in": list_of(read_integer)},
    {"at_least": read_integer, "at_most": read_integer},
)
register("contains_tokens", contains_tokens, {"sequences": list_of(list_of(read_integer))})
