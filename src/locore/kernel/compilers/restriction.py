"""Left-to-right compiler: states after prefixes, layer by layer, minimised and trimmed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.kernel.automata.tables import number_rows
from locore.kernel.circuits.circuit import Circuit
from locore.kernel.circuits.reading import DEAD, shared, table_reader
from locore.kernel.compilers.problem import CompilerLeaf, Flags, Lifted, Partition, Problem, classes_of, unsatisfiable
from locore.kernel.compilers.residual import ClassAutomaton, Residuals
from locore.kernel.constraints.constraint import Constant, Constraint
from locore.kernel.limits import check_progress, check_states, check_table

Rows = NDArray[np.int32]
REMEDY = "a shorter sequence, a simpler constraint, or a vtree that keeps the positions that depend on each other together"
ENDED = Constant(True)  # the residual of a finished text: only padding may follow
MOST_RESIDUALS = 10_000  # of one search for a longer text; beyond, it is taken that there is one
Place = tuple[Constraint, int]  # a residual and its position, which is the horizon for all that lie beyond


@dataclass(frozen=True)
class Layered:
    """Transitions of a layered automaton; state 0 of layer 0 is the start.

    Attributes:
        rows: for each position, Int32[states, classes], the state in the next layer or DEAD.
        final: Bool[states of the last layer].
        residuals: for each position 0..n, what is left in each state; ENDED once the text has ended.
    """

    rows: list[Rows]
    final: Flags
    residuals: list[list[Constraint]]


@dataclass(frozen=True)
class Minimal:
    """A layered automaton without superfluous states.

    Attributes:
        rows: as in `Layered`.
        complete: for each position 0..n, Bool[states]; see `LeftToRight`. At the last position every state is final.
    """

    rows: list[Rows]
    complete: list[Flags]


def compile_by_restriction(problem: Problem, root: Constraint) -> Circuit:
    """The circuit of any constraint, by exploring what is left of it after each prefix.

    Args:
        root: the constraint of the problem, as `gathered` and `with_lifted` left it.

    Raises:
        Unsatisfiable, BudgetExceeded.
    """
    classes = classes_of(problem, root)
    atoms = with_atoms(root, classes, problem.length)
    residuals = Residuals(atoms, classes, problem.length, problem.tokenizer.eos_ids)
    blocked = problem.blocked_tokens()[classes.representative]
    layered = explore(residuals, blocked, problem.min_length, problem.must_end)
    return to_circuit(minimise(layered, Extensions(residuals, blocked, problem.must_end)), classes)


def with_atoms(root: Constraint, classes: Partition, length: int) -> Constraint:
    """The constraint over literals, counts and the atoms of all other leaves, before anything is read."""

    def change(leaf: Constraint) -> Constraint:
        if isinstance(leaf, Lifted):
            return ClassAutomaton(leaf, classes).atom(leaf.automaton.start)
        return leaf.atom(classes, length) if isinstance(leaf, CompilerLeaf) else leaf

    return root.transform(change)


def explore(residuals: Residuals, blocked: Flags, min_length: int, must_end: bool = False) -> Layered:
    """Unroll a constraint over positions, one layer of residuals each.

    Args:
        blocked: Bool[classes], classes that may not occur at all (special tokens).
        min_length: the text may not end before so many tokens.
        must_end: it must end within the length.

    Raises:
        Unsatisfiable, BudgetExceeded.
    """
    classes = residuals.classes
    eos = [(token, int(classes.token_class[token])) for token in residuals.eos_ids]
    layer: dict[tuple[Constraint, bool], int] = {(residuals.root, False): 0}  # residuals, and has the text ended?
    rows, total, reached = [], 1, [[residuals.root]]
    for position in range(residuals.length):
        where = f"the constraint, read from left to right, after {position} of {residuals.length} positions"
        check_table(4 * len(layer) * classes.num_classes, where, REMEDY)
        table = np.full((len(layer), classes.num_classes), DEAD, dtype=np.int32)
        following: dict[tuple[Constraint, bool], int] = {}
        for (residual, ended), state in layer.items():
            check_progress(where, REMEDY)
            if not ended and not _is_false(residual):
                outcomes, which = residuals.row(residual, position)
                numbers = [
                    DEAD if _is_false(outcome) else following.setdefault((outcome, False), len(following))
                    for outcome in outcomes
                ]
                table[state] = np.array(numbers, dtype=np.int32)[which]
                table[state, blocked] = DEAD
            for number, (token, column) in enumerate(eos):
                may_end = number == 0 if ended else position >= min_length and residuals.holds_at_end(residual, position, token)
                table[state, column] = following.setdefault((ENDED, True), len(following)) if may_end else DEAD
        if not following:
            raise unsatisfiable(residuals.length)
        rows.append(table)
        total += len(following)
        check_states(total, where, REMEDY)
        layer = following
        reached.append([residual for residual, _ in layer])
    final = np.array([ended or (residuals.holds_now(left) and not must_end) for left, ended in layer], dtype=np.bool_)
    return Layered(rows, final, reached)


def minimise(layered: Layered, extensions: Extensions) -> Minimal:
    """Merge equal states layer by layer from the end, and drop those that cannot finish.

    Where only the end may come, a text that is complete stays apart from one that has no room to go on.
    """
    rows: list[Rows] = []
    is_end = layered.final
    is_complete = _complete(layered, len(layered.rows), is_end, extensions)
    number, members = _numbered(is_complete[:, None].astype(np.int32), is_end)
    complete = [is_complete[members]]
    for position in reversed(range(len(layered.rows))):
        table = layered.rows[position]
        targets = np.where(table == DEAD, DEAD, number[table])
        alive = (targets != DEAD).any(1)
        only_end = alive & (targets[:, extensions.text] == DEAD).all(1)
        is_complete = _complete(layered, position, only_end, extensions)
        number, members = _numbered(np.column_stack([targets, is_complete]), alive)
        rows.append(targets[members])
        complete.append(is_complete[members])
    return Minimal(rows[::-1], complete[::-1])


def _numbered(rows: NDArray[np.integer], alive: Flags) -> tuple[Rows, NDArray[np.int64]]:
    """Int32[states], a number for each row that is alive, equal rows alike, and DEAD; and a state for each number.

    If no state is alive, state 0 stands for a layer of its own, so that no layer is empty.
    """
    number = np.full(len(rows), DEAD, dtype=np.int32)
    number[alive], first = number_rows(rows[alive])
    members = np.nonzero(alive)[0][first]
    return number, members if len(members) else np.zeros(1, dtype=np.int64)


def _complete(layered: Layered, position: int, states: Flags, extensions: Extensions) -> Flags:
    """Bool[states]: which of these, whose residuals hold if the text ends there, have no longer text?"""
    flags = np.zeros_like(states)
    for state in np.nonzero(states)[0].tolist():
        residual = layered.residuals[position][state]
        flags[state] = residual is not ENDED and not extensions.exist(residual, position)
    return flags


def to_circuit(layered: Minimal, classes: Partition) -> Circuit:
    """Merge classes that no row tells apart, and look ahead to the end.

    Raises:
        Unsatisfiable: no sequence of this length satisfies the constraint.
    """
    merged, columns = classes.merged(np.concatenate(layered.rows).T.copy())
    rows = shared([table[:, columns] for table in layered.rows])
    live = [np.ones_like(layered.complete[-1])]
    for table in reversed(rows):
        live.append(((table != DEAD) & live[-1][table]).any(1))
    live.reverse()
    if not live[0][0]:
        raise unsatisfiable(len(rows))
    return Circuit(table_reader(merged.token_class, rows, live, layered.complete))


class Extensions:
    """Can a longer text satisfy a residual, with a horizon as far away as it likes? Answers are remembered.

    Positions beyond the horizon are free: literals, counts and other leaves that name positions have been decided there, and
    what is left are states of automata, which go on reading. A search over residuals finds a text, or that there is none.

    Attributes:
        text: Int64[classes], the classes of tokens that do not end the text and may occur.
    """

    def __init__(self, residuals: Residuals, blocked: Flags, must_end: bool = False) -> None:
        """Nothing has been asked.

        Args:
            blocked: Bool[classes], classes that may not occur at all; the ends of the text may be among them.
            must_end: a text that reaches its horizon without an end does not count.
        """
        self._residuals = residuals
        self._must_end = must_end
        ends = [int(residuals.classes.token_class[token]) for token in residuals.eos_ids]
        self.text = np.setdiff1d(np.nonzero(~blocked)[0], ends)
        self._leads_on: dict[Place, bool] = {}

    def exist(self, residual: Constraint, position: int) -> bool:
        """Does one more token, and then any number of them, lead to a text that satisfies the residual at `position`?"""
        place = residual, min(position, self._residuals.length)
        if place not in self._leads_on:
            self._leads_on[place] = self._search(place)
        return self._leads_on[place]

    def _search(self, start: Place) -> bool:
        waiting: deque[Place] = deque(self._after(start))
        seen: set[Place] = set()
        while waiting:
            place = waiting.popleft()
            if place not in seen:
                seen.add(place)
                if len(seen) > MOST_RESIDUALS or self._may_stop(*place):
                    return True
                waiting.extend(self._after(place))
        self._leads_on.update(dict.fromkeys(seen, False))  # none of them leads on either
        return False

    def _after(self, place: Place) -> Iterator[Place]:
        """The places that a token leads to."""
        residual, position = place
        length = self._residuals.length
        if isinstance(residual, Constant):
            following = [residual]
        elif position == length and not self._residuals.is_timeless(residual):
            following = []  # a leaf that needs positions which do not exist
        else:
            outcomes, which = self._residuals.row(residual, position)
            following = [outcomes[i] for i in np.unique(which[self.text]).tolist()]
        for outcome in following:
            if not _is_false(outcome):
                yield outcome, min(position + 1, length)

    def _may_stop(self, residual: Constraint, position: int) -> bool:
        """Does the residual hold if the text ends here, or reaches a horizon here?"""
        residuals = self._residuals
        if position == residuals.length:  # as much padding follows as one likes
            if not self._must_end and residuals.holds_now(residual):
                return True
            if not residuals.is_timeless(residual):
                return False
            position = 0
        return any(residuals.holds_at_end(residual, position, token) for token in residuals.eos_ids)


def _is_false(residual: Constraint) -> bool:
    return isinstance(residual, Constant) and not residual.value
