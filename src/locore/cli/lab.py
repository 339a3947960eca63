"""`locore bench` and `locore reproduce`: commands of the lab, another distribution of this repository."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import typer

from locore.kernel.errors import MissingExtra

GROUP = "locore.commands"  # of entry points: name -> a Typer
COMMANDS = {"bench": "Measure Locore (part of the lab).", "reproduce": "Run an experiment of the paper (part of the lab)."}


def add_commands(app: typer.Typer) -> None:
    """Add those of the lab, or what says how to get them."""
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    for name, summary in COMMANDS.items():
        if name in entries:
            app.add_typer(entries[name].load(), name=name)
        else:
            app.command(name, help=summary, context_settings=_ANY)(_missing(name))


_ANY: dict[str, Any] = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def _missing(name: str) -> Any:
    def say(_: typer.Context) -> None:
        raise MissingExtra(
            f"`locore {name}` is part of the lab, which stands beside Locore in its repository: pip install ./lab, from there."
        )

    return say
