"""Deterministic automata over classes of characters, Boolean operations on them, and what they may cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
from numpy.typing import NDArray

from locore.automata.machines import Tally, over_bytes
from locore.automata.regex.language import CharClasses, CharSet, partition
from locore.kernel.automata import tables
from locore.kernel.automata.tables import Automaton, over_all_bytes
from locore.kernel.errors import BudgetExceeded
from locore.kernel.limits import DEFAULT, check_progress, limits_in_force

WORK = "finding the states of a regular expression", "repeat less often, or something simpler"
Int32 = NDArray[np.int32]
Bools = NDArray[np.bool_]


def co_reachable(table: Int32, accepting: Bools) -> Bools:
    """Bool[states]: can acceptance be reached?"""
    flags: Bools = tables.Predecessors(table).distance(accepting) < len(table)
    return flags


@dataclass
class Budget:
    """What one expression may cost. Counts, not seconds: a pattern is refused everywhere or nowhere.

    Attributes:
        positions: positions of the non-deterministic automaton, repetitions written out.
        states: states of a deterministic automaton over characters.
        byte_states: states of the automaton over UTF-8 bytes.
        moves: steps of single positions while subsets are built, which are used up; a million take about a second.
    """

    positions: int = 100_000
    states: int = 20_000
    byte_states: int = 150_000
    moves: int = 3_000_000

    @classmethod
    def in_force(cls) -> Budget:
        """In proportion to the states that the limits of the running compile allow."""
        scale = limits_in_force().states / DEFAULT.states
        usual = cls()
        return cls(*(max(1, int(scale * getattr(usual, field.name))) for field in fields(cls)))

    def require(self, kind: str, needed: int) -> None:
        """`BudgetExceeded` when `needed` is more than the limit of this kind."""
        limit = getattr(self, kind)
        if needed > limit:
            what = _NAMES[kind]
            raise BudgetExceeded(f"it needs more than {limit} {what}" + (f" (about {needed})" if kind == "positions" else ""))

    def spend(self, moves: int) -> None:
        """Use up some moves; `BudgetExceeded` when there are no more."""
        self.moves -= moves
        check_progress(*WORK)
        if self.moves < 0:
            raise BudgetExceeded("finding its states takes too long: it can be in too many places at once")


_NAMES = {
    "positions": "positions once its repetitions are written out",
    "states": "states",
    "byte_states": "states over UTF-8 bytes",
}


@dataclass(frozen=True, eq=False)
class Dfa:
    """A complete deterministic automaton over characters; it starts in state 0.

    Attributes:
        table: Int32[states, classes], the next state.
        accepting: Bool[states].
        classes: the class of each character.
    """

    table: Int32
    accepting: Bools
    classes: CharClasses

    def accepts(self, text: str) -> bool:
        """Does it accept this string?"""
        state = 0
        for character in text:
            state = int(self.table[state, self.classes.of(ord(character))])
        return bool(self.accepting[state])

    def useful_states(self) -> list[int]:
        """The states from which a string can still be accepted."""
        return [int(state) for state in np.flatnonzero(co_reachable(self.table, self.accepting))]

    def successors(self, state: int) -> Iterator[tuple[int, CharSet]]:
        """Each next state, and the characters that lead to it."""
        sets = self.classes.sets
        row = self.table[state]
        for target in np.unique(row).tolist():
            yield target, CharSet.of(span for number in np.flatnonzero(row == target) for span in sets[number].ranges)

    def words(self, most: int) -> list[str] | None:
        """The strings that it accepts; None if there are more than so many."""
        useful = set(self.useful_states())
        words: list[str] = []
        pending = [(0, "")] if 0 in useful else []
        while pending:
            state, word = pending.pop()
            if len(word) >= len(self.table):  # it went round in a circle
                return None
            if self.accepting[state]:
                words.append(word)
            for target, chars in self.successors(state):
                if target in useful:
                    if len(words) + len(pending) + sum(last - first + 1 for first, last in chars.ranges) > most:
                        return None
                    pending += [(target, word + chr(code)) for first, last in chars.ranges for code in range(first, last + 1)]
        return words

    def complement(self) -> Dfa:
        """Accepts exactly the strings that this one does not."""
        return Dfa(self.table, ~self.accepting, self.classes)

    def minimised(self) -> Dfa:
        """The automaton of the same language with the fewest states, and the fewest classes that it tells apart."""
        blocks, members = tables.equivalent_states(self.table, self.accepting)
        table = blocks[self.table[members]]
        which, first = tables.number_rows(table.T)
        return Dfa(np.ascontiguousarray(table[:, first]), self.accepting[members], self.classes.renumbered(which))

    def over_bytes(self, budget: Budget) -> Automaton:
        """The automaton of the UTF-8 encodings of the strings that this one accepts; minimal if this one is.

        Raises:
            BudgetExceeded: it has too many states.
        """
        table, accepting = self.table, self.accepting
        trapped = (table == np.arange(len(table))[:, None]).all(axis=1) & ~accepting
        dead = int(np.argmax(trapped)) if trapped.any() else len(table)
        if dead == len(table):
            table = np.pad(table, ((0, 1), (0, 0)), constant_values=dead)
            accepting = np.append(accepting, False)
        machine = Tally(table, np.zeros_like(table), accepting.astype(np.int32), self.classes.by_code_point())
        read = over_bytes(machine, dead, partial(budget.require, "byte_states"))
        return over_all_bytes(read.table, read.final > 0, read.column)


def intersection(left: Dfa, right: Dfa, budget: Budget) -> Dfa:
    """Accepts what both accept; minimal.

    Raises:
        BudgetExceeded: too many pairs of states can be reached.
    """
    classes, columns = _common_classes(left, right)
    table, a, b = tables.product_table(left.table, right.table, (0, 0), columns, partial(budget.require, "states"))
    return Dfa(table, left.accepting[a] & right.accepting[b], classes).minimised()


def _common_classes(left: Dfa, right: Dfa) -> tuple[CharClasses, NDArray[np.int64]]:
    """Classes that both see, and Int64[common classes, 2], the columns of the two automata."""
    sets = [dfa.classes.sets for dfa in (left, right)]
    classes, members = partition([*sets[0], *sets[1]])
    columns = np.zeros((classes.num_classes, 2), dtype=np.int64)
    for number, common in enumerate(members):
        side = int(number >= len(sets[0]))
        columns[list(common), side] = number - side * len(sets[0])
    return classes, columns
