"""The process that holds the model: reads requests from standard input, writes results to standard output, one JSON a line.

Each request runs in a thread of its own; they meet for forward passes. The process is killed and started again by the server
whenever a request gets out of hand, so that nothing of a request outlives it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any, TextIO

import locore
from locore.compilers import stored
from locore.kernel.errors import LocoreError
from locore.kernel.limits import Limits, held_back, may_stop, watched
from locore.models import LanguageModel
from locore.models.by_name import load_options
from locore.models.hardware import cores
from locore.models.meeting import Meeting, can_meet
from locore.server.apart import UNNOTICED, Apart, forking, look_for_garbage
from locore.server.compare import Comparison
from locore.server.compute import Computer, Run, read
from locore.server.settings import ROOM
from locore.server.task import BEGUN, Task

Message = dict[str, Any]
TELLING_SECONDS = 0.5  # between two lines on how far a run is
TRIM_SECONDS = 2.0  # between two times that memory is given back to the system
TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
HELD_SECONDS = 0.05  # for which a run beyond its owner's share holds back, at each place where it may be stopped
SWITCH_SECONDS = 0.0005  # for which a thread keeps Python while others wait for it: passes are many short steps
SLICE, PAUSE = 0.02, 0.06  # seconds of a longer one, while others read the model, and between two of them
BREATH = 0.001  # seconds in which another compile can take its turn
PATIENCE = 1.0  # of a pass, which is what a shared one saves: how long requests wait for others that compute something else


class Stopped(BaseException):
    """Nobody waits for the result any more. No `Exception`, so that nothing on the way takes it for an error."""


class Progress:
    """How far a run is, told at most twice a second. Made in the thread of the run, whose time on a processor it tells."""

    def __init__(self, tell: Callable[[Message], None]) -> None:
        self._tell = tell
        self._state = dict(BEGUN)
        self._due = time.monotonic() + TELLING_SECONDS
        self._begun = time.thread_time()

    def enter(self, phase: str) -> None:
        """It begins with something else."""
        self._state["phase"] = phase

    def spend(self, lm_tokens: int) -> None:
        """It has asked for so many next-token distributions more."""
        self._state["lm_tokens"] += lm_tokens

    def used_elsewhere(self, seconds: float) -> None:
        """Its part of a pass that it shared with others, or in another process; negative for what its thread did for them."""
        self._begun -= seconds

    def spent(self) -> Message:
        """LM tokens, and seconds of the worker."""
        return {"lm_tokens": self._state["lm_tokens"], "seconds": time.thread_time() - self._begun}

    def tell(self) -> None:
        """If it is time."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + TELLING_SECONDS
            self._tell({**self._state, **self.spent()})


class Shares:
    """Which runs have to hold back: those of an owner beyond an equal share of the places, the later ones first."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._changing = threading.Lock()
        self._owners: dict[int, str] = {}  # of the runs, in the order in which they began
        self._beyond = frozenset[int]()
        self._reading: set[int] = set()  # the model, since their circuits are there
        self._readers = frozenset[str]()

    def begin(self, number: int, owner: str) -> None:
        """A run begins."""
        with self._changing:
            self._owners[number] = owner
            self._divide()

    def end(self, number: int) -> None:
        """It has ended."""
        with self._changing:
            del self._owners[number]
            self._reading.discard(number)
            self._divide()

    def reads(self, number: int) -> None:
        """A run begins to read the model."""
        with self._changing:
            self._reading.add(number)
            self._divide()

    def _divide(self) -> None:
        runs: dict[str, list[int]] = {}
        for number, owner in self._owners.items():
            runs.setdefault(owner, []).append(number)
        self._readers = frozenset(self._owners[number] for number in self._reading)
        share = max(1, self._places // max(1, len(runs)))
        self._beyond = frozenset(number for mine in runs.values() for number in mine[share:])

    def has_readers_beside(self, number: int) -> bool:
        """Does another owner read the model meanwhile?"""
        return bool(self._readers - {self._owners[number]})

    def has_to_wait(self, number: int) -> bool:
        """Is it beyond the share of its owner, while others are there?"""
        return number in self._beyond


class Slices:
    """Of a compile that takes long while others read the model: one compile at a time, with pauses.

    Threads share one Python, and a pass is hundreds of short steps, each of which would wait for a thread that compiles.
    """

    def __init__(self, turn: threading.Lock, disturbs: Callable[[], bool]) -> None:
        self._turn, self._disturbs = turn, disturbs
        self._has_turn = False
        self._until = time.thread_time() + UNNOTICED

    def check(self) -> None:
        """Between two steps of it."""
        if self._until == math.inf or time.thread_time() < self._until:  # asking for it takes a call of the system
            return
        begun = time.monotonic()
        if self._disturbs():
            time.sleep(PAUSE)  # in its turn, so that other compiles pause as well
            self._end_turn()
            time.sleep(BREATH)
            self._has_turn = self._turn.acquire(timeout=1.0)  # then it goes on beside another, and can be stopped
        else:
            self._end_turn()
        held_back(time.monotonic() - begun)
        self._until = time.thread_time() + SLICE

    def end(self) -> None:
        """The circuit is there, or there is to be none: what the thread does then is not sliced."""
        self._until = math.inf
        self._end_turn()

    def _end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._turn.release()


class Worker:
    """One model, several requests beside each other."""

    def __init__(self, options: Message, lines: TextIO, answers: TextIO, forks: socket.socket | None = None) -> None:
        self._lines, self._answers = lines, answers
        self._sending = threading.Lock()
        self._stops: dict[int, threading.Event] = {}
        self._trim_at = 0.0
        self._shares, self._turn = Shares(options["together"]), threading.Lock()
        limits = Limits(seconds=options["compile_seconds"], memory=options["compile_memory"])
        model = locore.load(options["model"], **load_options(options["device"], options["threads"], options["steer_dtype"]))
        self._computer = Computer(model, limits, options["table"])
        self._apart = Apart(forks, model.tokenizer, limits, max(2, len(cores())))
        self._meeting = None
        if can_meet(model):
            self._meeting = Meeting(model, PATIENCE, options["max_rows"], options["exact_batches"])
        # What cannot share a pass would only wait for the processor.
        self._pool = ThreadPoolExecutor(ROOM * options["together"] if self._meeting else 1, "run")
        self._send({"ready": {**self._computer.facts(), "meets": self._meeting is not None}})

    def work(self) -> None:
        """Until standard input ends, which is the end of the process."""
        for line in self._lines:
            message = json.loads(line)
            if "stop" in message:
                self._stop(message["stop"])
                continue
            if "forget" in message:
                forget()
                continue
            number = message["id"]
            self._stops[number] = threading.Event()
            self._pool.submit(self._answer, number, Task.from_json(message["task"]), message["owner"])
        os._exit(0)

    def _stop(self, number: int) -> None:
        if number in self._stops:  # else it has just ended
            self._stops[number].set()

    def _answer(self, number: int, task: Task, owner: str) -> None:
        """In a thread: one request."""
        stop = self._stops[number]
        progress = Progress(lambda state: self._send({"id": number, "progress": state}))
        slices = Slices(self._turn, partial(self._shares.has_readers_beside, number))

        def check() -> None:
            if stop.is_set():
                raise Stopped
            progress.tell()
            slices.check()
            if self._shares.has_to_wait(number):
                with nullcontext() if self._meeting is None else self._meeting.missed():
                    time.sleep(HELD_SECONDS)
                held_back(HELD_SECONDS)

        def compiled() -> None:
            slices.end()
            self._shares.reads(number)

        self._shares.begin(number, owner)
        try:
            with watched(check, progress.spend):
                answer = {"result": self._computed(task, owner, progress, compiled, partial(self._tell, number))}
        except Stopped:
            answer = _error("Stopped", "nobody waits for it")
        except LocoreError as error:
            if type(error) is LocoreError:  # one that nobody was to see
                _log(error)
            answer = _error(type(error).__name__, str(error))
        except MemoryError:
            answer = _error("MemoryError", "")
        except Exception as error:
            _log(error)
            answer = _error("Internal", "")
        slices.end()
        del self._stops[number]
        self._shares.end(number)
        self._give_back_memory()
        self._send({"id": number, **progress.spent(), **answer})

    def _tell(self, number: int, piece: str) -> None:
        self._send({"id": number, "piece": piece})

    def _computed(
        self, task: Task, owner: str, progress: Progress, compiled: Callable[[], None], tell: Callable[[str], None]
    ) -> Message:
        may_stop()
        meeting = self._meeting
        model: LanguageModel = self._computer.model if meeting is None else meeting.model
        compute = partial(self._apart.compute, owner, charge=progress.used_elsewhere)
        limits = self._computer.limits
        with limits.enforced():
            run = Run(self._computer, task, model, compute(partial(read, task, model.tokenizer, limits)))
            with stored.made_by(compute):
                run.circuit  # noqa: B018  (compiled before anybody waits for this request)
        compiled()
        with nullcontext() if meeting is None else meeting.attended(owner, progress.used_elsewhere):
            return Comparison(run, progress.enter).result() if task.compares else run.result(tell).to_json()

    def _give_back_memory(self) -> None:
        """What a run has left behind in the allocator is not charged to the next one."""
        now = time.monotonic()
        if now >= self._trim_at:
            self._trim_at = now + TRIM_SECONDS
            trim()

    def _send(self, message: Message) -> None:
        line = json.dumps(message, allow_nan=False) + "\n"
        with self._sending:
            self._answers.write(line)
            self._answers.flush()


def trim() -> None:
    """Give free memory back to the system, where it can be asked for."""
    if TRIM is not None:
        TRIM(0)


def forget() -> None:
    """All that is kept of earlier requests: circuits, readings, and what the library's functions remember."""
    stored.forget()
    for name, module in list(sys.modules.items()):
        if name.startswith("locore."):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
    gc.collect()
    trim()


def _log(error: Exception) -> None:
    """The message of an exception may hold what the user wrote; the log gets only where it happened."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    print(f"internal error, {type(error).__name__}:\n{frames}", file=sys.stderr, flush=True)


def _error(kind: str, message: str) -> Message:
    return {"error": {"kind": kind, "message": message}}


def main() -> None:
    """Settings come as the first line of JSON."""
    # A terminal sends its signals to all; what follows from them the server says.
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    forks = forking()
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # whatever else prints must not come between
    try:
        options = sys.stdin.readline()
        if not options:
            return
        worker = Worker(json.loads(options), sys.stdin, answers, forks)
    except LocoreError as error:
        answers.write(json.dumps({"failed": str(error)}) + "\n")
        answers.flush()
        return
    look_for_garbage()
    sys.setswitchinterval(SWITCH_SECONDS)
    worker.work()
