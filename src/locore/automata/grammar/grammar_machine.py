"""A grammar as a machine over bytes, whose states are made when they are first reached.

Reading is that of llguidance, which is a lexer before a parser: the terminals that may come are read side by side as long as
one of them reads on (never shorter, so that `A B` with `A: /a+/` and `B: /a/` has no text at all), and then the parser takes
all whose text that was. What is ignored may stand between terminals and behind the last one if another could
follow, and is preferred to a terminal of the same text. Where every terminal is a single character, as in GBNF, none reads on
behind another's end, and nothing but the parser decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.automata.byte_machine import ByteMachine, Numbered
from locore.automata.grammar.columns import Columns
from locore.automata.grammar.productions import Productions
from locore.automata.grammar.progress import most_progress
from locore.automata.grammar.terminal import Terminal
from locore.automata.walking import DEAD
from locore.kernel.automata.tables import Trie

NOTHING = -1
Reading = tuple[tuple[int, int], ...]  # terminals that still read, and the state of each
FRESH = -2  # of a lexer that has read nothing of the next terminal
TRIED = 1000  # bytes in which a terminal that has read on is looked for


class Lexer:
    """States are numbers of sets of terminals that still read, each in its state; made when they are first reached."""

    def __init__(self, terminals: tuple[Terminal, ...]) -> None:
        self._terminals = terminals
        self._readings: Numbered[Reading] = Numbered()
        self._rows: dict[int, NDArray[np.int64]] = {}

    def start(self, terminals: Iterable[int]) -> int:
        """Before a text of one of these terminals."""
        return self._readings.number(tuple((t, self._terminals[t].start) for t in sorted(terminals)))

    def row(self, state: int) -> NDArray[np.int64]:
        """Int64[256]: the state after each byte, NOTHING where no terminal reads it."""
        if state not in self._rows:
            reading = self._readings[state]
            targets = np.array([self._terminals[t].table[q] for t, q in reading], dtype=np.int64).reshape(-1, 256)
            columns, which = np.unique(targets, axis=1, return_inverse=True)
            after = [self._after(reading, column) for column in columns.T.tolist()]
            self._rows[state] = np.array(after, dtype=np.int64)[which.ravel()]
        return self._rows[state]

    def accepted(self, state: int) -> frozenset[int]:
        """The terminals that what has been read is a text of."""
        return frozenset(t for t, q in self._readings[state] if self._terminals[t].accepting[q])

    def is_over(self, state: int) -> bool:
        """Does no terminal read on?"""
        return bool((self.row(state) == NOTHING).all())

    def remaining(self, state: int) -> list[tuple[int, float]]:
        """The terminals that still read, and the bytes that each needs at least."""
        return [(t, float(self._terminals[t].distance[q])) for t, q in self._readings[state]]

    def _after(self, reading: Reading, column: list[int]) -> int:
        going = tuple((t, q) for (t, _), q in zip(reading, column, strict=True) if self._terminals[t].distance[q] < math.inf)
        return self._readings.number(going) if going else NOTHING


@dataclass(frozen=True)
class Overrun:
    """A terminal that has read on behind where it had to end; places are bytes.

    Attributes:
        names: of the terminals that read on.
        start, end: what was read.
        least: behind which byte it could have ended, so that the text would have been read further.
    """

    names: tuple[str, ...]
    start: int
    end: int
    least: int


class GrammarMachine(ByteMachine):
    """The texts of a grammar. A state is a column of the parser and a state of the lexer behind it."""

    def __init__(self, grammar: Productions) -> None:
        self._ignored = grammar.ignored
        self._grammar = grammar
        self._columns = Columns(grammar)
        self._lexer = Lexer(grammar.terminals)
        self._states = Numbered([(0, FRESH)])
        self._accepts: dict[int, bool] = {}

    def row(self, state: int) -> NDArray[np.int32]:
        """Int32[256]: the state after each byte."""
        column, lexer = self._states[state]
        if lexer == FRESH:
            return self._numbered(column, self._lexer.row(self._before(column)))
        after = self._lexer.row(lexer)
        row = self._numbered(column, after)
        following = self._following(column, lexer)
        if following is not None:
            begun = self._numbered(following, self._lexer.row(self._before(following)))
            row = np.where(after == NOTHING, begun, row)
        return row

    def accepts(self, state: int) -> bool:
        """Is what was read a text of the grammar?"""
        if state not in self._accepts:
            column, lexer = self._states[state]
            following = column if lexer == FRESH else self._following(column, lexer)
            self._accepts[state] = following is not None and self._columns[following].accepts
        return self._accepts[state]

    def least(self, state: int) -> float:
        """Bytes that a text needs at least from here on."""
        column, lexer = self._states[state]
        if lexer == FRESH:
            return self._columns.least(column)
        rest = self._columns[column].rest
        return min(
            distance + (self._columns.least(column) if terminal == self._ignored else rest[terminal])
            for terminal, distance in self._lexer.remaining(lexer)
        )

    def progress(self, trie: Trie) -> float:
        """By how many bytes one token lowers `least` at most."""
        return most_progress(self._grammar, trie)

    def overrun(self, content: bytes) -> Overrun | None:
        """Of a text that is no sentence: the last terminal that had to end earlier for the text to be read further, if any."""
        states, begun = [0], [0]  # begun: where the terminal began that has read the byte before
        for place, byte in enumerate(content):
            following = int(self.row(states[-1])[byte])
            if following == DEAD:
                break
            lexer = self._states[states[-1]][1]
            begun.append(place if lexer == FRESH or self._lexer.row(lexer)[byte] == NOTHING else begun[-1])
            states.append(following)
        read = len(states) - 1
        for place in range(read - 1, max(0, read - TRIED), -1):
            column, lexer = self._states[states[place]]
            ended = None if lexer == FRESH or begun[place + 1] == place else self._following(column, lexer)
            if ended is not None and self._reads(content[place:], ended) + place > read:
                going_on = int(self._lexer.row(lexer)[content[place]])
                names = [self._grammar.terminals[terminal].name for terminal, _ in self._lexer.remaining(going_on)]
                start = begun[place + 1]
                end = max(at for at in range(place, read + 1) if begun[at] == start)
                return Overrun(tuple(names), start, end, place)
        return None

    def _reads(self, content: bytes, column: int) -> int:
        """How many bytes are read before a next terminal; one more if they are all and a sentence ends there."""
        state = self._states.number((column, FRESH))
        for place, byte in enumerate(content):
            state = int(self.row(state)[byte])
            if state == DEAD:
                return place
        return len(content) + self.accepts(state)

    def _following(self, column: int, lexer: int) -> int | None:
        """The column once the terminal that is being read has ended; None where it cannot end here."""
        accepted = self._lexer.accepted(lexer)
        return column if self._ignored in accepted else self._columns.scan(column, accepted)

    def _before(self, column: int) -> int:
        """The lexer before the next terminal."""
        terminals = set(self._columns[column].by_terminal)
        if self._ignored is not None and terminals and column:
            terminals.add(self._ignored)
        return self._lexer.start(terminals)

    def _numbered(self, column: int, lexer: NDArray[np.int64]) -> NDArray[np.int32]:
        """Int32[…]: the states of a column and many states of the lexer."""
        distinct, which = np.unique(lexer, return_inverse=True)
        numbers = [DEAD if state == NOTHING else self._number(column, state) for state in distinct.tolist()]
        return np.array(numbers, dtype=np.int32)[which.reshape(lexer.shape)]

    def _number(self, column: int, lexer: int) -> int:
        """The number of a state; where no terminal reads on, what was read is at its end, and the next begins."""
        key = column, lexer
        if self._lexer.is_over(lexer):
            following = self._following(column, lexer)
            assert following is not None  # the lexer reads what may come, and nothing that cannot end
            key = following, FRESH
        return self._states.number(key)


__all__ = ["GrammarMachine", "Overrun"]
