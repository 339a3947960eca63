"""Left-to-right compiler: states after prefixes, layer by layer, minimised and trimmed, then cut into blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from locore.circuits import DEAD, Circuit, LeftToRight
from locore.compilers.layers import SparseRows, block_from_rows
from locore.compilers.longer import Longer
from locore.compilers.partition import Partition, merge_columns
from locore.compilers.residual import Residuals
from locore.constraints import Constant, Constraint
from locore.errors import Unsatisfiable
from locore.limits import check_progress, check_states, check_table

Rows = NDArray[np.int32]
Flags = NDArray[np.bool_]
REMEDY = "a shorter sequence, a simpler constraint, or a vtree that keeps the positions that depend on each other together"
END = Constant(True)  # the residual of a finished text: only padding may follow


@dataclass(frozen=True)
class Layered:
    """Transitions of a layered automaton; state 0 of layer 0 is the start.

    Attributes:
        rows: for each position, Int32[states, classes], the state in the next layer or DEAD.
        final: Bool[states of the last layer].
        residuals: for each position 0..n, what is left in each state; END once the text has ended.
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


def is_false(residual: Constraint) -> bool:
    """Is nothing left that could hold?"""
    return isinstance(residual, Constant) and not residual.value


def no_model(length: int) -> Unsatisfiable:
    """The error of a constraint that nothing satisfies."""
    return Unsatisfiable(f"no sequence of {length} tokens satisfies the constraint")


def explore(root: Constraint, residuals: Residuals, blocked: Flags, min_length: int, must_end: bool = False) -> Layered:
    """Unroll a constraint over positions, one layer of residuals each.

    Args:
        blocked: Bool[classes], classes that may not occur at all (special tokens).
        min_length: the text may not end before so many tokens.
        must_end: it must end within the length.

    Raises:
        Unsatisfiable, BudgetExceeded.
    """
    classes = residuals.classes
    eos = [(t, int(classes.token_class[t])) for t in residuals.eos_ids]
    layer: dict[tuple[Constraint, bool], int] = {(residuals.prepare(root), False): 0}
    rows, total = [], 1
    reached = [[residuals.prepare(root)]]
    for position in range(residuals.length):
        where = f"the constraint, read from left to right, after {position} of {residuals.length} positions"
        check_table(4 * len(layer) * classes.num_classes, where, REMEDY)
        table = np.full((len(layer), classes.num_classes), DEAD, dtype=np.int32)
        following: dict[tuple[Constraint, bool], int] = {}
        for (residual, ended), state in layer.items():
            check_progress(where, REMEDY)
            if not ended and not is_false(residual):
                outcomes, which = residuals.row(residual, position)
                numbers = [
                    DEAD if is_false(outcome) else following.setdefault((outcome, False), len(following))
                    for outcome in outcomes
                ]
                table[state] = np.array(numbers, dtype=np.int32)[which]
                table[state, blocked] = DEAD
            for number, (token, column) in enumerate(eos):
                holds = number == 0 if ended else residuals.at_end(residual, position, token)
                holds = holds and (ended or position >= min_length)
                table[state, column] = following.setdefault((END, True), len(following)) if holds else DEAD
        if not following:
            raise no_model(residuals.length)
        rows.append(table)
        total += len(following)
        check_states(total, where, REMEDY)
        layer = following
        reached.append([END if ended else residual for residual, ended in layer])
    final = np.array([ended or (residuals.finished(left) and not must_end) for left, ended in layer], dtype=np.bool_)
    return Layered(rows, final, reached)


def minimise(layered: Layered, longer: Longer) -> Minimal:
    """Merge equal states layer by layer from the end, and drop those that cannot finish.

    Where only the end may come, a text that is complete stays apart from one that has no room to go on.
    """
    length = len(layered.rows)
    canonical, complete = _last_layer(layered, longer)
    rows: list[Rows] = []
    flags = [complete]
    for position, table in zip(reversed(range(length)), reversed(layered.rows), strict=True):
        targets = np.where(table == DEAD, DEAD, canonical[table])
        only_end = (targets[:, longer.text] == DEAD).all(1)
        names: dict[tuple[bytes, bool], int] = {}
        kept: list[Rows] = []
        numbers = np.full(len(targets), DEAD, dtype=np.int32)
        for state, row in enumerate(targets):
            if (row == DEAD).all():
                continue
            name = row.tobytes(), bool(only_end[state]) and _is_complete(layered.residuals[position][state], position, longer)
            numbers[state] = names.setdefault(name, len(names))
            if numbers[state] == len(kept):
                kept.append(row)
        dead = np.full((1, table.shape[1]), DEAD, dtype=np.int32)
        rows.append(np.stack(kept) if kept else dead)
        flags.append(np.array([is_complete for _, is_complete in names] or [False], dtype=np.bool_))
        canonical = numbers
    return Minimal(rows[::-1], flags[::-1])


def _last_layer(layered: Layered, longer: Longer) -> tuple[Rows, Flags]:
    """The numbers of the states that are final: one for all, but another for texts that are complete."""
    names: dict[bool, int] = {}
    numbers = np.full(len(layered.final), DEAD, dtype=np.int32)
    for state in np.nonzero(layered.final)[0].tolist():
        is_complete = _is_complete(layered.residuals[-1][state], len(layered.rows), longer)
        numbers[state] = names.setdefault(is_complete, len(names))
    return numbers, np.array(list(names) or [False], dtype=np.bool_)


def _is_complete(residual: Constraint, position: int, longer: Longer) -> bool:
    """Is nothing longer possible? For residuals that hold if the text ends here."""
    return residual is not END and not longer.possible(residual, position)


def _can_step(table: Rows, live: Flags) -> Flags:
    flags: Flags = ((table != DEAD) & live[table]).any(1)
    return flags


def to_circuit(layered: Minimal, classes: Partition, length: int) -> Circuit:
    """Merge classes that no row tells apart, look ahead to the end, and cut the rows into blocks.

    Raises:
        Unsatisfiable: no sequence of this length satisfies the constraint.
    """
    merged, columns = merge_columns(np.concatenate(layered.rows).T.copy(), classes)
    rows = [np.ascontiguousarray(table[:, columns]) for table in layered.rows]
    final = np.ones_like(layered.complete[-1])
    live = [final]
    for table in reversed(rows):
        live.append(_can_step(table, live[-1]))
    live.reverse()
    if not live[0][0]:
        raise no_model(length)
    sizes = [len(flags) for flags in live[1:]]
    token_class = torch.from_numpy(merged.token_class)
    tables = tuple(torch.from_numpy(table) for table in rows)
    return Circuit(
        length,
        token_class,
        merged.num_classes,
        tuple(block_from_rows(SparseRows.from_dense(table), size) for table, size in zip(rows, sizes, strict=True)),
        tuple((i,) for i in range(length)),
        torch.from_numpy(final),
        LeftToRight(
            token_class,
            tables,
            tuple(map(torch.from_numpy, live)),
            0,
            complete=tuple(map(torch.from_numpy, layered.complete)),
        ),
    )
