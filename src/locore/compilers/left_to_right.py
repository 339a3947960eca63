"""Left-to-right compiler: states after prefixes, layer by layer, minimised and trimmed, then cut into blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from locore.circuits import DEAD, Block, Circuit, LeftToRight
from locore.compilers.layers import block_from_rows
from locore.compilers.lift import TokenAutomaton
from locore.compilers.partition import Partition, merge_columns
from locore.compilers.residual import Residuals
from locore.constraints import Constant, Constraint
from locore.errors import BudgetExceeded, Unsatisfiable

Rows = NDArray[np.int32]
Flags = NDArray[np.bool_]
END = Constant(True)  # the residual of a finished text: only padding may follow


@dataclass(frozen=True)
class Layered:
    """Transitions of a layered automaton; state 0 of layer 0 is the start.

    Attributes:
        rows: for each position, Int32[states, classes], the state in the next layer or DEAD.
        final: Bool[states of the last layer].
        one_numbering: whether all layers number their states alike, so that tables can be shared.
    """

    rows: list[Rows]
    final: Flags
    one_numbering: bool = False


def is_false(residual: Constraint) -> bool:
    """Is nothing left that could hold?"""
    return isinstance(residual, Constant) and not residual.value


def no_model(length: int) -> Unsatisfiable:
    """The error of a constraint that nothing satisfies."""
    return Unsatisfiable(f"no sequence of {length} tokens satisfies the constraint")


def explore(root: Constraint, residuals: Residuals, blocked: Flags, min_length: int, max_states: int) -> Layered:
    """Unroll a constraint over positions, one layer of residuals each.

    Args:
        blocked: Bool[classes], classes that may not occur at all (special tokens).
        min_length: the text may not end before so many tokens.
        max_states: BudgetExceeded beyond so many states in total.
    """
    classes = residuals.classes
    eos = [(t, int(classes.token_class[t])) for t in residuals.eos_ids]
    layer: dict[tuple[Constraint, bool], int] = {(residuals.prepare(root), False): 0}
    rows, total = [], 1
    for position in range(residuals.length):
        table = np.full((len(layer), classes.num_classes), DEAD, dtype=np.int32)
        following: dict[tuple[Constraint, bool], int] = {}
        for (residual, ended), state in layer.items():
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
        if total > max_states:
            raise BudgetExceeded(
                f"the constraint has more than max_states = {max_states} states after {position + 1} of "
                f"{residuals.length} positions, read from left to right; raise max_states, shorten the sequence, split the "
                "constraint, or give a vtree that keeps the positions that depend on each other together."
            )
        layer = following
    final = np.array([ended or residuals.finished(residual) for residual, ended in layer], dtype=np.bool_)
    return Layered(rows, final)


def unroll(
    automaton: TokenAutomaton,
    classes: Partition,
    blocked: Flags,
    eos_ids: tuple[int, ...],
    length: int,
    min_length: int,
) -> Layered:
    """The same for a constraint that is one automaton: positions share their table of rows.

    State 0 is the start; a last state stands for "the text has ended".
    """
    states = len(automaton.accepting)
    order = np.arange(states)
    order[[0, automaton.start]] = order[[automaton.start, 0]]  # swap, so that the start comes first
    function = automaton.function[classes.representative]
    table = np.full((states + 1, classes.num_classes), DEAD, dtype=np.int32)
    table[:states] = order[automaton.functions[np.maximum(function, 0)]].T[order]
    table[:, blocked | (function < 0)] = DEAD
    table[:, classes.token_class[list(eos_ids)]] = DEAD
    early = table.copy()
    for number, token in enumerate(eos_ids):
        column = classes.token_class[token]
        table[:states, column] = np.where(automaton.accepting[order], states, DEAD)
        table[states, column] = states if number == 0 else DEAD
    rows = [early] * min(min_length, length) + [table] * max(0, length - min_length)
    return Layered(rows, np.append(automaton.accepting[order], True), one_numbering=True)


def minimise(layered: Layered) -> Layered:
    """Merge equal states layer by layer from the end, and drop those that cannot be reached or cannot finish.

    Layers that number their states alike are trimmed together and go on sharing: their automaton is minimal already.
    """
    if layered.one_numbering:
        return _trim_together(layered)
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


def _trim_together(layered: Layered) -> Layered:
    reached = np.zeros(len(layered.final), dtype=np.bool_)
    reached[0] = True
    for table in layered.rows:
        targets = table[reached]
        reached[targets[targets != DEAD]] = True
    live = layered.final.copy()
    useful = live.copy()
    for table in reversed(layered.rows):
        live = _can_step(table, live)
        useful |= live
    keep = reached & useful
    keep[0] = True
    number = np.full(len(keep), DEAD, dtype=np.int32)
    number[keep] = np.arange(keep.sum())
    tables = {id(t): np.where(t[keep] == DEAD, DEAD, number[t[keep]]).astype(np.int32) for t in layered.rows}
    return Layered([tables[id(t)] for t in layered.rows], layered.final[keep], one_numbering=True)


def _can_step(table: Rows, live: Flags) -> Flags:
    flags: Flags = ((table != DEAD) & live[table]).any(1)
    return flags


def _hopeful(table: Rows, final: Flags) -> torch.Tensor:
    """Bool[states]: can acceptance be reached at all, in however many steps?"""
    flags = final
    while True:
        more = flags | _can_step(table, flags)
        if (more == flags).all():
            return torch.from_numpy(more)
        flags = more


def to_circuit(layered: Layered, classes: Partition, length: int) -> Circuit:
    """Merge classes that no row tells apart, look ahead to the end, and cut the rows into blocks.

    Raises:
        Unsatisfiable: no sequence of this length satisfies the constraint.
    """
    tables = list({id(table): table for table in layered.rows}.values())
    merged, columns = merge_columns(np.concatenate(tables).T.copy(), classes)
    narrow = {id(table): np.ascontiguousarray(table[:, columns]) for table in tables}
    rows = [narrow[id(table)] for table in layered.rows]
    live = [layered.final]
    for table in reversed(rows):
        live.append(_can_step(table, live[-1]))
    live.reverse()
    if not live[0][0]:
        raise no_model(length)
    sizes = [len(flags) for flags in live[1:]]
    blocks: dict[tuple[int, int], Block] = {}
    for table, size in zip(rows, sizes, strict=True):
        if (id(table), size) not in blocks:
            blocks[id(table), size] = block_from_rows(table, size)
    token_class = torch.from_numpy(merged.token_class)
    shared = {id(table): torch.from_numpy(table) for table in rows}
    reader = LeftToRight(
        token_class,
        tuple(shared[id(t)] for t in rows),
        tuple(map(torch.from_numpy, live)),
        0,
        _hopeful(rows[-1], layered.final) if layered.one_numbering else None,
    )
    return Circuit(
        length,
        token_class,
        merged.num_classes,
        tuple(blocks[id(table), size] for table, size in zip(rows, sizes, strict=True)),
        tuple((i,) for i in range(length)),
        torch.from_numpy(layered.final),
        reader,
    )
