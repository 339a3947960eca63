"""Python's own reading of a regular expression: its parser's tree, and its matcher for single characters and anchors.

The private parts of `re` are used here and nowhere else. A tree is what `re._parser.parse` returns on Python 3.11 to 3.13: a
sequence of pairs (opcode, argument).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from locore.constraints.regular.charset import FIRST_SURROGATE, LAST_SURROGATE, NUM_CODE_POINTS, CharSet
from locore.errors import InvalidConstraint

_parser: Any = import_module("re._parser")
_compiler: Any = import_module("re._compiler")
op: Any = import_module("re._constants")  # the opcodes

Item = tuple[Any, Any]  # opcode and argument
Tree = Any  # a sequence of items

CHARACTERS = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)  # the opcodes that read one character
_RELEVANT = re.IGNORECASE | re.ASCII | re.UNICODE | re.DOTALL | re.MULTILINE
_TYPES = re.ASCII | re.UNICODE | re.LOCALE


@dataclass(frozen=True)
class Pattern:
    """A regular expression as Python understands it.

    Attributes:
        text: as the user wrote it.
        tree: its items.
        flags: those given and those written at its start.
    """

    text: str
    tree: Tree
    flags: int


def parse(text: str, flags: int = 0) -> Pattern:
    """The tree of a regular expression.

    Raises:
        InvalidConstraint: Python does not accept it.
    """
    try:
        re.compile(text, flags)
        tree = _parser.parse(text, flags)
    except re.error as error:
        raise InvalidConstraint(f"{text!r} is not a regular expression of Python: {error}") from error
    except (OverflowError, RecursionError, ValueError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidConstraint(f"{_short(text)} is not a regular expression that Python can read: {why}") from error
    return Pattern(text, tree, tree.state.flags)


def replace_items(tree: Tree, change: Callable[[Item], Item]) -> None:
    """Change every item of a tree, those inside of groups and repetitions included, in place."""
    for index, item in enumerate(tree.data):
        for inner in _subtrees(item[1]):
            replace_items(inner, change)
        tree.data[index] = change(item)


def _subtrees(argument: Any) -> Iterator[Tree]:
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for part in argument:
            yield from _subtrees(part)


def with_local_flags(flags: int, added: int, removed: int) -> int:
    """The flags inside a group such as `(?i:...)`."""
    if added & _TYPES:
        flags &= ~_TYPES
    return (flags | added) & ~removed


def width(item: Item) -> tuple[int, int]:
    """The fewest and the most characters that an item reads."""
    low, high = _parser.SubPattern(_parser.State(), [item]).getwidth()
    return int(low), int(high)


def single(item: Item, flags: int) -> re.Pattern[str]:
    """Python's compiled form of one character or anchor."""
    code, argument = item
    return _compiled(code, tuple(argument) if isinstance(argument, list) else argument, flags & _RELEVANT, 1)


def chars_of(item: Item, flags: int) -> CharSet:
    """The characters that an item matches: Python is asked about every one of them."""
    code, argument = item
    if code is op.LITERAL and not flags & re.IGNORECASE:
        return CharSet.of([(argument, argument)])
    return _matching(code, tuple(argument) if isinstance(argument, list) else argument, flags & _RELEVANT)


@lru_cache(maxsize=1024)
def _compiled(code: Any, argument: Any, flags: int, most: int) -> re.Pattern[str]:
    state = _parser.State()
    state.flags = flags
    item = (code, list(argument) if code is op.IN else argument)
    if most > 1:
        item = (op.MAX_REPEAT, (1, most, _parser.SubPattern(state, [item])))
    compiled: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, [item]))
    return compiled


@cache
def _all_characters() -> str:
    codes = np.arange(NUM_CODE_POINTS, dtype="<u4")
    return np.delete(codes, slice(FIRST_SURROGATE, LAST_SURROGATE + 1)).tobytes().decode("utf-32-le")


@lru_cache(maxsize=1024)
def _matching(code: Any, argument: Any, flags: int) -> CharSet:
    """One search of a text of all characters for runs of those that match."""
    gap = LAST_SURROGATE + 1 - FIRST_SURROGATE
    ranges = []
    for run in _compiled(code, argument, flags, op.MAXREPEAT).finditer(_all_characters()):
        first, last = run.start(), run.end() - 1
        ranges.append((first + gap * (first >= FIRST_SURROGATE), last + gap * (last >= FIRST_SURROGATE)))
    return CharSet.of(ranges)


# Where constructs stand, for messages: the tree does not say.

BACK_REFERENCE = re.compile(r"\\(?!0|[1-3][0-7][0-7])\d|\(\?P=")
CONDITIONAL = re.compile(r"\(\?\(")
ATOMIC_GROUP = re.compile(r"\(\?>")
LOOK_BEHIND = re.compile(r"\(\?<[=!]")
POSSESSIVE = re.compile(r"(?<=[*+?}])\+")


def position(pattern: Pattern, construct: re.Pattern[str], number: int = 0) -> int:
    """The index in the text of the construct of this kind that comes `number`th."""
    found = (at for at in _outside_classes(pattern) if construct.match(pattern.text, at))
    return next((at for count, at in enumerate(found) if count == number), 0)


def _outside_classes(pattern: Pattern) -> Iterator[int]:
    """The indices where a construct may begin: not in a class, a comment or the middle of an escape."""
    text, at, opened = pattern.text, 0, -1
    while at < len(text):
        after = at + (2 if text[at] == "\\" else 1)
        if opened >= 0:
            first_inside = opened + (2 if text[opened + 1] == "^" else 1)
            opened = -1 if text[at] == "]" and at > first_inside else opened
        elif text[at] == "[":
            opened = at
        elif text.startswith("(?#", at):
            after = text.find(")", at)
        elif text[at] == "#" and pattern.flags & re.VERBOSE:
            after = text.find("\n", at) % (len(text) + 1)
        else:
            yield at
        at = after


def _short(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:80]!r}… ({len(text)} characters)"
