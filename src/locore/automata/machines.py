"""Machines that count something in a string, automata that bound the count, and the same over UTF-8 bytes.

Every text constraint is of this kind: how often phrases occur, how many words there are, 1 for "the text ends so" and 0
otherwise. One construction therefore serves them all: count, then say how much is allowed.

From characters to bytes: after the first bytes of a character the rest decides where it leads, so such a *node* is a function
of the next byte. Equal nodes are one state, whatever characters and states they come from.

Bytes that are no UTF-8 are read as `bytes.decode("utf-8", errors="replace")` reads them: every maximal piece of an ill-formed
sequence is one U+FFFD (Unicode Standard, section 3.9, "U+FFFD Substitution of Maximal Subparts"). So a byte that cannot
continue the character before it makes that one U+FFFD and is then read anew; the end of the text does the same. Or they are
refused: then a broken character leads to a dead state, from which nothing that is read anew leads away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.automata.characters import REPLACEMENT
from locore.kernel.automata.tables import SIMPLIFYING, Automaton, equivalent_states, number_rows, over_all_bytes, reachable
from locore.kernel.limits import check_progress, check_states, check_table

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
NUM_BYTES, TRAIL = 256, 64  # bytes 0x80 to 0xBF continue a character, six bits each
CONTINUATIONS = slice(0x80, 0xC0)
NOTHING = -1  # this byte cannot come next
CHUNK = 1 << 20  # entries of nodes that are looked at together


@dataclass(frozen=True, eq=False)
class Tally:
    """A deterministic machine that counts; it starts in state 0 (a subsequential transducer into the integers).

    The count of a string is the sum of the gains along its way, plus `final` of the state where it ends.

    Attributes:
        table: Int32[states, columns], the next state.
        gain: Int32[states, columns], what a step counts; not negative.
        final: Int32[states], what the end of the string counts; 0 in state 0.
        column: Int32[symbols], the column that a symbol reads; symbols are bytes or code points.
    """

    table: Ints
    gain: Ints
    final: Ints
    column: Ints

    def count(self, symbols: bytes | list[int]) -> int:
        """The count of one string."""
        state, total = 0, 0
        for symbol in symbols:
            column = self.column[symbol]
            total += int(self.gain[state, column])
            state = int(self.table[state, column])
        return total + int(self.final[state])


def check_size(states: int, columns: int, what: str, remedy: str) -> None:
    """`BudgetExceeded` when a table of states and columns would be too large. There are three of them: moves, gains, a copy."""
    check_table(3 * 4 * states * columns, f"{what} over {columns:,} classes of bytes or characters", remedy)


def bounded(tally: Tally, low: int, high: int | None) -> Automaton:
    """Accepts the strings of bytes with low <= count <= high; None: no upper bound. One of the two must bound something.

    A state is one of the machine and the count so far. Counts from `top` on need not be told apart: the answer is settled.

    Raises:
        BudgetExceeded: the bounds are so high, or the machine so large, that their product is too large.
    """
    top = low if high is None else high + 1
    remedy = "lower the bounds, leave out one that no text of the length reaches, or count fewer or shorter strings"
    if top > 1:  # before anything else: beyond some size it is no number of an array
        check_states(top, f"counting up to {top:,}", remedy)
        check_size(top, 1, f"counting up to {top:,}", remedy)
    small = minimised(_clipped(pushed(tally), top))
    states, columns = small.table.shape
    if top > 1:
        check_states(top * states, f"counting up to {top:,}", remedy)
        check_size(top * states, columns, f"counting up to {top:,}", remedy)
    so_far = np.arange(top)[:, None, None]
    total = so_far + small.gain
    settled = top * states
    table = np.where(total < top, total * states + small.table, settled).reshape(settled, columns)
    table = np.append(table, np.full((1, columns), settled), axis=0).astype(np.int32)
    ends = so_far[:, :, 0] + small.final
    accepting = np.append((ends >= low) & (True if high is None else ends <= high), high is None)
    order, table = reachable(table)
    return over_all_bytes(table, accepting[order], small.column)


def minimised(tally: Tally) -> Tally:
    """Merge the states that count alike step by step, and then the columns that do the same in every state.

    It merges most when every gain stands as early as it is certain (Mohri, "Minimization algorithms for sequential
    transducers", 2000), which `bounded` sees to.
    """
    order, table = reachable(tally.table)
    gain, final = tally.gain[order], tally.final[order]
    blocks, members = equivalent_states(table, number_rows(np.column_stack([final, gain]))[0])
    table, gain, final = blocks[table[members]], gain[members], final[members]
    column, first = number_rows(np.append(table, gain, axis=0).T)
    return Tally(table[:, first], gain[:, first], final, column[tally.column])


def pushed(tally: Tally) -> Tally:
    """The same counts, every gain as soon as it is certain: what all ways on from a state count is moved before the state."""
    least = tally.final
    while True:
        check_progress(*SIMPLIFYING)
        less = np.minimum(tally.final, (tally.gain + least[tally.table]).min(axis=1))
        if np.array_equal(less, least):
            break
        least = less
    return Tally(tally.table, tally.gain + least[tally.table] - least[:, None], tally.final - least, tally.column)


def _clipped(tally: Tally, top: int) -> Tally:
    """Counts of `top` and more are alike, and after a step that counts so much it does not matter where one is."""
    settled = tally.gain >= top
    table = np.where(settled, 0, tally.table).astype(np.int32)
    return Tally(table, np.minimum(tally.gain, top), np.minimum(tally.final, top), tally.column)


@dataclass(frozen=True)
class Beginnings:
    """The beginnings of characters, by how many bytes are to come; those that go on alike are one.

    Attributes:
        levels: for 1, 2 and 3 bytes to come Int32[beginnings, 64], what each next byte leads to, or NOTHING: a column of the
            machine where the character is complete then, else a beginning of the level before.
        leads: for each level the first bytes of such characters, and the beginning that each is.
    """

    levels: tuple[Ints, ...]
    leads: tuple[tuple[slice, Ints], ...]

    @classmethod
    def of(cls, column: Ints) -> Beginnings:
        """By the column of each code point, in six-bit pieces: the last byte tells 64 code points apart, and so on."""
        points = column.copy()
        points[:0x80] = points[0xD800:0xE000] = points[-1]  # one byte, and none; what stands here instead is not looked up
        blocks = points.reshape(-1, TRAIL)
        varied, key = np.flatnonzero((blocks != blocks[:, :1]).any(1)), blocks[:, 0].copy()  # nearly all are of one column
        key[varied] = -1 - number_rows(blocks[varied])[0]
        block, kept_blocks = number_rows(key[:, None])
        pages = block.reshape(-1, TRAIL).copy()
        pages[0x0, : 0x800 >> 6] = NOTHING  # shorter spellings exist
        pages[0xD, 0x800 >> 6 :] = NOTHING  # surrogates
        page, kept_pages = number_rows(pages)
        planes = np.full((5, TRAIL), NOTHING, dtype=np.int32)
        planes.reshape(-1)[0x10:0x110] = page[0x10:]
        last = np.arange(5, dtype=np.int32)
        leads = (slice(0xC2, 0xE0), block[2:0x20]), (slice(0xE0, 0xF0), page[:0x10]), (slice(0xF0, 0xF5), last)
        return cls((blocks[kept_blocks], pages[kept_pages], planes), leads)


def over_bytes(tally: Tally, dead: int | None = None, check: Callable[[int], None] | None = None) -> Tally:
    """The machine over bytes that counts in a string what `tally`, over code points, counts in the decoded string.

    Its first states are those of `tally`.

    Args:
        dead: a state that leads to itself only and counts nothing, for bytes that are no UTF-8; None: they are U+FFFD.
        check: is told how many states there are so far, and stops what grows too large.
    """
    nodes = _Nodes(tally, dead, check or _check_size(tally))
    beginnings = Beginnings.of(tally.column)
    steps = nodes.steps
    for level, (where, leads) in zip(beginnings.levels, beginnings.leads, strict=True):
        steps = nodes.steps_to(level, steps)
        nodes.first[:, where] = steps[:, leads]
    return nodes.machine()


def _check_size(tally: Tally) -> Callable[[int], None]:
    columns = tally.table.shape[1] + TRAIL
    return lambda states: check_size(states, columns, "a constraint on characters", "use fewer or shorter strings")


class _Nodes:
    """Collects the states over bytes: first those of the machine, then nodes.

    A *step* is a state and a gain in one number: (state << bits) + gain.

    Attributes:
        steps: Int64[states, columns], what the machine does.
        broken: Int64[states], the step of a broken character.
        first: Int64[states, 256], the step of the first byte of a character, and of a byte that is none.
    """

    def __init__(self, tally: Tally, dead: int | None, check: Callable[[int], None]) -> None:
        self._tally = tally
        self._check = check
        self._bits = (2 * int(tally.gain.max(initial=0))).bit_length()  # two broken characters may count in one step
        self.steps = (tally.table.astype(np.int64) << self._bits) + tally.gain
        self.broken = self.steps[:, tally.column[REPLACEMENT]]
        if dead is not None:
            self.broken = np.full_like(self.broken, dead << self._bits)
        after, counted = self._split(self.broken)
        self._again = self.broken[after] + counted  # of another byte that only continues
        self.first = np.repeat(self.broken[:, None], NUM_BYTES, axis=1)
        self.first[:, :0x80] = self.steps[:, tally.column[:0x80]]
        self._number: dict[bytes, int] = {}
        self._rows: list[bytes] = []
        if dead is not None:
            self._number[np.full(TRAIL + 1, dead << self._bits).tobytes()] = dead

    def steps_to(self, level: Ints, steps: Longs) -> Longs:
        """The steps to beginnings of characters: Int64[states, beginnings].

        Args:
            level: Int32[beginnings, 64], what the next byte leads to.
            steps: Int64[states, ...], the steps to that.
        """
        result = np.empty((len(steps), len(level)), dtype=np.int64)
        leads = np.zeros((len(level), steps.shape[1] + 1), dtype=np.bool_)
        leads[np.arange(len(level))[:, None], level] = True
        leads[:, NOTHING] = False
        kind, first = number_rows(leads)
        for number, columns in enumerate(map(np.flatnonzero, leads[first])):
            group = np.flatnonzero(kind == number)
            # States are told apart by what may still come only, and most often nothing depends on what comes.
            part, members = number_rows(np.column_stack([steps[:, columns], self.broken]))
            same = (steps[members][:, columns] == steps[members, columns[0], None]).all(axis=1)
            numbers = np.empty((len(members), len(group)), dtype=np.int64)
            numbers[~same] = self._numbers(level[group], steps, members[~same])
            merged, distinct = number_rows(np.where(level[group] == NOTHING, NOTHING, columns[0]))
            numbers[same] = self._numbers(level[group[distinct]], steps, members[same])[:, merged]
            result[:, group] = numbers[part]
        return result

    def _numbers(self, level: Ints, steps: Longs, states: Longs) -> Longs:
        """Int64[states, beginnings]: steps to nodes, which are known by their 64 steps and by that of being broken off."""
        parts = [np.empty((0, len(level)), dtype=np.int64)]
        for some in np.array_split(states, 1 + len(states) * level.size // CHUNK):
            rows = np.empty((len(some), len(level), TRAIL + 1), dtype=np.int64)
            rows[:, :, :TRAIL] = np.append(steps[some], self._again[some, None], axis=1)[:, level]  # NOTHING: the last one
            rows[:, :, TRAIL] = self.broken[some, None]
            parts.append(self._numbered(rows.reshape(-1, TRAIL + 1)).reshape(rows.shape[:2]))
        return np.concatenate(parts)

    def _numbered(self, rows: Longs) -> Longs:
        """The steps to the nodes of some rows, new ones where there are none yet."""
        labels, first = number_rows(rows)
        numbers = []
        for row in rows[first]:
            key, following = row.tobytes(), len(self.steps) + len(self._rows)
            numbers.append(self._number.setdefault(key, following))
            if numbers[-1] == following:
                self._rows.append(key)
        self._check(len(self.steps) + len(self._rows))
        return np.array(numbers, dtype=np.int64)[labels] << self._bits

    def _split(self, steps: Longs) -> tuple[Longs, Longs]:
        """The states and the gains of steps."""
        return steps >> self._bits, steps & ((1 << self._bits) - 1)

    def machine(self) -> Tally:
        """All of it, with one column for bytes that no state tells apart."""
        rows = np.frombuffer(b"".join(self._rows), dtype=np.int64).reshape(-1, TRAIL + 1)
        others = np.delete(np.arange(NUM_BYTES), CONTINUATIONS)
        column = np.empty(NUM_BYTES, dtype=np.int32)
        column[others], first = number_rows(self.first[:, others].T)
        trails = np.append(self.first[:1, CONTINUATIONS].T, rows[:, :TRAIL].T, axis=1)
        trail, first_trail = number_rows(trails)
        column[CONTINUATIONS] = len(first) + trail
        first = np.append(others[first], CONTINUATIONS.start + first_trail)
        after, counted = self._split(rows[:, TRAIL])
        table = self.first[:, first]
        table = np.concatenate([table, table[after] + counted[:, None]])
        inside = (first >= CONTINUATIONS.start) & (first < CONTINUATIONS.stop)
        table[len(self.steps) :, inside] = rows[:, first[inside] - CONTINUATIONS.start]
        final = np.append(self._tally.final, self._tally.final[after] + counted)
        states, gain = (part.astype(np.int32) for part in self._split(table))
        return Tally(states, gain, final.astype(np.int32), column)
