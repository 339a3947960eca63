"""The process that holds the model: reads requests from standard input, writes results to standard output, one JSON a line.

It is killed and started again by the server whenever a request gets out of hand, so that nothing of a request outlives it.
"""

from __future__ import annotations

import _thread
import json
import os
import signal
import sys
import threading
import traceback
from queue import SimpleQueue
from typing import Any, TextIO

import locore
from locore.errors import LocoreError
from locore.limits import Limits
from locore.server.compare import Comparison
from locore.server.compute import Computer, Stopped

Message = dict[str, Any]


class Worker:
    """One model, one request after the other."""

    def __init__(self, options: Message, lines: TextIO, answers: TextIO) -> None:
        self._lines, self._answers = lines, answers
        self._groups: SimpleQueue[list[Message]] = SimpleQueue()
        self._stopped: set[int] = set()  # requests that nobody waits for
        self._running: int | None = None
        limits = Limits(seconds=options["compile_seconds"], memory=options["compile_memory"])
        # Engines compute where they run, and take no device.
        placed = {} if options["device"] == "cpu" else {"device": options["device"]}
        self._computer = Computer(locore.load(options["model"], **placed), limits)
        self._send({"ready": self._computer.facts()})

    def work(self) -> None:
        """Until standard input ends."""
        signal.signal(signal.SIGINT, self._on_signal)
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            self._group(self._groups.get())

    def _group(self, jobs: list[Message]) -> None:
        """Answer each of several requests that may share a run."""
        compare = jobs[0]["task"] == "compare"  # such a request comes alone
        results = Comparison(self._computer, jobs[0]) if compare else self._computer.results(jobs)
        for job in jobs:
            self._send({"id": job["id"], **self._one(job["id"], results)})
        self._stopped.difference_update(job["id"] for job in jobs)

    def _one(self, number: int, results: Any) -> Message:
        try:
            self._running = number
            if number in self._stopped:
                raise Stopped
            result = {"result": results.of(number)}
            self._running = None  # from here on no signal can stop it
        except Stopped:
            return _error("Stopped", "nobody waits for it")
        except LocoreError as error:
            return _error(type(error).__name__, str(error))
        except MemoryError:
            return _error("MemoryError", "")
        except Exception as error:
            # The message of an exception may hold what the user wrote; the log gets only where it happened.
            frames = "".join(traceback.format_tb(error.__traceback__))
            print(f"internal error, {type(error).__name__}:\n{frames}", file=sys.stderr, flush=True)
            return _error("Internal", "")
        finally:
            self._running = None
        return result

    def _listen(self) -> None:
        """In a thread: requests, and which of them to stop. The end of the input is the end of the process."""
        for line in self._lines:
            message = json.loads(line)
            if "jobs" in message:
                self._groups.put(message["jobs"])
            else:
                self._stopped.add(message["stop"])
                if self._running == message["stop"]:
                    _thread.interrupt_main(signal.SIGINT)
        os._exit(0)

    def _on_signal(self, number: int, frame: object) -> None:
        """In the main thread, between two instructions. An interrupt from the keyboard is the server's business."""
        if self._running in self._stopped:
            raise Stopped

    def _send(self, message: Message) -> None:
        self._answers.write(json.dumps(message, allow_nan=False) + "\n")
        self._answers.flush()


def _error(kind: str, message: str) -> Message:
    return {"error": {"kind": kind, "message": message}}


def main() -> None:
    """Settings come as JSON in the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
