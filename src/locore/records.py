"""Results on disk: rows that outlive the process that measured them, and files that are whole or not there."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from locore.errors import InvalidArgument

Key = tuple[str | int, ...]
Record = dict[str, Any]


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
            cut_half_line(path)
        if not path.exists() or path.stat().st_size == 0:
            self._write({"settings": wanted})
            return
        header, *records = self._read()
        self._check(header, wanted)
        for record in records:
            self._rows[tuple(record.pop("key"))] = record

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
        found = header.get("settings") if isinstance(header, dict) else None
        if not isinstance(found, dict):
            raise InvalidArgument(f"{self.path} is no journal of results; choose another folder.")
        differ = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
        if differ:
            what = "; ".join(f"{name} is {found.get(name)!r} there and {wanted.get(name)!r} now" for name in differ)
            raise InvalidArgument(f"{self.path} holds results of other settings ({what}); choose another folder, or remove it.")


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


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a process that is killed leaves the old one or the new one, never half of it."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def machine() -> dict[str, Any]:
    """What it ran on; no paths, no host."""
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


def write_report(
    folder: Path, title: str, text: str, rows: list[Record], columns: list[str], *, after: str = "", **facts: Any
) -> None:
    """`results.json` (all fields of all rows) and `table.md` (the columns, under a title and a text).

    Args:
        after: Markdown that follows the table.
        facts: more fields of `results.json`, such as the settings.
    """
    record = {"title": title, **facts, "machine": machine(), "rows": rows}
    write_whole(folder / "results.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    parts = [f"# {title}", text, markdown_table(rows, columns), after]
    write_whole(folder / "table.md", "\n\n".join(part for part in parts if part) + "\n")


def markdown_table(rows: list[Record], columns: list[str]) -> str:
    """Fields of rows as a table; numbers with sensible digits, what a row lacks as a dash."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(_shown(row.get(column)) for column in columns)} |" for row in rows]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"
    return str(value)
