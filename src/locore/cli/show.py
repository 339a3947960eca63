"""What the command line prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from locore.evidence import Particles

TOP = 10  # texts in the table
BAR = 16  # characters of the longest bar
PIPE_WIDTH = 160  # where there is no terminal


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
    """The verdict, the most probable texts, and with `full` the rest of the report."""
    print(f"{particles.report()}\n")
    _show_table(particles.posterior())
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
