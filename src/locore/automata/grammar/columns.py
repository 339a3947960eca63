"""Earley's columns, each made once: what the terminals read so far can be the beginning of.

A column is a set of places in productions, each with where to go on once its production has ended: a nonterminal that waits in
an earlier column (Earley 1970; empty texts as in Aycock and Horspool 2002). Where a production ends with that nonterminal
anyway, it is where that production itself goes on (as in Leo 1991), so that lists written by right recursion do not pile up.
Columns that agree in all of that are one, whatever was read, and two texts with the same column go on alike: after `1+2+` and
after `5+` it is the same, and so a grammar has few columns where a text has many places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from heapq import heappop, heappush

from locore.automata.grammar.productions import START, Productions
from locore.kernel.limits import check_progress, check_states

Return = tuple[int, int]  # a column, and the nonterminal that waits there
Item = tuple[int, Return]  # a place in a production, and where to go on once that has ended
ROOT: Return = (-1, START)  # the text is one of the grammar
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
        self._grammar, self._dots = grammar, grammar.dots
        self._columns: list[Column] = []
        self._number_of: dict[tuple[frozenset[Item], bool], int] = {}
        self._scanned: dict[tuple[int, frozenset[int]], int | None] = {}
        self._add(frozenset((dot, ROOT) for dot in self._dots.first[START]), START in grammar.nullable)

    def __getitem__(self, number: int) -> Column:
        return self._columns[number]

    def scan(self, number: int, terminals: frozenset[int]) -> int | None:
        """The column after a text of any of these terminals; None where none of them may come."""
        key = number, terminals
        if key not in self._scanned:
            items = [
                (self._dots.following[dot], back)
                for terminal in terminals
                for dot, back in self._columns[number].by_terminal.get(terminal, ())
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
            dot, back = items.pop()
            symbol = dots.symbol[dot]
            new: list[Item] = []
            if symbol is None and back == ROOT:
                accepts = True
            elif symbol is None:
                new = [(dots.following[parent], further) for parent, further in self._columns[back[0]].waiting[back[1]]]
            elif symbol in self._grammar.nullable:
                new = [(dots.following[dot], back)]
            for item in new:
                if item not in seen:
                    seen.add(item)
                    items.append(item)
        kernel = frozenset((dot, back) for dot, back in seen if dots.symbol[dot] is not None)
        number = self._number_of.get((kernel, accepts))
        return self._add(kernel, accepts) if number is None else number

    def _add(self, kernel: frozenset[Item], accepts: bool) -> int:
        """A new column: the kernel, and the productions of whatever may come next."""
        check_progress(*READING)
        check_states(len(self._columns), *READING)
        number, dots = len(self._columns), self._dots
        if number:  # the first is apart: no terminal leads to it
            self._number_of[kernel, accepts] = number
        back_of = self._returns(number, kernel)
        column = Column(accepts)
        predicted = [(dot, back) for side, back in back_of.items() for dot in dots.first[side]]
        for dot, back in dict.fromkeys([*kernel, *predicted]):
            symbol = dots.symbol[dot]
            if symbol is not None:
                which, key = (column.waiting, symbol) if symbol >= 0 else (column.by_terminal, ~symbol)
                which.setdefault(key, []).append((dot, back))
        self._columns.append(column)
        self._measure(number, column)
        return number

    def _returns(self, number: int, kernel: frozenset[Item]) -> dict[int, Return]:
        """The nonterminals that may come next, and where each goes on: here, or where the one production that needs it does."""
        dots = self._dots
        users: dict[int, list[tuple[int, Return | int]]] = {}  # by what: a place, and where its production goes on, or its side
        pending: list[tuple[int, Return | int]] = list(kernel)
        for dot, owner in pending:
            symbol = dots.symbol[dot]
            if symbol is not None and symbol >= 0:
                if symbol not in users:
                    pending += [(first, symbol) for first in dots.first[symbol]]
                users.setdefault(symbol, []).append((dot, owner))
        back_of: dict[int, Return] = {}
        for side in users:
            here, path = side, {side: None}
            while here not in back_of:
                (dot, owner), *others = users[here]
                if others or dots.symbol[dots.following[dot]] is not None or owner in path:
                    back_of[here] = number, here
                elif isinstance(owner, tuple):
                    back_of[here] = owner
                else:
                    here = owner
                    path[here] = None
            back_of |= dict.fromkeys(path, back_of[here])
        return back_of

    def _measure(self, number: int, column: Column) -> None:
        """Fill in the bytes that are needed; of nonterminals that wait for each other, the nearest end first."""
        dots, after = self._dots, column.after
        users: dict[int, list[tuple[float, int]]] = {}  # of what waits here: bytes until another one that waits here has ended
        heap: list[tuple[float, int]] = []
        for symbol, items in column.waiting.items():
            for dot, back in items:
                rest = dots.rest[dots.following[dot]]
                if back[0] == number:
                    users.setdefault(back[1], []).append((rest, symbol))
                else:
                    heappush(heap, (rest + self._after(back), symbol))
        while heap:
            least, symbol = heappop(heap)
            if symbol not in after:
                after[symbol] = least
                for rest, user in users.get(symbol, ()):
                    heappush(heap, (least + rest, user))
        for terminal, items in column.by_terminal.items():
            column.rest[terminal] = min(
                dots.rest[dots.following[dot]] + (after.get(back[1], math.inf) if back[0] == number else self._after(back))
                for dot, back in items
            )

    def _after(self, back: Return) -> float:
        """Bytes that are needed once a nonterminal has ended that waits in an earlier column."""
        return 0.0 if back == ROOT else self._columns[back[0]].after.get(back[1], math.inf)
