"""Constraints on token ids: one position, a number of positions, sequences anywhere, the end; and what automata decide."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar
from typing import Literal as OneOf

from locore.kernel.automata.tables import Automaton, aho_corasick
from locore.kernel.constraints.constraint import Constant, Constraint, Json, negation
from locore.kernel.constraints.sequence import TokenizerLike, TokenSequence
from locore.kernel.constraints.serial import (
    as_integer,
    check_positions,
    id_list,
    list_of,
    position_of,
    positions_of,
    read_integer,
    register,
)
from locore.kernel.errors import InvalidConstraint
from locore.kernel.lists import items_of, listed
from locore.kernel.plugins import renamed


@dataclass(frozen=True, eq=False)
class Literal(Constraint):
    """y[position] is one of `tokens`."""

    position: int
    tokens: frozenset[int]

    def leaf_at(self, length: int) -> Constraint:
        """Itself; `InvalidConstraint` when the position is outside 0..length-1."""
        check_positions((self.position,), length)
        return self

    def named_ids(self) -> Iterable[int]:
        """The ids of the set."""
        return self.tokens

    @property
    def label(self) -> str:
        """As in the picture of a circuit that knows no tokenizer either."""
        return f"y[{self.position}]: {listed(sorted(self.tokens), lambda token: f'token {token}')}"

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The token there is in the set."""
        check_positions((self.position,), len(sequence.tokens))
        return sequence.tokens[self.position] in self.tokens

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "token", "position": i, "in": [ids]}`."""
        return {"type": "token", "position": self.position, "in": sorted(self.tokens)}


@dataclass(frozen=True, eq=False)
class Count(Constraint):
    """Between `at_least` and `at_most` (None: any number) of `positions` hold one of `tokens`."""

    positions: tuple[int, ...]
    tokens: frozenset[int]
    at_least: int = 0
    at_most: int | None = None

    def leaf_at(self, length: int) -> Constraint:
        """Itself; `InvalidConstraint` when a position is outside 0..length-1."""
        check_positions(self.positions, length)
        return self

    def named_ids(self) -> Iterable[int]:
        """The ids of the set."""
        return self.tokens

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The number of such positions lies within the bounds."""
        self.leaf_at(len(sequence.tokens))
        number = sum(sequence.tokens[position] in self.tokens for position in self.positions)
        return self.at_least <= number and (self.at_most is None or number <= self.at_most)

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "count_tokens", "positions": [...], "in": [ids], "at_least": ...}`."""
        json: Json = {"type": "count_tokens", "positions": list(self.positions), "in": sorted(self.tokens)}
        if self.at_least:
            json["at_least"] = self.at_least
        if self.at_most is not None:
            json["at_most"] = self.at_most
        return json


class AutomatonLeaf(Constraint):
    """A constraint that a deterministic automaton decides, reading left to right.

    It reads "bytes", those of the text: of the tokens before the first end of sequence. Or "tokens", all `length` ids, the end
    of sequence and its padding included.
    """

    reads: ClassVar[OneOf["bytes", "tokens"]]

    def __init_subclass__(cls, **options: Any) -> None:
        """What a kind reads could be called `over` before that became a method."""
        super().__init_subclass__(**options)
        named = cls.__dict__.get("over")
        if isinstance(named, str):
            renamed("AutomatonLeaf.over", "AutomatonLeaf.reads")
            cls.reads = named  # type: ignore[assignment]
            del cls.over

    @property
    def is_text(self) -> bool:  # type: ignore[override]
        """Text leaves are those that read bytes."""
        return self.reads == "bytes"

    @abstractmethod
    def automaton(self) -> Automaton:
        """The automaton that accepts exactly where the constraint holds, or there and elsewhere if it is relaxed."""

    def exact_with(self, length: int) -> str:
        """What would make a relaxed automaton exact, to end a message with: ", or …"."""
        return ""

    def is_relaxed_at(self, length: int) -> bool:
        """Does the automaton accept sequences of `length` tokens on which the constraint does not hold?

        Such a leaf is checked exactly on finished sequences, and may not stand below a negation.
        """
        return False


def check_vocabulary(constraint: Constraint, vocab_size: int) -> None:
    """`InvalidConstraint` when a leaf names a token id outside 0..vocab_size-1."""
    for leaf in constraint.leaves():
        outside = [token for token in leaf.named_ids() if not 0 <= token < vocab_size]
        if outside:
            raise InvalidConstraint(
                f"token id {outside[0]} is outside the vocabulary of {vocab_size} tokens "
                f"(0 to {vocab_size - 1}); the ids must come from this model's tokenizer"
            )


def token(position: int, ids: int | Iterable[int]) -> Constraint:
    """The token at `position` (0-based) is one of `ids`; never true when there are none.

    Whether the position and the ids exist is checked when length and vocabulary are known.

    Raises:
        InvalidConstraint: a negative position, or what is no token id.
    """
    chosen = frozenset(id_list(ids, "token"))
    return Literal(position_of(position, "token"), chosen) if chosen else Constant(False)


def count_tokens(ids: int | Iterable[int], positions: Iterable[int], at_least: int = 0, at_most: int | None = None) -> Count:
    """Between `at_least` and `at_most` of `positions` hold one of `ids`; None: no upper bound.

    Raises:
        InvalidConstraint: repeated or negative positions, what is no token id, bounds that are
            no numbers.
    """
    where = "count_tokens"
    places = positions_of(positions, where, 0)
    low = as_integer(at_least, f"at_least of {where}")
    high = None if at_most is None else as_integer(at_most, f"at_most of {where}")
    return Count(places, frozenset(id_list(ids, where)), low, high)


def contains_tokens(sequences: Iterable[Iterable[int]]) -> TokenPhrases:
    """One of these sequences of token ids occurs, starting at any position.

    Raises:
        InvalidConstraint: no sequences, an empty one, or what is no token id.
    """
    where = "contains_tokens"
    listed = items_of(sequences, where, "a list of sequences of ids")
    if not all(isinstance(ids, Iterable) for ids in listed):
        raise InvalidConstraint(f"{where} needs a list of sequences, as in [[5, 6]]: got {listed}")
    phrases = tuple(dict.fromkeys(id_list(ids, where, ordered=True) for ids in listed))
    if not phrases or not all(phrases):
        raise InvalidConstraint(f"{where} needs sequences of at least one token id each")
    return TokenPhrases(phrases)


@dataclass(frozen=True, eq=False)
class TokenPhrases(AutomatonLeaf):
    """One of `sequences` of token ids occurs at some position."""

    reads = "tokens"
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


# `in` is the name of the set of ids in JSON, but a word of Python.
register(
    "token", lambda **fields: token(fields["position"], fields["in"]), {"position": read_integer, "in": list_of(read_integer)}
)
register(
    "count_tokens",
    lambda **fields: count_tokens(ids=fields.pop("in"), **fields),
    {"positions": list_of(read_integer), "in": list_of(read_integer)},
    {"at_least": read_integer, "at_most": read_integer},
)
register("contains_tokens", contains_tokens, {"sequences": list_of(list_of(read_integer))})


def finished() -> Finished:
    """The text ends within the horizon: one of the tokens is an end of sequence, which takes a token's place.

    A text of exactly `max_new_tokens` tokens is thus not finished, even if nothing longer could satisfy the rest; ask for a
    token more. Whatever the horizon cuts off satisfies `~finished()`. Of a vocabulary without an end no text is finished.
    """
    return Finished()


@dataclass(frozen=True, eq=False)
class Finished(AutomatonLeaf):
    """An end of sequence is among the tokens.

    `bind` names the ids of the ends; before it the constraint belongs to no tokenizer.
    """

    reads = "tokens"
    eos_ids: tuple[int, ...] = ()

    def leaf_bound(self, tokenizer: TokenizerLike) -> Constraint:
        """With the ends of this tokenizer; never true if it has none."""
        return Finished(tuple(tokenizer.eos_ids)) if tokenizer.eos_ids else Constant(False)

    def automaton(self) -> Automaton:
        """Accepts once an end has been read."""
        return aho_corasick([(token,) for token in self.eos_ids])

    def named_ids(self) -> Iterable[int]:
        """The ends."""
        return self.eos_ids

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Does the first end come before the horizon?"""
        return sequence.end < len(sequence.tokens)

    def why(self, sequence: TokenSequence) -> str:
        """Where the end is, or that there is none."""
        if self.holds_on(sequence, []):
            return f"the end is token {sequence.end} of {len(sequence.tokens)}, counted from 0"
        return f"no end among {len(sequence.tokens)} tokens"

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "finished"}`."""
        return {"type": "finished"}


register("finished", finished)
