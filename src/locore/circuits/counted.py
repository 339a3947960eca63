"""A left-to-right reading of texts in which something is counted: a state is one of an automaton, and the count so far.

How much a token counts depends on the token and on the automaton's state, never on the count. So neither nodes nor rows are
written down for each count: of every state of the automaton it is kept with which counts the rest can still be completed, a
set of numbers as the bits of one integer. A step backwards shifts such sets by what tokens count and joins them, so look-ahead
is exact: a phrase that is still to come has to fit into what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locore.circuits.reached import require_look_ahead
from locore.kernel.circuits.nodes import Nodes
from locore.kernel.circuits.reading import DEAD, LeftToRight, TableReader
from locore.kernel.errors import BudgetExceeded
from locore.kernel.limits import check_progress
from locore.kernel.plugins import cached_property

NO_TABLE = "a reading that counts on the way has no table of all states; ask for its outline, or for one state at a time."
READING = "looking for what can still be counted", "smaller bounds, or fewer phrases"
Sets = tuple[int, ...]  # of counts, for each state: bit k is count k
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Control:
    """What reading a token does, whatever the count; state 0 is the start.

    Attributes:
        token_class: Int64[vocab].
        table: Int32[states, classes], the next state; DEAD where no text goes on like that, and for ends.
        gain: Int32[states, classes], what a step counts.
        final: Int64[states], what the end of the text counts.
        accepting: Bool[states], may the text end here, if the count is right?
        right: Bool[counts], which counts are right; those beyond the last one are as that one.
        ends: the classes of the ends of the text, of which the first is the padding; of each no other token.
    """

    token_class: NDArray[np.int64]
    table: NDArray[np.int32]
    gain: NDArray[np.int32]
    final: NDArray[np.int64]
    accepting: Flags
    right: Flags
    ends: tuple[int, ...]

    @property
    def num_states(self) -> int:
        """States of the automaton."""
        return len(self.table)

    @property
    def num_counts(self) -> int:
        """Counts that are told apart."""
        return len(self.right)

    @cached_property
    def right_at_end(self) -> Flags:
        """Bool[states, counts]: may the text end here?"""
        last = self.num_counts - 1
        counts = np.minimum(np.arange(last + 1) + self.final[:, None], last)
        flags: Flags = self.right[counts] & self.accepting[:, None]
        return flags

    @cached_property
    def may_end(self) -> Sets:
        """With which counts the text may end."""
        return tuple(map(as_set, self.right_at_end))

    def before(self, after: Sets) -> Sets:
        """The counts with which one token of text leads into these sets."""
        check_progress(*READING)
        shifted = [self._shifted(after[state], gain) for state, gain in self._steps]
        sets = []
        for steps in self._steps_of:
            counts = 0
            for step in steps:
                counts |= shifted[step]
            sets.append(counts)
        return tuple(sets)

    def _shifted(self, counts: int, gain: int) -> int:
        """What becomes one of these counts if so much is added."""
        last = self.num_counts - 1
        if not counts >> last & 1 or not gain:
            return counts >> gain
        beyond = max(0, last - gain)
        return counts >> gain | ((1 << last + 1) - (1 << beyond))

    @cached_property
    def _moves(self) -> tuple[list[tuple[int, int]], list[list[int]]]:
        number: dict[tuple[int, int], int] = {}
        of_states = []
        for targets, gains in zip(self.table, self.gain, strict=True):
            alive = targets != DEAD
            pairs = set(zip(targets[alive].tolist(), gains[alive].tolist(), strict=True))
            of_states.append([number.setdefault(pair, len(number)) for pair in pairs])
        return list(number), of_states

    @property
    def _steps(self) -> list[tuple[int, int]]:
        """Distinct next states and gains."""
        return self._moves[0]

    @property
    def _steps_of(self) -> list[list[int]]:
        """The numbers of those that each state has."""
        return self._moves[1]

    @cached_property
    def complete(self) -> Sets:
        """With which counts a text may end while no longer one may, at any horizon."""
        able = self.may_end
        while True:
            more = tuple(new | old for new, old in zip(self.before(able), able, strict=True))
            if more == able:
                break
            able = more
        return tuple(here & ~longer for here, longer in zip(self.may_end, self.before(able), strict=True))


def as_set(flags: Flags) -> int:
    """Bool[counts] as the bits of an integer."""
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def as_flags(sets: Sets, num_counts: int) -> Flags:
    """Bool[states, counts]."""
    size = -(-num_counts // 8)
    packed = np.frombuffer(b"".join(bits.to_bytes(size, "little") for bits in sets), dtype=np.uint8).reshape(len(sets), size)
    return np.unpackbits(packed, axis=1, count=num_counts, bitorder="little").astype(np.bool_)


class CountedReader(LeftToRight):
    """The reading; see `LeftToRight` for its methods.

    State s with count k is s · counts + k, and the number behind them all is a text that has ended.

    Attributes:
        control: the automaton, and what it counts.
    """

    start = 0
    coaccessible = None
    complete = None
    tabulated = False
    pictured = False
    tables = ()  # what is here can be made again

    def __init__(
        self,
        control: Control,
        length: int,
        min_length: int = 0,
        must_end: bool = False,
        write: Callable[[], Nodes] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """Nothing has been read.

        Args:
            write: makes the nodes, one for each state and count, where somebody needs them.
            min_length: the text may not end before so many tokens.
            must_end: it has to end within the length.
        """
        self._given = control, length, min_length, must_end, write
        self.control = control
        self.token_class = torch.from_numpy(control.token_class).to(device)
        self._ended = control.num_states * control.num_counts
        self._flags_by: dict[int, Flags] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return CountedReader, (*self._given, self.token_class.device)

    @property
    def length(self) -> int:
        """Number of positions."""
        return self._given[1]

    def nodes(self) -> Nodes | None:
        """Written down.

        Raises:
            BudgetExceeded: there is not room enough.
        """
        write = self._given[4]
        return None if write is None else write().to(self.token_class.device)

    @property
    def num_bytes(self) -> int:
        """As far as it may grow."""
        control = self.control
        tables = control.token_class.nbytes + 5 * control.table.nbytes
        return int(tables + 2 * control.num_states * control.num_counts * self.length)

    @property
    def rows(self) -> tuple[Tensor, ...]:
        """None.

        Raises:
            BudgetExceeded: always.
        """
        raise BudgetExceeded(NO_TABLE)

    live = rows

    @property
    def is_satisfiable(self) -> bool:
        """Is there a text of this length?"""
        return bool(self._open[0][0] & 1)

    @property
    def completes(self) -> bool:
        """Can a text be complete before the last position?"""
        return any(self.control.complete)

    @property
    def num_classes(self) -> int:
        """Number of token classes."""
        return int(self.control.table.shape[1])

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """A number for each position; see `LeftToRight`."""
        numbers: dict[tuple[int, bool], int] = {}
        places = ((id(self._open[place + 1]), self.may_end(place)) for place in range(self.length))
        return tuple(numbers.setdefault(place, len(numbers)) for place in places)

    def state_after(self, position: int, state: int, token: int) -> int:
        """The state after one token; DEAD where nothing can be completed any more."""
        return int(self.step(position, torch.tensor([state]), torch.tensor([token])))

    def mask(self, position: int, state: int) -> Tensor:
        """Bool[vocab]: the tokens that may come after one state."""
        return self.allowed_tokens(position, torch.tensor([state]))[0]

    @cached_property
    def outline(self) -> TableReader:
        """The states of the automaton alone, and that of an ended text: any count from which something is left will do."""
        control, device = self.control, self.token_class.device
        dead = np.full((1, control.table.shape[1]), DEAD, dtype=np.int32)
        table = np.append(control.table, dead, axis=0)
        if control.ends:
            table[-1, control.ends[0]] = control.num_states
        with_end = table.copy()
        with_end[np.ix_(control.right_at_end.any(1), np.array(control.ends, dtype=np.int64))] = control.num_states
        tables = [torch.from_numpy(rows).to(device) for rows in (table, with_end)]
        live = [torch.tensor([*map(bool, sets), bool(control.ends)], device=device) for sets in self._open]
        return TableReader(self.token_class, tuple(tables[self.may_end(i)] for i in range(self.length)), tuple(live))

    def outlined(self, states: Tensor) -> Tensor:
        """Long like the states: without their counts."""
        return torch.where(states == DEAD, DEAD, states.div(self.control.num_counts, rounding_mode="floor"))

    def counts(self, states: Tensor) -> Tensor:
        """Long like the states: their counts; 0 once the text has ended."""
        return states % self.control.num_counts

    def step(self, position: int, states: Tensor, tokens: Tensor, look_ahead: bool = True) -> Tensor:
        """Long[batch]: states after reading `tokens` at `position`; DEAD where nothing can be completed any more."""
        classes = self.token_class[tokens].flatten().cpu().numpy()
        after, alive = self._after(position, states.flatten(), classes[:, None], look_ahead)
        return torch.from_numpy(np.where(alive, after, DEAD)[:, 0]).to(states.device).view(states.shape)

    def allowed(self, position: int, states: Tensor, look_ahead: bool = True) -> Tensor:
        """Bool[batch, classes]: classes that may come at `position` so that the rest can still be completed."""
        every = np.arange(self.control.table.shape[1])[None]
        return torch.from_numpy(self._after(position, states, every, look_ahead)[1]).to(self.token_class.device)

    def accepting(self, states: Tensor) -> Tensor:
        """Bool[batch]: do these states, after the last position, satisfy the constraint?"""
        return self._among(self._open[-1], states) | (states == self._ended)

    def completed(self, position: int, states: Tensor) -> Tensor:
        """Bool[batch]: which texts are complete; see `LeftToRight.completed`."""
        if position < self._given[2] and position < self.length:
            return torch.zeros(states.shape, dtype=torch.bool, device=states.device)
        return self._among(self.control.complete, states)

    def to(self, device: torch.device | str) -> CountedReader:
        """The same reading with its results on a device; the work is done where Python runs."""
        return CountedReader(*self._given, device)

    def _after(
        self, position: int, states: Tensor, classes: NDArray[np.int64], look_ahead: bool
    ) -> tuple[NDArray[np.int64], Flags]:
        """Int64, Bool[batch, …]: the states after Int64[batch or 1, …] classes, and whether they may come."""
        require_look_ahead(look_ahead)
        control, last = self.control, self.control.num_counts - 1
        before = states.cpu().numpy()[:, None]
        open_ = (before != DEAD) & (before != self._ended)
        state, count = np.divmod(np.where(open_, before, 0), last + 1)
        target = control.table[state, classes]
        counted = np.minimum(count + control.gain[state, classes], last)
        alive = open_ & (target != DEAD)
        alive &= self._flags_of(self._open[position + 1])[np.where(alive, target, 0), counted]
        if control.ends:
            ends = np.isin(classes, control.ends) & open_ & self.may_end(position)
            ends = ends & self._flags_of(control.may_end)[state, count]
            ends |= (before == self._ended) & (classes == control.ends[0])
            return np.where(ends, self._ended, target.astype(np.int64) * (last + 1) + counted), alive | ends
        return target.astype(np.int64) * (last + 1) + counted, alive

    @property
    def must_end(self) -> bool:
        """Has the text to end within the length?"""
        return self._given[3]

    def ended(self, states: Tensor) -> Tensor:
        """Bool like the states: has the text ended?"""
        return states == self._ended

    def may_end(self, position: int) -> bool:
        """May a text end before this position, as far as its length goes?"""
        return position >= self._given[2] and bool(self.control.ends)

    @cached_property
    def _open(self) -> list[Sets]:
        """For each position 0..n, the counts with which a text that has not ended can be completed."""
        control, length, _, must_end, _ = self._given
        sets = [tuple(0 for _ in control.may_end) if must_end else control.may_end]
        for position in reversed(range(length)):
            if len(sets) > 1 and sets[-1] == sets[-2] and self.may_end(position) == self.may_end(position + 1):
                sets.append(sets[-1])  # and so on, up to where the text may not end
                continue
            here = control.before(sets[-1])
            if self.may_end(position):
                here = tuple(counts | end for counts, end in zip(here, control.may_end, strict=True))
            sets.append(here)
        return sets[::-1]

    def _flags_of(self, sets: Sets) -> Flags:
        """Bool[states, counts], made once of each that is kept here."""
        key = id(sets)
        if key not in self._flags_by:
            self._flags_by[key] = as_flags(sets, self.control.num_counts)
        return self._flags_by[key]

    def _among(self, sets: Sets, states: Tensor) -> Tensor:
        """Bool[batch]: which open states are in these sets."""
        before = states.cpu().numpy()
        open_ = (before != DEAD) & (before != self._ended)
        state, count = np.divmod(np.where(open_, before, 0), self.control.num_counts)
        return torch.from_numpy(open_ & self._flags_of(sets)[state, count]).to(states.device)
