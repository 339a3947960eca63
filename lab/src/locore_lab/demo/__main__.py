"""The demonstration on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from time import perf_counter
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.text import Text

import locore
from locore.kernel.errors import LocoreError, MissingExtra, ModelNotFound
from locore.models import HuggingFaceModel
from locore_lab.demo import enumerated, examples, screen

REAL, SMALL = "smollm2", "tiny"
SMALL_PROMPT, SMALL_ENDING = "The weather is", " happy."


def progress(words: str) -> None:
    """On standard error, so that the screen stays what it is."""
    print(f"… {words}", file=sys.stderr, flush=True)


def real_screen(model: HuggingFaceModel, prompt: str | None, ending: str | None, seed: int) -> Iterator[Text]:
    """Both examples, or the user's own text."""
    start = perf_counter()
    own = prompt is not None or ending is not None
    ending = examples.ENDING if ending is None else ending
    text = examples.text_example(model, examples.PROMPT if prompt is None else prompt, ending)
    first = None if own else examples.run_chat(model, seed, progress)
    second = examples.run_text(model, text, seed, progress)
    yield from screen.whole(first, text, ending, second)
    threads = torch.get_num_threads()
    plural = "s" if threads > 1 else ""
    name = model.info.name if model.info else REAL
    seconds = perf_counter() - start
    yield Text(f"Locore {locore.__version__}, {name}, seed {seed}: {seconds:.0f} s on {threads} thread{plural}.")


def show_real(model: HuggingFaceModel, prompt: str | None, ending: str | None, seed: int) -> None:
    """Print it when all of it is there."""
    lines = list(real_screen(model, prompt, ending, seed))
    console = Console(width=screen.WIDTH, highlight=False)
    for line in lines:
        console.print(line)


def main(
    prompt: Annotated[str | None, typer.Option(help="Text before the continuation.")] = None,
    ending: Annotated[str | None, typer.Option(help="How the text has to end.")] = None,
    seed: Annotated[int, typer.Option(help="Of all randomness.")] = 0,
    model: Annotated[str | None, typer.Option(help="smollm2, the default where it is installed, or tiny.")] = None,
) -> None:
    """Show why masking is wrong and what Locore does about it."""
    try:
        if model not in (None, REAL, SMALL):
            raise LocoreError(f"the demonstration has the models {REAL} and {SMALL}, not {model!r}.")
        real = None if model == SMALL else _real(required=model == REAL)
        if real is not None:
            show_real(real, prompt, ending, seed)
        else:
            enumerated.show(SMALL_PROMPT if prompt is None else prompt, SMALL_ENDING if ending is None else ending, seed)
    except LocoreError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


def _real(required: bool) -> HuggingFaceModel | None:
    """SmolLM2; None with one line that says so where it is not installed."""
    progress(f"loading {REAL}")
    try:
        model = locore.load(REAL)
    except (ModelNotFound, MissingExtra):
        if required:
            raise
        print(f"SmolLM2 is not installed, so this is {SMALL}, a model for tests: what it says makes little sense.")
        return None
    assert isinstance(model, HuggingFaceModel)
    return model


if __name__ == "__main__":
    typer.run(main)
