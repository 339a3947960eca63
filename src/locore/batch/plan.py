"""Which lines of the input belong together: shards of equally many rows, found in one pass that keeps nothing."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from locore.errors import InvalidArgument

CHUNK = 1 << 18  # bytes read at once
MAX_SHARDS = 100_000  # files in one folder, and what a driver on Ray can hold
MAX_ROW_BYTES = 16_000_000
DIGEST_BYTES = 16


@dataclass(frozen=True)
class Span:
    """The lines of one shard.

    Attributes:
        number: of the shard, from 0.
        first: number of its first line, from 1.
        rows: how many there are.
        start: offset of its first byte in the file.
        end: offset after its last byte.
        digest: of these bytes.
    """

    number: int
    first: int
    rows: int
    start: int
    end: int
    digest: str


class Plan:
    """All shards of a file; 24 bytes of memory for each.

    Attributes:
        path: of the file.
        rows: its lines; the last need not end with a line break.
        shard_rows: lines in a shard; the last one may have fewer.
        num_bytes: of the file.
        digest: of the whole file.
    """

    def __init__(self, path: Path, shard_rows: int) -> None:
        """Read a file once.

        Raises:
            InvalidArgument: it cannot be read, is empty, or has too many rows for shards of this size.
        """
        if shard_rows < 1:
            raise InvalidArgument(f"shard_rows must be at least 1, got {shard_rows}.")
        self.path = path
        self.shard_rows = shard_rows
        self.rows = 0
        self._ends = array("q")
        self._digests = bytearray()
        self._position = 0
        self._hash = hashlib.sha256()
        last = b"\n"
        try:
            if not path.is_file():
                what = "is no file" if path.exists() else "is not there"
                raise InvalidArgument(f"{path} {what}; give a file with one JSON object a line.")
            with path.open("rb") as file:
                self.num_bytes = path.stat().st_size
                while chunk := file.read(CHUNK):
                    self._add(chunk)
                    last = chunk[-1:]
        except OSError as error:
            raise InvalidArgument(f"cannot read {path}: {error.strerror}; give a file with one JSON object a line.") from error
        self.num_bytes = self._position
        self.rows += last != b"\n"
        if not self._ends or self._ends[-1] < self._position:
            self._close(self._position)
        if not self.rows:
            raise InvalidArgument(f"{path} is empty; it should have one JSON object a line.")
        self.digest = hashlib.sha256(self._digests).hexdigest()[: 2 * DIGEST_BYTES]

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> Span:
        start = self._ends[number - 1] if number else 0
        digest = self._digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES].hex()
        before = number * self.shard_rows
        return Span(number, before + 1, min(self.shard_rows, self.rows - before), start, self._ends[number], digest)

    def _add(self, chunk: bytes) -> None:
        missing = self.shard_rows - self.rows % self.shard_rows
        lines = chunk.count(b"\n")
        done = 0
        if lines >= missing:
            breaks = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n"))
            for after in (breaks[missing - 1 :: self.shard_rows] + 1).tolist():
                self._hash.update(chunk[done:after])
                self._close(self._position + after)
                done = after
        self._hash.update(chunk[done:])
        self._position += len(chunk)
        self.rows += lines

    def _close(self, end: int) -> None:
        self._ends.append(end)
        self._digests += self._hash.digest()[:DIGEST_BYTES]
        self._hash = hashlib.sha256()
        if len(self._ends) > MAX_SHARDS:
            rows = self.shard_rows * len(self._ends) * self.num_bytes // end + 1  # if all are as long as these
            enough = -(-rows // MAX_SHARDS)
            raise InvalidArgument(
                f"{self.path} makes more than {MAX_SHARDS:,} shards of {self.shard_rows:,} rows; give --shard-rows, about "
                f"{enough} or more."
            )


def lines_of(path: Path, span: Span, skip: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a shard after the first `skip`, with their numbers from 1 and without their line breaks.

    Of a line of more than `MAX_ROW_BYTES` only the beginning is given, one byte longer than that: it cannot fill the memory.

    Raises:
        InvalidArgument: the file cannot be read, or its bytes are not those that the plan saw.
    """
    try:
        with path.open("rb") as file:
            if _digest(file, span) != span.digest:
                raise InvalidArgument(f"{path} was changed while the run went on (from line {span.first} on); restore it.")
            file.seek(span.start)
            number = span.first
            while file.tell() < span.end:
                piece = line = file.readline(MAX_ROW_BYTES + 1)
                while piece and not piece.endswith(b"\n"):
                    piece = file.readline(MAX_ROW_BYTES)
                if number >= span.first + skip:
                    yield number, line.rstrip(b"\r\n")
                number += 1
    except OSError as error:
        raise InvalidArgument(f"cannot read {path}: {error.strerror}; every worker must see it under this name.") from error


def _digest(file: BinaryIO, span: Span) -> str:
    file.seek(span.start)
    digest, left = hashlib.sha256(), span.end - span.start
    while left and (chunk := file.read(min(CHUNK, left))):
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()[: 2 * DIGEST_BYTES]
