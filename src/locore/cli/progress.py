"""How far a long run is, on standard error."""

from __future__ import annotations

import sys
import time
from types import TracebackType

BETWEEN_LINES = 30.0  # seconds, where nobody looks at a terminal
BETWEEN_LOOKS = 0.2


class Progress:
    """Rows done, throughput and the time that is left: one line on a terminal, a line now and then in a log.

    Attributes:
        seconds: wall time from the first call of `show` to the last.
    """

    def __init__(self, what: str = "rows") -> None:
        """`what` is counted."""
        self.seconds = 0.0
        self._what = what
        self._start = 0.0
        self._before: int | None = None  # rows that were done at the start
        self._terminal = sys.stderr.isatty()
        self._next = 0.0
        self._line = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._line and self._terminal:
            print(file=sys.stderr)

    def show(self, done: int, failed: int, rows: int) -> None:
        """Tell how many of the rows are done."""
        now = time.monotonic()
        if self._before is None:
            self._begin(done, rows, now)
        self.seconds = now - self._start
        if now < self._next and not (self._terminal and done == rows):
            return
        self._next = now + (BETWEEN_LOOKS if self._terminal else BETWEEN_LINES)
        self._print(self._text(done, failed, rows))

    def _begin(self, done: int, rows: int, now: float) -> None:
        self._before, self._start = done, now
        self._next = now + (0.0 if self._terminal else BETWEEN_LINES)
        if done:
            print(f"going on: {done:,} of {rows:,} {self._what} were done before", file=sys.stderr)

    def _text(self, done: int, failed: int, rows: int) -> str:
        fresh = done - (self._before or 0)
        text = f"{done:,} of {rows:,} {self._what} ({100 * done / rows:.1f} %)"
        if failed:
            text += f", {failed:,} failed"
        if fresh and self.seconds:
            rate = fresh / self.seconds
            text += f", {rate:,.3g} {self._what}/s, {_duration((rows - done) / rate)} left"
        return text

    def _print(self, text: str) -> None:
        if self._terminal:
            print(f"\r{text:{len(self._line)}}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)
        self._line = text


def _duration(seconds: float) -> str:
    """In the two largest units."""
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if days >= 1:
        return f"{int(days)} d {int(hours % 24)} h"
    if hours >= 1:
        return f"{int(hours)} h {int(minutes % 60)} min"
    return f"{int(minutes)} min {int(seconds % 60)} s"
