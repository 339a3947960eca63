"""Checks of the arguments of text constraints; a message says which function got what, and what it wants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from locore.constraints.plain import Manner
from locore.constraints.serial import described, read_integer, read_string
from locore.constraints.tokens import as_integer
from locore.errors import InvalidConstraint


def phrases_of(value: object, where: str) -> tuple[str, ...]:
    """One string or several as a tuple of distinct phrases, in the user's order."""
    return tuple(dict.fromkeys(sequence_of(value, where)))


def sequence_of(value: object, where: str) -> tuple[str, ...]:
    """The same with repetitions."""
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, Iterable) or isinstance(value, bytes):
        raise InvalidConstraint(f"{where} needs a string or a list of strings, got {value!r}")
    phrases = tuple(phrase_of(phrase, where) for phrase in value)
    if not phrases:
        raise InvalidConstraint(f"{where} got no phrase at all; pass at least one")
    return phrases


def phrase_of(value: object, where: str) -> str:
    """A string that can occur in a text."""
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


def flag_of(value: object, name: str, where: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise InvalidConstraint(f"{name} of {where} must be True or False, got {value!r}")
    return value


def manner_of(words: object, ignore_case: object, where: str) -> Manner:
    """How to compare."""
    return Manner(flag_of(words, "words", where), flag_of(ignore_case, "ignore_case", where))


def limits_of(at_least: Any, at_most: Any, exactly: Any, where: str, default: int) -> tuple[int, int | None]:
    """Bounds of a number of times; `default` is what `at_least` is where it is not given."""
    if exactly is None:
        return bounds_of(at_least, at_most, ("at_least", "at_most"), where)
    if (at_least, at_most) != (default, None):
        raise InvalidConstraint(f"{where} got exactly={exactly!r} and other bounds; give either the one or the others")
    return bounds_of(exactly, exactly, ("exactly", "exactly"), where)


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


# Readers of JSON fields, for `register`.


@described({"type": "boolean"})
def read_flag(value: Any, path: str) -> bool:
    """True or False."""
    return flag_of(value, "the value", path)


@described({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
def read_phrases(value: Any, path: str) -> Any:
    """A string or a list of strings."""
    return (
        [read_string(item, f"{path}[{i}]") for i, item in enumerate(value)]
        if isinstance(value, list)
        else read_string(value, path)
    )


MANNER: dict[str, Callable[[Any, str], Any]] = {"words": read_flag, "ignore_case": read_flag}
BOUNDS: dict[str, Callable[[Any, str], Any]] = dict.fromkeys(("at_least", "at_most", "exactly"), read_integer)
