"""Which files are GGUF, and what stands before the weights in one: metadata, and which tensors there are.

The reader of the package `gguf` takes seconds for it, and fails on damaged files in many ways.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from locore.kernel.errors import ModelNotFound

MAGIC = b"GGUF"
SUFFIX = ".gguf"
Value = int | float | str
VERSIONS = (2, 3)
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_ALIGNMENT = "general.alignment"


class DamagedFile(ModelNotFound):
    """A GGUF file that is not whole."""

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(f"{path} is damaged or cut short: {why}. Get the file again.")


class NotInTransformers(ModelNotFound):
    """A GGUF file that is whole as far as is known, but nothing that `transformers` reads."""


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file.

    Attributes:
        name: as `gguf` calls it, such as "blk.0.attn_q.weight".
        numbers: how many it has.
        kind: number of its format, as `gguf.GGMLQuantizationType`.
        start: byte of the file where it begins.
    """

    name: str
    numbers: int
    kind: int
    start: int


@dataclass(frozen=True)
class Header:
    """Metadata and tensors.

    Attributes:
        metadata: numbers and texts; of arrays, how many elements they have.
        tensors: in the order of the file.
        size: bytes of the file.
    """

    metadata: Mapping[str, Value]
    tensors: tuple[TensorEntry, ...]
    size: int

    def text(self, key: str) -> str | None:
        """A text of the metadata; None if there is none."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) and value else None


def provenance(text: Callable[[str], str | None]) -> str | None:
    """Who published a model, under which name and where, by the texts of its metadata."""
    names = [text("general.organization") or text("general.author"), text("general.name")]
    where = text("general.source.url") or text("general.url") or text("general.repo_url")
    return ", ".join(name for name in (*names, where) if name) or None


def is_gguf(path: Path) -> bool:
    """Is this a GGUF file, by its first bytes?

    Raises:
        ModelNotFound: its name ends as that of one, but it is none, or there is no such file.
    """
    named = path.suffix.lower() == SUFFIX
    if not path.is_file():
        if named and not path.is_dir():
            raise ModelNotFound(f"There is no file {path}. Check the path.")
        return False
    try:
        with path.open("rb") as file:
            has_magic = file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise ModelNotFound(f"Cannot read {path}: {error.strerror}. Check its permissions.") from error
    if named and not has_magic:
        raise ModelNotFound(f'{path} is no GGUF file: it does not begin with "GGUF". Get the file again.')
    return has_magic


def read_header(path: Path) -> Header:
    """Read it.

    Raises:
        ModelNotFound: the file is damaged, or of a version that is not read.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            return _Reader(file, path, size).header()
    except (struct.error, UnicodeDecodeError) as error:
        raise DamagedFile(path, "its header makes no sense") from error


class _Reader:
    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self._file = file
        self._path = path
        self._size = size
        self._order = "<"

    def header(self) -> Header:
        self._bytes(len(MAGIC))
        version = self._number("I")
        if version & 0xFFFF == 0:  # the bytes are in the other order
            self._order, version = ">", int.from_bytes(struct.pack("<I", version), "big")
        if version not in VERSIONS:
            raise ModelNotFound(
                f"{self._path} is a GGUF file of version {version}; versions {VERSIONS[0]} and {VERSIONS[1]} are read. "
                "Convert it with a newer llama.cpp."
            )
        tensors, pairs = self._number("Q"), self._number("Q")
        metadata = dict(self._pair() for _ in range(pairs))
        entries = [self._entry() for _ in range(tensors)]
        alignment = metadata.get(_ALIGNMENT, 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise DamagedFile(self._path, "its alignment makes no sense")
        data = -(-self._file.tell() // alignment) * alignment
        shifted = tuple(TensorEntry(name, numbers, kind, data + offset) for name, numbers, kind, offset in entries)
        return Header(metadata, shifted, self._size)

    def _pair(self) -> tuple[str, Value]:
        key = self._string()
        return key, self._value(self._number("I"))

    def _entry(self) -> tuple[str, int, int, int]:
        name = self._string()
        numbers = 1
        for _ in range(self._number("I")):
            numbers *= self._number("Q")
        return name, numbers, self._number("I"), self._number("Q")

    def _value(self, kind: int) -> Value:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._skipped(self._number("I"), self._number("Q"))
        if kind not in _FORMATS:
            raise DamagedFile(self._path, f"a value has the unknown type {kind}")
        value: Value = struct.unpack(self._order + _FORMATS[kind], self._bytes(struct.calcsize("<" + _FORMATS[kind])))[0]
        return value

    def _skipped(self, kind: int, count: int) -> int:
        """The number of elements of an array, which is read over."""
        if kind == _STRING:
            for _ in range(count):
                self._over(self._number("Q"))
        elif kind in _FORMATS:
            self._over(count * struct.calcsize("<" + _FORMATS[kind]))
        else:
            raise DamagedFile(self._path, f"an array has elements of the unknown type {kind}")
        return count

    def _number(self, code: str) -> int:
        number: int = struct.unpack(self._order + code, self._bytes(struct.calcsize("<" + code)))[0]
        return number

    def _string(self) -> str:
        return self._bytes(self._number("Q")).decode()

    def _over(self, count: int) -> None:
        self._require(count)
        self._file.seek(count, 1)

    def _bytes(self, count: int) -> bytes:
        self._require(count)
        return self._file.read(count)

    def _require(self, count: int) -> None:
        if count > self._size - self._file.tell():
            raise DamagedFile(self._path, f"it ends within its header, after {self._size:,} bytes")
