"""What the constraints of this folder share: positions, values of tokens, and a meaning as a conjunction of simpler leaves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from locore.constraints.base import Constraint, conjunction
from locore.constraints.sequence import TokenSequence
from locore.constraints.tokens import as_integer, id_list
from locore.errors import InvalidConstraint

Groups = tuple[frozenset[int], ...]  # of token ids; those of one group are one value


class Combinatorial(Constraint):
    """A leaf about the values at several positions, which compilers propagate and search instead of reading left to right."""

    @abstractmethod
    def parts(self) -> tuple[Constraint, ...]:
        """The same as a conjunction of `Literal`, `Count`, `AllDifferent`, `AllEqual` and `TokenSum`."""

    @abstractmethod
    def lowered(self, vocab_size: int) -> Constraint:
        """The same over literals and counts alone, for compilers that know nothing else."""


def lowered_parts(parts: Iterable[Constraint], vocab_size: int) -> Constraint:
    """The conjunction of the lowered forms of parts."""
    return conjunction(part.lowered(vocab_size) if isinstance(part, Combinatorial) else part for part in parts)


def positions_of(value: Any, where: str, least: int = 1) -> tuple[int, ...]:
    """Distinct positions, in the user's order.

    Raises:
        InvalidConstraint: no positions, repeated or negative ones, or fewer than `least`.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidConstraint(f"{where} needs a list of positions, got {value!r}")
    places = tuple(as_integer(position, f"a position of {where}") for position in value)
    for position in places:
        if position < 0:
            raise InvalidConstraint(f"{where} got the position {position}; positions start at 0")
    if len(set(places)) < len(places):
        twice = next(position for position in places if places.count(position) > 1)
        raise InvalidConstraint(f"{where} got the position {twice} twice; name each position once")
    if len(places) < least:
        raise InvalidConstraint(f"{where} needs at least {least} positions, got {len(places)}")
    return places


def groups_of(value: Any, where: str) -> Groups:
    """Disjoint groups of token ids; None is no group at all."""
    if value is None:
        return ()
    if not isinstance(value, Iterable):
        raise InvalidConstraint(f"{where} needs a list of ids, or of lists of ids that are one value, got {value!r}")
    groups = tuple(frozenset(id_list(ids, where)) for ids in value)
    if not groups or not all(groups):
        raise InvalidConstraint(f"{where} needs at least one token id for each value; leave values out to compare ids")
    if sum(map(len, groups)) > len(frozenset().union(*groups)):
        raise InvalidConstraint(f"{where} got a token id that has two values; put each id into one group")
    return groups


def check_positions(positions: tuple[int, ...], length: int) -> None:
    """`InvalidConstraint` where a position is outside a sequence of this length."""
    outside = [position for position in positions if position >= length]
    if outside:
        raise InvalidConstraint(
            f"position {outside[0]} is outside a sequence of {length} tokens (0 to {length - 1}); "
            "use a smaller position or a longer sequence"
        )


def shown(sequence: TokenSequence, token: int) -> str:
    """A token for a reason: its text if it has one, else its id."""
    content = None if sequence.tokenizer is None else sequence.tokenizer.token_bytes[token]
    return f"token {token}" if content is None else repr(content.decode("utf-8", errors="replace"))
