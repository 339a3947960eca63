"""What all experiments need: seeds, progress, pictures, and checkpoints that survive a kill."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from rich.console import Console
from rich.progress import track

from locore.io import replacing
from locore.kernel.errors import InvalidArgument

Item = TypeVar("Item")


def seed_of(*parts: object) -> int:
    """A seed that depends on what is drawn, not on the order."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=4).digest(), "little") >> 1


def shown(todo: Sequence[Item], what: str) -> Iterable[Item]:
    """The items, with a progress bar on standard error; none where there is nothing to do."""
    return track(todo, what, console=Console(stderr=True, force_terminal=sys.stderr.isatty()), disable=not todo)


def check_known(what: str, given: Iterable[str] | None, known: Iterable[str]) -> None:
    """Raises `InvalidArgument` where a name is none of the known ones."""
    known = list(known)
    unknown = [name for name in given or () if name not in known]
    if unknown:
        raise InvalidArgument(f"unknown {what} {', '.join(unknown)}; known are {', '.join(known)}.")


class Named(Protocol):
    """What has a name in a table."""

    @property
    def name(self) -> str:
        """As shown."""


Meant = TypeVar("Meant", bound=Named)


def rows_meant(rows: Sequence[Meant], wanted: Sequence[str]) -> list[Meant]:
    """The rows whose names begin with, or contain in brackets, one of these; all for none."""
    for each in wanted:
        if not any(_is_meant(each, row.name) for row in rows):
            raise InvalidArgument(f"there is no row {each!r}; the rows are {'; '.join(row.name for row in rows)}.")
    return [row for row in rows if not wanted or any(_is_meant(each, row.name) for each in wanted)]


def _is_meant(wanted: str, name: str) -> bool:
    return bool(wanted) and (name.startswith(wanted) or f"({wanted})" in name)


def pyplot() -> Any:
    """matplotlib.pyplot, drawing into files."""
    importlib.import_module("matplotlib").use("agg")
    return importlib.import_module("matplotlib.pyplot")


def save_checkpoint(state: Mapping[str, Any], path: Path) -> None:
    """A kill at any moment leaves the old or the new checkpoint, never half of one."""
    with replacing(path) as temporary:
        torch.save(dict(state), temporary)


def load_checkpoint(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The state that was saved; `state["settings"]` are those it was made with."""
    state: dict[str, Any] = torch.load(path, weights_only=True)
    if state["settings"] != settings:
        raise InvalidArgument(f"{path} was made with other settings: {state['settings']}. Use another folder.")
    return state


def write_log(path: Path, settings: Mapping[str, Any], history: Iterable[Mapping[str, Any]]) -> None:
    """A line of JSON for the settings, and one for each thing measured."""
    path.write_text("".join(json.dumps(line) + "\n" for line in ({"settings": settings}, *history)))
