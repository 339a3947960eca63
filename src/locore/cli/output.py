"""What the command line prints: verdicts and texts, and how far a long run is."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from locore.kernel.errors import TimedOut
from locore.watching import end_calls

if TYPE_CHECKING:
    from locore.evidence import Particles

TOP = 10  # texts in the table
BAR = 16  # characters of the longest bar
PIPE_WIDTH = 160  # where there is no terminal
BETWEEN_LINES = 30.0  # seconds, where nobody looks at a terminal
BETWEEN_LOOKS = 0.2
PATIENCE = 2.0  # seconds before anything is said


class Waiting:
    """Says on standard error how far a call is, from two seconds on: a line that leaves no trace, or lines in a log."""

    def __init__(self) -> None:
        self._terminal, self._next, self._size = sys.stderr.isatty(), PATIENCE, 0

    def show(self, progress: Any) -> None:
        """Of a `locore.watching.Progress`."""
        if progress.seconds < self._next:
            return
        self._next = progress.seconds + (BETWEEN_LOOKS if self._terminal else BETWEEN_LINES)
        left = progress.seconds_left
        said = f"{progress.lm_tokens:,} LM tokens" if progress.lm_tokens else "compiling"
        if left is not None:
            said = f"{progress.lm_tokens:,} of up to {progress.most:,} LM tokens (one masked text: {progress.masked:,})"
        said += f", {progress.seconds:.0f} s" + ("" if left is None else f", up to {_duration(left)} left")
        if self._terminal:
            print(f"\r{said:{self._size}}", end="", file=sys.stderr, flush=True)
            self._size = len(said)
        else:
            print(said, file=sys.stderr, flush=True)

    @contextmanager
    def until_done(self) -> Iterator[None]:
        """The first Ctrl-C inside the `with` block ends the call with what there is, the second one at once.

        Raises:
            KeyboardInterrupt: there was nothing yet.
        """
        usual, asked = signal.getsignal(signal.SIGINT), False

        def end(number: int, frame: FrameType | None) -> None:
            nonlocal asked
            if asked or not end_calls():
                signal.default_int_handler(number, frame)
            asked = True
            print("\nending with what is done; Ctrl-C again stops at once", file=sys.stderr, flush=True)

        signal.signal(signal.SIGINT, end)
        try:
            yield
        except TimedOut:
            if asked:
                raise KeyboardInterrupt from None
            raise
        finally:
            signal.signal(signal.SIGINT, usual)
            if self._size:
                print(f"\r{'':{self._size}}\r", end="", file=sys.stderr, flush=True)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A line on standard error while something runs, if a person is looking; it leaves no trace."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def spelled(text: str) -> str:
    """A text in quotes with line breaks and the like escaped, so that leading spaces can be seen."""
    return json.dumps(text, ensure_ascii=False)


def show_particles(particles: Particles, full: bool = False) -> None:
    """The verdict, the most probable texts or those that were looked for, and with `full` the rest of the report."""
    print(f"{particles.report()}\n")
    if particles.record.mode is None:
        _show_table(particles.posterior())
    elif len(particles) == 1:
        print(spelled(particles.best))
    else:
        print("\n".join(particles.found_by_search()))
    _show_details(particles, full)


def show_draws(particles: Particles, full: bool = False) -> None:
    """The verdict, equally probable texts one a line, and with `full` the rest of the report."""
    print(f"{particles.report()}\n")
    for text in particles.texts:
        print(spelled(text))
    _show_details(particles, full)


def _show_details(particles: Particles, full: bool) -> None:
    print(f"\n{particles.verdict.details}\n" if full else "")


def _show_table(posterior: dict[str, float]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = list(posterior.items())[:TOP]
    most = max(probability for _, probability in shown)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("p(text | constraint)", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("text", overflow="fold")
    for text, probability in shown:
        bar = "█" * round(BAR * probability / most) if most else ""
        table.add_row(f"{probability:.4f}", Text(bar, style="cyan"), Text(spelled(text)))
    if len(posterior) > TOP:
        rest = sum(list(posterior.values())[TOP:])
        table.add_row(f"{rest:.4f}", "", Text(f"({len(posterior) - TOP} more texts)", style="dim"))
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    Console(highlight=False, width=width).print(table)


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
