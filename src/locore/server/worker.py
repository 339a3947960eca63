"""The process that holds the model: reads requests from standard input, writes results to standard output, one JSON a line.

Each request runs in a thread of its own; they meet for forward passes. The process is killed and started again by the server
whenever a request gets out of hand, so that nothing of a request outlives it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, TextIO

import locore
from locore.kernel.errors import LocoreError
from locore.kernel.limits import Limits, watched
from locore.models import LanguageModel
from locore.models.meeting import Meeting, can_meet
from locore.server.compare import Comparison
from locore.server.compute import Computer, Run
from locore.server.task import BEGUN, Task

Message = dict[str, Any]
TELLING_SECONDS = 0.5  # between two lines on how far a run is
TRIM_SECONDS = 2.0  # between two times that memory is given back to the system
TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
PATIENCE = 1.0  # of a pass, which is what a shared one saves: how long requests wait for others that compute something else


class Stopped(BaseException):
    """Nobody waits for the result any more. No `Exception`, so that nothing on the way takes it for an error."""


class Progress:
    """How far a run is, told at most twice a second."""

    def __init__(self, tell: Callable[[Message], None]) -> None:
        self._tell = tell
        self._state = dict(BEGUN)
        self._due = time.monotonic() + TELLING_SECONDS

    @property
    def lm_tokens(self) -> int:
        """What was spent so far."""
        return int(self._state["lm_tokens"])

    def enter(self, phase: str) -> None:
        """It begins with something else."""
        self._state["phase"] = phase

    def spend(self, lm_tokens: int) -> None:
        """It has asked for so many next-token distributions more."""
        self._state["lm_tokens"] += lm_tokens

    def tell(self) -> None:
        """If it is time."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + TELLING_SECONDS
            self._tell(self._state)


class Worker:
    """One model, several requests beside each other."""

    def __init__(self, options: Message, lines: TextIO, answers: TextIO) -> None:
        self._lines, self._answers = lines, answers
        self._sending = threading.Lock()
        self._stops: dict[int, threading.Event] = {}
        self._trim_at = 0.0
        limits = Limits(seconds=options["compile_seconds"], memory=options["compile_memory"])
        # Engines compute where they run, and take no device.
        placed = {} if options["device"] == "cpu" else {"device": options["device"]}
        placed |= {} if options["threads"] is None else {"threads": options["threads"]}
        model = locore.load(options["model"], **placed)
        self._computer = Computer(model, limits, options["table"])
        self._meeting = Meeting(model, PATIENCE, options["max_rows"]) if can_meet(model) else None
        # What cannot share a pass would only wait for the processor.
        self._pool = ThreadPoolExecutor(options["together"] if self._meeting else 1, "run")
        # A large run reads by itself, beside the meeting, whose members need not wait for its passes.
        self._large = ThreadPoolExecutor(1, "large") if self._meeting else self._pool
        self._small_rows = options["small_rows"]
        self._send({"ready": self._computer.facts()})

    def work(self) -> None:
        """Until standard input ends, which is the end of the process."""
        for line in self._lines:
            message = json.loads(line)
            if "stop" in message:
                self._stop(message["stop"])
                continue
            number = message["id"]
            self._stops[number] = threading.Event()
            task = Task.from_json(message["task"])
            pool = self._pool if task.rows <= self._small_rows else self._large
            pool.submit(self._answer, number, task)
        os._exit(0)

    def _stop(self, number: int) -> None:
        if number in self._stops:  # else it has just ended
            self._stops[number].set()

    def _answer(self, number: int, task: Task) -> None:
        """In a thread: one request."""
        stop = self._stops[number]
        progress = Progress(lambda state: self._send({"id": number, "progress": state}))

        def check() -> None:
            if stop.is_set():
                raise Stopped
            progress.tell()

        try:
            answer = {"result": self._computed(task, check, progress, lambda piece: self._send({"id": number, "piece": piece}))}
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
        del self._stops[number]
        self._give_back_memory()
        self._send({"id": number, "lm_tokens": progress.lm_tokens, **answer})

    def _computed(self, task: Task, check: Callable[[], None], progress: Progress, tell: Callable[[str], None]) -> Message:
        check()
        meeting = self._meeting if task.rows <= self._small_rows else None
        model: LanguageModel = self._computer.model if meeting is None else meeting.model
        with watched(check, progress.spend):
            with self._computer.limits.enforced():  # reading a constraint may take as long as compiling it
                run = Run(self._computer, task, model)
                run.circuit  # noqa: B018  (compiled before anybody waits for this request)
            with nullcontext() if meeting is None else meeting.attended():
                return Comparison(run, progress.enter).result() if task.compares else run.result(tell).to_json()

    def _give_back_memory(self) -> None:
        """What a run has left behind in the allocator is not charged to the next one."""
        now = time.monotonic()
        if TRIM is not None and now >= self._trim_at:
            self._trim_at = now + TRIM_SECONDS
            TRIM(0)

    def _send(self, message: Message) -> None:
        line = json.dumps(message, allow_nan=False) + "\n"
        with self._sending:
            self._answers.write(line)
            self._answers.flush()


def _log(error: Exception) -> None:
    """The message of an exception may hold what the user wrote; the log gets only where it happened."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    print(f"internal error, {type(error).__name__}:\n{frames}", file=sys.stderr, flush=True)


def _error(kind: str, message: str) -> Message:
    return {"error": {"kind": kind, "message": message}}


def main() -> None:
    """Settings come as JSON in the first argument."""
    # A terminal sends its signals to all; what follows from them the server says.
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # whatever else prints must not come between
    try:
        worker = Worker(json.loads(sys.argv[1]), sys.stdin, answers)
    except LocoreError as error:
        answers.write(json.dumps({"failed": str(error)}) + "\n")
        answers.flush()
        return
    worker.work()


if __name__ == "__main__":
    main()
