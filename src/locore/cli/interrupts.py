"""Ctrl-C while torch is being imported, which takes seconds: some of it is C++ that calls Python, where an exception is dropped
or ends the process with SIGABRT."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130


@contextmanager
def interrupts_while_importing() -> Iterator[None]:
    """Inside the `with` block Ctrl-C ends the process at once while torch is being imported: there is nothing to lose yet."""
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or usual is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _interrupted)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupted:
            signal.signal(signal.SIGINT, usual)


def _interrupted(number: int, frame: FrameType | None) -> None:
    if _is_importing(frame):
        sys.stdout.flush()
        os.write(2, b"interrupted\n")
        os._exit(INTERRUPTED)
    signal.default_int_handler(number, frame)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and str(frame.f_globals.get("__name__")).partition(".")[0] == "torch":
            return True
        frame = frame.f_back
    return False
