"""Machines that search a text for phrases: how often they occur, in which order, and whether at the start or the end.

An occurrence may be asked to cut no word: at neither of its ends do a character of a word inside and one outside meet. What
follows an occurrence is seen only after it. One that ends inside a word is therefore pending until the next character, or
the end of the text, settles it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from locore.automata.characters import NUM_CODE_POINTS, REPLACEMENT, Manner, continuing, folded, word_characters
from locore.automata.machines import NUM_BYTES, Tally, check_size, minimised, over_bytes, pushed
from locore.kernel.automata.tables import Trie, number_rows, search_table
from locore.kernel.errors import BudgetExceeded
from locore.kernel.limits import check_states

Ints = NDArray[np.int32]
Bools = NDArray[np.bool_]
MOST_SPELLINGS = 10_000  # of phrases with marks in several orders


def occurrences(phrases: Collection[str], manner: Manner) -> Tally:
    """Counts the pairs of a phrase and a place where it occurs; occurrences may overlap."""
    search = _Search.of(phrases, manner)
    matches = search.anywhere(manner.distinct(phrases))
    return search.tally(*search.settled(matches))


def at_start(phrase: str, manner: Manner) -> Tally:
    """1 if the text starts with the phrase, else 0."""
    search = _Search.of([phrase], manner)
    return search.tally(*search.settled(search.from_start(manner.distinct([phrase]))))


def at_end(phrase: str, manner: Manner) -> Tally:
    """1 if the text ends with the phrase, else 0."""
    search = _Search.of([phrase], manner)
    matches = search.anywhere(manner.distinct([phrase]))
    return search.tally(matches.table, np.zeros_like(matches.table), matches.ends)


def whole(phrases: Collection[str], manner: Manner) -> Tally:
    """1 if the text is one of the phrases, else 0."""
    search = _Search.of(phrases, manner)
    matches = search.from_start(manner.distinct(phrases))
    return search.tally(matches.table, np.zeros_like(matches.table), matches.ends)


def in_order(phrases: Sequence[str], manner: Manner) -> Tally:
    """1 if the phrases occur one after the other without overlap, else 0.

    For each phrase the first occurrence is the one to take, so one search follows the other. They are put together from the
    last to the first, behind the state 0 in which all has been found.
    """
    search = _Search.of(phrases, manner)
    table = gain = np.zeros((1, len(search.inside)), dtype=np.int32)
    final = np.zeros(1, dtype=np.int32)
    start = after_word = 0
    for phrase in reversed(phrases):
        matches = search.anywhere(manner.distinct([phrase]))
        first, is_last = len(table), start == 0
        # A character that settles a pending occurrence is the first that the next search reads.
        before = (matches.pending > 0)[:, None] & ~matches.cutting
        now = (matches.ends > matches.pending)[matches.table]
        begin = np.where(matches.inside, after_word, start)
        target = np.where(before, table[begin], np.where(now, start, first + matches.table))
        counted = np.where(before, 1 if is_last else gain[begin], now & is_last)
        table, gain = np.append(table, target, axis=0), np.append(gain, counted, axis=0)
        final = np.append(final, matches.pending if is_last else np.zeros_like(matches.pending))
        start, after_word = first, len(table) - 1
    # A machine starts in state 0.
    table = np.roll((table - start) % len(table), -start, axis=0).astype(np.int32)
    return search.tally(table, np.roll(gain, -start, axis=0).astype(np.int32), np.roll(final, -start))


@dataclass(frozen=True)
class _Matches:
    """Which phrases have just been read, in every state of a search.

    Attributes:
        table: Int32[states, columns], the next state; state 0 is the start, the last state follows a character of a word
            with which nothing begins.
        ends: Int32[states], how many phrases end here.
        pending: Int32[states], how many of them may yet turn out to cut a word or a letter: all or none.
        cutting: Bool[states, columns], the characters by which they turn out to do so.
        inside: Bool[states], was the last character of a phrase one of a word?
    """

    table: Ints
    ends: Ints
    pending: Ints
    cutting: Bools
    inside: Bools


@dataclass(frozen=True)
class _Search:
    """What the machines that search for some phrases read.

    Attributes:
        column: Int32[symbols]; symbols are bytes where that says all, else code points.
        manner: how phrases are compared.
        inside: Bool[columns], which columns are characters of words; none if words do not matter.
        continuing: Bool[columns], which belong to the letter before them; none if that does not matter.
        several: the columns of code points that are several characters, and these code points.
        space: the column of whitespace, whose runs are read as one; -1 if they are not.
    """

    column: Ints
    manner: Manner
    inside: Bools
    continuing: Bools
    several: dict[tuple[int, ...], NDArray[np.int64]]
    space: int = -1

    @classmethod
    def of(cls, phrases: Collection[str], manner: Manner) -> _Search:
        """One column for each symbol of the phrases, and one or two for all others."""
        distinct = manner.distinct(phrases)
        text = "".join(distinct)
        if manner == Manner() and chr(REPLACEMENT) not in text:  # what is found in the bytes is found in the text
            used = np.unique(np.frombuffer(text.encode(), dtype=np.uint8))
            column = np.full(NUM_BYTES, len(used), dtype=np.int32)
            column[used] = np.arange(len(used))
            nothing = np.zeros(len(used) + 1, dtype=np.bool_)
            return cls(column, manner, nothing, nothing, {})
        used = np.unique(_code_points(text + " " if manner.normalise else text))
        # Other characters are told apart by what they may cut.
        kinds = [word_characters() if manner.words else None, continuing() if manner.normalise else None]
        kind = np.zeros(NUM_CODE_POINTS, dtype=np.uint8)
        for bit, flags in enumerate(kinds):
            kind += 0 if flags is None else flags.astype(np.uint8) << bit
        occurring = np.flatnonzero(np.bincount(kind))
        column = len(used) + np.searchsorted(occurring, np.arange(4)).astype(np.int32)[kind]
        column[used] = np.arange(len(used))
        column_kind: NDArray[np.int64] = np.append(kind[used].astype(np.int64), occurring)
        inside, cuts = (column_kind & 1) > 0, (column_kind & 2) > 0
        if not manner.ignore_case and not manner.normalise:
            return cls(column, manner, inside, cuts, {})
        table, expanded = folded(manner.ignore_case, manner.normalise)
        parts = np.array([*expanded.values()]).view(np.uint32).reshape(len(expanded), -1)  # the shorter ones end in zeros
        columns, points = np.where(parts > 0, column[parts], -1), np.array([*expanded])
        row, first = number_rows(columns)
        several = {tuple(path[path >= 0].tolist()): points[row == number] for number, path in enumerate(columns[first])}
        space = int(column[ord(" ")]) if manner.normalise else -1
        return cls(column[table], manner, inside, cuts, several, space)

    def anywhere(self, phrases: list[str]) -> _Matches:
        """The search in the whole text, in which no occurrence starts inside a word."""
        trie = self._trie(phrases)
        return self._matches(trie, *search_table(trie, self.inside))

    def from_start(self, phrases: list[str]) -> _Matches:
        """The search at the start of the text only; the last state means that it has failed."""
        trie = self._trie(phrases)
        table = np.full((trie.num_nodes + 1, len(self.inside)), trie.num_nodes, dtype=np.int32)
        for parents, columns, children in trie.levels:
            table[parents, columns] = children
        return self._matches(trie, table, np.append(trie.ends, 0))

    def _matches(self, trie: Trie, table: Ints, ends: Ints) -> _Matches:
        inside = np.zeros(len(table), dtype=np.bool_)
        for _, columns, children in trie.levels:
            inside[children] = self.inside[columns]
        cutting = self.continuing | (self.inside & inside[:, None])
        return _Matches(table, ends, np.where(cutting.any(1), ends, 0), cutting, inside)

    def settled(self, matches: _Matches) -> tuple[Ints, Ints, Ints]:
        """Table, gain and final of the machine that counts occurrences as soon as they are settled."""
        now = (matches.ends - matches.pending)[matches.table]
        return matches.table, now + np.where(matches.cutting, 0, matches.pending[:, None]), matches.pending

    def tally(self, table: Ints, gain: Ints, final: Ints) -> Tally:
        """The machine over bytes."""
        if len(self.column) == NUM_BYTES:
            return Tally(table, gain, final, self.column)
        if self.space >= 0:
            table, gain, final = self._spaces_once(table, gain, final)
        column = self.column.copy()
        for columns, points in self.several.items():
            target, counted = np.arange(len(table)), np.zeros(len(table), dtype=np.int32)
            for each in columns:
                counted, target = counted + gain[target, each], table[target, each]
            column[points] = table.shape[1]
            table, gain = np.column_stack([table, target]), np.column_stack([gain, counted])
        return over_bytes(minimised(pushed(Tally(table, gain, final, column))))

    def _spaces_once(self, table: Ints, gain: Ints, final: Ints) -> tuple[Ints, Ints, Ints]:
        """The same, of which a space behind another one is not read: behind a space it is in a second copy of each state."""
        states = len(table)
        once = table.copy()
        once[:, self.space] += states
        again, nothing = once.copy(), gain.copy()
        again[:, self.space], nothing[:, self.space] = states + np.arange(states), 0
        return np.append(once, again, axis=0), np.append(gain, nothing, axis=0), np.append(final, final)

    def _trie(self, phrases: list[str]) -> Trie:
        phrases = [spelling for phrase in phrases for spelling in islice(self.manner.spellings(phrase), MOST_SPELLINGS + 1)]
        if len(phrases) > MOST_SPELLINGS and self.manner.normalise:
            raise BudgetExceeded(
                f"normalise=True makes more than {MOST_SPELLINGS:,} spellings of these phrases, in which marks stand in other "
                "orders; use fewer or shorter phrases"
            )
        text = "".join(phrases)
        if len(self.column) == NUM_BYTES:
            columns = self.column[np.frombuffer(text.encode(), dtype=np.uint8)]
            lengths = [len(phrase.encode()) for phrase in phrases]
        else:
            columns, lengths = self.column[_code_points(text)], [len(phrase) for phrase in phrases]
        what, remedy = f"a search for {len(phrases):,} phrases", "use fewer or shorter ones"
        check_states(max(lengths, default=0), what, remedy)  # the trie grows by a level for each character
        trie = Trie.of(columns, np.array(lengths))
        check_size(trie.num_nodes, len(self.inside), what, remedy)
        return trie


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
