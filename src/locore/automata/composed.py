"""Machines over bytes made of others: an automaton as one, Boolean combinations, one text after another, what follows a marker.

Their states are sets or pairs of states of the parts, made when they are first reached; where all parts are automata there are
finitely many, and `as_automaton` writes them down.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from locore.automata.byte_machine import ByteMachine, Numbered
from locore.automata.walking import DEAD, Int32
from locore.kernel.automata.tables import Automaton, Trie, minimise, number_rows, over_all_bytes
from locore.kernel.errors import BudgetExceeded
from locore.kernel.limits import check_progress, check_states

WRITING = "reading one text after another", "fewer or simpler parts"
S = TypeVar("S", bound=Hashable)


class AutomatonMachine(ByteMachine):
    """An automaton over bytes. States keep their numbers, but for the start, which becomes 0."""

    def __init__(self, automaton: Automaton) -> None:
        """The same texts."""
        minimal = minimise(automaton)
        column = np.full(256, minimal.default, dtype=np.int64)
        for symbol, number in minimal.column.items():
            column[symbol] = number
        table, distance = minimal.table[:, column], np.where(minimal.accepting, 0.0, math.inf)
        while True:
            nearer = np.minimum(distance, 1 + distance[table].min(1))
            if (nearer == distance).all():
                break
            distance = nearer
        self._table = np.where(np.isfinite(distance)[table], table, DEAD).astype(np.int32)
        self._accepting, self._distance = minimal.accepting, distance

    def row(self, state: int) -> Int32:
        """Int32[256]: the state after each byte."""
        row: Int32 = self._table[state]
        return row

    def accepts(self, state: int) -> bool:
        """Is it accepting?"""
        return bool(self._accepting[state])

    def least(self, state: int) -> float:
        """Bytes of the shortest text from here on, exactly."""
        return float(self._distance[state])


class ComposedMachine(ByteMachine, Generic[S]):
    """A machine whose states stand for something of its parts; a subclass says for what, and how that goes on.

    Args:
        parts: whose `progress` together is its own, at most.
        start: what state 0 stands for.
    """

    def __init__(self, parts: Sequence[ByteMachine], start: S) -> None:
        self.parts = tuple(parts)
        self._meanings = Numbered([start])

    @abstractmethod
    def after_bytes(self, meaning: S) -> tuple[NDArray[np.int64], list[S | None]]:
        """Int64[256], for each byte which of the following meanings it leads to; None is no text."""

    @abstractmethod
    def ends(self, meaning: S) -> bool:
        """May the text end here?"""

    @abstractmethod
    def needs(self, meaning: S) -> float:
        """As `least`."""

    def row(self, state: int) -> Int32:
        """Int32[256]: the state after each byte."""
        which, meanings = self.after_bytes(self._meanings[state])
        numbers = [DEAD if meaning is None else self._meanings.number(meaning) for meaning in meanings]
        return np.array(numbers, dtype=np.int32)[which]

    def accepts(self, state: int) -> bool:
        """May the text end here?"""
        return self.ends(self._meanings[state])

    def least(self, state: int) -> float:
        """Bytes that a text needs at least from here on."""
        return self.needs(self._meanings[state])

    def progress(self, trie: Trie) -> float:
        """A token cannot bring a text further than by all its bytes."""
        return float(len(trie.levels))

    def _together(self, rows: Sequence[Int32]) -> tuple[NDArray[np.int64], list[tuple[int, ...]]]:
        """Rows of parts side by side: Int64[256], and the distinct columns."""
        columns = np.stack(rows, axis=1)
        which, first = number_rows(columns)
        return which.astype(np.int64), [tuple(column) for column in columns[first].tolist()]


class Advanced(ByteMachine):
    """A machine that has read something when it begins."""

    def __init__(self, machine: ByteMachine, text: bytes) -> None:
        """The machine, and what it has read. The state where it is then becomes 0, and the other way round."""
        self._machine, self._begin = machine, machine.after(text)

    def _swapped(self, state: int) -> int:
        return self._begin if state == 0 else 0 if state == self._begin else state

    def row(self, state: int) -> Int32:
        """Int32[256]: the state after each byte."""
        if self._begin == DEAD:
            return np.full(256, DEAD, dtype=np.int32)
        row = self._machine.row(self._swapped(state))
        swapped: Int32 = np.where(row == 0, self._begin, np.where(row == self._begin, 0, row)).astype(np.int32)
        return swapped

    def accepts(self, state: int) -> bool:
        """May the text end here?"""
        return self._begin != DEAD and self._machine.accepts(self._swapped(state))

    def least(self, state: int) -> float:
        """Bytes that a text needs at least from here on."""
        return math.inf if self._begin == DEAD else self._machine.least(self._swapped(state))

    def far(self, state: int) -> float:
        """How far the end seems to be."""
        return math.inf if self._begin == DEAD else self._machine.far(self._swapped(state))

    def progress(self, trie: Trie) -> float:
        """As the machine."""
        return self._machine.progress(trie)


class SteppedMachine(ComposedMachine[S]):
    """One that asks its parts for single steps where a row of them is dear."""

    @property
    def has_dear_rows(self) -> bool:  # type: ignore[override]
        """Has a part?"""
        return any(part.has_dear_rows for part in self.parts)


class Joined(SteppedMachine[tuple[int, ...]]):
    """What all parts accept, or what some part does. Parts that are dead are kept so, for others may still accept."""

    def __init__(self, parts: Sequence[ByteMachine], conjunctive: bool) -> None:
        super().__init__(parts, (0,) * len(parts))
        self._all = conjunctive

    def after_bytes(self, meaning: tuple[int, ...]) -> tuple[NDArray[np.int64], list[tuple[int, ...] | None]]:
        """Each part reads the byte."""
        nowhere = np.full(256, DEAD, dtype=np.int32)
        rows = [nowhere if state == DEAD else part.row(state) for part, state in zip(self.parts, meaning, strict=True)]
        which, columns = self._together(rows)
        return which, [None if self._is_lost(column) else column for column in columns]

    def after_each(self, states: Int32, symbols: NDArray[np.int64]) -> Int32:
        """Each part reads these bytes alone."""
        meanings = np.array([self._meanings[state] for state in states.tolist()], dtype=np.int32).reshape(-1, len(self.parts))
        after = np.stack([_after_each(part, meanings[:, at], symbols) for at, part in enumerate(self.parts)], axis=1)
        numbers = [DEAD if self._is_lost(column) else self._meanings.number(tuple(column)) for column in after.tolist()]
        return np.array(numbers, dtype=np.int32)

    def _is_lost(self, column: Sequence[int]) -> bool:
        lost = any if self._all else all
        return lost(state == DEAD for state in column)

    def far(self, state: int) -> float:
        """Where all parts must accept, each may need text of its own."""
        decide = sum if self._all else min
        pairs = zip(self.parts, self._meanings[state], strict=True)
        return decide([math.inf if state == DEAD else part.far(state) for part, state in pairs])

    def ends(self, meaning: tuple[int, ...]) -> bool:
        """All parts, or some."""
        decide = all if self._all else any
        return decide(state != DEAD and part.accepts(state) for part, state in zip(self.parts, meaning, strict=True))

    def needs(self, meaning: tuple[int, ...]) -> float:
        """As the one that needs most, or least."""
        decide = max if self._all else min
        pairs = zip(self.parts, meaning, strict=True)
        return decide(math.inf if state == DEAD else part.least(state) for part, state in pairs)


class Complement(SteppedMachine[int]):
    """What its part does not accept; DEAD stands for what no text of the part begins with."""

    def __init__(self, part: ByteMachine) -> None:
        super().__init__([part], 0)

    def after_bytes(self, meaning: int) -> tuple[NDArray[np.int64], list[int | None]]:
        """The part reads the byte."""
        nowhere = np.full(256, DEAD, dtype=np.int32)
        which, columns = self._together([nowhere if meaning == DEAD else self.parts[0].row(meaning)])
        return which, [column[0] for column in columns]

    def after_each(self, states: Int32, symbols: NDArray[np.int64]) -> Int32:
        """The part reads these bytes alone."""
        meanings = np.array([self._meanings[state] for state in states.tolist()], dtype=np.int32)
        after = _after_each(self.parts[0], meanings, symbols)
        return np.array([self._meanings.number(meaning) for meaning in after.tolist()], dtype=np.int32)

    def ends(self, meaning: int) -> bool:
        """Where the part may not."""
        return meaning == DEAD or not self.parts[0].accepts(meaning)

    def needs(self, meaning: int) -> float:
        """Nothing is known, but where the text may end."""
        return 0.0 if self.ends(meaning) else 1.0


def _after_each(part: ByteMachine, states: Int32, symbols: NDArray[np.int64]) -> Int32:
    """The state of a part after one byte each; DEAD stays DEAD."""
    after = np.full(len(states), DEAD, dtype=np.int32)
    alive = states != DEAD
    after[alive] = part.after_each(states[alive], symbols[alive])
    return after


Threads = frozenset[tuple[int, int]]  # parts that may be reading, and the state of each


class Concatenated(ComposedMachine[Threads]):
    """A text of each part, one after the other; all ways of cutting the text are followed at once."""

    def __init__(self, parts: Sequence[ByteMachine]) -> None:
        lengths = [part.least(0) for part in parts]
        self._rest = [sum(lengths[number + 1 :]) for number in range(len(parts))]
        self.parts = tuple(parts)
        super().__init__(parts, self._with_ends([(0, 0)]))

    def after_bytes(self, meaning: Threads) -> tuple[NDArray[np.int64], list[Threads | None]]:
        """Each part that may be reading reads the byte."""
        check_progress(*WRITING)
        threads = sorted(meaning)
        which, columns = self._together([self.parts[part].row(state) for part, state in threads])
        following: list[Threads | None] = []
        for column in columns:
            alive = [(part, after) for (part, _), after in zip(threads, column, strict=True) if after != DEAD]
            following.append(self._with_ends(alive) if alive else None)
        return which, following

    def ends(self, meaning: Threads) -> bool:
        """Where the last part may."""
        last = len(self.parts) - 1
        return any(part == last and self.parts[part].accepts(state) for part, state in meaning)

    def needs(self, meaning: Threads) -> float:
        """What the part that is nearest to the end needs."""
        return min(self.parts[part].least(state) + self._rest[part] for part, state in meaning)

    def _with_ends(self, threads: list[tuple[int, int]]) -> Threads:
        """With the beginnings of the parts that may begin now."""
        closure, pending = set(threads), list(threads)
        while pending:
            part, state = pending.pop()
            begun = part + 1, 0
            if begun[0] < len(self.parts) and begun not in closure and self.parts[part].accepts(state):
                closure.add(begun)
                pending.append(begun)
        return frozenset(closure)


class Following(ComposedMachine[tuple[bool, int]]):
    """A text up to the first place where `marker` accepts what was read, and then a text of `rest`.

    A state says whether the marker has been read, and where its part is.
    """

    def __init__(self, marker: ByteMachine, rest: ByteMachine) -> None:
        """Nothing has been read; the marker must not accept the empty text."""
        super().__init__([marker, rest], (False, 0))

    def after_bytes(self, meaning: tuple[bool, int]) -> tuple[NDArray[np.int64], list[tuple[bool, int] | None]]:
        """The part whose turn it is reads the byte."""
        marked, state = meaning
        which, columns = self._together([self.parts[marked].row(state)])
        following: list[tuple[bool, int] | None] = []
        for (after,) in columns:
            if after == DEAD:
                following.append(None)
            else:
                following.append((True, 0) if not marked and self.parts[0].accepts(after) else (marked, after))
        return which, following

    def ends(self, meaning: tuple[bool, int]) -> bool:
        """Behind the marker, where the rest may."""
        marked, state = meaning
        return marked and self.parts[1].accepts(state)

    def needs(self, meaning: tuple[bool, int]) -> float:
        """The marker, if it is still to come, and the rest."""
        marked, state = meaning
        return self.parts[marked].least(state) + (0.0 if marked else self.parts[1].least(0))


def as_automaton(machine: ByteMachine, most: int | None = None) -> Automaton:
    """A machine of finitely many states as a minimal automaton.

    Raises:
        BudgetExceeded: it has more states than the limits allow, or than `most`.
    """
    rows: list[Int32] = []
    number = {0: 1}  # state 0 of the table is dead
    pending = [0]
    for state in pending:
        check_progress(*WRITING)
        check_states(len(number), *WRITING)
        if most is not None and len(number) > most:
            raise BudgetExceeded(f"it has more than {most:,} states.")
        row = machine.row(state)
        for after in np.unique(row).tolist():
            if after != DEAD and after not in number:
                number[after] = len(number) + 1
                pending.append(after)
        rows.append(np.array([number.get(after, 0) for after in row.tolist()], dtype=np.int32))
    table = np.stack([np.zeros(256, dtype=np.int32), *rows])
    accepting = np.array([False, *(machine.accepts(state) for state in pending)])
    columns, which = np.unique(table, axis=1, return_inverse=True)
    whole = over_all_bytes(np.ascontiguousarray(columns).astype(np.int32), accepting, which.ravel())
    return minimise(Automaton(whole.table, whole.accepting, whole.column, whole.default, 1))
