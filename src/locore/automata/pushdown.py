"""A reader of nested texts: what is still to come is a stack of symbols, and states are made when they are first reached.

A *symbol* stands for the texts that it can become, as of a grammar: it says which bytes may come first, and what is to come
after each of them in its place. A *cell* is a stack, the symbol on top and the cell below. Where a grammar leaves open which
way is taken, several stacks are followed at once: a *state* is a set of cells, as in the subset construction. A counter is a
symbol that knows its count, so that the states of a long repetition cost nothing until a text gets there.

A symbol knows its *cost*: the length of a shortest text, weighted by a measure of literal pieces. Costs add up along a stack,
so whether a text can still be completed, and within which length, is known without a search.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from locore.automata.byte_machine import ByteMachine, Numbered
from locore.automata.walking import DEAD
from locore.kernel.automata.tables import Automaton, minimise, number_rows, over_all_bytes
from locore.kernel.errors import BudgetExceeded
from locore.kernel.limits import check_progress
from locore.kernel.plugins import cached_property

NEVER = math.inf  # the cost of what cannot be completed
STATE_BYTES, CELL_BYTES = 300, 3_000  # as Python keeps a set of stacks, and a stack with its symbol's row and its own
UNREAD = -2  # the row of this state has not been made
Sequence = tuple["Symbol", ...]  # one after the other, the first on top
Row = Mapping[int, tuple[Sequence, ...]]  # what may come in the place of a symbol, by the byte that is read
Measure = Callable[[bytes], float]  # what a literal piece costs
FOLLOWING = "following a nested text", "a smaller depth, fewer alternatives"


@dataclass(frozen=True)
class Kind:
    """What symbols of different schemas have in common: those of one kind go on alike.

    Attributes:
        key: equal for those that differ in the bounds only.
        least, most: characters that are still to come; of `most`, None is no bound.
        unbounded: makes one that differs from this one in having at least so many characters, and no other bound.
            None: bounds are no more than a part of the key.
    """

    key: Hashable
    least: int = 0
    most: int | None = None
    unbounded: Callable[[int], Symbol] | None = field(default=None, compare=False)


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts of plain characters that are told apart from others; the same object for all symbols that tell the same apart.

    Attributes:
        texts: with the byte that ends each.
        measure: what pieces of them cost.
        more: what it costs to make another text out of one of them, before its end.
    """

    texts: tuple[bytes, ...]
    measure: Measure
    more: float


class Symbol(ABC):
    """What is to come. Symbols are compared by identity; whoever makes them makes equal ones once.

    Attributes:
        nullable: may it be nothing?
        is_broad: may nearly every byte come, so that only the ways are made which a text needs?
        kind: of symbols that are alike in all schemas, what they have in common; see `needs`.
    """

    nullable = False
    is_broad = False
    kind: Kind | None = None

    @cached_property
    @abstractmethod
    def cost(self) -> float:
        """Of the cheapest text that it can become; NEVER if there is none."""

    @cached_property
    @abstractmethod
    def row(self) -> Row:
        """What may come in its place once a byte has been read; bytes that cannot come are left out."""

    @property
    def usual(self) -> tuple[Sequence, ...]:
        """What goes on as this symbol does behind all bytes but its `own_bytes`."""
        return ()

    @property
    def listed(self) -> tuple[Texts, list[float]] | None:
        """Of a symbol that goes on as usual, but behind (beginnings of) some texts, and what it costs behind each of them."""
        return None

    def ways_behind(self, number: int) -> tuple[Sequence, ...]:
        """What may come behind one of these texts."""
        return ()

    @property
    def own_bytes(self) -> Collection[int] | None:
        """The bytes that may come, but for those behind which it is as `usual`; None: any."""
        return None

    def ways_after(self, byte: int) -> tuple[Sequence, ...]:
        """What may come in its place behind one byte."""
        return self.row.get(byte, ())


def cost_of(sequence: Sequence) -> float:
    """Of the cheapest text of symbols one after the other."""
    return sum(symbol.cost for symbol in sequence)


def row_of(sequence: Sequence) -> dict[int, tuple[Sequence, ...]]:
    """What may come in the place of symbols one after the other."""
    row: dict[int, tuple[Sequence, ...]] = {}
    for number, symbol in enumerate(sequence):
        rest = sequence[number + 1 :]
        for byte, ways in symbol.row.items():
            row[byte] = row.get(byte, ()) + (tuple(way + rest for way in ways) if rest else ways)
        if not symbol.nullable:
            break
    return row


class Literal(Symbol):
    """Exactly these bytes, at least one."""

    def __init__(self, text: bytes, measure: Measure) -> None:
        """The bytes, and what pieces of them cost."""
        self._text, self._measure = text, measure

    @cached_property
    def cost(self) -> float:
        """As measured."""
        return self._measure(self._text)

    @cached_property
    def row(self) -> Row:
        """The first byte, then the rest."""
        rest = self._text[1:]
        return {self._text[0]: ((Literal(rest, self._measure),) if rest else (),)}


class Choice(Symbol):
    """One of several sequences; they are listed when they are first asked for."""

    @cached_property
    @abstractmethod
    def ways(self) -> tuple[Sequence, ...]:
        """The sequences; those that cannot be completed may be among them."""

    @cached_property
    def cost(self) -> float:
        """Of the cheapest way."""
        return min(map(cost_of, self.ways), default=NEVER)

    @cached_property
    def row(self) -> Row:
        """The rows of all ways together."""
        row: dict[int, tuple[Sequence, ...]] = {}
        for way in self.ways:
            for byte, ways in row_of(way).items():
                row[byte] = row.get(byte, ()) + ways
        return row


class Cell:
    """A symbol on top of a cell; the empty stack is None."""

    __slots__ = ("after", "below", "cost", "is_whole", "symbol")

    def __init__(self, symbol: Symbol, below: Cell | None) -> None:
        self.symbol, self.below = symbol, below
        self.cost: float = symbol.cost + (0 if below is None else below.cost)
        self.after: dict[int, State] = {}  # by byte, of those that were asked for, or (is_whole) of all that may come
        self.is_whole = False


State = tuple[Cell | None, ...]  # None: the text may end here


class Pushdown:
    """The automaton over bytes of the texts of a symbol; states are numbers, made when they are first reached; the start is 0.

    Threads may share it: states are made by one at a time.

    Attributes:
        table: Int32[room for states, 256], the next state; DEAD, or UNREAD where `read` has not been asked for the state.
        costs: Float64[room for states], the cost of the cheapest completion.
        num_states: how many there are so far.
    """

    def __init__(self, start: Symbol) -> None:
        self.table = np.full((64, 256), UNREAD, dtype=np.int32)
        self.costs: NDArray[np.float64] = np.full(64, NEVER)
        self._has_row: set[int] = set()
        self._states: Numbered[State] = Numbered()
        self._cells: dict[tuple[Symbol, Cell | None], Cell] = {}
        self._lock = threading.RLock()
        first = self.pushed((start,), None)
        self._numbered(() if first is not None and first.cost == NEVER else (first,))

    @property
    def num_states(self) -> int:
        """How many have been reached."""
        return len(self._states)

    @property
    def num_bytes(self) -> int:
        """About what states and stacks take."""
        return self.table.nbytes + self.costs.nbytes + STATE_BYTES * len(self._states) + CELL_BYTES * len(self._cells)

    def accepts_at(self, state: int) -> bool:
        """May the text end in a state?"""
        return _may_end(self._states[state])

    def state_of(self, symbol: Symbol) -> int:
        """The state where nothing but a symbol is to come."""
        with self._lock:
            return self._numbered((self.pushed((symbol,), None),))

    def cells(self, state: int) -> State:
        """The stacks that are followed in a state."""
        return self._states[state]

    def is_over(self, state: int) -> bool:
        """Can nothing follow?"""
        return all(cell is None for cell in self._states[state])

    def accepts(self, text: bytes) -> bool:
        """Is it one of the texts?"""
        state = 0
        for byte in text:
            state = self.after(state, byte)
            if state == DEAD:
                return False
        return self.accepts_at(state)

    def after(self, state: int, byte: int) -> int:
        """The state after one byte; DEAD where no text goes on like that."""
        after = int(self.table[state, byte])
        if after == UNREAD:
            with self._lock:
                states = (self.cells_after(cell, byte) for cell in self._states[state] if cell is not None)
                after = self._numbered(tuple(cell for cells in states for cell in cells))
                self.table[state, byte] = after
        return after

    def cells_after(self, cell: Cell, byte: int) -> State:
        """What one cell becomes behind one byte."""
        if not cell.symbol.is_broad:
            return self.row_of(cell).get(byte, ())
        cells = cell.after.get(byte)
        if cells is None:
            check_progress(*FOLLOWING)
            cells = self._possible(cell.symbol.ways_after(byte), cell.below)
            if cell.symbol.nullable and cell.below is not None:
                cells += self.cells_after(cell.below, byte)
            cell.after[byte] = cells
        return cells

    def automaton(self, most: int) -> Automaton:
        """All of it, minimal.

        Raises:
            BudgetExceeded: more than so many states.
        """
        state = 0
        with self._lock:
            while state < self.num_states:
                self.read(state)
                state += 1
                if self.num_states > most:
                    raise BudgetExceeded(f"it has more than {most:,} states.")
        table = np.where(self.table[:state] == DEAD, state, self.table[:state])
        table = np.concatenate([table, np.full((1, 256), state, dtype=np.int32)])
        column, first = number_rows(np.ascontiguousarray(table.T))
        accepting = np.array([*map(self.accepts_at, range(state)), False])
        return minimise(over_all_bytes(np.ascontiguousarray(table[:, first]), accepting, column))

    def read(self, state: int) -> None:
        """Make the row of a state."""
        if state not in self._has_row:
            check_progress(*FOLLOWING)
            with self._lock:
                if state not in self._has_row:  # nor another thread has made it meanwhile
                    self._read(state)

    def _read(self, state: int) -> None:
        following: dict[int, State] = {}
        for cell in self._states[state]:
            if cell is not None:
                for byte, cells in self.row_of(cell).items():
                    following[byte] = following[byte] + cells if byte in following else cells
        row = np.full(256, DEAD, dtype=np.int32)
        numbers: dict[int, int] = {}  # many bytes lead to the same cells
        for byte, cells in following.items():
            number = numbers.get(id(cells))
            if number is None:
                number = numbers[id(cells)] = self._numbered(cells)
            row[byte] = number
        self.table[state] = row
        self._has_row.add(state)

    def row_of(self, cell: Cell) -> Mapping[int, State]:
        """What one cell becomes behind each byte that may come."""
        if not cell.is_whole:
            row: dict[int, State] = {}
            possible: dict[int, State] = {}
            for byte, ways in cell.symbol.row.items():
                cells = possible.get(id(ways))
                if cells is None:
                    cells = possible[id(ways)] = self._possible(ways, cell.below)
                if cells:
                    row[byte] = cells
            if cell.symbol.nullable and cell.below is not None:
                for byte, cells in self.row_of(cell.below).items():
                    row[byte] = row.get(byte, ()) + cells
            cell.after, cell.is_whole = row, True
        return cell.after

    def _possible(self, ways: Iterable[Sequence], below: Cell | None) -> State:
        pushed = (self.pushed(way, below) for way in ways)
        return tuple(cell for cell in pushed if cell is None or cell.cost != NEVER)

    def pushed(self, sequence: Sequence, below: Cell | None) -> Cell | None:
        """Symbols one after the other on top of a cell."""
        for symbol in reversed(sequence):
            key = symbol, below
            cell = self._cells.get(key)
            if cell is None:
                cell = self._cells[key] = Cell(symbol, below)
            below = cell
        return below

    def _numbered(self, cells: State) -> int:
        if len(cells) > 1:
            cells = tuple(sorted(dict.fromkeys(cells), key=id))
        if not cells and self._states:
            return DEAD
        next_number = len(self._states)
        number = self._states.number(cells)
        if number == next_number:
            if number == len(self.costs):
                self.table = np.concatenate([self.table, np.full_like(self.table, UNREAD)])
                self.costs = np.concatenate([self.costs, np.full_like(self.costs, NEVER)])
            self.costs[number] = min((0.0 if cell is None else cell.cost for cell in cells), default=NEVER)
        return number


Follow = Callable[[Measure], Pushdown]  # makes one


class PushdownMachine(ByteMachine):
    """The same beside other machines and automata; costs are bytes."""

    def __init__(self, follow: Follow) -> None:
        self._automaton = follow(len)

    def row(self, state: int) -> NDArray[np.int32]:
        """Int32[256]: the state after each byte."""
        self._automaton.read(state)
        row: NDArray[np.int32] = self._automaton.table[state]
        return row

    def accepts(self, state: int) -> bool:
        """May the text end here?"""
        return self._automaton.accepts_at(state)

    def least(self, state: int) -> float:
        """Bytes of the cheapest completion."""
        return float(self._automaton.costs[state])


def _may_end(cells: State) -> bool:
    for cell in cells:
        rest = cell
        while rest is not None and rest.symbol.nullable:
            rest = rest.below
        if rest is None:
            return True
    return False
