r"""Python's own reading of a regular expression: its parser's tree, and its matcher for single characters and anchors.

The private parts of `re` are used here and nowhere else. A tree is what `re._parser.parse` returns on Python 3.11 to 3.13: a
sequence of pairs (opcode, argument).

The check of the automata is `matches_fully`: the same tree is read with Python's own matcher for every single character and
anchor, and what is put together is *all* places that can be reached, so that no place is read twice from. `re.fullmatch` itself
may take exponential time, `(a*)*b` on a row of a's for instance.

The patterns of JSON Schema are those of ECMA-262, as far as Python's parser reads them. Where both know a construct and mean
different things, the tree is changed to what ECMA-262 (section 22.2) says: `$` is the very end of the string, `.` is anything
but the four line terminators, `\d`, `\w` and `\b` are about ASCII, and `\s` is the whitespace of that standard.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

from locore.automata.characters import every_character
from locore.automata.regex.dialect import as_python
from locore.automata.regex.language import CharSet
from locore.kernel.errors import InvalidConstraint

_parser: Any = import_module("re._parser")
_compiler: Any = import_module("re._compiler")
op: Any = import_module("re._constants")  # the opcodes

Item = tuple[Any, Any]  # opcode and argument
Tree = Any  # a sequence of items
Places = Set[int]
Repetition = tuple[int, int, Tree]  # least, most, and what is repeated

NOT_FIXED = "look-behind requires fixed-width pattern"
CHARACTERS = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)  # the opcodes that read one character
AROUND = (op.AT, op.ASSERT, op.ASSERT_NOT, op.ATOMIC_GROUP, op.POSSESSIVE_REPEAT)  # which know what follows
_RELEVANT = int(re.IGNORECASE | re.ASCII | re.UNICODE | re.DOTALL | re.MULTILINE)  # flags are slow, numbers are not
_TYPES = int(re.ASCII | re.UNICODE | re.LOCALE)
_ECMA_LINE_TERMINATORS = CharSet.from_text("\n\r\u2028\u2029")
_ECMA_WHITESPACE = CharSet.from_text("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff") | CharSet.of(
    [(0x2000, 0x200A)]
)


@dataclass(frozen=True)
class Pattern:
    """A regular expression as Python understands it.

    Attributes:
        text: as the user wrote it.
        tree: its items.
        flags: those given and those written at its start.
        calls: of groups from within themselves: the characters that stand for them in the tree, and the number of each group.
    """

    text: str
    tree: Tree
    flags: int
    calls: dict[int, int] = field(default_factory=dict)


def parse(text: str, flags: int = 0) -> Pattern:
    """The tree of a regular expression.

    Raises:
        InvalidConstraint: Python does not accept it, nor what `as_python` makes of it.
    """
    try:
        calls: dict[int, int] = {}
        try:
            tree = _tree(text, flags)
        except re.error as error:
            tree, calls = _tree_of_another_dialect(text, flags, error)
            replace_items(tree, partial(_calls_apart, calls.keys(), tree.state))
    except (OverflowError, RecursionError, ValueError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidConstraint(f"{_short(text)} is not a regular expression that Python can read: {why}") from error
    return Pattern(text, tree, tree.state.flags, calls)


def _tree(text: str, flags: int) -> Tree:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of sets, which may be another dialect's; the parser says it again
            re.compile(text, flags)
    except re.error as error:
        if error.msg != NOT_FIXED:  # only Python's matcher needs a look-behind of one width
            raise
    return _parser.parse(text, flags)


def _tree_of_another_dialect(text: str, flags: int, error: re.error) -> tuple[Tree, dict[int, int]]:
    changed, calls = as_python(text)
    if changed != text:
        try:
            return _tree(changed, flags), calls
        except re.error:
            pass
    raise InvalidConstraint(f"{text!r} is not a regular expression of Python: {error}") from error


def _calls_apart(calls: Set[int], state: Any, item: Item) -> Item:
    """Python's parser makes a set of alternatives that are single characters; those that stand for calls are none."""
    code, argument = item
    called = [part for part in argument if part[1] in calls] if code is op.IN else []
    others = [part for part in argument if part not in called] if called else []
    ways = [[part] for part in called] + [[(op.IN, others)]] * bool(others)
    return (op.BRANCH, (None, [_parser.SubPattern(state, way) for way in ways])) if called else item


def replace_items(tree: Tree, change: Callable[[Item], Item]) -> None:
    """Change every item of a tree, those inside of groups and repetitions included, in place."""
    for index, item in enumerate(tree.data):
        for inner in subtrees(item[1]):
            replace_items(inner, change)
        tree.data[index] = change(item)


def subtrees(argument: Any) -> Iterator[Tree]:
    """The trees in the argument of an item."""
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for part in argument:
            yield from subtrees(part)


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


@lru_cache(maxsize=4096)
def same_letter(letter: str, other: str, flags: int) -> bool:
    """Does a back-reference to the one match the other?"""
    return re.fullmatch(r"(?s:(.)\1)", letter + other, flags) is not None


def word_of(flags: int) -> CharSet:
    """The characters of words."""
    return chars_of((op.IN, [(op.CATEGORY, op.CATEGORY_WORD)]), flags & (re.ASCII | re.UNICODE))


def chars_of(item: Item, flags: int) -> CharSet:
    """The characters that an item matches. Python is asked about every one of them, but where the item says them itself."""
    code, argument = item
    if flags & re.IGNORECASE or code in (op.ANY, op.CATEGORY):
        code, argument = (op.IN, [item]) if code is op.CATEGORY else item
        return _matching(code, tuple(argument) if isinstance(argument, list) else argument, flags & _RELEVANT)
    is_negated = code is op.NOT_LITERAL or (code is op.IN and argument[0][0] is op.NEGATE)
    parts = [part for part in argument if part[0] is not op.NEGATE] if code is op.IN else []
    own = [] if code is op.IN else [argument if code is op.RANGE else (argument, argument)]
    chars = CharSet.of([*own, *(span for part in parts for span in chars_of(part, flags).ranges)])
    return ~chars if is_negated else chars


@lru_cache(maxsize=1024)
def _compiled(code: Any, argument: Any, flags: int, most: int) -> re.Pattern[str]:
    state = _parser.State()
    state.flags = flags
    item = (code, list(argument) if code is op.IN else argument)
    if most > 1:
        item = (op.MAX_REPEAT, (1, most, _parser.SubPattern(state, [item])))
    compiled: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, [item]))
    return compiled


@lru_cache(maxsize=1024)
def _matching(code: Any, argument: Any, flags: int) -> CharSet:
    """One search of a text of all characters for runs of those that match."""
    runs = _compiled(code, argument, flags, op.MAXREPEAT).finditer(every_character())
    return CharSet.of((run.start(), run.end() - 1) for run in runs)


@lru_cache(maxsize=256)
def parse_ecma(text: str) -> Pattern:
    """The tree of the value of `pattern`.

    Raises:
        InvalidConstraint: Python does not accept it.
    """
    text = re.sub(r"\\(c[A-Za-z]|.)", lambda at: chr(ord(at[1][1]) % 32) if at[1][1:] else at[0], text, flags=re.DOTALL)
    pattern = parse(text, re.ASCII)
    replace_items(pattern.tree, _as_ecma_means_it)
    return pattern


def _as_ecma_means_it(item: Item) -> Item:
    code, argument = item
    if code is op.ANY:
        return op.IN, [(op.NEGATE, None), *_items(_ECMA_LINE_TERMINATORS)]
    if code is op.IN:
        return code, [changed for part in argument for changed in _class_item(part)]
    if code is op.AT and argument is op.AT_END:
        return code, op.AT_END_STRING
    return item


def _class_item(item: Item) -> list[Item]:
    """What stands in a class such as `[\\s,;]`."""
    if item == (op.CATEGORY, op.CATEGORY_SPACE):
        return _items(_ECMA_WHITESPACE)
    if item == (op.CATEGORY, op.CATEGORY_NOT_SPACE):
        return _items(~_ECMA_WHITESPACE)
    return [item]


def _items(chars: CharSet) -> list[tuple[Any, Any]]:
    return [(op.RANGE, span) for span in chars.ranges]


def matches_fully(pattern: Pattern, text: str) -> bool:
    """Is there a match of the whole text?"""
    return len(text) in _Reading(text).sequence(pattern.tree, {0}, pattern.flags)


def occurs_in(pattern: Pattern, text: str) -> bool:
    """Is there a match anywhere in the text?"""
    return bool(_Reading(text).sequence(pattern.tree, set(range(len(text) + 1)), pattern.flags))


def first_match(pattern: Pattern, text: str) -> tuple[int, int] | None:
    """The longest match that ends at the first place where one does; None if there is none.

    A match sees no more of the text than up to its end. A pattern of which the empty text is a match is not asked about.
    """
    ends: Iterable[int] = range(1, len(text) + 1)
    if not _looks_around(pattern.tree):
        reached = _Reading(text).sequence(pattern.tree, set(range(len(text) + 1)), pattern.flags)
        ends = [min(reached)] if reached else []
    for end in ends:
        reading = _Reading(text[:end])
        if end in reading.sequence(pattern.tree, set(range(end + 1)), pattern.flags):
            return next(start for start in range(end + 1) if end in reading.sequence(pattern.tree, {start}, pattern.flags)), end
    return None


def ends_of(pattern: Pattern, text: str, starts: Places) -> Places:
    """The places where a match ends that begins at one of these."""
    return _Reading(text).sequence(pattern.tree, starts, pattern.flags)


def matches_in(pattern: Pattern, text: str) -> Iterator[tuple[int, int]]:
    """The matches that do not overlap: the leftmost, of those that begin there the longest, then the same behind it.

    A pattern of which the empty text is a match is not asked about.
    """
    reading, start = _Reading(text), 0
    while start < len(text):
        end = max(reading.sequence(pattern.tree, {start}, pattern.flags), default=None)
        if end is not None:
            yield start, end
        start = start + 1 if end is None else end


def is_lazy(tree: Tree) -> bool:
    """Does it ask for short repetitions, `.*?`, elsewhere than in what looks around or decides itself?"""
    return any(
        code is op.MIN_REPEAT or (code not in AROUND and any(map(is_lazy, subtrees(argument)))) for code, argument in tree
    )


def _looks_around(tree: Tree) -> bool:
    """May what follows decide whether a match ends at a place?"""
    return any(code in AROUND or any(map(_looks_around, subtrees(argument))) for code, argument in tree)


class _Reading:
    def __init__(self, text: str) -> None:
        self._text = text

    def sequence(self, tree: Tree, places: Places, flags: int) -> Places:
        """The places that can be reached from `places` by reading the items one after the other."""
        for item in tree:
            if not places:
                break
            places = self._item(item, places, flags)
        return places

    def _item(self, item: Item, places: Places, flags: int) -> Places:
        code, argument = item
        if code in CHARACTERS or code is op.AT:
            compiled = single(item, flags)
            return {match.end() for place in places if (match := compiled.match(self._text, place))}
        if code is op.BRANCH:
            return set().union(*(self.sequence(branch, places, flags) for branch in argument[1]))
        if code is op.SUBPATTERN:
            _, added, removed, inner = argument
            return self.sequence(inner, places, with_local_flags(flags, added, removed))
        if code in (op.MAX_REPEAT, op.MIN_REPEAT):
            return self._repeat(argument, places, flags)
        if code in (op.POSSESSIVE_REPEAT, op.ATOMIC_GROUP):
            inner = argument if code is op.ATOMIC_GROUP else [(op.MAX_REPEAT, argument)]
            ends = (next(self._ends([(part, flags) for part in inner], place), None) for place in places)
            return {end for end in ends if end is not None}
        if code in (op.ASSERT, op.ASSERT_NOT):
            direction, inner = argument
            wanted = code is op.ASSERT
            return {place for place in places if self._looks(inner, direction, place, flags) == wanted}
        if code is op.FAILURE:
            return set()
        raise InvalidConstraint(f"a regular expression contains {code}, which is not supported")

    def _repeat(self, repetition: Repetition, places: Places, flags: int) -> Places:
        least, most, inner = repetition
        for _ in range(least):
            after = self.sequence(inner, places, flags)
            if after == places:  # and so it would be again
                break
            places = after
        reached, frontier = set(places), set(places)
        rounds = 0
        while frontier and rounds < most - least:
            frontier = set(self.sequence(inner, frontier, flags)) - reached
            reached |= frontier
            rounds += 1
        return reached

    def _ends(self, items: list[tuple[Item, int]], place: int) -> Iterator[int]:
        """Where a match of items with their flags may end, in the order in which a backtracking matcher tries the ways."""
        if not items:
            yield place
            return
        (item, flags), rest = items[0], items[1:]
        code, argument = item
        if code is op.BRANCH:
            for branch in argument[1]:
                yield from self._ends([*((part, flags) for part in branch), *rest], place)
        elif code is op.SUBPATTERN:
            _, added, removed, inner = argument
            local = with_local_flags(flags, added, removed)
            yield from self._ends([*((part, local) for part in inner), *rest], place)
        elif code in (op.MAX_REPEAT, op.MIN_REPEAT):
            least, most, inner = argument
            stops = self._ends(rest, place) if not least else iter(())
            left = max(least - 1, 0), most if most == op.MAXREPEAT else most - 1, inner
            once = self._ends([(part, flags) for part in inner], place) if most else iter(())
            # After a repetition of nothing there is no further one.
            ways = ((after, rest if after == place else [((code, left), flags), *rest]) for after in once)
            further = (end for after, way in ways for end in self._ends(way, after))
            yield from further if code is op.MAX_REPEAT else stops
            yield from stops if code is op.MAX_REPEAT else further
        else:
            for after in self._item(item, {place}, flags):  # one, if any
                yield from self._ends(rest, after)

    def _looks(self, inner: Tree, direction: int, place: int, flags: int) -> bool:
        if direction > 0:
            return bool(self.sequence(inner, {place}, flags))
        least, most = inner.getwidth()
        return any(place in self.sequence(inner, {start}, flags) for start in range(max(0, place - most), place - least + 1))


# Where constructs stand, for messages: the tree does not say.

BACK_REFERENCE = re.compile(r"\\(?!0|[1-3][0-7][0-7])\d|\(\?P=")
CONDITIONAL = re.compile(r"\(\?\(")
ATOMIC_GROUP = re.compile(r"\(\?>")
LOOK_BEHIND = re.compile(r"\(\?<[=!]")
POSSESSIVE = re.compile(r"(?<=[*+?}])\+")


def position(pattern: Pattern, construct: re.Pattern[str], number: int = 0) -> int:
    """The index in the text of the construct of this kind that comes `number`th."""
    places = (at for at in _outside_classes(pattern) if construct.match(pattern.text, at))
    return next((at for count, at in enumerate(places) if count == number), 0)


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
