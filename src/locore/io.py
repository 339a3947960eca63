"""Files that are whole or not there, rows that outlive the process that made them, and JSON from anybody, read strictly."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from locore.kernel.errors import InvalidArgument

Key = tuple[str | int, ...]
Record = dict[str, Any]
MOST_LETTERS = 120  # of a setting, in a message
START = b'{"settings":'  # of a journal
NO_JOURNAL = "is no journal of results; choose another folder."
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?')


class Journal:
    """Rows of a long run in a JSONL file, each written when it is known: a run that was killed goes on where it stopped.

    The first line holds the settings; each other line has a key, and no key comes twice.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Open a file, which need not exist; half a line at its end is cut off.

        Args:
            path: of the file.
            settings: what all rows have in common; plain JSON values.

        Raises:
            InvalidArgument: the file holds rows of other settings, or is no journal.
        """
        self.path = path
        self._rows: dict[Key, Record] = {}
        wanted = json.loads(json.dumps(dict(settings)))
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._check_start()
            cut_half_line(path)
        if not path.exists() or path.stat().st_size == 0:
            self._write({"settings": wanted})
            return
        header, *records = self._read()
        self._check(header, wanted)
        for record in records:
            self._rows[tuple(record.pop("key"))] = record

    def _check_start(self) -> None:
        """Nothing is cut off what is no journal."""
        with self.path.open("rb") as file:
            start = file.read(len(START))
        if not START.startswith(start):
            raise InvalidArgument(f"{self.path} {NO_JOURNAL}")

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def __getitem__(self, key: Key) -> Record:
        return self._rows[key]

    def items(self) -> Iterator[tuple[Key, Record]]:
        """All rows in the order in which they were written."""
        yield from self._rows.items()

    def append(self, key: Key, record: Record) -> None:
        """Write one more row; it is on the disk when this returns."""
        if key in self._rows:
            raise InvalidArgument(f"{self.path} has a row {key} already.")
        self._write({"key": list(key), **record})
        self._rows[key] = json.loads(json.dumps(record))

    def _write(self, record: Record) -> None:
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record, separators=(",", ":")) + "\n")
            lines.flush()
            os.fsync(lines.fileno())

    def _read(self) -> list[Record]:
        try:
            return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{self.path} is damaged ({error}); remove it, or choose another folder.") from None

    def _check(self, header: Any, wanted: Mapping[str, Any]) -> None:
        settings = header.get("settings") if isinstance(header, dict) else None
        if not isinstance(settings, dict):
            raise InvalidArgument(f"{self.path} {NO_JOURNAL}")
        require_same(self.path, settings, wanted)


def require_same(path: Path, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Are the settings in a file those of now?

    Raises:
        InvalidArgument: they are not.
    """
    differ = [name for name in {**there, **wanted} if there.get(name) != wanted.get(name)]
    if differ:
        what = "; ".join(f"{name} is {_short(there.get(name))} there and {_short(wanted.get(name))} now" for name in differ)
        raise InvalidArgument(f"{path} holds results of other settings ({what}); choose another folder, or remove it.")


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= MOST_LETTERS else f"{shown[:MOST_LETTERS]}…"


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """A folder that one process at a time writes to.

    Raises:
        InvalidArgument: another process is writing to it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    path = folder / ".lock"
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidArgument(f"another run is writing to {folder}; wait for it, or choose another folder.") from None
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()


def cut_half_line(path: Path) -> None:
    """A process that was killed may leave one; what is appended to it would be lost."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)


@contextmanager
def replacing(path: Path, synced: bool = True) -> Iterator[Path]:
    """A file to write beside `path`, which takes its place when the block ends, and goes if the block fails.

    A reader, a second writer or a kill at any moment finds the old file or the new one, never half of one.

    Args:
        path: of the file.
        synced: wait until it is on the disk, so that a failure of the machine cannot halve it either.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        if synced:
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def machine() -> dict[str, Any]:
    """What it ran on; no paths, no host."""
    import torch  # the shell reads JSON without it

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


class NotJson(ValueError):
    """A text that cannot be read; the message goes on after its name: "is no JSON: ..." or "is nested ..."."""


def parse(text: str, max_depth: int | None = None) -> Any:
    """The value of a JSON text.

    Args:
        text: one value.
        max_depth: how deeply objects and lists may be nested; as deeply as Python allows if None.

    Raises:
        NotJson: no JSON, nested too deeply, a name twice in one object, or a number that JSON does not have.
    """
    if max_depth is not None and _depth(text) > max_depth:
        raise NotJson(f"is nested deeper than {max_depth}; make it flatter")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except NotJson:
        raise
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in text else ""  # one of many rows is not the first line to whoever reads this
        raise NotJson(f"is no JSON: {error.msg} at {line}column {error.colno}") from None
    except RecursionError:
        raise NotJson("is nested too deeply; make it flatter") from None
    except ValueError:
        raise NotJson("holds a number with too many digits; shorten it") from None


def _depth(text: str) -> int:
    """How deeply brackets are nested, those in strings left out; linear in the length."""
    depth = deepest = 0
    for character in _STRING.sub("", text):
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise NotJson(f"is ambiguous: the field {name!r} stands twice in one object; keep one of them")
        members[name] = value
    return members


def _no_constant(name: str) -> Any:
    raise NotJson(f"holds {name}, which is no number of JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise NotJson(f"holds the number {digits}, which is too large")
    return value
