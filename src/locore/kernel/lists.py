"""Where a list is meant: what iterates as something else is refused, so that nothing is lost.

A mapping iterates as its keys and bytes as numbers. A set has no order, which matters to some. And: the most probable first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from locore.kernel.errors import InvalidConstraint, LocoreError

EQUAL = 1e-4  # relative: shares that differ by less do so by rounding
NAMED = 6  # items that stand for all in a name
T = TypeVar("T")


def items_of(
    value: object, where: str, wanted: str, *, ordered: bool = False, error: type[LocoreError] = InvalidConstraint
) -> list[Any]:
    """The items of a list, a tuple, another sequence or an iterator; and of a set, sorted.

    Args:
        value: what was given.
        where: to whom, for messages.
        wanted: what they want, such as "a string or a list of strings".
        ordered: does the order matter?
        error: what is raised.

    Raises:
        error: a mapping, a string or bytes, a set where the order matters, or what cannot be iterated.
    """
    kind = type(value).__name__
    if isinstance(value, Mapping):
        remedy = "only its keys would be read; pass a list, of its values ([*d.values()]) or its keys ([*d])"
        raise error(f"{where} needs {wanted}, got a mapping ({kind}): {remedy}")
    if isinstance(value, bytes | bytearray | memoryview):
        raise error(f"{where} needs {wanted}, got {kind}, which iterate as numbers; pass text (value.decode()) or list(value)")
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise error(f"{where} needs {wanted}, got {value!r}")
    if isinstance(value, set | frozenset):
        if ordered:
            raise error(f"{where} needs {wanted}, in order, got a {kind}, which has none; pass a list")
        with suppress(TypeError):
            return sorted(value)
        return sorted(value, key=repr)
    return list(value)


def listed(items: Sequence[T], name: Callable[[T], str]) -> str:
    """The names of the first few, and how many more there are."""
    more = f" and {len(items) - NAMED:,} more" if len(items) > NAMED else ""
    return ", ".join(map(name, items[:NAMED])) + more


def largest_first(items: Iterable[T], share: Callable[[T], float]) -> list[T]:
    """Items by their shares; those that differ by rounding alone stay in their order."""
    equal, ranked = math.inf, []
    for number, item in sorted(enumerate(items), key=lambda pair: -share(pair[1])):
        equal = equal if share(item) >= equal * (1 - EQUAL) else share(item)
        ranked.append((-equal, number, item))
    return [item for *_, item in sorted(ranked)]  # by number where equal: items themselves are never compared
