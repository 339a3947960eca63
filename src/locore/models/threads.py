"""How many threads compute: the fewest that are not slower, measured on the model itself when it is loaded.

Threads of OpenMP wait for each other at the end of every small product, spinning. Where the processor is free two take half
the time of one, at best; where something else runs on one of its cores, the others wait for a thread that waits for its turn,
some thousand times in a pass, and a call takes ten times as long. So more threads have to show that they are worth it, and are
looked at again now and then: as long as the machine is taken, one computes.

The number is torch's, of the whole process. Whoever has set it, by `OMP_NUM_THREADS`, `MKL_NUM_THREADS` or
`torch.set_num_threads`, keeps what was set.
"""

from __future__ import annotations

import math
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from locore.kernel.models.validation import positive

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
SMALL = 20_000_000  # parameters, up to which two threads take as long as one on a free machine (tiny: 1.56 s for 1.62)
ROWS = 4  # of a measured pass
WORTH = 0.85  # of the time with fewer threads is what more of them may take
LOOK_SECONDS = 10.0  # between two looks at whether the machine is taken
BURST, NUMBERS = 300, 2**18  # operations of a look, and the numbers of each, which threads share: some 40 µs
TAKEN = 2.0  # times what one thread takes; .6 where the machine is free, 10 to 400 where it is not
TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@dataclass(frozen=True)
class Threads:
    """A choice, and why.

    Attributes:
        number: of threads.
        reason: in a few words, behind "as".
    """

    number: int
    reason: str

    def __str__(self) -> str:
        return f"{self.number}, as {self.reason}"


class Chooser:
    """The choice of one process."""

    def __init__(self) -> None:
        """Nothing was loaded."""
        self._by_size: dict[tuple[int, torch.dtype], Threads] = {}
        self._wanted: int | None = None  # by measurement; None where nobody may change it
        self._current: int | None = None  # what was set last, in any thread
        self._here = threading.local()  # what was set last in this one: OpenMP keeps a number for each
        self._next_look = 0.0

    def settle(self, module: Any, asked: int | None = None) -> Threads | None:
        """Set torch's threads for a module that was loaded; None where somebody else has set them, or there is no choice.

        Args:
            module: a causal model of `transformers`; where it is not on the CPU nothing is measured.
            asked: this number.

        Raises:
            InvalidArgument: the number is below 1.
        """
        if asked is not None:
            self._set(positive(asked, "threads"))
            self._wanted = None
            return Threads(asked, "it was asked for")
        most = len(physical_cores())
        if not self._is_free({most, len(cores()), os.cpu_count()}) or module.device.type != "cpu" or most == 1:
            return None
        size = sum(parameter.numel() for parameter in module.parameters())
        if size <= SMALL:
            chosen = Threads(1, "a model of this size gains nothing from more")
        else:
            key = size, module.dtype
            chosen = self._by_size[key] = self._by_size.get(key) or measured(module, most)
        self._wanted = chosen.number
        self._set(chosen.number)
        return chosen

    def look(self) -> None:
        """Let one thread compute while the machine is taken, and as many as were chosen when it is free again."""
        wanted, now = self._wanted, time.monotonic()
        if wanted is None or wanted == 1 or not self._is_free(set()):
            return
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            self._current = 1 if is_taken(wanted) else wanted
        if torch.get_num_threads() != self._current:
            assert self._current is not None
            self._set(self._current)

    def _set(self, number: int) -> None:
        torch.set_num_threads(number)
        self._current = self._here.number = number

    def _is_free(self, own: set[int | None]) -> bool:
        """Has nobody else said how many? Who has set just what torch takes by itself cannot be told from who has not.

        Args:
            own: what torch takes by itself.
        """
        mine = getattr(self._here, "number", self._current)
        said = any(os.environ.get(name) for name in VARIABLES)
        return not said and torch.get_num_threads() in (own if mine is None else {mine})


def measured(module: Any, most: int) -> Threads:
    """The fewest threads, of 1, 2, 4, … and the most, that the next ones do not beat."""
    pass_seconds(module, 1)  # what is done once
    number, taken, before = 1, pass_seconds(module, 1), 0.0
    for more in [*(2**power for power in range(1, most.bit_length()) if 2**power < most), most]:
        found = pass_seconds(module, more, WORTH * taken)
        if found > WORTH * taken:
            return Threads(number, f"{more} gain nothing" if number == 1 else f"{more} gain no more")
        number, taken, before = more, found, taken
    return Threads(number, f"fewer take {before / taken:.2g} times as long")


class TooLong(Exception):
    """A pass takes longer than it may."""


def pass_seconds(module: Any, number: int, most: float = math.inf) -> float:
    """Of a pass of a few rows, with so many threads. It is left within a layer where it has taken longer than `most`."""
    tokens = torch.zeros(ROWS, 1, dtype=torch.int64)

    def check(*_: object) -> None:
        if time.perf_counter() - start > most:
            raise TooLong

    hooks = [part.register_forward_pre_hook(check) for part in module.modules()]
    torch.set_num_threads(number)
    start = time.perf_counter()
    try:
        with torch.inference_mode():
            module(input_ids=tokens, use_cache=False)
    except TooLong:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    return time.perf_counter() - start


def is_taken(number: int) -> bool:
    """Do so many threads wait for each other, since something else computes on their cores? Takes 20 ms where not."""
    alone = burst_seconds(1)
    return burst_seconds(number, TAKEN * alone) > TAKEN * alone


def burst_seconds(number: int, most: float = math.inf) -> float:
    """Of some small operations with so many threads; no further than `most`."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    numbers = torch.ones(NUMBERS)
    numbers.add_(1)  # what is done once
    start = time.perf_counter()
    for _ in range(BURST):
        numbers.add_(1)
        if time.perf_counter() - start > most:
            break
    seconds = time.perf_counter() - start
    torch.set_num_threads(before)
    return seconds


def cores() -> set[int]:
    """Those that this process may use, as the system counts them."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def physical_cores() -> set[str]:
    """The same, where two that share one are one."""
    try:
        return {Path(TOPOLOGY.format(core)).read_text() for core in cores()}
    except OSError:  # the system does not tell
        return set(map(str, cores()))


CHOOSER = Chooser()  # of this process
