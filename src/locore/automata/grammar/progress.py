"""How far one token can bring a text towards its end, at most: what makes a lower bound on bytes one on tokens."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from locore.automata.grammar.productions import Productions, Terminal
from locore.automata.tables import Trie

MOST_NUMBERS = 100_000_000  # that may be looked at; a vocabulary of 50,000 tokens and 500 states of terminals stay below
Float32 = NDArray[np.float32]


def most_progress(grammar: Productions, trie: Trie) -> float:
    """By how many bytes a token can lower what the text needs, at most; a long name in a string lowers it by nothing.

    Of a terminal that is being read, the distance to its end is what can be saved; of one that is begun, its shortest text
    less the distance that is left; what is ignored saves nothing. A token may begin within any terminal, and of the parser
    only which terminal may follow which is known, so this is an upper bound. The best saving plus the distance that is left
    (the potential) stays as it is within a terminal, so that only maxima are carried along the tree of tokens.
    """
    terminals = grammar.terminals
    if not terminals:  # the only text is the empty one
        return 1.0
    alive = [np.flatnonzero(np.isfinite(one.distance)) for one in terminals]
    distance = np.concatenate([one.distance[states] for one, states in zip(terminals, alive, strict=True)]).astype(np.float32)
    if len(distance) * trie.num_nodes > MOST_NUMBERS:
        return float(len(trie.levels))
    table, begins, worth = _joined(terminals, alive, grammar.ignored)
    ends = _Ends([len(states) for states in alive], distance == 0, grammar.neighbours)
    potential, best = distance[None], 0.0
    row, first = np.zeros(1, dtype=np.int64), 0  # of each node of the level above, -1 where no text reads it; its first node
    for parents, symbols, _ in trie.levels:
        potential, living = _level(potential, row[parents - first], symbols, table, begins, worth, ends)
        if not len(living):
            break
        best = max(best, float((potential - distance).max()))
        first += len(row)
        row = np.full(len(parents), -1, dtype=np.int64)
        row[living] = np.arange(len(living))
    return max(best, 1.0)


class _Ends:
    """Where terminals end, and which may begin there."""

    def __init__(self, sizes: list[int], accepting: NDArray[np.bool_], neighbours: NDArray[np.bool_]) -> None:
        self._terminal = np.repeat(np.arange(len(sizes)), sizes)[accepting]
        self._accepting, self._neighbours = np.flatnonzero(accepting), neighbours

    def best(self, potential: Float32) -> Float32:
        """f32[nodes, terminals]: the potential with which each terminal may begin, if the text is in these states."""
        result = np.full((len(potential), len(self._neighbours)), -math.inf, dtype=np.float32)
        for state, terminal in zip(self._accepting.tolist(), self._terminal.tolist(), strict=True):
            following = np.flatnonzero(self._neighbours[terminal])
            result[:, following] = np.maximum(result[:, following], potential[:, state, None])
        return result


def _joined(
    terminals: tuple[Terminal, ...], alive: list[NDArray[np.int64]], ignored: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], Float32]:
    """All terminals in one table, Int64[states, 256], -1 for none; where each begins; what its shortest text is worth."""
    tables, begins, offset = [], [], 0
    for one, states in zip(terminals, alive, strict=True):
        number = np.full(len(one.table), -1, dtype=np.int64)
        number[states] = offset + np.arange(len(states))
        tables.append(number[one.table[states]])
        begins.append(number[one.table[one.start]])
        offset += len(states)
    worth = [0.0 if number == ignored else one.shortest for number, one in enumerate(terminals)]
    return np.concatenate(tables), np.stack(begins), np.array(worth, dtype=np.float32)


def _level(
    potential: Float32,
    rows: NDArray[np.int64],
    symbols: NDArray[np.int64],
    table: NDArray[np.int64],
    begins: NDArray[np.int64],
    worth: Float32,
    ends: _Ends,
) -> tuple[Float32, NDArray[np.int64]]:
    """f32[living, states] after one more byte, and Int64[living], which nodes of the level some text reads.

    Args:
        rows: Int64[nodes], the rows of their parents; -1 where nothing reads these.
    """
    parts, numbers = [], []
    before_new = ends.best(potential)
    for symbol in np.unique(symbols[rows >= 0]).tolist():
        nodes = np.flatnonzero((symbols == symbol) & (rows >= 0))
        before, after = potential[rows[nodes]], np.full((len(nodes), len(table)), -math.inf, dtype=np.float32)
        target = table[:, symbol]
        order = np.argsort(target, kind="stable")
        order = order[target[order] >= 0]
        if len(order):
            starts = np.flatnonzero(np.append(True, np.diff(target[order]) > 0))
            after[:, target[order][starts]] = np.maximum.reduceat(before[:, order], starts, axis=1)
        for terminal in np.flatnonzero(begins[:, symbol] >= 0).tolist():
            state = begins[terminal, symbol]
            after[:, state] = np.maximum(after[:, state], before_new[rows[nodes], terminal] + worth[terminal])
        kept = np.isfinite(after).any(1)
        parts.append(after[kept])
        numbers.append(nodes[kept])
    if not parts:
        return potential[:0], np.zeros(0, dtype=np.int64)
    return np.concatenate(parts), np.concatenate(numbers)
