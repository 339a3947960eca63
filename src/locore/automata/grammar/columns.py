"""Earley's columns, each made once: what the terminals read so far can be the beginning of.

A column is a set of places in productions, each with the column at which its production began (Earley 1970; empty texts as in
Aycock and Horspool 2002). Columns that agree in all of that are one, whatever was read: two texts with the same column go on
alike. After `1+2+` and after `5+` that is the case, and so a grammar has few columns where a text has many places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from locore.automata.grammar.productions import START, Productions
from locore.limits import check_progress, check_states

Item = tuple[int, int]  # a place in a production, and the column at which the production began
READING = "the columns of the grammar", "a shorter horizon, or a grammar with fewer ways to go on"


@dataclass(eq=False)
class Column:
    """What can come after some terminals.

    Attributes:
        accepts: is what was read a text of the grammar?
        waiting: for each nonterminal the items that need it next.
        by_terminal: the same for terminals.
        after: for each nonterminal the bytes that are needed at least once a text of it that began here has ended.
        rest: the same for terminals.
    """

    accepts: bool
    waiting: dict[int, list[Item]] = field(default_factory=dict)
    by_terminal: dict[int, list[Item]] = field(default_factory=dict)
    after: dict[int, float] = field(default_factory=dict)
    rest: dict[int, float] = field(default_factory=dict)


class Columns:
    """The columns of a grammar; number 0 is that before anything is read."""

    def __init__(self, grammar: Productions) -> None:
        """Nothing has been read."""
        self._grammar, self._dots = grammar, grammar.dots
        self._columns: list[Column] = []
        self._number_of: dict[tuple[frozenset[Item], bool], int] = {}
        self._scanned: dict[tuple[int, frozenset[int]], int | None] = {}
        self._add(frozenset(), START in grammar.nullable, {START})

    def __getitem__(self, number: int) -> Column:
        return self._columns[number]

    def scan(self, number: int, terminals: frozenset[int]) -> int | None:
        """The column after a text of any of these terminals; None where none of them may come."""
        key = number, terminals
        if key not in self._scanned:
            items = [
                (self._dots.following[dot], origin)
                for terminal in terminals
                for dot, origin in self._columns[number].by_terminal.get(terminal, ())
            ]
            self._scanned[key] = self._completed(items) if items else None
        return self._scanned[key]

    def least(self, number: int) -> float:
        """Bytes that are needed at least after this column."""
        column = self._columns[number]
        if column.accepts:
            return 0.0
        terminals = self._grammar.terminals
        return min((terminals[t].shortest + rest for t, rest in column.rest.items()), default=math.inf)

    def _completed(self, items: list[Item]) -> int:
        """The number of the column with these items and those that follow from productions that have ended."""
        dots, seen, accepts = self._dots, set(items), False
        while items:
            dot, origin = items.pop()
            symbol = dots.symbol[dot]
            new: list[Item] = []
            if symbol is None:
                side = dots.side[dot]
                accepts |= side == START
                new = [(dots.following[one], before) for one, before in self._columns[origin].waiting.get(side, ())]
            elif symbol in self._grammar.nullable:
                new = [(dots.following[dot], origin)]
            for item in new:
                if item not in seen:
                    seen.add(item)
                    items.append(item)
        kernel = frozenset((dot, origin) for dot, origin in seen if dots.symbol[dot] is not None)
        number = self._number_of.get((kernel, accepts))
        return self._add(kernel, accepts, set()) if number is None else number

    def _add(self, kernel: frozenset[Item], accepts: bool, predicted: set[int]) -> int:
        """A new column: the kernel, and the productions of whatever may come next. START is predicted at the first."""
        check_progress(*READING)
        check_states(len(self._columns), *READING)
        number, dots = len(self._columns), self._dots
        if number:  # the first is apart: no terminal leads to it
            self._number_of[kernel, accepts] = number
        column = Column(accepts)
        pending = [*kernel, *((dot, number) for side in predicted for dot in dots.first[side])]
        while pending:
            dot, origin = pending.pop()
            symbol = dots.symbol[dot]
            if symbol is None:
                continue
            if symbol < 0:
                column.by_terminal.setdefault(~symbol, []).append((dot, origin))
                continue
            column.waiting.setdefault(symbol, []).append((dot, origin))
            if symbol not in predicted:
                predicted.add(symbol)
                pending += [(first, number) for first in dots.first[symbol]]
        self._columns.append(column)
        self._measure(number, column)
        return number

    def _measure(self, number: int, column: Column) -> None:
        """Fill in the bytes that are needed; a nonterminal may wait for itself, so that shorter ways are looked for again."""
        dots, after = self._dots, column.after

        def needed(dot: int, origin: int) -> float:
            """From a place on, until the whole text has ended."""
            side = dots.side[dot]
            known = after if origin == number else self._columns[origin].after
            return dots.rest[dot] + (0.0 if side == START else known.get(side, math.inf))

        changed = True
        while changed:
            changed = False
            for symbol, items in column.waiting.items():
                least = min(needed(dots.following[dot], origin) for dot, origin in items)
                if least < after.get(symbol, math.inf):
                    after[symbol], changed = least, True
        for terminal, items in column.by_terminal.items():
            column.rest[terminal] = min(needed(dots.following[dot], origin) for dot, origin in items)
