"""Shards of a batch: which lines of the input belong together, found in one pass that keeps nothing; and their results on disk.

A part grows row by row. It belongs to one attempt at a shard and is written by nobody else, so two attempts at the same shard
(an engine may take a slow worker for a dead one) cannot mix their rows. The next attempt copies what the last ones had
finished, and goes on. The finished part is renamed: whoever comes second replaces equal rows by equal rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from locore.batch.rows import MAX_ROW_BYTES, Record, Tally, encode, whole_rows
from locore.kernel.errors import InvalidArgument

CHUNK = 1 << 18  # bytes read at once
MAX_SHARDS = 100_000  # files in one folder, and what a driver on Ray can hold
DIGEST_BYTES = 16
DIED = "WorkerDied"  # the error of a row at which workers have died


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


class Part:
    """The rows of one attempt at a shard.

    Attributes:
        tally: of the rows in it, those of earlier attempts included.
        adopted: how many of them are of earlier attempts.
        died: lines among these at which workers have died.
        deaths: attempts of this run that ended at the row that comes next.
    """

    def __init__(self, output: Path, span: Span, run: str) -> None:
        """Begin, with what earlier attempts have finished.

        Args:
            output: folder of the batch.
            span: of the shard.
            run: a name for the life of one driver.
        """
        self._final = results_path(output, span.number)
        self._output, self._folder = output, parts_folder(output)
        self._shard = f"{span.number:06d}."
        self.path = self._folder / f"{self._shard}{run}.{uuid.uuid4().hex[:12]}.part"
        self.tally = Tally()
        self.died = set[int]()
        with writing(self._output):
            sizes = {path: _size(path, span.first) for path in self._others()}
            longest = max(sizes, key=lambda path: sizes[path][0], default=None)
            rows, num_bytes = (0, 0) if longest is None else sizes[longest]
            self._file = self.path.open("wb")
            if longest is not None:
                self._copy(longest, num_bytes)
            self.adopted = rows
            ended_here = {path for path in sizes if sizes[path][0] == rows and path.name.startswith(f"{self._shard}{run}.")}
            self.deaths = len(ended_here)
            _remove(sizes.keys() - ended_here)

    def __enter__(self) -> Part:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # What is in it stays for the next attempt.
        with writing(self._output) if error is None else suppress(OSError):  # a full disk has been told
            self._file.close()

    def append(self, row: Record) -> None:
        """Write one more row. It outlives this process; after a failure of the machine it may have to be computed again."""
        with writing(self._output):
            self._file.write(encode(row))
            self._file.flush()
        self.tally.add(row)

    def finish(self) -> Record:
        """Make it the shard's file of results, safe on the disk; the tally and the number of bytes."""
        with writing(self._output):
            os.fsync(self._file.fileno())
            num_bytes = self._file.tell()
            self._file.close()
            try:
                self.path.replace(self._final)
            except FileNotFoundError:
                if not self._final.exists():  # otherwise another attempt was faster, and has tidied up
                    raise
            _sync(self._final.parent)
            _remove(self._others())
        return {**self.tally.to_json(), "bytes": num_bytes}

    def _others(self) -> set[Path]:
        return {path for path in self._folder.iterdir() if path.name.startswith(self._shard) and path != self.path}

    def _copy(self, source: Path, num_bytes: int) -> None:
        with source.open("rb") as lines:
            while lines.tell() < num_bytes:
                line = lines.readline()
                self._file.write(line)
                row = json.loads(line)
                self.tally.add(row)
                if row.get("error", {}).get("type") == DIED:
                    self.died.add(row["line"])
        self._file.flush()


def tally_of(path: Path, span: Span) -> Record | None:
    """The tally of the file of results of a shard; None if these are not exactly the rows that it should have."""
    tally, size = Tally(), 0
    for row, num_bytes in whole_rows(path, span.first):
        tally.add(row)
        size += num_bytes
    return tally.to_json() if tally.rows == span.rows and size == path.stat().st_size else None


def parts_folder(output: Path) -> Path:
    """Where the shards lie that are being worked on."""
    return output / "parts"


def results_folder(output: Path) -> Path:
    """Where the finished ones lie; their names in order give the order of the input."""
    return output / "results"


def results_path(output: Path, shard: int) -> Path:
    """The file of a finished shard."""
    return results_folder(output) / f"{shard:06d}.jsonl"


def remove_parts(output: Path) -> None:
    """What is left of attempts, once every shard has its results."""
    with suppress(OSError):  # somebody else's files; they do no harm
        _remove(set(parts_folder(output).iterdir()))
        parts_folder(output).rmdir()


def _size(path: Path, first: int) -> tuple[int, int]:
    """Whole rows of a part, and their bytes."""
    sizes = [num_bytes for _, num_bytes in whole_rows(path, first)]
    return len(sizes), sum(sizes)


def _remove(paths: set[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """The name of a renamed file is safe on the disk, where the system can do that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def writing(output: Path) -> Iterator[None]:
    """Say an error of the file system in one sentence.

    Raises:
        InvalidArgument: the folder cannot be written to, or the disk is full.
    """
    try:
        yield
    except OSError as error:
        raise InvalidArgument(
            f"cannot write to {output}: {error.strerror}; what is there is kept, and --resume goes on from it."
        ) from error
