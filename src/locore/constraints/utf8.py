"""From machines over characters to machines over bytes, with what a decoder does to bytes that are no UTF-8.

The text of a sequence is `bytes.decode("utf-8", errors="replace")`: every maximal piece of an ill-formed sequence is one
U+FFFD (Unicode Standard, section 3.9, "U+FFFD Substitution of Maximal Subparts"). So a byte that cannot continue the
character before it makes that one U+FFFD and is then read from anew; the end of the text does the same.

`regular.utf8` refuses such bytes and has nothing to count, so that it can merge what is equal for all states at once; here a
state is needed wherever a broken character may still have to be read as U+FFFD.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.constraints.characters import REPLACEMENT
from locore.constraints.tally import Tally, check_size, number_rows

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bools = NDArray[np.bool_]

TRAIL = 64  # bytes 0x80 to 0xBF continue a character, six bits each
NOTHING = -1  # this byte cannot come next


@dataclass(frozen=True)
class _Beginnings:
    """The nodes of UTF-8: beginnings of characters, of one to three bytes; those that go on alike are one node.

    Attributes:
        following: Int32[nodes, 64], what each next byte leads to, or NOTHING. A column of the machine where the character is
            complete then, else a node.
        completes: Bool[nodes], which of the two.
        columns: Bool[nodes, columns], what the character may still become.
        after: for each byte that begins a character of several bytes its node.
    """

    following: Ints
    completes: Bools
    columns: Bools
    after: dict[int, int]


def over_bytes(tally: Tally) -> Tally:
    """The machine over bytes that counts in a string what `tally`, over code points, counts in the decoded string.

    Its states are those of `tally`, and then for each beginning of a character one for every set of states that do not
    differ in what this character may still become.
    """
    states, columns = tally.table.shape
    nodes = _beginnings(tally.column, columns)
    broken = int(tally.column[REPLACEMENT])
    parts, members = _parts(tally, nodes, broken)
    sizes = np.array([states, *map(len, members)])
    check_size(int(sizes.sum()), columns + TRAIL, "a constraint on characters", "use fewer or shorter strings")
    first = np.cumsum(sizes) - sizes
    column, byte_of = _byte_columns(tally.column, nodes)
    table = np.zeros((sizes.sum(), len(byte_of)), dtype=np.int32)
    gain = np.zeros_like(table)
    final = [tally.final]
    for number, byte in enumerate(byte_of):
        if byte in nodes.after:
            node = nodes.after[byte]
            table[:states, number] = first[node + 1] + parts[node]
        else:
            read = tally.column[byte] if byte < 0x80 else broken
            table[:states, number], gain[:states, number] = tally.table[:, read], tally.gain[:, read]
    trail = np.flatnonzero([0x80 <= byte < 0xC0 for byte in byte_of])
    bits = np.array(byte_of)[trail] & (TRAIL - 1)
    for node, kept in enumerate(members):
        rows = slice(first[node + 1], first[node + 1] + len(kept))
        after, counted = tally.table[kept, broken], tally.gain[kept, broken]
        table[rows], gain[rows] = table[after], gain[after] + counted[:, None]
        final.append(tally.final[after] + counted)
        targets = nodes.following[node, bits]
        numbers, targets = trail[targets != NOTHING], targets[targets != NOTHING]
        if nodes.completes[node]:
            table[rows, numbers] = tally.table[kept][:, targets]
            gain[rows, numbers] = tally.gain[kept][:, targets]
        else:
            table[rows, numbers] = np.stack([first[target + 1] + parts[target][kept] for target in targets], axis=1)
            gain[rows, numbers] = 0
    return Tally(table, gain, np.concatenate(final), column)


def _parts(tally: Tally, nodes: _Beginnings, broken: int) -> tuple[list[Ints], list[Longs]]:
    """For each node: Int32[states], equal for states that need not be told apart there, and a state of each such set."""
    known: dict[bytes, tuple[Ints, Longs]] = {}
    found = []
    for possible in nodes.columns:
        key = possible.tobytes()
        if key not in known:
            seen = np.append(np.flatnonzero(possible), broken)
            known[key] = number_rows(np.append(tally.table[:, seen], tally.gain[:, seen], axis=1))
        found.append(known[key])
    return [part for part, _ in found], [members for _, members in found]


def _beginnings(column: Ints, num_columns: int) -> _Beginnings:
    """Code points in six-bit pieces: the last byte tells 64 of them apart, the one before it 64 such blocks, and so on."""
    points = column.copy()
    points[0xD800:0xE000] = NOTHING  # surrogates have no bytes
    blocks = points.reshape(-1, TRAIL)
    block, kept_blocks = number_rows(blocks)
    pages = block.reshape(-1, TRAIL).copy()
    pages[0x0, : 0x800 >> 6] = NOTHING  # shorter spellings exist
    pages[0xD, 0x800 >> 6 :] = NOTHING  # surrogates
    page, kept_pages = number_rows(pages)
    planes = np.full((5, TRAIL), NOTHING, dtype=np.int32)
    planes.reshape(-1)[0x10:0x110] = len(kept_blocks) + page[0x10:]
    below = len(kept_blocks) + len(kept_pages)
    following = np.concatenate([blocks[kept_blocks], pages[kept_pages], planes])
    completes = np.arange(len(following)) < len(kept_blocks)
    columns = np.zeros((len(following), num_columns), dtype=np.bool_)
    for node, targets in enumerate(following):
        targets = np.unique(targets[targets != NOTHING])
        columns[node] = np.isin(np.arange(num_columns), targets) if completes[node] else columns[targets].any(axis=0)
    after = {lead: int(block[lead & 0x1F]) for lead in range(0xC2, 0xE0)}
    after |= {lead: len(kept_blocks) + int(page[lead & 0x0F]) for lead in range(0xE0, 0xF0)}
    after |= {lead: below + (lead & 0x07) for lead in range(0xF0, 0xF5)}
    return _Beginnings(following, completes, columns, after)


def _byte_columns(column: Ints, nodes: _Beginnings) -> tuple[Ints, list[int]]:
    """Int32[256], the column of each byte, and a byte of each column. Bytes that do the same everywhere share one."""
    numbers: dict[tuple[str, bytes], int] = {}
    byte_of: list[int] = []
    result = np.empty(256, dtype=np.int32)
    for byte in range(256):
        if byte < 0x80:
            key = "complete", int(column[byte]).to_bytes(4, "big")
        elif byte < 0xC0:
            key = "trail", nodes.following[:, byte & (TRAIL - 1)].tobytes()
        else:
            key = "lead", nodes.after.get(byte, NOTHING).to_bytes(4, "big", signed=True)
        result[byte] = numbers.setdefault(key, len(numbers))
        if result[byte] == len(byte_of):
            byte_of.append(byte)
    return result, byte_of
