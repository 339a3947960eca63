"""Results of a shard on disk: a part that grows row by row, and a file that is whole or not there.

A part belongs to one attempt at a shard and is written by nobody else, so two attempts at the same shard (an engine may take a
slow worker for a dead one) cannot mix their rows. The next attempt copies what the last ones had finished, and goes on. The
finished part is renamed: whoever comes second replaces equal rows by equal rows.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from locore.batch.plan import Span
from locore.batch.rows import Record, encode, whole_rows
from locore.batch.tally import Tally
from locore.errors import InvalidArgument


class Part:
    """The rows of one attempt at a shard.

    Attributes:
        tally: of the rows in it, those of earlier attempts included.
        adopted: how many of them are of earlier attempts.
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
        with writing(self._output):
            found = {path: _size(path, span.first) for path in self._others()}
            longest = max(found, key=lambda path: found[path][0], default=None)
            rows, num_bytes = (0, 0) if longest is None else found[longest]
            self._file = self.path.open("wb")
            if longest is not None:
                self._copy(longest, num_bytes)
            self.adopted = rows
            ended_here = {path for path in found if found[path][0] == rows and path.name.startswith(f"{self._shard}{run}.")}
            self.deaths = len(ended_here)
            _remove(found.keys() - ended_here)

    def __enter__(self) -> Part:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # What is in it stays for the next attempt.
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
                self.tally.add(json.loads(line))
        self._file.flush()


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
