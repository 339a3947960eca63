"""What the machine gives a model: threads, memory, and how long a pass takes.

**Threads** of OpenMP wait for each other at the end of every small product, spinning. Where the processor is free two take half
the time of one, at best; where something else runs on one of its cores, the others wait for a thread that waits for its turn,
some thousand times in a pass, and a call takes ten times as long. So more threads have to show that they are worth it, measured
on the model itself when it is loaded, and are looked at again now and then: as long as the machine is taken, one computes. The
number is torch's, of the whole process. Whoever has set it, by `OMP_NUM_THREADS`, `MKL_NUM_THREADS` or
`torch.set_num_threads`, keeps what was set.

**Memory.** Batches are halved when it runs out.

**Pace.** A budget in LM tokens is known before anything is drawn, so weights stay proper. So are seconds made into one: a pass
takes some time before its first row (the weights are read, kernels are launched) and then some for each row. Both are measured
once for a model, in seven passes, and kept with it.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from locore.kernel.chat import Prompt
from locore.kernel.errors import BudgetExceeded, CannotScore
from locore.kernel.limits import available_memory, may_stop
from locore.kernel.models.cursor import Cursor
from locore.kernel.models.language_model import LanguageModel, Wrapper
from locore.kernel.models.validation import positive
from locore.kernel.request import Seconds

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
        seconds = pass_seconds(module, more, WORTH * taken)
        if seconds > WORTH * taken:
            return Threads(number, f"{more} gain nothing" if number == 1 else f"{more} gain no more")
        number, taken, before = more, seconds, taken
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


_UNCOUNTED = 1.5  # activations, and what the allocator cannot use: of 100 and 21 million parameters 1.45 and 1.9 were measured


def in_batches(rows: int, size: int, work: Callable[[slice], Tensor]) -> Tensor:
    """Do `work` on slices of the rows and put the results together along the first axis.

    Args:
        rows: how many there are; at least one.
        size: how many to try at once; halved whenever memory runs out.
        work: maps a slice of the rows to a result with as many rows.

    Raises:
        CannotScore: one row alone does not fit.
    """
    parts: list[Tensor] = []
    at, size = 0, max(1, min(size, rows))
    while at < rows:
        may_stop()
        try:
            parts.append(work(slice(at, min(at + size, rows))))
            at += size
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if size == 1:
                raise CannotScore(
                    "There is not enough memory for a single sequence. Use a shorter prompt, a smaller dtype or another device."
                ) from error
            size //= 2
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def is_out_of_memory(error: Exception) -> bool:
    """Is that what an error says?"""
    # The allocator of the CPU has no exception of its own.
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def free_bytes(device: torch.device) -> int | None:
    """Memory that is left; None where nobody says."""
    if device.type == "cuda":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + reserved
    return available_memory() if device.type == "cpu" else None


def how_many_fit(free_bytes: int, bytes_each: int) -> int:
    """How many parts of this size, as far as it can be counted, fit into the free memory."""
    return int(free_bytes / (_UNCOUNTED * bytes_each))


WIDE, TIMES = 32, 3  # rows of a pass that is measured, and how often: other work may be in its way
OUTSIDE = 1.25  # times the model's own seconds, for what samplers do with its answers
MOST_ROWS = 1_024  # of a pass: what more of them bring is better had by another call


@dataclass(frozen=True)
class Pace:
    """Seconds of a pass before its first row, and for each row."""

    a_pass: float
    a_row: float

    def seconds(self, passes: int, lm_tokens: int) -> float:
        """Of so many passes over so many rows in all, and of what a sampler does meanwhile."""
        return OUTSIDE * (passes * self.a_pass + lm_tokens * self.a_row)

    def lm_tokens(self, budget: Seconds, length: int, stages: int) -> int:
        """What a budget pays for, where texts of this length are gone through so many times.

        Raises:
            BudgetExceeded: not for one text.
        """
        steps = max(1, length - 1)
        least = self.seconds(stages * steps, stages * steps)
        if budget.seconds < least:
            raise BudgetExceeded(
                f"{budget.seconds:g} seconds do not pay for a text of {length} tokens, which takes about {least:.2g} here; "
                "give more, or ask for fewer tokens."
            )
        left = budget.seconds / OUTSIDE - stages * steps * self.a_pass
        return max(steps, int(min(left / max(self.a_row, 1e-9), MOST_ROWS * steps)))


_paces: WeakKeyDictionary[Any, Pace] = WeakKeyDictionary()


def pace_of(model: LanguageModel, prompt: Prompt) -> Pace:
    """Of a model before any prompt; measured behind this one, if it was not yet."""
    model = model.near or model
    inner = model
    while isinstance(inner, Wrapper):
        inner = inner.base
    weights = getattr(getattr(inner, "causal", inner), "module", inner)
    if weights not in _paces:
        _paces[weights] = _measured(model.prompted(prompt))
    return _paces[weights]


def _measured(model: LanguageModel) -> Pace:
    """By the first of its distributions: rows go on with the likeliest tokens that do not end the text."""
    start = model.begin(1)
    likely = start.log_probs[0].clone()
    likely[list(model.tokenizer.eos_ids)] = -torch.inf
    tokens = likely.topk(min(WIDE, model.vocab_size - len(model.tokenizer.eos_ids))).indices.cpu()
    tokens = tokens.repeat(-(-WIDE // len(tokens)))[:WIDE]
    _read(start, tokens[:1])  # the first pass finds out what later ones know
    single, wide = (min(_read(start, rows) for _ in range(TIMES)) for rows in (tokens[:1], tokens))
    a_row = max(0.0, wide - single) / (WIDE - 1)
    return Pace(max(0.0, single - a_row), a_row)


def _read(start: Cursor, tokens: torch.Tensor) -> float:
    """Seconds of a pass."""
    began = time.perf_counter()
    after = start.advance(tokens, torch.zeros(len(tokens), dtype=torch.long))
    float(after.log_probs[0, 0])  # an accelerator is waited for
    return time.perf_counter() - began
