"""What all experiments need: seeds, progress, names, pictures, seconds, memory, and checkpoints that survive a kill."""

from __future__ import annotations

import ctypes
import gc
import gzip
import hashlib
import json
import lzma
import random
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from lzma import LZMAError
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from locore.io import replacing
from locore.kernel.errors import InvalidArgument

LAB = Path(__file__).resolve().parents[2]
RESULTS = LAB / "results"
RUNS = LAB / "runs"  # checkpoints, which git ignores
REPOSITORY = LAB.parent
SHARED = REPOSITORY.parent / "shared"  # models and data that are not part of the repository


Result = TypeVar("Result")
STRANGE = "aZ0 _\n\t\"'(){}[];,.:=+-*/\\<>&|!?#é"  # what `changed` puts into texts beside characters of their own
STATUS = Path("/proc/self/status")


class TokenMeter:
    """Counts the tokens that a module reads, and its passes."""

    def __init__(self, module: Any) -> None:
        self.tokens = self.passes = 0
        self._hook = module.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, _: Any, inputs: tuple[Tensor, ...], named: Mapping[str, Any]) -> None:
        ids = inputs[0] if inputs else named["input_ids"]
        self.tokens += ids.numel()
        self.passes += 1

    def close(self) -> int:
        """The tokens that were read; none are counted any more."""
        self._hook.remove()
        return self.tokens


@contextmanager
def counted(module: Any) -> Iterator[dict[str, float]]:
    """Passes of a module, the tokens it read in them, and seconds of the processor and of the clock; known at the end."""
    cost: dict[str, float] = {}
    meter, clock, cpu = TokenMeter(module), time.perf_counter(), time.process_time()
    try:
        yield cost
    finally:
        seconds = {"cpu_seconds": time.process_time() - cpu, "seconds": time.perf_counter() - clock}
        cost |= {"passes": meter.passes, "tokens": meter.close(), **{name: round(value, 2) for name, value in seconds.items()}}


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """What some work gives, and CPU seconds of this process."""
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def least_seconds(works: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """CPU seconds of this process for each piece of work, the least of several runs.

    The pieces take turns, so that a machine that is slow for a while is slow for all of them. Other processes do not count;
    what they take from the shared caches does.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            gc.collect()
            seconds[name].append(timed(work)[1])
    return {name: min(found) for name, found in seconds.items()}


def give_memory_back() -> None:
    """What is no longer used goes back to the system, where the C library would keep it."""
    gc.collect()
    with suppress(AttributeError, OSError):  # only glibc does
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def peak_bytes(work: Callable[[], Any]) -> int | None:
    """How much more memory the process held meanwhile than before; None where the system does not tell (it is no Linux)."""
    try:
        give_memory_back()  # what was freed but kept would hide what is needed now
        before = process_bytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # forget the old peak
    except OSError:
        return None
    work()
    return max(0, process_bytes("VmHWM") - before)


def process_bytes(name: str) -> int:
    """What the system says of this process: "VmRSS", in memory now, or "VmHWM", at most so far."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


CHECKPOINT, LOG = "checkpoint.pt", "log.jsonl"
Item = TypeVar("Item")


def auroc(positive: Sequence[bool] | np.ndarray, scores: Sequence[float] | np.ndarray) -> float:
    """How probable it is that a positive case scores above another one, ties counting half; NaN where all are of one kind."""
    is_positive, values = np.asarray(positive, bool), np.asarray(scores, float)
    wanted, others = values[is_positive], np.sort(values[~is_positive])
    if not len(wanted) or not len(others):
        return float("nan")
    below, not_above = (np.searchsorted(others, wanted, side) for side in ("left", "right"))
    return float((below + not_above).mean() / 2 / len(others))


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


# What Python says of content that is not what it should be.
BAD = (EOFError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, UnpicklingError, LZMAError)


@contextmanager
def reading(where: object) -> Iterator[None]:
    """Whatever is wrong with a file that somebody gave is said with its place: it is what the user can mend."""
    try:
        yield
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from None
    except OSError as error:
        raise InvalidArgument(f"{where} cannot be read: {error}.") from None
    except BAD as error:
        raise InvalidArgument(
            f"{where} is not what docs/lab/reproduce.md describes ({type(error).__name__}: {error})."
        ) from None


def lines_of(path: Path) -> list[str]:
    """Of a text file, packed or not."""
    opened: Any = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    with opened(path, "rt", encoding="utf-8") as file:
        return str(file.read()).splitlines()


def pinned(files: Iterable[Path], sha256: str, source: str) -> list[bytes]:
    """What files of other people hold, if all of it is what was measured.

    Args:
        sha256: of one after the other.
        source: how to get them, in words.

    Raises:
        InvalidArgument: one is not there, or they are another version.
    """
    held, digest = [], hashlib.sha256()
    for file in files:
        if not file.is_file():
            raise InvalidArgument(f"there is no {file}; get it: {source}.")
        held.append(file.read_bytes())
        digest.update(held[-1])
    if not held:
        raise InvalidArgument(f"the files that were measured are not there; get them: {source}.")
    if digest.hexdigest() != sha256:
        which = file if len(held) == 1 else f"what is read of {len(held)} files"
        raise InvalidArgument(f"{which} is another version than the one that was measured; get that: {source}.")
    return held


class Training(ABC):
    """A training that goes on where it was killed.

    Attributes:
        what: is trained, and how; a checkpoint of anything else is refused.
        parts: that have a state, such as network and optimizer, by name.
        history: what was measured after each stretch.
    """

    what: dict[str, Any]
    parts: dict[str, Any]
    history: list[dict[str, Any]]

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Is nothing left to do?"""

    @abstractmethod
    def look(self) -> dict[str, Any]:
        """Train for a stretch, validate, and note both in `history`; nothing but its length may decide what is read."""

    def keep(self, folder: Path) -> None:  # noqa: B027  # nothing, where a checkpoint is all
        """What is worth keeping after a stretch, beside the checkpoint."""

    def save(self, path: Path) -> None:
        """A kill at any moment leaves the old or the new checkpoint, never half of one."""
        state = {name: part.state_dict() for name, part in self.parts.items()}
        with replacing(path) as temporary:
            torch.save({"settings": self.what, "history": self.history, **state}, temporary)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint; `InvalidArgument` if it was made with other settings."""
        state: dict[str, Any] = torch.load(path, weights_only=True)
        if state["settings"] != self.what:
            raise InvalidArgument(f"{path} was made with other settings: {state['settings']}. Use another folder.")
        for name, part in self.parts.items():
            part.load_state_dict(state[name])
        self.history = state["history"]

    def run(self, folder: Path | None, report: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
        """Train to the end, from the checkpoint in a folder, which gets `checkpoint.pt` and `log.jsonl`; None keeps nothing."""
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / CHECKPOINT).is_file():
                self.load(folder / CHECKPOINT)
        while not self.finished:
            report(self.look())
            if folder is not None:
                self.keep(folder)
                self.save(folder / CHECKPOINT)
                lines = ({"settings": self.what}, *self.history)
                (folder / LOG).write_text("".join(json.dumps(line) + "\n" for line in lines))


def changed(texts: list[str], each: int, *seed: object) -> Iterator[str]:
    """Texts with one character deleted, put in or exchanged, so many of each text at most; none of the texts themselves."""
    known = set(texts)
    own = sorted(set("".join(texts)))
    for text in texts:
        rng = random.Random(seed_of(*seed, text))
        for _ in range(each):
            place, sign = rng.randint(0, len(text)), rng.choice(rng.choice([own, list(STRANGE)]) or list(STRANGE))
            behind = place + rng.randint(0, 1)
            one = text[:place] + rng.choice([sign, "" if behind > place else sign]) + text[behind:]
            if one not in known:
                known.add(one)
                yield one
