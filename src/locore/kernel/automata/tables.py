"""Deterministic automata as dense tables: equal rows, states that count, products, Aho–Corasick machines.

A table is Int32[states, columns], the next state of a complete deterministic automaton, whatever its symbols are.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import count

import numpy as np
from numpy.typing import NDArray

from locore.kernel.limits import check_progress, check_states

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]
SEARCHING = "making a search for phrases", "use fewer or shorter phrases"
SIMPLIFYING = "merging the states of an automaton", "use fewer or shorter phrases, or smaller repeat counts"
COMBINING = "combining two text constraints"
REMEDY = "ban, require or count fewer phrases at once"


def number_rows(rows: NDArray[np.integer]) -> tuple[Int32, Int64]:
    """For each row its number, equal rows alike, in order of first occurrence; and where each number occurs first.

    Rows are compared by random 64-bit sums, which is much faster than sorting them; then it is checked that rows of one sum
    are equal, and other sums are taken if they are not.
    """
    for seed in count():
        sums = np.einsum("ij,j->i", rows, _weights(seed, rows.shape[1]))  # modulo 2^64
        _, first, inverse = np.unique(sums, return_index=True, return_inverse=True)
        order = np.argsort(first)
        number = np.empty(len(order), dtype=np.int32)
        number[order] = np.arange(len(order))
        labels, first = number[inverse], first[order]
        if np.array_equal(rows[first[labels]], rows):
            break
    return labels, first


@lru_cache(maxsize=1024)
def _weights(seed: int, width: int) -> Int64:
    return np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, width)


def reachable(table: Int32, start: int = 0) -> tuple[Int64, Int32]:
    """The states that can be reached from `start`, breadth first, and their table in this numbering."""
    number = np.full(len(table), -1, dtype=np.int32)
    number[start] = 0
    frontier, order, total = np.array([start], dtype=np.int64), [np.array([start], dtype=np.int64)], 1
    while frontier.size:
        check_progress(*SIMPLIFYING)
        targets = table[frontier]
        if targets.size < len(table):  # a long chain costs as much as it is long
            targets = np.unique(targets)
            frontier = targets[number[targets] < 0].astype(np.int64)
        else:
            seen = np.zeros(len(table), dtype=np.bool_)
            seen[targets] = True
            frontier = np.flatnonzero(seen & (number < 0))
        number[frontier] = np.arange(total, total + len(frontier))
        total += len(frontier)
        order.append(frontier)
    everything = np.concatenate(order)
    return everything, number[table[everything]]


def product_table(
    first: Int32, second: Int32, starts: tuple[int, int], columns: Int64, check: Callable[[int], None]
) -> tuple[Int32, Int64, Int64]:
    """The table of the pairs of states that can be reached, and the two states of each pair; the start is 0.

    Args:
        columns: Int64[columns of the product, 2], the columns of the two tables that are read together.
        check: is told how many pairs there are so far, and stops what grows too large.
    """
    width = len(second)
    codes = frontier = np.array([starts[0] * width + starts[1]], dtype=np.int64)
    rows = []
    while len(frontier):
        a, b = np.divmod(frontier, width)
        targets = first[a][:, columns[:, 0]].astype(np.int64) * width + second[b][:, columns[:, 1]]
        rows.append(targets)
        frontier = np.setdiff1d(targets, codes)
        codes = np.concatenate([codes, frontier])
        check(len(codes))
    order = np.argsort(codes)
    table = order[np.searchsorted(codes[order], np.concatenate(rows))].astype(np.int32)
    return table, *np.divmod(codes, width)


def equivalent_states(table: Int32, kinds: NDArray[np.integer] | Bools) -> tuple[Int32, Int64]:
    """For each state its class, numbered by first occurrence, and the first state of each class.

    Two states are equivalent if the same strings lead them to states of the same kinds. Hopcroft's refinement, in vectorised
    rounds ("An n log n algorithm for minimizing states in a finite automaton", 1971): a round looks only at the states with a
    successor that has just left its block, and of a block that splits the largest part keeps its number.

    Args:
        table: Int32[states, columns], the next state.
        kinds: Int[states], what is told apart from the outset, such as which states accept.
    """
    predecessors = Predecessors(table)
    # States that are not equally far from a state of another kind than the first one's differ, and the distances are cheap.
    distance = predecessors.distance(kinds != kinds[0])
    block = number_rows(np.column_stack([distance, kinds]))[0].astype(np.int64)
    size = np.bincount(block)
    affected = np.arange(len(table))
    while len(affected):
        check_progress(*SIMPLIFYING)
        block, size, changed = _split(table, block, size, affected)
        affected = predecessors.of(changed)
    return number_rows(block[:, None])


class Predecessors:
    """For each state the states that lead to it, in one array."""

    def __init__(self, table: Int32) -> None:
        self.num_states, columns = table.shape
        # Two bytes a state are sorted by radix, which is several times faster.
        targets = table.ravel().astype(np.uint16 if self.num_states <= 1 << 16 else np.int32)
        self._sources = np.argsort(targets, kind="stable") // columns
        self._first = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=self.num_states))])

    def of(self, states: Int64) -> Int64:
        """The states with a successor among `states`, each once."""
        first, last = self._first[states], self._first[states + 1]
        lengths = last - first
        offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        sources = self._sources[np.repeat(first, lengths) + offsets]
        if len(sources) < self.num_states:
            return np.unique(sources)
        flags = np.zeros(self.num_states, dtype=np.bool_)
        flags[sources] = True
        return np.flatnonzero(flags)

    def distance(self, goals: Bools) -> Int64:
        """Int64[states], the length of the shortest string that leads to a goal; the number of states where there is none."""
        distance = np.where(goals, 0, self.num_states).astype(np.int64)
        frontier = np.flatnonzero(goals)
        steps = 0
        while len(frontier):
            check_progress(*SIMPLIFYING)
            steps += 1
            before = self.of(frontier)
            frontier = before[distance[before] == self.num_states]
            distance[frontier] = steps
        return distance


def _split(table: Int32, block: Int64, size: Int64, affected: Int64) -> tuple[Int64, Int64, Int64]:
    """Split blocks by where their states lead; returns the blocks, their sizes, and the states with a new number.

    All states of a block that are not in `affected` lead to the same blocks, and to others than any affected state does.
    """
    own = block[affected]
    group, first = number_rows(np.column_stack([own, block[table[affected]]]))
    group_size = np.bincount(group)
    group_block = own[first]
    untouched = size - np.bincount(own, minlength=len(size))
    # Of each block the largest part keeps the number: one of its groups, or what is not affected.
    order = np.lexsort((-group_size, group_block))
    largest = order[np.append(True, np.diff(group_block[order]) > 0)]
    keeps = np.zeros(len(first), dtype=np.bool_)
    keeps[largest] = group_size[largest] >= untouched[group_block[largest]]
    moved_group = np.flatnonzero(~keeps)
    leaving = group_block[keeps & (untouched[group_block] > 0)]  # blocks whose unaffected part gets a new number

    result = block.copy()
    number = np.full(len(first), -1, dtype=np.int64)
    number[moved_group] = len(size) + np.arange(len(moved_group))
    moved = number[group] >= 0
    result[affected[moved]] = number[group[moved]]
    changed = affected[moved]
    if len(leaving):
        rest = np.setdiff1d(np.flatnonzero(np.isin(block, leaving)), affected, assume_unique=True)
        position = np.full(len(size), -1, dtype=np.int64)
        position[leaving] = len(size) + len(moved_group) + np.arange(len(leaving))
        result[rest] = position[block[rest]]
        changed = np.concatenate([changed, rest])
    return result, np.bincount(result, minlength=len(size) + len(moved_group) + len(leaving)), changed


@dataclass(frozen=True, eq=False)
class Automaton:
    """A complete deterministic automaton, one column per symbol class.

    Attributes:
        table: int32[states, columns], the next state.
        accepting: bool[states].
        column: symbol (byte value or token id) -> column.
        default: the column that every other symbol reads.
        start: the first state.
    """

    table: Int32
    accepting: Bools
    column: dict[int, int]
    default: int
    start: int = 0

    @property
    def num_states(self) -> int:
        """The number of states."""
        return len(self.table)

    def accepts(self, symbols: Iterable[int]) -> bool:
        """Does the automaton accept this string of symbols?"""
        state = self.start
        for symbol in symbols:
            state = int(self.table[state, self.column.get(symbol, self.default)])
        return bool(self.accepting[state])

    def complement(self) -> Automaton:
        """The automaton that accepts exactly the strings that this one does not."""
        return Automaton(self.table, ~self.accepting, self.column, self.default, self.start)


def over_all_bytes(table: Int32, accepting: Bools, column: NDArray[np.integer]) -> Automaton:
    """The automaton that starts in state 0 and reads bytes by Int[256]."""
    default = int(np.bincount(column).argmax())
    named = {byte: number for byte, number in enumerate(column.tolist()) if number != default}
    return Automaton(table, accepting, named, default)


@cache
def utf8() -> Automaton:
    """Accepts UTF-8 (RFC 3629, section 4)."""
    whole, left, after_e0, after_ed, after_f0, after_f4, broken = 0, (1, 2, 3), 4, 5, 6, 7, 8  # left: bytes to come, but one
    table = np.full((9, 256), broken, dtype=np.int32)
    table[whole, :0x80] = whole
    for low, high, state in (
        *((0xC2, 0xDF, left[0]), (0xE0, 0xE0, after_e0), (0xE1, 0xEF, left[1]), (0xED, 0xED, after_ed)),
        *((0xF0, 0xF0, after_f0), (0xF1, 0xF3, left[2]), (0xF4, 0xF4, after_f4)),
    ):
        table[whole, low : high + 1] = state
    for state in left:
        table[state, 0x80:0xC0] = state - 1
    table[after_e0, 0xA0:0xC0] = table[after_ed, 0x80:0xA0] = left[0]  # neither too long a form nor half of a pair
    table[after_f0, 0x90:0xC0] = table[after_f4, 0x80:0x90] = left[1]
    columns, first = number_rows(table.T)
    return over_all_bytes(np.ascontiguousarray(table[:, first]), np.arange(9) == whole, columns)


def minimise(automaton: Automaton) -> Automaton:
    """The automaton of the same language with the fewest states, its start at 0."""
    order, table = reachable(automaton.table, automaton.start)
    accepting = automaton.accepting[order]
    blocks, members = equivalent_states(table, accepting)
    return Automaton(blocks[table[members]], accepting[members], automaton.column, automaton.default)


def product(first: Automaton, second: Automaton, conjunction: bool) -> Automaton:
    """Accepts what both (conjunction) or at least one of two automata accept; minimal.

    Raises:
        BudgetExceeded: more pairs of states can be reached than the limits allow.
    """
    pairs: dict[tuple[int, int], int] = {(first.default, second.default): 0}
    column = {}
    for symbol in sorted(first.column.keys() | second.column.keys()):
        pair = (first.column.get(symbol, first.default), second.column.get(symbol, second.default))
        column[symbol] = pairs.setdefault(pair, len(pairs))

    def check(num_states: int) -> None:
        check_states(num_states, COMBINING, REMEDY)
        check_progress(COMBINING, REMEDY)

    columns = np.array(list(pairs), dtype=np.int64)
    table, a, b = product_table(first.table, second.table, (first.start, second.start), columns, check)
    combine = np.logical_and if conjunction else np.logical_or
    return minimise(Automaton(table, combine(first.accepting[a], second.accepting[b]), column, default=0))


@dataclass(frozen=True, eq=False)
class Trie:
    """Nodes are numbered by depth, the root is 0.

    Attributes:
        levels: for each depth from 1 on the parents, symbols and children of its edges, Int64[edges] each.
        node: Int64[strings], the node at which each string ends.
        num_nodes: with the root.
    """

    levels: list[tuple[Int64, Int64, Int64]]
    node: Int64
    num_nodes: int

    @classmethod
    def of(cls, symbols: NDArray[np.integer], lengths: Int64) -> Trie:
        """The tree of strings that are given one after the other.

        Args:
            symbols: Int[sum of lengths].
            lengths: Int64[strings].
        """
        first = np.cumsum(lengths) - lengths
        width = int(symbols.max(initial=0)) + 1
        node = np.zeros(len(lengths), dtype=np.int64)
        alive = np.flatnonzero(lengths > 0)
        levels: list[tuple[Int64, Int64, Int64]] = []
        num_nodes = 1
        while alive.size:
            check_progress(*SEARCHING)
            keys = node[alive] * width + symbols[first[alive] + len(levels)]
            distinct, which = np.unique(keys, return_inverse=True)
            levels.append((distinct // width, distinct % width, num_nodes + np.arange(len(distinct))))
            node[alive] = num_nodes + which
            num_nodes += len(distinct)
            alive = alive[lengths[alive] > len(levels)]
        return cls(levels, node, num_nodes)

    @property
    def ends(self) -> Int32:
        """Int32[nodes], how many of the strings end there."""
        return np.bincount(self.node, minlength=self.num_nodes).astype(np.int32)


def product_of(automata: Iterable[Automaton], conjunction: bool) -> Automaton:
    """As `product`, of one or more; always the two smallest, so that what counts to many comes last and once."""
    waiting = sorted(automata, key=lambda automaton: automaton.num_states)
    while len(waiting) > 1:
        insort(waiting, product(waiting.pop(0), waiting.pop(0), conjunction), key=lambda automaton: automaton.num_states)
    return waiting[0]


def search_table(trie: Trie, inside: Bools) -> tuple[Int32, Int32]:
    """The search of Aho and Corasick ("Efficient string matching", CACM 1975), in which no occurrence starts inside a word.

    The failure of a node is the longest proper suffix of it with which a string may begin there. Where a node has no child it
    moves as its failure does, and the failure of its child is where its own failure moves to; a failure is shallower than its
    node, so one depth at a time is enough. If nothing is left to begin with, the search is in state 0, or after a character of
    a word in the last state.

    Args:
        trie: of the strings, over columns.
        inside: Bool[columns], which columns are characters of words; none if words do not matter.

    Returns:
        Int32[nodes + 1, columns], the next state; and how many strings end in each state.
    """
    after_word = trie.num_nodes
    idle = np.where(inside, after_word, 0).astype(np.int32)
    table = np.empty((after_word + 1, len(inside)), dtype=np.int32)
    table[[0, after_word]] = idle
    ends, failure = np.append(trie.ends, 0), np.zeros(after_word + 1, dtype=np.int32)
    for depth, (parents, columns, children) in enumerate(trie.levels):
        check_progress(*SEARCHING)
        failure[children] = idle[columns] if depth == 0 else table[failure[parents], columns]
        table[parents, columns] = children
        if depth == 0:
            free = ~inside[columns]
            table[after_word, columns[free]] = children[free]
        table[children] = table[failure[children]]
        ends[children] += ends[failure[children]]
    return table, ends


def aho_corasick(patterns: Iterable[Sequence[int]]) -> Automaton:
    """Accepts the strings that contain one of `patterns`: once one has been read, it stays in one accepting state."""
    strings = list({tuple(pattern) for pattern in patterns})
    symbols = sorted({symbol for string in strings for symbol in string})
    column = {symbol: index + 1 for index, symbol in enumerate(symbols)}  # column 0: symbols that occur in no pattern
    columns = np.array([column[symbol] for string in strings for symbol in string], dtype=np.int32)
    trie = Trie.of(columns, np.array([len(string) for string in strings], dtype=np.int64))
    table, ends = search_table(trie, np.zeros(len(symbols) + 1, dtype=np.bool_))
    accepting = ends > 0
    table[accepting] = np.argmax(accepting)
    order, table = reachable(table)
    return Automaton(table, accepting[order], column, default=0)
