"""Positions compared with each other: all different, all equal, a permutation; and what the leaves of this folder share."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from locore.kernel.constraints.constraint import Constraint, Json, conjunction, disjunction
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.constraints.serial import (
    Reader,
    check_positions,
    described,
    id_list,
    list_of,
    positions_of,
    read_integer,
    register,
)
from locore.kernel.constraints.tokens import Count, Literal
from locore.kernel.errors import InvalidConstraint
from locore.kernel.lists import items_of

Groups = tuple[frozenset[int], ...]  # of token ids; those of one group are one value


class Combinatorial(Constraint):
    """A leaf about the values at several positions, which compilers propagate and search instead of reading left to right."""

    compiler = "locore.puzzles.combinatorial.conjunct"
    positions: tuple[int, ...]

    def leaf_at(self, length: int) -> Constraint:
        """Itself; `InvalidConstraint` when a position is outside 0..length-1."""
        check_positions(self.positions, length)
        return self

    @abstractmethod
    def parts(self) -> tuple[Constraint, ...]:
        """The same as a conjunction of `Literal`, `Count`, `AllDifferent`, `AllEqual` and `TokenSum`."""

    def lowered(self, vocab_size: int) -> Constraint:
        """The same over literals and counts alone, for compilers that know nothing else."""
        return lowered_parts(self.parts(), vocab_size)


def lowered_parts(parts: Iterable[Constraint], vocab_size: int) -> Constraint:
    """The conjunction of the lowered forms of parts."""
    return conjunction(part.lowered(vocab_size) if isinstance(part, Combinatorial) else part for part in parts)


def groups_of(value: Any, where: str) -> Groups:
    """Disjoint groups of token ids; None is no group at all."""
    if value is None:
        return ()
    listed = items_of(value, where, "a list of ids, or of lists of ids that are one value")
    groups = tuple(frozenset(id_list(ids, where)) for ids in listed)
    if not groups or not all(groups):
        raise InvalidConstraint(f"{where} needs at least one token id for each value; leave values out to compare ids")
    if sum(map(len, groups)) > len(frozenset().union(*groups)):
        raise InvalidConstraint(f"{where} got a token id that has two values; put each id into one group")
    return groups


def shown(sequence: TokenSequence, token: int) -> str:
    """A token for a reason: its text if it has one, else its id."""
    content = None if sequence.tokenizer is None else sequence.tokenizer.token_bytes[token]
    return f"token {token}" if content is None else repr(content.decode("utf-8", errors="replace"))


def all_different(positions: Iterable[int], values: Iterable[Any] | None = None) -> AllDifferent:
    """No two of these positions hold the same value.

    Args:
        positions: 0-based, at least two.
        values: token ids, or lists of ids that count as one value (two spellings of a digit, say); other tokens then have
            no value and never clash. None: the value of a token is its id, the end of the text included.

    Raises:
        InvalidConstraint: repeated or negative positions, or an id with two values.
    """
    return AllDifferent(positions_of(positions, "all_different", 2), _values_of(values, "all_different"))


def all_equal(positions: Iterable[int], values: Iterable[Any] | None = None) -> AllEqual:
    """All of these positions hold the same value; two positions are a pair of equals.

    Args:
        positions: 0-based, at least two.
        values: token ids, or lists of ids that count as one value; no other token may then stand there. None: the value of
            a token is its id.

    Raises:
        InvalidConstraint: as `all_different`.
    """
    return AllEqual(positions_of(positions, "all_equal", 2), _values_of(values, "all_equal"))


def permutation(positions: Iterable[int], tokens: Iterable[int]) -> Permutation:
    """The positions hold exactly these tokens, in any order; a token that is given k times occurs k times.

    Raises:
        InvalidConstraint: not as many tokens as positions, or no such positions or ids.
    """
    places = positions_of(positions, "permutation")
    chosen = id_list(tokens, "permutation")
    if len(chosen) != len(places):
        raise InvalidConstraint(
            f"permutation got {len(chosen)} tokens for {len(places)} positions; give one token for each position"
        )
    return Permutation(places, tuple(sorted(chosen)))


class _Compared(Combinatorial):
    """Positions and values, as `AllDifferent` and `AllEqual` have them."""

    values: Groups

    def named_ids(self) -> Iterable[int]:
        """The ids that have a value."""
        return frozenset().union(*self.values)

    def parts(self) -> tuple[Constraint, ...]:
        """Itself."""
        return (self,)

    def value_at(self, sequence: TokenSequence, position: int) -> object:
        """What is compared: the id, or the number of its group; None if it is in none."""
        token = sequence.tokens[position]
        if not self.values:
            return ("id", token)
        return next((number for number, group in enumerate(self.values) if token in group), None)

    def groups(self, vocab_size: int) -> Groups:
        """The values as groups of ids, single ids where none were given."""
        return self.values or tuple(frozenset({token}) for token in range(vocab_size))

    def _fields(self, name: str) -> Json:
        json: Json = {"type": name, "positions": list(self.positions)}
        if self.values:
            json["values"] = [ids[0] if len(ids := sorted(group)) == 1 else ids for group in self.values]
        return json


@dataclass(frozen=True, eq=False)
class AllDifferent(_Compared):
    """No two positions hold the same value."""

    positions: tuple[int, ...]
    values: Groups = ()

    def lowered(self, vocab_size: int) -> Constraint:
        """At most one position holds each value."""
        return conjunction(Count(self.positions, group, 0, 1) for group in self.groups(vocab_size))

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """No value occurs twice."""
        return self._clash(sequence) is None

    def why(self, sequence: TokenSequence) -> str:
        """The first two positions with the same value."""
        clash = self._clash(sequence)
        if clash is None:
            return ""
        token = shown(sequence, sequence.tokens[clash[1]])
        return f"positions {clash[0]} and {clash[1]} both hold {token}"

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "all_different", "positions": [...], "values": [...]}`."""
        return self._fields("all_different")

    def _clash(self, sequence: TokenSequence) -> tuple[int, int] | None:
        check_positions(self.positions, len(sequence.tokens))
        seen: dict[object, int] = {}
        for position in self.positions:
            value = self.value_at(sequence, position)
            if value is not None and value in seen:
                return seen[value], position
            seen[value] = position
        return None


@dataclass(frozen=True, eq=False)
class AllEqual(_Compared):
    """All positions hold the same value."""

    positions: tuple[int, ...]
    values: Groups = ()

    def lowered(self, vocab_size: int) -> Constraint:
        """Some value is at every position."""
        return disjunction(
            conjunction(Literal(position, group) for position in self.positions) for group in self.groups(vocab_size)
        )

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """There is one value."""
        return self._odd_one(sequence) is None

    def why(self, sequence: TokenSequence) -> str:
        """The first position that differs from those before it."""
        odd = self._odd_one(sequence)
        if odd is None:
            return ""
        first = self.positions[0]
        tokens = [shown(sequence, sequence.tokens[position]) for position in (first, odd)]
        if odd == first:
            return f"position {first} holds {tokens[0]}, which has no value"
        return f"position {first} holds {tokens[0]}, position {odd} holds {tokens[1]}"

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "all_equal", "positions": [...], "values": [...]}`."""
        return self._fields("all_equal")

    def _odd_one(self, sequence: TokenSequence) -> int | None:
        check_positions(self.positions, len(sequence.tokens))
        first = self.value_at(sequence, self.positions[0])
        if first is None:
            return self.positions[0]
        return next((p for p in self.positions if self.value_at(sequence, p) != first), None)


@dataclass(frozen=True, eq=False)
class Permutation(Combinatorial):
    """The positions hold exactly these tokens, which are sorted, in any order."""

    positions: tuple[int, ...]
    tokens: tuple[int, ...]

    def named_ids(self) -> Iterable[int]:
        """The tokens."""
        return self.tokens

    def parts(self) -> tuple[Constraint, ...]:
        """One of the tokens at each position, and each as often as it is given."""
        often = Counter(self.tokens)
        domains = [Literal(position, frozenset(often)) for position in self.positions]
        if len(often) == len(self.tokens):
            groups = tuple(frozenset({token}) for token in often)
            return (*domains, *([AllDifferent(self.positions, groups)] if len(self.positions) > 1 else []))
        return (*domains, *(Count(self.positions, frozenset({token}), k, k) for token, k in often.items()))

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Sorted, the tokens there are the given ones."""
        check_positions(self.positions, len(sequence.tokens))
        return tuple(sorted(sequence.tokens[position] for position in self.positions)) == self.tokens

    def why(self, sequence: TokenSequence) -> str:
        """A token that is missing or too many."""
        counts = Counter(sequence.tokens[position] for position in self.positions)
        wanted = Counter(self.tokens)
        reasons = [f"{shown(sequence, token)} is missing" for token in wanted - counts]
        reasons += [f"{shown(sequence, token)} is too many" for token in counts - wanted]
        return ", ".join(reasons[:4])

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "permutation", "positions": [...], "tokens": [...]}`."""
        return {"type": "permutation", "positions": list(self.positions), "tokens": list(self.tokens)}


def _values_of(values: Iterable[Any] | None, where: str) -> Groups:
    return groups_of(values, f"values of {where}")


@described({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]})
def _read_group(value: Any, path: str) -> Any:
    read: Reader = list_of(read_integer) if isinstance(value, list) else read_integer
    return read(value, path)


for _name, _build in (("all_different", all_different), ("all_equal", all_equal)):
    register(_name, _build, {"positions": list_of(read_integer)}, {"values": list_of(_read_group)})
register("permutation", permutation, {"positions": list_of(read_integer), "tokens": list_of(read_integer)})
