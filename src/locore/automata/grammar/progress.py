"""How far one token can bring a text towards its end, at most: what makes a lower bound on bytes one on tokens."""

from __future__ import annotations

import math
from collections import defaultdict
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from locore.automata.grammar.productions import START, Productions, Symbol, Symbols
from locore.automata.grammar.terminal import Terminal
from locore.kernel.automata.tables import Trie

MOST_NUMBERS = 100_000_000  # that may be looked at; a vocabulary of 50,000 tokens and 500 states of terminals stay below
Float32 = NDArray[np.float32]


def most_progress(grammar: Productions, trie: Trie) -> float:
    """By how many bytes a token can lower what the text needs, at most; a long name in a string lowers it by nothing.

    Of a terminal that is being read, the distance to its end is what can be saved; of one that is begun, what it gains in its
    place (`_by_gain`) less the distance that is left; what is ignored saves nothing. A token may begin within any terminal, and
    of the parser only which terminal may follow which is known, so this is an upper bound. The best saving plus the distance
    that is left (the potential) stays as it is within a terminal, so that only maxima are carried along the tree of tokens.
    """
    grammar, worth = _by_gain(grammar)
    terminals = grammar.terminals
    if not terminals:  # the only text is the empty one
        return 1.0
    alive = [np.flatnonzero(np.isfinite(term.distance)) for term in terminals]
    distance = np.concatenate([term.distance[states] for term, states in zip(terminals, alive, strict=True)]).astype(np.float32)
    if len(distance) * trie.num_nodes > MOST_NUMBERS:
        return float(len(trie.levels))
    table, begins = _joined(terminals, alive)
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
    """Where terminals end, and which may begin there; those with the same neighbours are looked at together."""

    def __init__(self, sizes: list[int], accepting: NDArray[np.bool_], neighbours: NDArray[np.bool_]) -> None:
        rows, kind = np.unique(neighbours, axis=0, return_inverse=True)
        columns, column = np.unique(rows, axis=1, return_inverse=True)
        kind_of_state = np.repeat(kind.reshape(-1), sizes)
        self._ending = [np.flatnonzero(accepting & (kind_of_state == number)) for number in range(len(rows))]
        self._following, self._column = [np.flatnonzero(row) for row in columns], column.reshape(-1)

    def best(self, potential: Float32) -> Float32:
        """f32[nodes, terminals]: the potential with which each terminal may begin, if the text is in these states."""
        result = np.full((len(potential), self._column.max() + 1), -math.inf, dtype=np.float32)
        for ending, following in zip(self._ending, self._following, strict=True):
            if len(ending) and len(following):
                result[:, following] = np.maximum(result[:, following], potential[:, ending].max(1)[:, None])
        return result[:, self._column]


def _by_gain(grammar: Productions) -> tuple[Productions, Float32]:
    """The grammar with a terminal of its own for each gain; f32[terminals], the gains: bytes that it brings a text to its end.

    Less than its length, where something shorter could stand in its place: one more letter of a name brings a text no nearer.
    """
    begun = _detours(grammar)
    number_of: dict[tuple[int, float], int] = {}
    rules: list[list[Symbols]] = []
    for number, sides in enumerate(grammar.rules):
        rules.append([])
        for side in (side for side in sides if max(map(grammar.shortest_of, side), default=0.0) < math.inf):
            gained: list[Symbol] = []
            for symbol, beginning, within in _places(grammar, number, side):
                if symbol < 0:
                    gain = grammar.shortest_of(symbol) - min(begun[number] + beginning, within)
                    symbol = ~number_of.setdefault((~symbol, gain), len(number_of))
                gained.append(symbol)
            rules[-1].append(tuple(gained))
    kinds = [*number_of, *([] if grammar.ignored is None else [(grammar.ignored, 0.0)])]
    terminals = tuple(grammar.terminals[terminal] for terminal, _ in kinds)
    ignored = None if grammar.ignored is None else len(number_of)
    return Productions(tuple(map(tuple, rules)), terminals, ignored), np.array([gain for _, gain in kinds], dtype=np.float32)


def _detours(grammar: Productions) -> list[float]:
    """For each nonterminal the bytes by which what has it next needs more than is needed at least; inf if nothing has it."""
    used_by: dict[int, list[tuple[int, float]]] = defaultdict(list)
    heap: list[tuple[float, int]] = [(0.0, START)]
    for number, sides in enumerate(grammar.rules):
        for side in sides:
            for symbol, beginning, within in _places(grammar, number, side):
                if symbol >= 0:
                    used_by[number].append((symbol, beginning))
                    heappush(heap, (within, symbol))
    least = [math.inf] * len(grammar.rules)
    while heap:
        excess, number = heappop(heap)
        if excess < least[number]:
            least[number] = excess
            for symbol, further in used_by[number]:
                heappush(heap, (excess + further, symbol))
    return least


def _places(grammar: Productions, number: int, side: Symbols) -> list[tuple[Symbol, float, float]]:
    """The symbols of a production, and by how many bytes what is needed from there exceeds what is needed at least.

    First where the production begins there, all before it being empty: beyond the excess of its nonterminal. Then where
    something has been read: none, or, if that was the nonterminal itself, which could have been all, the rest.
    """
    places: list[tuple[Symbol, float, float]] = []
    rest, empty = [0.0], True
    for symbol in reversed(side):
        rest.append(rest[-1] + grammar.shortest_of(symbol))
    for place, symbol in enumerate(side):
        needed = rest[len(side) - place]
        beginning = needed - grammar.shortest[number] if empty and needed < math.inf else math.inf
        within = needed if place == 1 and side[0] == number else 0.0 if place else math.inf
        places.append((symbol, beginning, within))
        empty = empty and symbol in grammar.nullable
    return places


def _joined(terminals: tuple[Terminal, ...], alive: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All terminals in one table, Int64[states, 256], -1 for none; and where each begins."""
    tables, begins, offset = [], [], 0
    for terminal, states in zip(terminals, alive, strict=True):
        number = np.full(len(terminal.table), -1, dtype=np.int64)
        number[states] = offset + np.arange(len(states))
        tables.append(number[terminal.table[states]])
        begins.append(number[terminal.table[terminal.start]])
        offset += len(states)
    return np.concatenate(tables), np.stack(begins)


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
        is_read = np.isfinite(after).any(1)
        parts.append(after[is_read])
        numbers.append(nodes[is_read])
    if not parts:
        return potential[:0], np.zeros(0, dtype=np.int64)
    return np.concatenate(parts), np.concatenate(numbers)
