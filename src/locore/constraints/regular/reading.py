"""Does a text match a regular expression? Plainly, and without an automaton: the check of the automata.

`re.fullmatch` itself may take exponential time, `(a*)*b` on a row of a's for instance. Here the same tree is read with Python's
own matcher for every single character and anchor, and what is put together is *all* places that can be reached: no place is
read twice from.
"""

from __future__ import annotations

from collections.abc import Set

from locore.constraints.regular.pattern import CHARACTERS, Item, Pattern, Tree, op, single, with_local_flags
from locore.errors import InvalidConstraint

Places = Set[int]
Repetition = tuple[int, int, Tree]  # least, most, and what is repeated


def matches_fully(pattern: Pattern, text: str) -> bool:
    """Is there a match of the whole text?"""
    return len(text) in _Reading(text).sequence(pattern.tree, {0}, pattern.flags)


def occurs_in(pattern: Pattern, text: str) -> bool:
    """Is there a match anywhere in the text?"""
    return bool(_Reading(text).sequence(pattern.tree, set(range(len(text) + 1)), pattern.flags))


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
            one = single(item, flags)
            return {found.end() for place in places if (found := one.match(self._text, place))}
        if code is op.BRANCH:
            return set().union(*(self.sequence(branch, places, flags) for branch in argument[1]))
        if code is op.SUBPATTERN:
            _, added, removed, inner = argument
            return self.sequence(inner, places, with_local_flags(flags, added, removed))
        if code in (op.MAX_REPEAT, op.MIN_REPEAT):
            return self._repeat(argument, places, flags)
        if code is op.POSSESSIVE_REPEAT:
            return self._possessive(argument, places, flags)
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
        reached = frontier = set(places)
        rounds = 0
        while frontier and rounds < most - least:
            frontier = set(self.sequence(inner, frontier, flags)) - reached
            reached = reached | frontier
            rounds += 1
        return reached

    def _possessive(self, repetition: Repetition, places: Places, flags: int) -> Places:
        least, most, inner = repetition
        reached = set()
        for place in places:
            count = 0
            while count < most and (after := self.sequence(inner, {place}, flags)):
                place, count = max(after), count + 1
            if count >= least:
                reached.add(place)
        return reached

    def _looks(self, inner: Tree, direction: int, place: int, flags: int) -> bool:
        if direction > 0:
            return bool(self.sequence(inner, {place}, flags))
        start = place - inner.getwidth()[0]
        return start >= 0 and place in self.sequence(inner, {start}, flags)
