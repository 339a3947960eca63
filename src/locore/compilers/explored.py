"""States after prefixes of a constraint that has too many of them for a table: each is made when it is first reached.

A state is what is left of the constraint, as in restriction; a grammar is an atom of it. Whether a text can still be
completed within the horizon is found out by a search over states, those nearest to an end first, whose results are kept as
bounds on the number of tokens that a state needs. Where the search would take too long, the straight way to an end, always on
by the token that seems to lead nearest to it, decides: if that takes more tokens than are left, it is too late, and texts that
need a shorter way to fit are left out. Where even that leads nowhere a state is taken to be completable: a text that then runs
out of tokens has no weight, and nothing else is wrong.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.automata.byte_machine import TokenMachine
from locore.cache import Kept
from locore.circuits import DEAD
from locore.circuits.reached import Flags, Steering
from locore.constraints import And, Constant, Constraint, Or
from locore.kernel.compilers.problem import Ints, Problem
from locore.kernel.compilers.residual import Atom, AutomatonState, Residuals
from locore.kernel.compilers.restriction import ENDED, Extensions
from locore.kernel.constraints.structure import postorder
from locore.kernel.limits import check_progress

ROWS_BYTES = 256_000_000  # of rows that are kept
SEARCHED = 100_000_000  # transitions that all searches may look at
MANY = 512  # states behind one, most of which a text does not come to
SEARCHED_AT_ONCE = SEARCHED // 100  # and one of them
STRAIGHT = 4  # times as many tokens as the horizon has, at most, on the straight way to an end
SEARCHING = "looking for an end of the text", "a longer or a shorter horizon, or a simpler constraint"
END = 0  # the state of a text that has ended
Row = NDArray[np.int32]


class MachineAtoms:
    """A machine over bytes, read token by token; its states are atoms, each made once. Token classes are single tokens."""

    def __init__(self, machine: TokenMachine) -> None:
        self.tokens = machine
        self._atoms: dict[int, MachineState] = {}
        self._last: tuple[int, Row] | None = None

    def atom(self, state: int) -> Constraint:
        """The atom of a state."""
        if state == DEAD:
            return Constant(False)
        if state not in self._atoms:
            self._atoms[state] = MachineState(self, state)
        return self._atoms[state]

    def row(self, state: int) -> Row:
        """Int32[vocab]: the state after each token; the last row is kept."""
        if self._last is None or self._last[0] != state:
            self._last = state, self.tokens.row(state)
        return self._last[1]


@dataclass(frozen=True, eq=False)
class MachineState(Atom):
    """The atom "the machine, from this state, accepts what follows"."""

    atoms: MachineAtoms
    state: int
    timeless = True

    def after(self, position: int, token_class: int) -> Constraint:
        """The next state; never true after a token that the machine does not read."""
        return self.atoms.atom(int(self.atoms.row(self.state)[token_class]))

    def signature(self, position: int) -> Ints:
        """Int64[classes]: by the next state."""
        return self.atoms.row(self.state).astype(np.int64) + 1

    def holds_after(self, position: int, classes: list[int]) -> bool:
        """Does it accept what was read? What follows is the end of the text and its padding."""
        return self.atoms.tokens.machine.accepts(self.state)


class Exploration(Steering):
    """The states of one constraint, numbered as they are reached; see the module. Token classes are single tokens.

    Attributes:
        assumed: how many states were taken to be completable without knowing.
        late: how many were taken to be too late for the horizon, by the straight way to an end.
    """

    is_shared = False  # a search for an end has a bound of its own

    def __init__(self, residuals: Residuals, problem: Problem, again: Callable[[], Exploration]) -> None:
        """Nothing has been read.

        Args:
            again: makes the same once more; it can be pickled.
        """
        self._residuals, self._problem, self._again = residuals, problem, again
        self.length, self.num_classes = problem.length, problem.tokenizer.vocab_size
        self._blocked = problem.blocked_tokens()
        self._blocked[list(problem.tokenizer.eos_ids)] = True  # ends are dealt with apart
        self._left: list[Constraint] = [ENDED]
        self._number_of: dict[Constraint, int] = {}
        self._rows: Kept[tuple[int, int], Row] = Kept(ROWS_BYTES, lambda row: row.nbytes)
        self._next: dict[tuple[int, int], list[int]] = {}
        self._needs: dict[int, tuple[float, float]] = {}
        self._fewest: dict[int, int] = {}  # tokens that a state is known to need at least
        self._enough: dict[int, int] = {}  # and that are known to do
        self._live: dict[tuple[int, int], bool] = {}
        self._searched = 0
        self._extensions = Extensions(residuals, problem.blocked_tokens(), problem.must_end)
        self._lock = threading.RLock()
        self.assumed = self.late = 0
        self._start = self._numbered(residuals.root)

    def __reduce__(self) -> tuple[object, ...]:
        return self._again, ()  # without the states that were made

    @property
    def start(self) -> int:
        """The state before anything is read."""
        return self._start

    @property
    def is_satisfiable(self) -> bool:
        """Is there a text of this length?"""
        return self.live(0, self._start)

    def after(self, position: int, state: int, number: int) -> int:
        """The state after a token; DEAD where nothing can be completed any more."""
        after = int(self._row(position, state)[number])
        return after if self.live(position + 1, after) else DEAD

    def allowed(self, position: int, state: int) -> Flags:
        """Bool[vocab]: the tokens behind which the rest can be completed."""
        flags: Flags = self.row(position, state) != DEAD
        return flags

    def row(self, position: int, state: int) -> Row:
        """Int32[vocab]: the states after each token; DEAD where nothing can be completed any more."""
        row = self._row(position, state)
        distinct, which = np.unique(row, return_inverse=True)
        if len(distinct) > MANY:
            self._assume(distinct.tolist(), position + 1)
        alive = np.array([after if self.live(position + 1, after) else DEAD for after in distinct.tolist()], dtype=np.int32)
        states: Row = alive[which]
        return states

    def _assume(self, states: list[int], position: int) -> None:
        """Take those to be completable of which nothing else is known: a search for each would read the vocabulary as often."""
        with self._lock:
            for state in states:
                if self._answer(state, position) is None:
                    self._live[state, position] = True
                    self.assumed += 1

    def notes(self) -> tuple[str, ...]:
        """What a report should say of the look-ahead."""
        lines = []
        if self.assumed:
            lines.append(
                f"look-ahead: {self.assumed} states were taken to be completable within the horizon without a full search; "
                "texts that then ran out of tokens have no weight, and every text that is here is whole"
            )
        if self.late:
            lines.append(
                f"look-ahead: {self.late} states were taken to be too late for the horizon without a full search; texts that "
                "end there, by a way shorter than the straight one, are left out. A longer horizon has more room"
            )
        return tuple(lines)

    def _row(self, position: int, state: int) -> Row:
        """Int32[vocab]: the state after each token, whether or not the rest can be completed; DEAD after a wrong one."""
        with self._lock:
            row = self._text_row(state, position)
            ends = [number for number in range(len(self._problem.tokenizer.eos_ids)) if self._may_end(state, position, number)]
            if ends:
                row = row.copy()
                row[[self._problem.tokenizer.eos_ids[number] for number in ends]] = END
            return row

    def live(self, position: int, state: int) -> bool:
        """Can the rest be completed within the horizon?"""
        with self._lock:
            answer = self._answer(state, position)
            return self._search(state, position) if answer is None else answer

    def is_complete(self, position: int, state: int) -> bool:
        """Does the text satisfy the constraint as it is, and no longer one that begins like it, at any horizon?"""
        with self._lock:
            if state in (END, DEAD):
                return False
            if position == self.length:
                return self._holds_now(state) and not self._extensions.exist(self._left[state], position)
            if not self._may_end(state, position) or any(self.live(position + 1, new) for new in self._after(state, position)):
                return False
            return not self._extensions.exist(self._left[state], position)

    # Single steps.

    def _numbered(self, residual: Constraint) -> int:
        if isinstance(residual, Constant) and not residual.value:
            return DEAD
        number = self._number_of.setdefault(residual, len(self._left))
        if number == len(self._left):
            self._left.append(residual)
        return number

    def _place(self, state: int, position: int) -> int:
        """The position, as far as a state depends on it."""
        return -1 if self._residuals.is_timeless(self._left[state]) else position

    def _text_row(self, state: int, position: int) -> Row:
        """Int32[vocab]: as `row`, without the ends."""
        if state in (END, DEAD):
            return np.full(len(self._blocked), DEAD, dtype=np.int32)
        key = state, self._place(state, position)
        row = self._rows.get(key)
        if row is not None:
            return row
        outcomes, which = self._residuals.fresh_row(self._left[state], position)
        row = np.array([self._numbered(outcome) for outcome in outcomes], dtype=np.int32)[which]
        row[self._blocked] = DEAD
        return self._rows.put(key, row)

    def _after(self, state: int, position: int) -> list[int]:
        """The states after one more token of text, those first that seem nearest to an end."""
        key = state, self._place(state, position)
        if key not in self._next:
            check_progress(*SEARCHING)
            self._searched += len(self._blocked)
            distinct = np.unique(self._text_row(state, position)).tolist()
            self._next[key] = sorted((after for after in distinct if after != DEAD), key=lambda after: self._need(after)[::-1])
        return self._next[key]

    def _may_end(self, state: int, position: int, number: int = 0) -> bool:
        """May the text end here, with this one of the vocabulary's ends?"""
        ends = self._problem.tokenizer.eos_ids
        if not ends or position >= self.length:
            return False
        if state == END:
            return number == 0
        late = position >= self._problem.min_length
        return state != DEAD and late and self._residuals.holds_at_end(self._left[state], position, ends[number])

    def _holds_now(self, state: int) -> bool:
        """Is the text right if the horizon is here?"""
        return state == END or (not self._problem.must_end and self._residuals.holds_now(self._left[state]))

    # Look-ahead.

    def _answer(self, state: int, position: int) -> bool | None:
        """Whether the rest can be completed; None if it takes a search to know."""
        if state == DEAD:
            return False
        if position == self.length:
            return self._holds_now(state)
        if any(self._may_end(state, position, number) for number in range(len(self._problem.tokenizer.eos_ids))):
            return True
        left = self.length - position - self._problem.must_end
        if self._need(state)[0] > left:
            return False
        if not self._counts(state, position):
            return self._live.get((state, position))
        if self._enough.get(state, math.inf) <= left:
            return True
        return False if self._fewest.get(state, 0) > left else self._live.get((state, position))

    def _counts(self, state: int, position: int) -> bool:
        """Does the answer depend on the number of tokens that are left alone, and does it stay true with more of them?"""
        ready = bool(self._problem.tokenizer.eos_ids) and position >= self._problem.min_length
        return ready and self._residuals.is_timeless(self._left[state])

    def _search(self, state: int, position: int) -> bool:
        """Depth first, what seems nearest to an end before the rest; no state is gone through twice with as many tokens."""
        limit = min(self._searched + SEARCHED_AT_ONCE, SEARCHED)
        path: list[tuple[int, Iterator[int]]] = [(state, iter(self._after(state, position)))]
        while path:
            here = position + len(path)
            following = next(path[-1][1], None)
            if following is None:
                self._exhausted(path.pop()[0], here - 1)
                continue
            answer = self._answer(following, here)
            if answer:
                self._reached([passed for passed, _ in path], following, position)
                return True
            if answer is None:
                if self._searched > limit:
                    return self._unsettled(state, position)
                path.append((following, iter(self._after(following, here))))
        return False

    def _unsettled(self, state: int, position: int) -> bool:
        """The answer of a search that took too long."""
        steps = self._straight(state, position) if self._counts(state, position) else None
        if steps is None:
            self.assumed += 1
            self._live[state, position] = True
        else:
            self._live[state, position] = steps <= self.length - position - self._problem.must_end
            self.late += not self._live[state, position]
        return self._live[state, position]

    def _straight(self, state: int, position: int) -> int | None:
        """Tokens to an end by always taking the one that seems to lead nearest to it; None if that leads nowhere."""
        path = [state]
        for _ in range(STRAIGHT * self.length):
            if self._may_end(path[-1], position):
                for steps, passed in enumerate(reversed(path)):
                    self._enough[passed] = min(self._enough.get(passed, steps), steps)
                return len(path) - 1
            following = next((after for after in self._after(path[-1], position) if after not in path), None)
            if following is None:
                return None
            path.append(following)
        return None

    def _exhausted(self, state: int, position: int) -> None:
        """Nothing that follows leads to the end."""
        self._live[state, position] = False
        if self._counts(state, position):
            left = self.length - position - self._problem.must_end
            self._fewest[state] = max(self._fewest.get(state, 0), left + 1)

    def _reached(self, path: list[int], goal: int, position: int) -> None:
        """A way to the end: these states, from a position on, and then a state from which there is a known one."""
        here = position + len(path)
        steps = 0 if here == self.length or self._may_end(goal, here) else self._enough.get(goal, self.length)
        for state in reversed(path):
            here, steps = here - 1, steps + 1
            self._live[state, here] = True
            if self._counts(state, here):
                self._enough[state] = min(self._enough.get(state, self.length + 1), steps)

    def _need(self, state: int) -> tuple[float, float]:
        """Tokens that are needed at least, and how far the end seems to be."""
        if state not in self._needs:
            value: dict[Constraint, tuple[float, float]] = {}
            for node in postorder(self._left[state]):
                parts = [value[child] for child in node.children()]
                if isinstance(node, MachineState):
                    tokens = node.atoms.tokens
                    value[node] = tokens.tokens_needed(node.state), tokens.machine.far(node.state)
                elif isinstance(node, AutomatonState):
                    distance = float(node.automaton.distance[node.state])
                    value[node] = distance, distance
                elif isinstance(node, And):
                    value[node] = max(need for need, _ in parts), sum(far for _, far in parts)
                elif isinstance(node, Or):
                    value[node] = min(need for need, _ in parts), min(far for _, far in parts)
                else:
                    value[node] = 0.0, 0.0
            self._needs[state] = value[self._left[state]]
        return self._needs[state]
