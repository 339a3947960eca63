"""`locore info`."""

from __future__ import annotations

from typing import Annotated

import typer

import locore
from locore.cli.inputs import MODEL_HELP
from locore.cli.show import working


def info(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)] = "tiny",
) -> None:
    """Say what is known of a model: its size, where it comes from, its licence, and where its weights are kept."""
    with working("loading the model"):
        loaded = locore.load(model)
    print(loaded.info or f"{model}\n  an engine with {loaded.tokenizer.vocab_size:,} tokens, which says no more of itself")
