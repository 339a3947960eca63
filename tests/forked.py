"""Commands in a process that is forked here, where everything is imported already."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import torch


def forked(run: Callable[[], int]) -> BaseProcess:
    """It runs at once, ends with what is returned, and Ctrl-C interrupts it as it does a command."""

    def go() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # After a fork torch makes its thread pool anew at its next use: here, before threads that load a model race for it.
        torch.set_num_threads(torch.get_num_threads())
        os._exit(run())

    process = multiprocessing.get_context("fork").Process(target=go)
    process.start()
    return process
