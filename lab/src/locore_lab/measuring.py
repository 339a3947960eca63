"""Seconds, tokens and memory of a piece of work."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

Result = TypeVar("Result")
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
        before = _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # forget the old peak
    except OSError:
        return None
    work()
    return max(0, _status("VmHWM") - before)


def _status(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
