"""Checks of the arguments of constraints; a message says which function got what, and what it wants."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from locore.constraints.serial import described
from locore.errors import InvalidConstraint


def as_integer(value: Any, what: str) -> int:
    """A Python, numpy or torch integer as an int; `InvalidConstraint` naming `what` otherwise."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise InvalidConstraint(f"{what} must be an integer, got {value!r}")
    return operator.index(value)


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


def position_of(value: Any, where: str) -> int:
    """A position, which may lie beyond the length; `InvalidConstraint` when it is negative."""
    position = as_integer(value, f"a position of {where}")
    if position < 0:
        raise InvalidConstraint(f"{where} got the position {position}; positions start at 0")
    return position


def positions_of(value: Any, where: str, least: int = 1) -> tuple[int, ...]:
    """Distinct positions, in the user's order.

    Raises:
        InvalidConstraint: no positions, repeated or negative ones, or fewer than `least`.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidConstraint(f"{where} needs a list of positions, got {value!r}")
    places = tuple(position_of(position, where) for position in value)
    if len(set(places)) < len(places):
        twice = next(position for position in places if places.count(position) > 1)
        raise InvalidConstraint(f"{where} got the position {twice} twice; name each position once")
    if len(places) < least:
        raise InvalidConstraint(f"{where} needs at least {least} positions, got {len(places)}")
    return places


def check_positions(positions: tuple[int, ...], length: int) -> None:
    """`InvalidConstraint` where a position is outside a sequence of this length."""
    outside = [position for position in positions if not 0 <= position < length]
    if outside:
        raise InvalidConstraint(
            f"position {outside[0]} is outside a sequence of {length} tokens (0 to {length - 1}); "
            "use a smaller position or a longer sequence"
        )


def flag_of(value: object, name: str, where: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise InvalidConstraint(f"{name} of {where} must be True or False, got {value!r}")
    return value


def bounds_of(low: Any, high: Any, names: tuple[str, str], where: str) -> tuple[int, int | None]:
    """A least and a greatest number, of which at least one says something.

    Args:
        low, high: integers; None for `high` means no bound.
        names: what the caller calls them.
        where: the caller.
    """
    least = as_integer(low, f"{names[0]} of {where}")
    most = None if high is None else as_integer(high, f"{names[1]} of {where}")
    for name, value in zip(names, (least, most), strict=True):
        if value is not None and value < 0:
            raise InvalidConstraint(f"{name}={value} of {where} is negative; a number of times starts at 0")
    if most is not None and least > most:
        raise InvalidConstraint(f"{where} got {names[0]}={least} above {names[1]}={most}; nothing can satisfy both")
    if least == 0 and most is None:
        raise InvalidConstraint(f"{where} got no bound, so that it says nothing; give {names[0]} or {names[1]}")
    return least, most


@described({"type": "boolean"})
def read_flag(value: Any, path: str) -> bool:
    """True or False."""
    return flag_of(value, "the value", path)
