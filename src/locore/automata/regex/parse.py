"""From the tree of a regular expression to an expression of `ir`: which strings Python's `re` matches in full."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from locore.automata.regex.dfa import WORK
from locore.automata.regex.first import First, Flagged, Undecided
from locore.automata.regex.language import (
    ANY_CHAR,
    EMPTY,
    Ahead,
    Behind,
    Chars,
    Concat,
    Language,
    concat,
    either,
    literal,
    repeat,
)
from locore.automata.regex.pattern import (
    ATOMIC_GROUP,
    BACK_REFERENCE,
    CHARACTERS,
    CONDITIONAL,
    LOOK_BEHIND,
    POSSESSIVE,
    Item,
    Pattern,
    Tree,
    chars_of,
    op,
    position,
    subtrees,
    width,
    with_local_flags,
    word_of,
)
from locore.kernel.errors import InvalidConstraint
from locore.kernel.limits import check_progress

MAX_DEPTH = 64  # of groups in groups
AT_START = Behind(ANY_CHAR, negative=True)
AT_END = Ahead(ANY_CHAR, negative=True)
NEWLINE = literal("\n")
NON_BOUNDARY_NEEDS_TEXT = re.fullmatch(r"\B", "") is None  # so it was before Python 3.14


def language_of(pattern: Pattern) -> Language:
    """The strings that a regular expression matches in full.

    Raises:
        InvalidConstraint: a back-reference, a condition on a group, an atomic group or possessive repetition of something that
            may end in many places, or a look-behind with something in it that reads past its end; the message says where. Or
            nested too deeply.
    """
    if pattern.calls:
        raise InvalidConstraint(
            f"the regular expression {pattern.text!r} calls a group from within itself, or beside back-references; "
            "only regex(...) takes that, for the whole text"
        )
    translation = _Translation(pattern)
    if (item := memory(pattern.tree)) is not None:  # at once: how wide a reference is, the parser does not say
        translation.refuse(item[0])
    return translation.sequence(pattern.tree, pattern.flags, None)


def memory(tree: Tree) -> Item | None:
    """The first item that asks for what a group has matched."""
    for item in tree:
        inner = (memory(part) for part in subtrees(item[1]))
        ref = item if item[0] in (op.GROUPREF, op.GROUPREF_EXISTS) else next((part for part in inner if part is not None), None)
        if ref is not None:
            return ref
    return None


class _Translation:
    """Translates items. `remaining`: how many characters a look-behind around them reads from there on; None outside of one."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._look_behinds = 0
        self._possessives = self._atomics = 0
        self._depth = 0

    def sequence(self, tree: Tree, flags: int, remaining: int | None) -> Language:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidConstraint(f"a regular expression is nested deeper than {MAX_DEPTH}; make it flatter")
        parts = []
        for item in tree:
            check_progress(*WORK)
            parts.append(self._item(item, flags, remaining))
            remaining = None if remaining is None else remaining - width(item)[1]
        self._depth -= 1
        return concat(*parts)

    def _item(self, item: Item, flags: int, remaining: int | None) -> Language:
        code, argument = item
        if code in CHARACTERS:
            return Chars(chars_of(item, flags))
        if code is op.BRANCH:
            return either([self.sequence(branch, flags, remaining) for branch in argument[1]])
        if code is op.SUBPATTERN:
            _, added, removed, inner = argument
            return self.sequence(inner, with_local_flags(flags, added, removed), remaining)
        if code in (op.MAX_REPEAT, op.MIN_REPEAT):
            least, most, inner = argument
            left = None if remaining is None else remaining - width(item)[1] + inner.getwidth()[1]
            return repeat(self.sequence(inner, flags, left), least, None if most == op.MAXREPEAT else int(most))
        if code is op.ATOMIC_GROUP:
            return self._atomic([(part, flags) for part in argument], remaining)
        if code is op.POSSESSIVE_REPEAT:
            self._possessives += 1
            return self._atomic([((op.MAX_REPEAT, argument), flags)], remaining, self._possessives - 1)
        if code in (op.ASSERT, op.ASSERT_NOT):
            direction, inner = argument
            look = self._ahead if direction > 0 else self._behind
            return look(inner, flags, remaining, negative=code is op.ASSERT_NOT)
        if code is op.AT:
            return self._anchor(argument, flags, remaining)
        if code is op.FAILURE:
            return EMPTY
        self.refuse(code)

    def _atomic(self, items: list[Flagged], remaining: int | None, possessive: int | None = None) -> Language:
        """What an atomic group, or the possessive repetition of this number, matches first."""
        what = "an atomic group" if possessive is None else "a possessive repetition"
        number, self._atomics = self._atomics, self._atomics + (possessive is None)
        if any(least != most for least, most in (width(item) for item, _ in items)):
            self._require(remaining, None, what)
        try:
            return First(self.sequence).of(items)
        except Undecided:
            construct = ATOMIC_GROUP if possessive is None else POSSESSIVE
            place = number if possessive is None else possessive
            what = f"{what} of something that may end in many places"
            self._refuse_at(construct, place, what, "with (?:...), or without the second +")

    def _ahead(self, inner: Tree, flags: int, remaining: int | None, negative: bool) -> Language:
        self._require(remaining, inner.getwidth()[1], "a look-ahead")
        return Ahead(self.sequence(inner, flags, remaining), negative)

    def _behind(self, inner: Tree, flags: int, remaining: int | None, negative: bool) -> Language:
        self._look_behinds += 1
        least, most = inner.getwidth()
        return Behind(self.sequence(inner, flags, most if least == most else 0), negative)

    def _anchor(self, anchor: Any, flags: int, remaining: int | None) -> Language:
        lines = bool(flags & re.MULTILINE)
        if anchor is op.AT_BEGINNING_STRING or (anchor is op.AT_BEGINNING and not lines):
            return AT_START
        if anchor is op.AT_BEGINNING:
            return either([AT_START, Behind(NEWLINE, negative=False)])
        if anchor is op.AT_END:
            self._require(remaining, 1 if lines else 2, "$")
            following = NEWLINE if lines else Concat((NEWLINE, AT_END))
            return either([AT_END, Ahead(following, negative=False)])
        if anchor is op.AT_END_STRING:
            self._require(remaining, 1, "\\Z")
            return AT_END
        self._require(remaining, 1, "\\b or \\B")
        return _boundary(anchor is op.AT_BOUNDARY, flags)

    def _require(self, remaining: int | None, needed: int | None, what: str) -> None:
        """Inside a look-behind: what reads ahead has to end where the look-behind does."""
        if remaining is not None and (needed is None or needed > remaining):
            self._refuse_at(
                LOOK_BEHIND,
                self._look_behinds - 1,
                f"a look-behind with {what} in it that reads past its end",
                f"with {what} after the look-behind",
            )

    def refuse(self, code: Any) -> NoReturn:
        """What is of no regular language."""
        if code is op.GROUPREF:
            self._refuse_at(BACK_REFERENCE, 0, "a back-reference", "with the alternatives written out")
        if code is op.GROUPREF_EXISTS:
            self._refuse_at(CONDITIONAL, 0, "a conditional group", "with the alternatives written out")
        raise InvalidConstraint(f"the regular expression {self._pattern.text!r} contains {code}, which is not supported")

    def _refuse_at(self, construct: re.Pattern[str], number: int, what: str, instead: str) -> NoReturn:
        at = position(self._pattern, construct, number)
        raise InvalidConstraint(
            f"the regular expression {self._pattern.text!r} contains {what} (at index {at}), which is not supported; write it "
            f"{instead}"
        )


def _boundary(is_boundary: bool, flags: int) -> Language:
    """`\\b` or `\\B`: whether just one of the characters before and after belongs to a word."""
    word = Chars(word_of(flags))
    ways: list[Language] = []
    for word_before in (False, True):
        word_after = word_before != is_boundary
        way: list[Language] = [Behind(word, negative=not word_before), Ahead(word, negative=not word_after)]
        if not (word_before or word_after) and NON_BOUNDARY_NEEDS_TEXT:
            way.append(either([Behind(ANY_CHAR, negative=False), Ahead(ANY_CHAR, negative=False)]))
        ways.append(Concat(tuple(way)))
    return either(ways)
