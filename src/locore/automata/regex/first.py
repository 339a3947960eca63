r"""What an atomic group matches: the first way that a backtracking matcher finds, and no other one.

A way is the first one where those before it fail, and whether they do is a look-ahead: `(?>a|ab)c` is `(?:a|(?!a)ab)c`. A
greedy repetition of something of one width goes on for as long as it can, `(?>a*)` is `a*(?!a)`; that is so, too, where what
follows in the group may be nothing, or cannot begin with what is repeated. Other long repetitions before something else are not
decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from locore.automata.regex.language import Ahead, Concat, Language, Repeat, concat, either, repeat
from locore.automata.regex.pattern import CHARACTERS, Item, Tree, chars_of, op, width, with_local_flags

Flagged = tuple[Item, int]  # an item and the flags in force
MOST_WAYS = 500  # that are looked at
WRITTEN_OUT = 8  # repetitions of something of several widths, one by one


class Undecided(Exception):
    """There are too many ways to say which is the first."""


class First:
    """Args: sequence: the strings of a tree, by its flags; outside of a look-behind."""

    def __init__(self, sequence: Callable[[Tree, int, int | None], Language]) -> None:
        self._sequence = sequence
        self._ways = 0

    def of(self, items: list[Flagged]) -> Language:
        """The strings that items, one after the other, match first.

        Raises:
            Undecided: see the module.
        """
        self._ways += 1
        if self._ways > MOST_WAYS:
            raise Undecided
        if all(_one_width(item) for item, _ in items):  # there is one end only
            return self._all(items)
        (item, flags), rest = items[0], items[1:]
        code, argument = item
        if _one_width(item) or code in (op.ATOMIC_GROUP, op.POSSESSIVE_REPEAT):
            return concat(self._all([(item, flags)]), self.of(rest))
        if code is op.BRANCH:
            return self._ordered([[*_flagged(branch, flags), *rest] for branch in argument[1]])
        if code is op.SUBPATTERN:
            _, added, removed, inner = argument
            return self.of([*_flagged(inner, with_local_flags(flags, added, removed)), *rest])
        if code in (op.MAX_REPEAT, op.MIN_REPEAT):
            return self._repeated(item, flags, rest)
        raise Undecided

    def _repeated(self, item: Item, flags: int, rest: list[Flagged]) -> Language:
        code, (least, most, inner) = item
        part = _flagged(inner, flags)
        if code is op.MIN_REPEAT and not rest:
            return self.of(part * least) if least <= WRITTEN_OUT else self._refuse()
        if code is op.MAX_REPEAT and _one_width(*inner) and (_may_be_nothing(rest) or _excludes(part, rest)):
            return concat(self._longest(self._all(part), least, most), self.of(rest))
        if least > WRITTEN_OUT or most > WRITTEN_OUT:
            self._refuse()
        if least:
            return self.of([*part, ((code, (least - 1, most - 1, inner)), flags), *rest])
        if not most:
            return self.of(rest)
        ways = [[*part, ((code, (0, most - 1, inner)), flags), *rest], rest]
        return self._ordered(ways if code is op.MAX_REPEAT else ways[::-1])

    def _ordered(self, ways: list[list[Flagged]]) -> Language:
        """The first way that is one."""
        alternatives: list[Language] = []
        failed: list[Language] = []
        for way in ways:
            alternatives.append(concat(*failed, self.of(way)))
            failed.append(Ahead(self._all(way), negative=True))
        return either(alternatives)

    @staticmethod
    def _longest(part: Language, least: int, most: Any) -> Language:
        """As often as it goes, up to a limit; each time there is one way to do it."""
        ended = Ahead(part, negative=True)
        if most == op.MAXREPEAT:
            return Concat((Repeat(part, least, None), ended))
        full = repeat(part, int(most), int(most))
        return full if least == most else either([full, Concat((Repeat(part, least, int(most) - 1), ended))])

    def _all(self, items: Iterable[Flagged]) -> Language:
        """The strings that items match in any way."""
        return concat(*(self._sequence([item], flags, None) for item, flags in items))

    @staticmethod
    def _refuse() -> Language:
        raise Undecided


def _flagged(tree: Tree, flags: int) -> list[Flagged]:
    return [(item, flags) for item in tree]


def _one_width(*items: Item) -> bool:
    return all(least == most for least, most in map(width, items))


def _may_be_nothing(rest: list[Flagged]) -> bool:
    """Does what follows match everywhere, so that nothing is taken back for it?"""
    return all(code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT) and not argument[0] for (code, argument), _ in rest)


def _excludes(part: list[Flagged], rest: list[Flagged]) -> bool:
    """Can what follows not begin where one more repetition, of a single character, could?"""
    following, flags = rest[0]
    if following[0] in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        least, _, inner = following[1]
        if not least or len(inner) != 1:
            return False
        following = inner[0]
    if len(part) != 1 or part[0][0][0] not in CHARACTERS or following[0] not in CHARACTERS:
        return False
    return not (chars_of(*part[0]) & chars_of(following, flags)).ranges
