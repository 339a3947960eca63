"""Searches for regular expressions over the bytes of UTF-8, and how many matches there may be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from locore.automata.byte_machine import ByteMachine, Numbered
from locore.automata.composed import ComposedMachine
from locore.automata.machines import CONTINUATIONS, NOTHING, Beginnings, Tally
from locore.automata.regex.searching import CharMachine, Matches
from locore.automata.walking import DEAD, Int32
from locore.kernel.limits import check_progress

WORK = "following a pattern", "repeat less often, or something simpler"
Cut = tuple[int, int, int]  # a state of the machine over characters, how many bytes are to come, which beginning was read
Tallied = tuple[int, ...]  # states of the searches; then state and count of the tally, if there is one


class OverBytes(ByteMachine):
    """A machine over characters that reads their UTF-8; bytes that are none lead nowhere."""

    def __init__(self, machine: CharMachine[object]) -> None:
        self.machine = machine
        column = machine.classes.by_code_point()
        self._ascii = column[:0x80]
        self._beginnings = Beginnings.of(column)
        self._meanings: Numbered[Cut] = Numbered([(0, 0, 0)])

    def row(self, state: int) -> Int32:
        """Int32[256]: the state after each byte."""
        check_progress(*WORK)
        at, missing, beginning = self._meanings[state]
        row = np.full(256, DEAD, dtype=np.int32)
        if missing:
            row[CONTINUATIONS] = self._each(at, missing - 1, self._beginnings.levels[missing - 1][beginning])
            return row
        row[:0x80] = self._each(at, 0, self._ascii)
        for level, (where, leads) in enumerate(self._beginnings.leads):
            row[where] = self._each(at, level + 1, leads)
        return row

    def whole(self, state: int) -> int | None:
        """The state of the machine over characters; None within a character."""
        at, missing, _ = self._meanings[state]
        return None if missing else at

    def accepts(self, state: int) -> bool:
        """May the text end here?"""
        at = self.whole(state)
        return at is not None and self.machine.accepts(at)

    def least(self, state: int) -> float:
        """Bytes that a text needs at least from here on: of each character one."""
        at, missing, _ = self._meanings[state]
        return missing + max(0.0, self.machine.least(at) - bool(missing))  # the character that is begun is the first

    def at(self, state: int) -> int:
        """The state of the machine over characters before what may be half a character."""
        return self._meanings[state][0]

    def _each(self, at: int, missing: int, numbers: NDArray[np.int32]) -> Int32:
        """The states that classes (`missing` 0) or beginnings lead to."""
        distinct, which = np.unique(numbers, return_inverse=True)
        return np.array([self._reached(at, missing, number) for number in distinct.tolist()], dtype=np.int32)[which]

    def _reached(self, at: int, missing: int, number: int) -> int:
        if number == NOTHING:
            return DEAD
        if not missing:
            at, number = self.machine.step(at, number), 0
        return DEAD if at == DEAD else self._meanings.number((at, missing, number))


class Counted(ComposedMachine[Tallied]):
    """Accepts texts in which all counts together are within bounds.

    Args:
        counters: machines that count matches, each within these bounds.
        tally: one more, over bytes.
        low, high: the bounds; None: no upper bound.
    """

    def __init__(self, counters: list[Matches], tally: Tally | None, low: int, high: int | None) -> None:
        self._bytes = [OverBytes(counter) for counter in counters]  # type: ignore[arg-type]
        self._counters, self._tally = counters, tally
        self._low, self._high, self._top = low, high, low if high is None else high + 1
        super().__init__(self._bytes, (0,) * len(counters) + (() if tally is None else (0, 0)))

    def after_bytes(self, meaning: Tallied) -> tuple[NDArray[np.int64], list[Tallied | None]]:
        """Each of them reads the byte."""
        rows = [part.row(state) for part, state in zip(self._bytes, meaning, strict=False)]
        if self._tally is not None:
            state = meaning[-2]
            rows += [self._tally.table[state, self._tally.column], self._tally.gain[state, self._tally.column]]
        which, columns = self._together(rows)
        return which, [self._reached(column, meaning) for column in columns]

    def _reached(self, column: Tallied, before: Tallied) -> Tallied | None:
        if DEAD in column[: len(self._bytes)]:
            return None
        if self._tally is not None:
            column = (*column[:-1], min(self._top, before[-1] + column[-1]))
        floors = (counter.floor(part.at(state)) for counter, part, state in self._each(column))
        return None if self._high is not None and sum(floors) + self._tallied(column) > self._high else column

    def _each(self, meaning: Tallied) -> list[tuple[Matches, OverBytes, int]]:
        return list(zip(self._counters, self._bytes, meaning, strict=False))

    def _tallied(self, meaning: Tallied) -> int:
        return 0 if self._tally is None else meaning[-1]

    def ends(self, meaning: Tallied) -> bool:
        """Is the sum within the bounds?"""
        total = self._tallied(meaning) + (0 if self._tally is None else int(self._tally.final[meaning[-2]]))
        for counter, part, state in self._each(meaning):
            at = part.whole(state)
            count = None if at is None else counter.count(at)
            if count is None:
                return False
            total += count
        return self._low <= total and (self._high is None or total <= self._high)

    def needs(self, meaning: Tallied) -> float:
        """Nothing is known, but where the text may end."""
        return 0.0 if self.ends(meaning) else 1.0
