"""A grammar as flat productions: repetitions and groups written out, what can never end left away, lengths of what is left."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from locore.automata.grammar.syntax import Choice, Common, Definitions, Expression, Literal, Name, Place, Repeated, Sequence
from locore.automata.grammar.terminals import Terminals
from locore.automata.regex import byte_automaton
from locore.automata.regex.language import Language, either
from locore.automata.tables import Automaton
from locore.errors import InvalidConstraint, UnsupportedKeyword
from locore.limits import check_states

START = 0  # the nonterminal of the whole, which no rule uses
Symbol = int  # a nonterminal, or ~t for the terminal t
REMEDY = "repeat less often, or leave the upper limit of a repetition away"


@dataclass(frozen=True, eq=False)
class Terminal:
    """A terminal as an automaton over bytes.

    Attributes:
        table: Int32[states, 256], the next state.
        accepting: Bool[states].
        distance: f64[states], bytes until it accepts; inf where it never does.
        start: the first state.
    """

    table: NDArray[np.int32]
    accepting: NDArray[np.bool_]
    distance: NDArray[np.float64]
    start: int

    @classmethod
    def of(cls, automaton: Automaton) -> Terminal:
        """The same automaton with a column for each byte."""
        column = np.full(256, automaton.default, dtype=np.int64)
        for symbol, number in automaton.column.items():
            column[symbol] = number
        table = automaton.table[:, column]
        distance = np.where(automaton.accepting, 0.0, math.inf)
        while True:
            nearer = np.minimum(distance, 1 + distance[table].min(1))
            if (nearer == distance).all():
                return cls(table, automaton.accepting, distance, automaton.start)
            distance = nearer

    @property
    def nullable(self) -> bool:
        """Is the empty text one of its texts?"""
        return bool(self.accepting[self.start])

    @property
    def shortest(self) -> float:
        """Bytes of its shortest text that is not empty; inf where there is none."""
        return 1 + float(self.distance[self.table[self.start]].min())


@dataclass(frozen=True, eq=False)
class Productions:
    """Numbered productions over nonterminals 0, 1, … and terminals ~0, ~1, …; a dot in a production has a number as well.

    Attributes:
        rules: for each nonterminal its right-hand sides.
        terminals: of each number.
        ignored: the number of what may stand between terminals.
    """

    rules: tuple[tuple[tuple[Symbol, ...], ...], ...]
    terminals: tuple[Terminal, ...]
    ignored: int | None

    @cached_property
    def nullable(self) -> frozenset[int]:
        """The nonterminals that the empty text is one of."""
        found: set[int] = set()
        while True:
            more = {
                number
                for number, sides in enumerate(self.rules)
                if number not in found and any(all(symbol in found for symbol in side) for side in sides)
            }
            if not more:
                return frozenset(found)
            found |= more

    @cached_property
    def shortest(self) -> list[float]:
        """For each nonterminal the bytes of its shortest text; inf where no text of it ever ends."""
        least = [math.inf] * len(self.rules)
        changed = True
        while changed:
            changed = False
            for number, sides in enumerate(self.rules):
                for side in sides:
                    length = sum(least[s] if s >= 0 else self.terminals[~s].shortest for s in side)
                    if length < least[number]:
                        least[number], changed = length, True
        return least

    def shortest_of(self, symbol: Symbol) -> float:
        """Bytes of the shortest text of a symbol that is no empty text of a terminal."""
        return self.shortest[symbol] if symbol >= 0 else self.terminals[~symbol].shortest

    @cached_property
    def neighbours(self) -> NDArray[np.bool_]:
        """Bool[terminals, terminals]: may the second come right after the first?"""
        first, last = self._edges(1), self._edges(-1)
        result = np.zeros((len(self.terminals), len(self.terminals)), dtype=np.bool_)
        for side in (side for sides in self.rules for side in sides):
            for place, symbol in enumerate(side):
                for following in side[place + 1 :]:
                    result |= np.outer(last[symbol], first[following])
                    if following not in self.nullable:
                        break
        if self.ignored is not None:
            result[self.ignored] = result[:, self.ignored] = True
        return result

    def _edges(self, direction: int) -> dict[Symbol, NDArray[np.bool_]]:
        """For each symbol Bool[terminals]: with which its texts may begin (1) or end (-1)."""
        every = np.eye(len(self.terminals), dtype=np.bool_)
        edges = {~number: every[number] for number in range(len(self.terminals))}
        edges |= {number: np.zeros(len(self.terminals), dtype=np.bool_) for number in range(len(self.rules))}
        changed = True
        while changed:
            changed = False
            for number, sides in enumerate(self.rules):
                before = edges[number].sum()
                for side in sides:
                    for symbol in side[::direction]:
                        edges[number] = edges[number] | edges[symbol]
                        if symbol not in self.nullable:
                            break
                changed |= bool(edges[number].sum() > before)
        return edges

    @cached_property
    def dots(self) -> Dots:
        """All places within productions."""
        return Dots.of(self)


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
        number_of: dict[tuple[int, tuple[Symbol, ...]], int] = {}

        def place(side: int, symbols: tuple[Symbol, ...]) -> int:
            """The number of a place before these symbols; those behind it are made first."""
            for length in range(len(symbols) + 1):
                left = symbols[len(symbols) - length :]
                if (side, left) in number_of:
                    continue
                number_of[side, left] = len(dots.symbol)
                dots.symbol.append(left[0] if left else None)
                dots.following.append(number_of[side, left[1:]] if left else -1)
                dots.side.append(side)
                dots.rest.append(sum(grammar.shortest_of(symbol) for symbol in left))
            return number_of[side, symbols]

        for side, productions in enumerate(grammar.rules):
            begins: dict[int, None] = {}
            for symbols in productions:
                if any(grammar.shortest_of(symbol) == math.inf for symbol in symbols):
                    continue
                for before in range(len(symbols)):
                    if all(symbol in grammar.nullable for symbol in symbols[:before]):
                        begins[place(side, symbols[before:])] = None
            dots.first.append(list(begins))
        return dots


def productions_of(definitions: Definitions) -> Productions:
    """The productions of a grammar.

    Raises:
        InvalidConstraint: a name that is not defined, no rule `start`, or no text that ever ends.
        UnsupportedKeyword, BudgetExceeded: as their messages say.
    """
    if "start" not in definitions.rules:
        raise InvalidConstraint('the grammar has no rule "start", with which its texts begin; name the first rule so')
    made = _Flattening(definitions)
    grammar = Productions(tuple(map(tuple, made.rules)), tuple(made.terminals), made.ignored)
    if grammar.shortest[START] == math.inf:
        endless = [name for name, number in made.number_of.items() if grammar.shortest[number] == math.inf]
        names = ", ".join(endless)
        raise InvalidConstraint(
            f"no text of the grammar ever ends: each text of {names} contains another one, without a way out. Give the rule an "
            'alternative that ends, such as x: "(" x ")" | "x"'
        )
    return grammar


class _Flattening:
    """Turns expressions into productions.

    Attributes:
        rules, terminals, ignored: as in `Productions`.
        number_of: the nonterminal of each rule that is used.
    """

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._languages = Terminals(definitions)
        self._terminal_of: dict[Language, int] = {}
        self._optional: dict[int, int] = {}
        self.rules: list[list[tuple[Symbol, ...]]] = [[]]
        self.terminals: list[Terminal] = []
        self.number_of: dict[str, int] = {}
        pending = self._pending = ["start"]
        self.rules[START].append((self._rule("start"),))
        while pending:
            name = pending.pop()
            self.rules[self.number_of[name]] += self._sides(definitions.rules[name])
        ignored = [self._languages.of(expression) for expression in definitions.ignored]
        self.ignored = self._terminal(either(ignored)) if ignored else None

    def _rule(self, name: str) -> Symbol:
        if name not in self.number_of:
            self.number_of[name] = self._new([])
            self._pending.append(name)
        return self.number_of[name]

    def _new(self, sides: Iterable[tuple[Symbol, ...]]) -> Symbol:
        check_states(len(self.rules), "the productions of the grammar", REMEDY)
        self.rules.append(list(sides))
        return len(self.rules) - 1

    def _sides(self, expression: Expression) -> list[tuple[Symbol, ...]]:
        parts = expression.parts if isinstance(expression, Choice) else (expression,)
        return list(dict.fromkeys(self._symbols(part) for part in parts))

    def _symbols(self, expression: Expression) -> tuple[Symbol, ...]:
        if isinstance(expression, Sequence):
            return tuple(symbol for part in expression.parts for symbol in self._symbols(part))
        if isinstance(expression, Choice):
            return (self._new(self._sides(expression)),)
        if isinstance(expression, Repeated):
            return self._repeated(expression)
        if isinstance(expression, Name) and expression.name in self._definitions.rules:
            return (self._rule(expression.name),)
        if isinstance(expression, Literal) and not expression.text:
            return ()
        if isinstance(expression, Common):
            raise UnsupportedKeyword(
                f"& between rules at {expression.place} of the grammar is not supported; use it in terminals, in uppercase, or "
                "combine two constraints with &"
            )
        return self._terminal_symbols(self._languages.of(expression))

    def _terminal_symbols(self, language: Language) -> tuple[Symbol, ...]:
        """A terminal; or nothing, if it can be empty."""
        number = self._terminal(language)
        if not self.terminals[number].nullable:
            return (~number,)
        if number not in self._optional:
            self._optional[number] = self._new([(), (~number,)])
        return (self._optional[number],)

    def _terminal(self, language: Language) -> int:
        if language not in self._terminal_of:
            self._terminal_of[language] = len(self.terminals)
            self.terminals.append(Terminal.of(byte_automaton(language)))
        return self._terminal_of[language]

    def _repeated(self, expression: Repeated) -> tuple[Symbol, ...]:
        """So many, and then any number or a few more of them, each of which stands after those before it."""
        part = self._symbols(expression.part)
        once = part if len(part) == 1 else (self._new([part]),)
        required = once * expression.least
        if expression.most is None:
            more = self._new([()])
            self.rules[more].append((more, *once))
            return (*required, more)
        optional: tuple[Symbol, ...] = ()
        for _ in range(expression.most - expression.least):
            optional = (self._new([(), (*once, *optional)]),)
        return (*required, *optional)


__all__ = ["START", "Dots", "Place", "Productions", "Symbol", "Terminal", "productions_of"]
