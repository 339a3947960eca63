"""Left-to-right compiler: states after prefixes, layer by layer, minimised and trimmed, then cut into blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from locore.circuits import DEAD, Circuit, LeftToRight
from locore.compilers.layers import SparseRows, block_from_rows
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
    """

    rows: list[Rows]
    final: Flags


def is_false(residual: Constraint) -> bool:
    """Is nothing left that could hold?"""
    return isinstance(residual, Constant) and not residual.value


def no_model(length: int) -> Unsatisfiable:
    """The error of a constraint that nothing satisfies."""
    return Unsatisfiable(f"no sequence of {length} tokens satisfies the constraint")


def explore(root: Constraint, residuals: Residuals, blocked: Flags, min_length: int) -> Layered:
    """Unroll a constraint over positions, one layer of residuals each.

    Args:
        blocked: Bool[classes], classes that may not occur at all (special tokens).
        min_length: the text may not end before so many tokens.

    Raises:
        Unsatisfiable, BudgetExceeded.
    """
    classes = residuals.classes
    eos = [(t, int(classes.token_class[t])) for t in residuals.eos_ids]
    layer: dict[tuple[Constraint, bool], int] = {(residuals.prepare(root), False): 0}
    rows, total = [], 1
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
    final = np.array([ended or residuals.finished(residual) for residual, ended in layer], dtype=np.bool_)
    return Layered(rows, final)


def minimise(layered: Layered) -> Layered:
    """Merge equal states layer by layer from the end, and drop those that cannot finish."""
    canonical = np.where(layered.final, 0, DEAD).astype(np.int32)
    rows: list[Rows] = []
    for table in reversed(layered.rows):
        targets = np.where(table == DEAD, DEAD, canonical[table])
        names: dict[bytes, int] = {}
        kept: list[Rows] = []
        numbers = np.full(len(targets), DEAD, dtype=np.int32)
        for state, row in enumerate(targets):
            if (row == DEAD).all():
                continue
            numbers[state] = names.setdefault(row.tobytes(), len(names))
            if numbers[state] == len(kept):
                kept.append(row)
        dead = np.full((1, table.shape[1]), DEAD, dtype=np.int32)
        rows.append(np.stack(kept) if kept else dead)
        canonical = numbers
    return Layered(rows[::-1], np.array([True]))


def _can_step(table: Rows, live: Flags) -> Flags:
    flags: Flags = ((table != DEAD) & live[table]).any(1)
    return flags


def to_circuit(layered: Layered, classes: Partition, length: int) -> Circuit:
    """Merge classes that no row tells apart, look ahead to the end, and cut the rows into blocks.

    Raises:
        Unsatisfiable: no sequence of this length satisfies the constraint.
    """
    merged, columns = merge_columns(np.concatenate(layered.rows).T.copy(), classes)
    rows = [np.ascontiguousarray(table[:, columns]) for table in layered.rows]
    live = [layered.final]
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
        torch.from_numpy(layered.final),
        LeftToRight(token_class, tables, tuple(map(torch.from_numpy, live)), 0),
    )
