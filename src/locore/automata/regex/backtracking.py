"""A pattern read as Python's own matcher does it: one way after the other, with what groups have matched so far.

It checks texts that `automata.regex.threads` has let through, and shares nothing with it but the parser's tree. What has failed
once at a place, with the same in its groups, is not tried again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from locore.automata.regex.pattern import CHARACTERS, Item, Pattern, Tree, op, same_letter, single, subtrees, with_local_flags
from locore.kernel.errors import BudgetExceeded
from locore.kernel.limits import may_stop

MOST_STEPS = 2_000_000  # for one text
LETTERS = int(re.IGNORECASE | re.ASCII | re.UNICODE)  # the flags that say which letters are the same
CLOSE, RESTORE = "close", "restore"  # beside the parser's own opcodes
Groups = tuple[tuple[int, tuple[int, int]], ...]  # where each has matched, by number


@dataclass(frozen=True, eq=False)
class Items:
    """An item, the flags in force, and the items after it."""

    item: Item
    flags: int
    rest: Items | None


Way = tuple[Items | None, int, Groups]  # what is to come, where, with which groups


def matches_trying(pattern: Pattern, text: str) -> bool:
    """Is there a match of the whole text?

    Raises:
        BudgetExceeded: there are too many ways to try.
    """
    reading = _Trying(pattern, text)
    return reading.first(reading.items(pattern.tree, pattern.flags, None), 0, (), len(text)) is not None


class _Trying:
    def __init__(self, pattern: Pattern, text: str) -> None:
        self._pattern, self._text = pattern, text
        self._bodies: dict[int, tuple[Tree, int]] = {0: (pattern.tree, pattern.flags)}
        self._find(pattern.tree, pattern.flags)
        self._items: dict[tuple[object, ...], Items] = {}
        self._steps = 0

    def _find(self, tree: Tree, flags: int) -> None:
        """The trees of groups, which may be called."""
        for code, argument in tree:
            local = flags
            if code is op.SUBPATTERN:
                number, added, removed, inner = argument
                local = with_local_flags(flags, added, removed)
                self._bodies[number] = inner, local
            for inner in subtrees(argument):
                self._find(inner, local)

    def items(self, tree: Tree, flags: int, rest: Items | None) -> Items | None:
        """Those of a tree before others."""
        for item in reversed(tree):
            rest = self._before(item, flags, rest, id(item[1]) if isinstance(item[1], list | tuple) else item[1])
        return rest

    def _before(self, item: Item, flags: int, rest: Items | None, key: object) -> Items:
        """One item before others, the same for the same."""
        place = item[0], key, flags, rest
        if place not in self._items:
            self._items[place] = Items(item, flags, rest)
        return self._items[place]

    def first(self, items: Items | None, place: int, groups: Groups, end: int | None = None) -> tuple[int, Groups] | None:
        """Where the first way to match these items ends (there, if asked for), and what groups have matched in it."""
        pending: list[Way] = [(items, place, groups)]
        seen = set[Way]()
        while pending:
            way = pending.pop()
            if way in seen:
                continue
            seen.add(way)
            self._steps += 1
            may_stop()
            if self._steps > MOST_STEPS:
                raise BudgetExceeded(
                    f"the regular expression {self._pattern.text!r} can be matched in more than {MOST_STEPS:,} ways with one "
                    "text; repeat less within repetitions"
                )
            items, place, groups = way
            if items is not None:
                pending.extend(reversed(self._ways(items, place, groups)))
            elif end is None or place == end:
                return place, groups
        return None

    def _ways(self, items: Items, place: int, groups: Groups) -> list[Way]:
        """How to go on with the first item, in the order in which it is tried."""
        (code, argument), flags, rest = items.item, items.flags, items.rest
        if code is op.LITERAL and argument in self._pattern.calls:
            tree, local = self._bodies[self._pattern.calls[argument]]
            return [(self.items(tree, local, self._before((RESTORE, groups), flags, rest, groups)), place, groups)]
        if code in CHARACTERS or code is op.AT:
            match = single((code, argument), flags).match(self._text, place)
            return [] if match is None else [(rest, match.end(), groups)]
        if code is op.BRANCH:
            return [(self.items(branch, flags, rest), place, groups) for branch in argument[1]]
        if code is op.SUBPATTERN:
            number, added, removed, inner = argument
            if number is not None:
                rest = self._before((CLOSE, (number, place)), flags, rest, (number, place))
            return [(self.items(inner, with_local_flags(flags, added, removed), rest), place, groups)]
        if code in (op.MAX_REPEAT, op.MIN_REPEAT):
            return self._repeat(items, place, groups)
        if code in (op.ATOMIC_GROUP, op.POSSESSIVE_REPEAT):
            inner = argument if code is op.ATOMIC_GROUP else [(op.MAX_REPEAT, argument)]
            ending = self.first(self.items(inner, flags, None), place, groups)
            return [] if ending is None else [(rest, *ending)]
        if code in (op.ASSERT, op.ASSERT_NOT):
            return self._look(items, place, groups)
        return self._remembering(items, place, groups)

    def _repeat(self, items: Items, place: int, groups: Groups) -> list[Way]:
        code, argument = items.item
        fewest, most, inner, *begun = argument
        done: list[Way] = [(items.rest, place, groups)]
        if not most or (begun == [place] and not fewest):  # after a repetition of nothing there is no further one
            return done
        left = max(0, fewest - 1), most if most == op.MAXREPEAT else most - 1, inner, place
        again = self._before((code, left), items.flags, items.rest, (*left[:2], id(inner), place))
        more: list[Way] = [(self.items(inner, items.flags, again), place, groups)]
        return more if fewest else [*more, *done] if code is op.MAX_REPEAT else [*done, *more]

    def _look(self, items: Items, place: int, groups: Groups) -> list[Way]:
        code, (direction, inner) = items.item
        body = self.items(inner, items.flags, None)
        ending = None
        if direction > 0:
            ending = self.first(body, place, groups)
        else:
            fewest, most = inner.getwidth()
            for start in range(place - fewest, max(0, place - most) - 1, -1):
                ending = ending or self.first(body, start, groups, place)
        if code is op.ASSERT_NOT:
            return [] if ending else [(items.rest, place, groups)]
        return [(items.rest, place, ending[1])] if ending else []

    def _remembering(self, items: Items, place: int, groups: Groups) -> list[Way]:
        """What has to do with groups, and what never matches."""
        (code, argument), flags, rest = items.item, items.flags, items.rest
        spans = dict(groups)
        if code == CLOSE:
            number, start = argument
            return [(rest, place, tuple(sorted({**spans, number: (start, place)}.items())))]
        if code == RESTORE:
            return [(rest, place, argument)]
        if code is op.GROUPREF and argument in spans:
            begin, end = spans[argument]
            text = self._text[begin:end]
            there = self._text[place : place + len(text)]
            alike = text == there or (
                bool(flags & re.IGNORECASE)
                and len(text) == len(there)
                and all(same_letter(letter, other, flags & LETTERS) for letter, other in zip(text, there, strict=True))
            )
            return [(rest, place + len(text), groups)] if alike else []
        if code is op.GROUPREF_EXISTS:
            number, yes, no = argument
            return [(self.items(yes if number in spans else no or [], flags, rest), place, groups)]
        return []
