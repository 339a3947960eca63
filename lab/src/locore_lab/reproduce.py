"""`locore reproduce`: the experiments of the paper."""

from __future__ import annotations

import typer

from locore_lab.harness import commands

EXPERIMENTS = {
    "all": "locore_lab.paper_checklist",
    "warcraft": "locore_lab.warcraft.command",
    "sudoku": "locore_lab.sudoku.command",
    "overview": "locore_lab.overview.command",
    "detox": "locore_lab.detox.command",
}

reproduce = typer.Typer(
    cls=commands(EXPERIMENTS), help="Run an experiment of the paper.", no_args_is_help=True, rich_markup_mode=None
)


@reproduce.callback()
def _group() -> None:
    """Run an experiment of the paper."""
