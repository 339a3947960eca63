"""Boolean operations on automata over the same symbols: explored from the start, then minimised."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from locore.constraints.automaton import Automaton, minimise
from locore.limits import check_progress, check_states

WHAT = "combining two text constraints"
REMEDY = "ban, require or count fewer phrases at once"


def product(first: Automaton, second: Automaton, conjunction: bool) -> Automaton:
    """Accepts what both (conjunction) or at least one of two automata accept; minimal.

    Raises:
        BudgetExceeded: more pairs of states can be reached than the limits allow.
    """
    pairs, column, default = _joint_columns(first, second)
    n2 = len(second.table)
    codes = np.array([first.start * n2 + second.start], dtype=np.int64)
    frontier, rows = codes, []
    while len(frontier):
        a, b = np.divmod(frontier, n2)
        targets = first.table[a][:, pairs[:, 0]].astype(np.int64) * n2 + second.table[b][:, pairs[:, 1]]
        rows.append(targets)
        frontier = np.setdiff1d(targets, codes)
        codes = np.concatenate([codes, frontier])
        check_states(len(codes), WHAT, REMEDY)
        check_progress(WHAT, REMEDY)
    order = np.argsort(codes)
    table = order[np.searchsorted(codes[order], np.concatenate(rows))].astype(np.int32)
    a, b = np.divmod(codes, n2)
    flags = (first.accepting[a], second.accepting[b])
    accepting = flags[0] & flags[1] if conjunction else flags[0] | flags[1]
    return minimise(Automaton(table, accepting, column, default, 0))


def _joint_columns(first: Automaton, second: Automaton) -> tuple[NDArray[np.int64], dict[int, int], int]:
    """Distinct pairs of columns, the pair of each symbol that either automaton names, and the pair of all others."""
    names: dict[tuple[int, int], int] = {(first.default, second.default): 0}
    column = {}
    for symbol in sorted(first.column.keys() | second.column.keys()):
        pair = (first.column.get(symbol, first.default), second.column.get(symbol, second.default))
        column[symbol] = names.setdefault(pair, len(names))
    return np.array(list(names), dtype=np.int64), column, 0
