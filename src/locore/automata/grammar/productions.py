"""A grammar as flat productions: repetitions and groups written out, what can never end left away, lengths of what is left."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from locore.automata.grammar.terminal import Terminal
from locore.kernel.errors import InvalidConstraint
from locore.kernel.limits import check_states
from locore.kernel.plugins import cached_property

START = 0  # the nonterminal of the whole, which no rule uses
Symbol = int  # a nonterminal, or ~t for the terminal t
Symbols = tuple[Symbol, ...]
REMEDY = "repeat less often, or leave the upper limit of a repetition away"


@dataclass(frozen=True, eq=False)
class Productions:
    """Numbered productions over nonterminals 0, 1, … and terminals ~0, ~1, …; a dot in a production has a number as well.

    Attributes:
        rules: for each nonterminal its right-hand sides.
        terminals: of each number.
        ignored: the number of what may stand between terminals.
    """

    rules: tuple[tuple[Symbols, ...], ...]
    terminals: tuple[Terminal, ...]
    ignored: int | None

    @cached_property
    def shortest(self) -> list[float]:
        """For each nonterminal the bytes of its shortest text; inf where no text of it ever ends."""
        least = [math.inf] * len(self.rules)
        sides = [(number, side) for number, sides in enumerate(self.rules) for side in sides]
        length = [float(sum(self.terminals[~symbol].shortest for symbol in side if symbol < 0)) for _, side in sides]
        missing = [sum(symbol >= 0 for symbol in side) for _, side in sides]
        used_by: dict[Symbol, list[int]] = defaultdict(list)
        for index, (_, side) in enumerate(sides):
            for symbol in side:
                used_by[symbol].append(index)
        heap = sorted((length[index], sides[index][0]) for index, left in enumerate(missing) if not left)
        while heap:  # the shortest first, as in Knuth 1977
            size, number = heappop(heap)
            if size >= least[number]:
                continue
            least[number] = size
            for index in used_by[number]:
                length[index] += size
                missing[index] -= 1
                if not missing[index]:
                    heappush(heap, (length[index], sides[index][0]))
        return least

    def shortest_of(self, symbol: Symbol) -> float:
        """Bytes of the shortest text of a symbol that is no empty text of a terminal."""
        return self.shortest[symbol] if symbol >= 0 else self.terminals[~symbol].shortest

    @cached_property
    def nullable(self) -> frozenset[int]:
        """The nonterminals that the empty text is one of; a terminal in a production reads at least a byte."""
        return frozenset(number for number, length in enumerate(self.shortest) if not length)

    @cached_property
    def neighbours(self) -> NDArray[np.bool_]:
        """Bool[terminals, terminals]: may the second come right after the first?"""
        first, last = self._edges(1), self._edges(-1)
        after: dict[Symbol, int] = defaultdict(int)  # sets of terminals are numbers, a bit for each
        for side in (side for sides in self.rules for side in sides):
            following = 0
            for symbol in reversed(side):
                after[symbol] |= following
                following = first[symbol] | (following if symbol in self.nullable else 0)
        rows = [0] * len(self.terminals)
        for symbol, following in after.items():
            for terminal in _members(last[symbol]) if following else ():
                rows[terminal] |= following
        result = np.zeros((len(rows), len(rows)), dtype=np.bool_)
        for terminal, row in enumerate(rows):
            result[terminal, _members(row)] = True
        if self.ignored is not None:
            result[self.ignored] = result[:, self.ignored] = True
        return result

    def _edges(self, direction: int) -> dict[Symbol, int]:
        """For each symbol the terminals with which its texts may begin (1) or end (-1), a bit for each."""
        edges = {~number: 1 << number for number in range(len(self.terminals))} | dict.fromkeys(range(len(self.rules)), 0)
        at_edge_of: dict[Symbol, list[int]] = defaultdict(list)
        for number, sides in enumerate(self.rules):
            for side in sides:
                for symbol in side[::direction]:
                    at_edge_of[symbol].append(number)
                    if symbol not in self.nullable:
                        break
        pending = list(edges)
        while pending:
            symbol = pending.pop()
            for number in at_edge_of[symbol]:
                more = edges[number] | edges[symbol]
                if more != edges[number]:
                    edges[number] = more
                    pending.append(number)
        return edges

    @cached_property
    def dots(self) -> Dots:
        """All places within productions."""
        return Dots.of(self)


def _members(bits: int) -> list[int]:
    """The numbers of the bits that are set."""
    return [place for place, digit in enumerate(reversed(f"{bits:b}")) if digit == "1"]


@dataclass(frozen=True, eq=False)
class Dots:
    """Numbered places within productions; those of one nonterminal with the same symbols to come are one.

    Attributes:
        symbol: what comes next; None at the end of a production.
        following: the place behind it.
        side: the nonterminal of the production.
        rest: bytes of the shortest text of what comes.
        first: for each nonterminal the places at which its productions begin, or that only what may be empty lies before.
    """

    symbol: list[Symbol | None]
    following: list[int]
    side: list[int]
    rest: list[float]
    first: list[list[int]]

    @classmethod
    def of(cls, grammar: Productions) -> Dots:
        """Of productions all of whose texts end."""
        dots = cls([], [], [], [], [])
        number_of: dict[tuple[int, Symbol | None, int], int] = {}

        def place(side: int, symbol: Symbol | None, following: int) -> int:
            """The number of the place before a symbol, behind which the next place is known."""
            key = side, symbol, following
            if key not in number_of:
                number_of[key] = len(dots.symbol)
                dots.symbol.append(symbol)
                dots.following.append(following)
                dots.side.append(side)
                dots.rest.append(0.0 if symbol is None else grammar.shortest_of(symbol) + dots.rest[following])
            return number_of[key]

        for side, productions in enumerate(grammar.rules):
            begins: dict[int, None] = {}
            for symbols in productions:
                if any(grammar.shortest_of(symbol) == math.inf for symbol in symbols):
                    continue
                places = [place(side, None, -1)]
                for symbol in reversed(symbols):
                    places.append(place(side, symbol, places[-1]))
                for symbol, here in zip(symbols, reversed(places), strict=False):
                    begins[here] = None
                    if symbol not in grammar.nullable:
                        break
            dots.first.append(list(begins))
        return dots


class Builder:
    """Productions in the making.

    Attributes:
        rules, terminals: as in `Productions`; production 0 is for the caller to write.
    """

    def __init__(self) -> None:
        self.rules: list[list[Symbols]] = [[]]
        self.terminals: list[Terminal] = []
        self._number_of: dict[Hashable, int] = {}

    def new(self, sides: Iterable[Symbols] = ()) -> Symbol:
        """Another nonterminal."""
        check_states(len(self.rules), "the productions of the grammar", REMEDY)
        self.rules.append(list(sides))
        return len(self.rules) - 1

    def terminal(self, key: Hashable, make: Callable[[], Terminal]) -> int:
        """The number of a terminal; those of one key are one."""
        if key not in self._number_of:
            self._number_of[key] = len(self.terminals)
            self.terminals.append(make())
        return self._number_of[key]

    def repeated(self, part: Symbols, least: int, most: int | None) -> Symbols:
        """So many, and then any number (None) or a few more of them, each of which stands after those before it."""
        check_states(max(least, most or 0) * min(len(part), 1), "a repetition in the grammar", REMEDY)
        once = part if len(part) < 2 else (self.new([part]),)
        required = once * least
        if not once:
            return ()
        if most is None:
            more = self.new([()])
            self.rules[more].append((more, *once))
            return (*required, more)
        optional: Symbols = ()
        for _ in range(most - least):
            optional = (self.new([(), (*once, *optional)]),)
        return (*required, *optional)

    def productions(self, ignored: int | None, number_of: dict[str, Symbol]) -> Productions:
        """The productions; what stands for one other symbol only is that symbol.

        Args:
            number_of: the nonterminals of the names that the user wrote.

        Raises:
            InvalidConstraint: no text ever ends.
        """
        alias = _aliases(self.rules)
        rules = tuple(tuple(tuple(alias[s] if s >= 0 else s for s in side) for side in sides) for sides in self.rules)
        grammar = Productions(rules, tuple(self.terminals), ignored)
        if grammar.shortest[START] == math.inf:
            names = ", ".join(name for name, number in number_of.items() if grammar.shortest[number] == math.inf)
            raise InvalidConstraint(
                f"no text of the grammar ever ends: each text of {names} contains another one, without a way out. Give the "
                "rule an alternative that ends, one in which it does not stand itself"
            )
        return grammar


def _aliases(rules: list[list[Symbols]]) -> list[Symbol]:
    """For each nonterminal the symbol that it stands for: itself, unless its one production is one other symbol."""
    alias: dict[Symbol, Symbol] = {}
    for number in range(len(rules)):
        path, here = [number], number
        while here >= 0 and here not in alias:
            sides = rules[here]
            if len(sides) != 1 or len(sides[0]) != 1 or sides[0][0] in path[-1:] or len(path) > len(rules):
                break
            here = sides[0][0]
            path.append(here)
        end = alias.get(here, here)
        alias |= dict.fromkeys((symbol for symbol in path if symbol >= 0), end)
    return [alias[number] for number in range(len(rules))]


__all__ = ["START", "Builder", "Dots", "Productions", "Symbol", "Symbols"]
