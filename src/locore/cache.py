"""What Locore computed and can compute again: in memory within a bound, and in files, written whole and checked when read."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from locore.io import replacing

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Notes = dict[str, str]
MOST_FILES = 4096  # of a folder: to look at each takes time
ABANDONED_SECONDS = 3600.0  # a temporary file of this age belongs to a writer that was killed


class Kept(Generic[K, V]):
    """Values by key, of which all together may not be larger than a bound. Threads may share it."""

    def __init__(self, most: float, size: Callable[[V], float] = lambda value: 1.0) -> None:
        """Nothing has been kept.

        Args:
            most: that all sizes together may be.
            size: of one value; what is larger than all may be is not kept.
        """
        self._most, self._size, self.total = most, size, 0.0  # all sizes together
        self._values: OrderedDict[K, tuple[V, float]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """What was put there; None if nothing was, or it is gone."""
        with self._lock:
            entry = self._values.get(key)
            if entry is None:
                return None
            self._values.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V) -> V:
        """Keep a value, which is given back."""
        size = self._size(value)
        if size > self._most:
            return value
        with self._lock:
            self.total += size - self._values.pop(key, (value, 0.0))[1]
            self._values[key] = value, size
            self._drop()
        return value

    def weigh(self) -> None:
        """Ask for all sizes anew, where values grow with use. What is larger than all may be goes first."""
        with self._lock:
            sizes = {key: self._size(value) for key, (value, _) in self._values.items()}
            for key in [key for key, size in sizes.items() if size > self._most]:
                del self._values[key], sizes[key]
            self._values = OrderedDict((key, (self._values[key][0], size)) for key, size in sizes.items())
            self.total = sum(sizes.values())
            self._drop()

    def _drop(self) -> None:
        """What was not used for longest, until the rest fits."""
        while self.total > self._most:
            self.total -= self._values.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Keep nothing any more."""
        with self._lock:
            self._values.clear()
            self.total = 0.0


def cache_folder() -> Path:
    """Where Locore keeps what it computed: `$LOCORE_CACHE`, or `~/.cache/locore`."""
    return Path(os.environ.get("LOCORE_CACHE") or Path.home() / ".cache" / "locore")


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Notes] | None:
    """What `write_tensors` wrote; None if there is no such file, or a damaged one, which is removed.

    The file counts as used now.
    """
    try:
        content = path.read_bytes()  # not mapped into memory: nobody can cut it short while it is read
    except OSError:
        return None
    parsed = _parsed(content)
    with suppress(OSError):  # somebody else's file, or gone meanwhile
        path.unlink() if parsed is None else os.utime(path)
    return parsed


def write_tensors(path: Path, tensors: dict[str, Tensor], notes: Notes) -> bool:
    """Write a file at once, so that a reader or a second writer never sees half of it. Was it possible?

    A folder that cannot be written to, or a full disk, is no error: the next one computes again.

    Args:
        tensors: none of them may share memory with another.
        notes: small remarks; `checksum` is taken.
    """
    content = save(tensors, {**notes, "checksum": _checksum(tensors, notes)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, synced=False) as temporary:  # a checksum tells
            temporary.write_bytes(content)
    except OSError:
        return False
    return True


def keep_within(folder: Path, most_bytes: int, most_files: int = MOST_FILES) -> None:
    """Remove the files of a folder that were not used for longest, until there are at most so many, of so many bytes together.

    Files that another process removes meanwhile, or that must not be removed, are no error.
    """
    files: list[tuple[float, int, Path]] = []  # last used, size
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
    total, number = sum(size for _, size, _ in files), len(files)
    abandoned = time.time() - ABANDONED_SECONDS
    for used, size, path in sorted(files):
        is_temporary = path.suffix == ".tmp"
        if used < abandoned if is_temporary else total > most_bytes or number > most_files:
            with suppress(OSError):
                path.unlink()
                total, number = total - size, number - 1


def _parsed(content: bytes) -> tuple[dict[str, Tensor], Notes] | None:
    """Tensors and notes of a file; None if it is not exactly what was written."""
    try:
        tensors = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        notes: Notes = header["__metadata__"]
        checksum = notes.pop("checksum")
    except (SafetensorError, ValueError, KeyError):
        return None
    return (tensors, notes) if checksum == _checksum(tensors, notes) else None


def _checksum(tensors: dict[str, Tensor], notes: Notes) -> str:
    """A sha256 of names, types, shapes, numbers and notes."""
    digest = hashlib.sha256(json.dumps(sorted(notes.items())).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
