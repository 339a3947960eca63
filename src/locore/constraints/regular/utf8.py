"""From an automaton over characters to one over their UTF-8 bytes.

After the first bytes of a character the rest decides where it leads: such a *node* is a function of the next byte. Equal nodes
are one state, whatever characters and states they come from; so the automaton over bytes is minimal if that over characters is.
Bytes that are not UTF-8 lead to the dead state (`constraints.utf8` reads them as a decoder does, for machines that count).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.constraints.automaton import Automaton
from locore.constraints.regular.budget import Budget
from locore.constraints.regular.charset import FIRST_SURROGATE, LAST_SURROGATE, CharClasses
from locore.constraints.regular.dfa import Dfa

Ints = NDArray[np.int64]
DEAD = 0  # in labels and nodes: nothing can follow
CONTINUATIONS = slice(0x80, 0xC0)
FIRST_OF_3, FIRST_OF_4 = 0x800, 0x10000  # the first code points that need so many bytes
BEHIND_4 = 0x140000  # what the first bytes of four could say: F0 to F4
CHUNK = 1 << 20


def to_bytes(dfa: Dfa, budget: Budget) -> Automaton:
    """The automaton of the UTF-8 encodings of the strings that a minimal `dfa` accepts.

    Raises:
        BudgetExceeded: it has too many states.
    """
    trie = _Trie.of(dfa.classes)
    builder = _Builder(dfa, budget)
    groups: dict[tuple[int, ...], list[int]] = {}
    for state, labels in enumerate(_labels(dfa.table, builder.dead)):
        groups.setdefault(labels, []).append(state)
    for labels, states in groups.items():
        builder.add(trie.labelled(np.array(labels)), np.array(labels), np.array(states))
    return builder.automaton()


def _labels(table: NDArray[np.int32], dead: int) -> list[tuple[int, ...]]:
    """For each state a label of each class: equal for equal targets, DEAD for the dead state, others from 1 in order.

    A last label is for what is no character.
    """
    found = []
    for row in table.tolist():
        names = {dead: DEAD}
        found.append((*[names.setdefault(target, len(names)) for target in row], DEAD))
    return found


@dataclass(frozen=True)
class _Trie:
    """The characters by their bytes, with a class or a label for each.

    Attributes:
        levels: for 1, 2 and 3 bytes to come, Int64[nodes, 64]: for each next byte a label or, if more are to come, a node of
            the level before. Node DEAD leads nowhere.
        first: for 0 to 3 bytes to come, the first bytes of such characters, and the label or node that each leads to.
    """

    levels: tuple[Ints, ...]
    first: tuple[tuple[slice, Ints], ...]

    @classmethod
    def of(cls, classes: CharClasses) -> _Trie:
        """The trie of the classes; what is no character has a class of its own, the last."""
        nothing = classes.num_classes
        by_code = np.full(BEHIND_4, nothing, dtype=np.int64)
        by_code[:0x110000] = classes.by_code_point()
        by_code[FIRST_SURROGATE : LAST_SURROGATE + 1] = nothing
        ascii_classes = by_code[:0x80].copy()
        by_code[:0x80] = nothing  # one byte, no node
        after_2, level_1 = _nodes(by_code, nothing)
        of_3, of_4 = after_2[: FIRST_OF_4 // 64].copy(), after_2.copy()
        of_3[: FIRST_OF_3 // 64] = DEAD  # longer than need be
        of_4[: FIRST_OF_4 // 64] = DEAD
        after_3, level_2 = _nodes(np.concatenate([of_3, of_4]), DEAD)
        after_4, level_3 = _nodes(after_3[16:], DEAD)
        first = (
            (slice(0x00, 0x80), ascii_classes),
            (slice(0xC2, 0xE0), after_2[0x02:0x20]),
            (slice(0xE0, 0xF0), after_3[:16]),
            (slice(0xF0, 0xF5), after_4),
        )
        return cls((level_1, level_2, level_3), first)

    def labelled(self, labels: Ints) -> _Trie:
        """The trie of the labels of the classes: nodes that agree in their labels are one."""
        renamed, levels = [labels], []
        for level in self.levels:
            numbers, merged = _nodes(renamed[-1][level], DEAD)
            renamed.append(numbers)
            levels.append(merged)
        first = tuple((where, new[old]) for new, (where, old) in zip(renamed, self.first, strict=True))
        return _Trie(tuple(levels), first)

    def by_byte(self) -> Ints:
        """Int64[1 + nodes, 256]: what each byte leads to at the start of a character and in each node.

        The numbers tell bytes apart, no more.
        """
        rows = np.full((1 + sum(map(len, self.levels)), 256), DEAD, dtype=np.int64)
        for bytes_left, (where, nodes) in enumerate(self.first):
            rows[0, where] = np.where(nodes == DEAD, DEAD, 4 * nodes + bytes_left)
        rows[1:, CONTINUATIONS] = np.concatenate(self.levels)
        return rows


def _nodes(entries: Ints, nothing: int) -> tuple[Ints, Ints]:
    """Rows of 64 entries: the number of each row, equal rows alike, and the distinct rows. Row DEAD is `nothing` only."""
    rows = np.concatenate([np.full((1, 64), nothing, dtype=np.int64), entries.reshape(-1, 64)])
    names: dict[bytes, int] = {}
    keys = rows.view(f"V{rows.itemsize * 64}").ravel().tolist()
    numbers = np.array([names.setdefault(key, len(names)) for key in keys], dtype=np.int64)
    return numbers[1:], rows[np.unique(numbers, return_index=True)[1]]


class _Builder:
    """Collects states: first those of `dfa`, perhaps a dead one, then nodes."""

    def __init__(self, dfa: Dfa, budget: Budget) -> None:
        self._dfa = dfa
        self._budget = budget
        num_states = len(dfa.table)
        trapped = (dfa.table == np.arange(num_states)[:, None]).all(axis=1) & ~dfa.accepting
        self.dead = int(np.argmax(trapped)) if trapped.any() else num_states
        self._first = np.full((max(num_states, self.dead + 1), 256), self.dead, dtype=np.int32)
        self._number = {np.full(64, self.dead, dtype=np.int32).tobytes(): self.dead}
        self._nodes: list[bytes] = []
        self._seen: list[Ints] = []

    def add(self, trie: _Trie, labels: Ints, states: Ints) -> None:
        """The nodes of states whose targets have the same labels.

        Args:
            trie: with these labels.
            labels: Int64[classes + 1].
            states: Int64[members].
        """
        self._seen.append(trie.by_byte())
        used, column = np.unique(labels[:-1], return_index=True)
        largest = max(map(len, trie.levels))
        for part in np.array_split(states, 1 + len(states) * largest * 64 // CHUNK):
            targets = np.full((len(part), int(labels.max()) + 1), self.dead, dtype=np.int32)
            targets[:, used] = self._dfa.table[part][:, column]
            self._first[part[:, None], np.arange(256)[trie.first[0][0]]] = targets[:, trie.first[0][1]]
            for level, (where, nodes) in zip(trie.levels, trie.first[1:], strict=True):
                targets = self._numbers(targets[:, level])
                self._first[part[:, None], np.arange(256)[where]] = targets[:, nodes]

    def _numbers(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Int32[states, nodes]: the numbers of nodes given by what they lead to, Int32[states, nodes, 64]."""
        keys = np.ascontiguousarray(rows).view(f"V{rows.itemsize * 64}").ravel().tolist()
        numbers = []
        for key in keys:
            number = self._number.setdefault(key, len(self._first) + len(self._nodes))
            if number == len(self._first) + len(self._nodes):
                self._nodes.append(key)
            numbers.append(number)
        self._budget.require("byte_states", len(self._first) + len(self._nodes))
        return np.array(numbers, dtype=np.int32).reshape(rows.shape[:2])

    def automaton(self) -> Automaton:
        """The automaton, with one column for bytes that no state tells apart."""
        _, first, column = np.unique(np.concatenate(self._seen), axis=1, return_index=True, return_inverse=True)
        nodes = np.full((len(self._nodes), len(first)), self.dead, dtype=np.int32)
        inside = (first >= CONTINUATIONS.start) & (first < CONTINUATIONS.stop)
        entries = np.frombuffer(b"".join(self._nodes), dtype=np.int32).reshape(-1, 64)
        nodes[:, inside] = entries[:, first[inside] - CONTINUATIONS.start]
        table = np.concatenate([self._first[:, first], nodes])
        accepting = np.zeros(len(table), dtype=np.bool_)
        accepting[: len(self._dfa.table)] = self._dfa.accepting
        numbers = column.ravel().tolist()
        return Automaton(table, accepting, dict(enumerate(numbers)), default=numbers[0xFF])
