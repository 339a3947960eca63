"""Where a text is cut: before the first of some strings. A search for them byte by byte (Aho and Corasick, 1975)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from locore.automata.byte_machine import ByteMachine
from locore.automata.composed import ComposedMachine
from locore.automata.machines import NUM_BYTES
from locore.automata.walking import DEAD
from locore.kernel.automata.tables import Automaton, reachable
from locore.kernel.errors import InvalidArgument
from locore.kernel.limits import check_progress, check_states, check_table
from locore.kernel.request import cut_before

KEPT_SEARCHES = 4
WHAT, REMEDY = "looking for stop strings", "use fewer or shorter stop strings"
STOPPED = -1  # a child of a state, while states are being made
LOOK = 64  # states that are made between two looks at the clock
COPIES = 3  # of the table of an automaton, while it is made


@lru_cache(maxsize=KEPT_SEARCHES)
def search_for(stops: tuple[str, ...]) -> StopMachine:
    """Looks for at least one string."""
    return StopMachine(stop.encode() for stop in stops)


def sure_before(stops: tuple[str, ...]) -> Callable[[bytes], bytes]:
    """What of the beginning of a text stays, whatever follows, if the text is cut before the first of these strings."""
    return search_for(stops).sure if stops else bytes


class StopMachine:
    """Looks for strings of bytes, of which the one that ends first counts, and of several that end there the longest.

    A state stands for the bytes read last that may become a string: state 0 for none, `stopped` once one was found. What is
    kept is as large as the strings are long, and so is the time that it takes to make it.

    Attributes:
        stops: the strings.
        pending: the bytes that each state stands for; shorter ones come first.
        stopped: the last state, which is never left.
    """

    def __init__(self, stops: Iterable[bytes]) -> None:
        """Of at least one string.

        Raises:
            InvalidArgument: there is none, or one is empty.
            BudgetExceeded: they are too long.
        """
        self.stops = tuple(dict.fromkeys(stops))
        if not self.stops or not all(self.stops):
            raise InvalidArgument("a text stops at one string at least, and none of them is empty.")
        check_states(1 + sum(map(len, self.stops)), WHAT, REMEDY)
        self._children: dict[tuple[int, int], int] = {}
        self._ends: set[tuple[int, int]] = set()  # states and bytes with which a whole string ends
        self._parent, self._fall, self.pending = [0], [0], _Beginnings()
        self._grow()
        self.stopped = len(self._parent)

    def _grow(self) -> None:
        """The states of all beginnings, by their length: the state to fall back to is shorter, and there before."""
        growing, size = [(stop, 0) for stop in sorted(self.stops, key=len)], 0
        while growing:
            longer: list[tuple[bytes, int]] = []
            for stop, state in growing:
                byte = stop[size]
                if len(stop) == size + 1:
                    self._ends.add((state, byte))
                    self._children[state, byte] = STOPPED
                elif (state, byte) not in self._children:
                    self._children[state, byte] = self._born(state, stop, size + 1)
                if self._children[state, byte] != STOPPED:
                    longer.append((stop, self._children[state, byte]))
            growing, size = longer, size + 1

    def _born(self, parent: int, stop: bytes, size: int) -> int:
        """The new state of the beginning of this size, or `STOPPED` where a shorter string ends with it."""
        fall = self._next(self._fall[parent], stop[size - 1]) if parent else 0
        if fall == STOPPED:
            return STOPPED
        self._parent.append(parent)
        self._fall.append(fall)
        self.pending.add(stop, size)
        if not len(self._fall) % LOOK:
            check_progress(WHAT, REMEDY)
        return len(self._fall) - 1

    def _next(self, state: int, byte: int) -> int:
        """The state after one byte more, or `STOPPED`; a text costs as many steps back as it has bytes at most."""
        while (state, byte) not in self._children and state:
            state = self._fall[state]
        return self._children.get((state, byte), 0)

    def read(self, state: int, content: bytes) -> int:
        """The state after these bytes."""
        for byte in content:
            if state == self.stopped:
                break
            state = self.step(state, byte)
        return state

    def step(self, state: int, byte: int) -> int:
        """The state after one byte more."""
        after = STOPPED if state == self.stopped else self._next(state, byte)
        return self.stopped if after == STOPPED else after

    def longest_end(self, text: bytes) -> bytes:
        """The longest string that ends here; nothing if there is none."""
        return max((stop for stop in self.stops if text.endswith(stop)), key=len, default=b"")

    def sure(self, text: bytes) -> bytes:
        """The beginning of `text` that stays when any text that begins with it is cut."""
        state = self.read(0, text)
        return cut_before(text, self.stops) if state == self.stopped else text[: len(text) - len(self.pending[state])]

    def before(self, automaton: Automaton) -> Automaton:
        """Accepts the texts of which that before the first string is accepted; what follows it may be anything.

        A state is that of the automaton before the bytes that may become a string, and the state of the search. Where no
        longer beginning follows, it moves as the shorter one that the search falls back to does, once the automaton has read
        what was lost by that.

        Raises:
            BudgetExceeded: it is too large.
        """
        inner, width = _Rows(automaton, self), self.stopped
        accepts, rejects = inner.states * width, inner.states * width + 1
        check_states(rejects + 1, WHAT, REMEDY)
        check_table(COPIES * 4 * NUM_BYTES * (rejects + 1), WHAT, REMEDY)
        table = np.empty((rejects + 1, NUM_BYTES), dtype=np.int32)
        table[accepts], table[rejects] = accepts, rejects
        accepting = np.zeros(rejects + 1, dtype=np.bool_)
        accepting[accepts] = True
        ended, every = np.where(inner.accepting, accepts, rejects), np.arange(inner.states)
        pairs = table[:accepts].reshape(width, inner.states, NUM_BYTES)
        for state in range(width):
            pairs[state] = pairs[self._fall[state]][inner.lost[state]] if state else inner.moves
            accepting[state * inner.states + every] = inner.accepting[inner.after[state]]
            check_progress(WHAT, REMEDY)
            for byte, child in inner.children[state]:
                if (state, byte) in self._ends:
                    pairs[state, :, byte] = ended
                elif child != STOPPED:
                    pairs[state, :, byte] = child * inner.states + every
        order, numbered = reachable(table, automaton.start)
        return Automaton(numbered, accepting[order], {byte: byte for byte in range(NUM_BYTES)}, 0)


class CutMachine(ComposedMachine[tuple[int, int]]):
    """Accepts the texts of which that before the first stop string is accepted; what follows it may be anything.

    A state is that of the part before the bytes that may become a string, and the state of the search; (0, `stopped`) is behind
    a string with an accepted text before it.
    """

    def __init__(self, part: ByteMachine, search: StopMachine) -> None:
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
            held = self._search.longest_end(text) if stopped else self._search.pending[looking]
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
    """An automaton over bytes, read from all of its states at once along the states of a search.

    Attributes:
        states: how many it has.
        moves: Int32[states, 256].
        after: for each state of the search Int[states], where its pending bytes lead.
        lost: likewise where those bytes lead that are given up with the step back.
        children: of each state of the search, bytes and longer beginnings.
    """

    def __init__(self, automaton: Automaton, search: StopMachine) -> None:
        columns = [automaton.column.get(byte, automaton.default) for byte in range(NUM_BYTES)]
        self.states = len(automaton.table)
        self.accepting = automaton.accepting
        self.moves = automaton.table[:, columns]
        self.children: list[list[tuple[int, int]]] = [[] for _ in range(search.stopped)]
        for (state, byte), child in search._children.items():
            self.children[state].append((byte, child))
        self.after: list[NDArray[np.int32]] = [np.arange(self.states, dtype=np.int32)]
        self.lost = [self.after[0]]
        for state in range(1, search.stopped):
            parent, byte = search._parent[state], search.pending[state][-1]
            self.after.append(self.moves[self.after[parent], byte])
            self.lost.append(self._lost(search, parent, byte))
            check_progress(WHAT, REMEDY)

    def _lost(self, search: StopMachine, parent: int, byte: int) -> NDArray[np.int32]:
        """Where the bytes lead that a child of `parent` gives up: those of all steps back until the byte has its place."""
        state, lost = parent, self.after[0]
        while state:
            lost, state = self.lost[state][lost], search._fall[state]
            if (state, byte) in search._children:
                return lost
        moved: NDArray[np.int32] = self.moves[lost, byte]
        return moved


class _Beginnings(Sequence[bytes]):
    """Beginnings of strings, kept as their sizes."""

    def __init__(self) -> None:
        self._of: list[tuple[bytes, int]] = [(b"", 0)]

    def add(self, text: bytes, size: int) -> None:
        """One more."""
        self._of.append((text, size))

    def __len__(self) -> int:
        return len(self._of)

    def __getitem__(self, number: Any) -> Any:
        text, size = self._of[number]
        return text[:size]
