"""Where a text is cut: before the first of some strings. A search for them byte by byte (Aho and Corasick, 1975)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from locore.automata.composed import ComposedMachine
from locore.automata.lazily import DEAD, ByteMachine
from locore.automata.machines import NUM_BYTES
from locore.automata.tables import Automaton, reachable
from locore.errors import InvalidArgument
from locore.limits import check_progress, check_states

MOST_STOPS = 64
WHAT, REMEDY = "looking for stop strings", "use fewer or shorter stop strings"


class StopMachine:
    """Looks for strings of bytes, of which the one that ends first counts, and of several that end there the longest.

    A state stands for the bytes read last that may become a string: state 0 for none, `stopped` once one was found.

    Attributes:
        stops: the strings.
        pending: the bytes that each state stands for.
        stopped: the last state, which is never left.
    """

    def __init__(self, stops: Iterable[bytes]) -> None:
        """Of at least one string.

        Raises:
            InvalidArgument: there is none, there are too many, or one is empty.
        """
        self.stops = tuple(dict.fromkeys(stops))
        if not 0 < len(self.stops) <= MOST_STOPS or not all(self.stops):
            raise InvalidArgument(f"a text stops at 1 to {MOST_STOPS} strings, none of them empty.")
        beginnings = {stop[:size] for stop in self.stops for size in range(len(stop))}
        self.pending = sorted(beginnings, key=lambda beginning: (len(beginning), beginning))
        self.stopped = len(self.pending)
        number_of = {beginning: number for number, beginning in enumerate(self.pending)}
        self._longer = {(number_of[text[:-1]], text[-1]): number for text, number in number_of.items() if text}
        self._steps: dict[tuple[int, int], int] = {}
        # Of each state, that of the longest end of its bytes with which a string begins, too; shorter ones come first.
        self._fall: list[int] = []
        for state, text in enumerate(self.pending):
            self._fall.append(self.step(self._fall[number_of[text[:-1]]], text[-1]) if len(text) > 1 else 0)
            if not state % 64:
                check_progress(WHAT, REMEDY)

    def read(self, state: int, content: bytes) -> int:
        """The state after these bytes."""
        for byte in content:
            if state == self.stopped:
                break
            state = self.step(state, byte)
        return state

    def step(self, state: int, byte: int) -> int:
        """The state after one byte more."""
        passed: list[int] = []
        after: int | None = None
        while after is None:
            after = self._known(state, byte)
            passed.append(state)
            state = self._fall[state] if after is None else state
        for state in passed:
            self._steps[state, byte] = after
        return after

    def _known(self, state: int, byte: int) -> int | None:
        """The state after one byte more, if it can be told without falling back."""
        if state == self.stopped or (state, byte) in self._steps:
            return self._steps.get((state, byte), self.stopped)
        if self.found(self.pending[state] + bytes([byte])):
            return self.stopped
        return self._longer.get((state, byte), None if state else 0)

    def found(self, text: bytes) -> bytes:
        """The longest string that ends here; nothing if there is none."""
        return max((stop for stop in self.stops if text.endswith(stop)), key=len, default=b"")

    def cut(self, text: bytes) -> bytes:
        """A text before the first string; the whole text if it holds none."""
        state = 0
        for index, byte in enumerate(text):
            state = self.step(state, byte)
            if state == self.stopped:
                return text[: index + 1 - len(self.found(text[: index + 1]))]
        return text

    def before(self, automaton: Automaton) -> Automaton:
        """Accepts the texts of which that before the first string is accepted; what follows it may be anything.

        A state is that of the automaton before the bytes that may become a string, and the state of the search.

        Raises:
            BudgetExceeded: it is too large.
        """
        inner, width = _Rows(automaton), self.stopped
        accepts, rejects = inner.states * width, inner.states * width + 1
        check_states(rejects + 1, WHAT, REMEDY)
        table = np.empty((rejects + 1, NUM_BYTES), dtype=np.int32)
        table[accepts], table[rejects] = accepts, rejects
        accepting = np.zeros(rejects + 1, dtype=np.bool_)
        accepting[accepts] = True
        for state in range(width):
            pending = self.pending[state]
            here = np.arange(inner.states) * width + state
            accepting[here] = inner.accepting[inner.after(pending)]
            check_progress(WHAT, REMEDY)
            for byte in range(NUM_BYTES):
                text, following = pending + bytes([byte]), self.step(state, byte)
                if following == self.stopped:
                    good = inner.accepting[inner.after(text[: len(text) - len(self.found(text))])]
                    table[here, byte] = np.where(good, accepts, rejects)
                else:
                    settled = text[: len(text) - len(self.pending[following])]
                    table[here, byte] = inner.after(settled) * width + following
        order, numbered = reachable(table, automaton.start * width)
        return Automaton(numbered, accepting[order], {byte: byte for byte in range(NUM_BYTES)}, 0)


class CutMachine(ComposedMachine[tuple[int, int]]):
    """Accepts the texts of which that before the first stop string is accepted; what follows it may be anything.

    A state is that of the part before the bytes that may become a string, and the state of the search; (0, `stopped`) is behind
    a string with an accepted text before it.
    """

    def __init__(self, part: ByteMachine, search: StopMachine) -> None:
        """Nothing has been read."""
        super().__init__([part], (0, 0))
        self._part, self._search = part, search

    def after_bytes(self, meaning: tuple[int, int]) -> tuple[NDArray[np.int64], list[tuple[int, int] | None]]:
        """The search reads the byte, and the part what can no longer become a string."""
        state, looking = meaning
        if looking == self._search.stopped:
            return np.zeros(NUM_BYTES, dtype=np.int64), [meaning]
        pending = self._search.pending[looking]
        after = self._part.after(pending, state)
        row = np.full(NUM_BYTES, DEAD) if after == DEAD else self._part.row(after)
        number: dict[tuple[int, int] | None, int] = {}
        which = [
            number.setdefault(self._reached(state, pending, looking, byte, int(following)), len(number))
            for byte, following in enumerate(row)
        ]
        return np.array(which, dtype=np.int64), list(number)

    def _reached(self, state: int, pending: bytes, looking: int, byte: int, after: int) -> tuple[int, int] | None:
        """What one byte leads to; `after` is where it leads the part if nothing is held back."""
        looking = self._search.step(looking, byte)
        if looking:
            text = pending + bytes([byte])
            stopped = looking == self._search.stopped
            held = self._search.found(text) if stopped else self._search.pending[looking]
            after = self._part.after(text[: len(text) - len(held)], state)
            if stopped:
                return (0, looking) if after != DEAD and self._part.accepts(after) else None
        return None if after == DEAD else (after, looking)

    def ends(self, meaning: tuple[int, int]) -> bool:
        """Behind a string, or where the part accepts what is held back, too."""
        state, looking = meaning
        if looking == self._search.stopped:
            return True
        after = self._part.after(self._search.pending[looking], state)
        return after != DEAD and self._part.accepts(after)

    def needs(self, meaning: tuple[int, int]) -> float:
        """What the part needs; the bytes held back may be of it."""
        state, looking = meaning
        behind = looking == self._search.stopped
        return 0.0 if behind else max(0.0, self._part.least(state) - len(self._search.pending[looking]))

    def far(self, state: int) -> float:
        """As for the part."""
        inner, looking = self._meanings[state]
        return 0.0 if looking == self._search.stopped else self._part.far(inner)


class _Rows:
    """An automaton over bytes, read from all of its states at once."""

    def __init__(self, automaton: Automaton) -> None:
        columns = [automaton.column.get(byte, automaton.default) for byte in range(NUM_BYTES)]
        self.states = len(automaton.table)
        self.accepting = automaton.accepting
        self._table = automaton.table[:, columns]
        self._after: dict[bytes, np.ndarray] = {b"": np.arange(self.states)}

    def after(self, content: bytes) -> np.ndarray:
        """Int[states], where each state leads.

        What is asked for is kept without its last byte: beginnings of stop strings, by their lengths, and little else.
        """
        if content in self._after:
            return self._after[content]
        if content[:-1] not in self._after:
            self._after[content[:-1]] = self.after(content[:-1])
        rows: np.ndarray = self._table[self._after[content[:-1]], content[-1]]
        return rows
