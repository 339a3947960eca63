"""`locore bench`: every module of this folder is one of its commands."""

from __future__ import annotations

import typer

from locore_lab.harness import commands, in_folder

LARGE = {
    "fidelity": "locore_lab.fidelity.command",
    "tasks": "locore_lab.tasks.command",
    "people": "locore_lab.people.command",
    "speed": "locore_lab.speed.command",
    "commongen": "locore_lab.commongen.command",
    "json": "locore_lab.json_suites.command",
    "json-samples": "locore_lab.json_suites.samples",
}
MODULES = {**LARGE, **dict(in_folder(__name__))}

bench = typer.Typer(cls=commands(MODULES), help="Measure Locore.", no_args_is_help=True, rich_markup_mode=None)


@bench.callback()
def _group() -> None:
    """Measure Locore."""
