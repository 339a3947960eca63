"""The leaves of constraints: a token at a position, a count over positions, an automaton."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar
from typing import Literal as OneOf

from locore.constraints.automaton import Automaton
from locore.constraints.base import Constraint, Json
from locore.constraints.sequence import TokenSequence
from locore.errors import InvalidConstraint


@dataclass(frozen=True, eq=False)
class Literal(Constraint):
    """y[position] is one of `tokens`."""

    position: int
    tokens: frozenset[int]

    def leaf_at(self, length: int) -> Constraint:
        """Itself; `InvalidConstraint` when the position is outside 0..length-1."""
        _check_position(self.position, length)
        return self

    def named_ids(self) -> Iterable[int]:
        """The ids of the set."""
        return self.tokens

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The token there is in the set."""
        _check_position(self.position, len(sequence.tokens))
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
        for position in self.positions:
            _check_position(position, length)
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
        json: Json = {
            "type": "count_tokens",
            "positions": list(self.positions),
            "in": sorted(self.tokens),
        }
        if self.at_least:
            json["at_least"] = self.at_least
        if self.at_most is not None:
            json["at_most"] = self.at_most
        return json


class AutomatonLeaf(Constraint):
    """A constraint that a deterministic automaton decides, reading left to right.

    Over "bytes" it reads the text: the bytes of the tokens before the first end of sequence. Over
    "tokens" it reads all `length` ids, the end of sequence and its padding included.
    """

    over: ClassVar[OneOf["bytes", "tokens"]]

    @property
    def is_text(self) -> bool:  # type: ignore[override]
        """Text leaves are those that read bytes."""
        return self.over == "bytes"

    @abstractmethod
    def automaton(self) -> Automaton:
        """The automaton that accepts exactly where the constraint holds, or there and elsewhere if it is relaxed."""

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


def _check_position(position: int, length: int) -> None:
    if not 0 <= position < length:
        raise InvalidConstraint(
            f"position {position} is outside a sequence of {length} tokens (0 to {length - 1}); "
            "use a smaller position or a longer sequence"
        )
