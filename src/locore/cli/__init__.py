"""The shell's way in: `locore generate`, `batch`, `check`, `compile`, `prepare`, `info`, `serve`, `bench` and `reproduce`.

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 a text does not satisfy the constraint,
or rows of a batch failed, 2 wrong usage, constraint or input, 130 interrupted.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

import locore
from locore.cli.audit_command import audit
from locore.cli.batch_command import batch
from locore.cli.commands import check, compile, generate, info, prepare
from locore.cli.interrupts import INTERRUPTED, interrupts_while_importing
from locore.cli.lab import add_commands
from locore.cli.serve_command import serve
from locore.kernel.errors import LocoreError

app = typer.Typer(
    help="Sample from language models under constraints, from the right distribution.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
EXAMPLES: dict[Callable[..., None], str] = {
    generate: """"The weather is" --contains " sun" --ban " cloud" --temperature 0.7 --stop "." """.rstrip(),
    check: """--text " a sunny day" --constraint '{"type": "ban", "phrases": ["awful"]}'""",
    compile: """--constraint '{"type": "choice", "texts": [" yes", " no"]}' --model tiny --length 3 --dot circuit.dot""",
    batch: """prompts.jsonl -o results --model smollm2 --constraint @constraint.json""",
    audit: "--prompts prompts.jsonl --ban-list list.txt --limit 1e-4",
    prepare: "smollm2",
    info: "smollm2",
    serve: "--model smollm2 --port 8000",
}
for command, example in EXAMPLES.items():
    app.command(epilog=f"Example: locore {command.__name__} {example}")(command)
add_commands(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"locore {locore.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it and exit.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: what stands after `locore`; those of this process by default.
    """
    warnings.filterwarnings("default", r".* since Locore", DeprecationWarning)  # names that have changed
    gc.set_threshold(50_000, 20, 50)  # more collections would take a fifth of the time until there is a model
    try:
        with interrupts_while_importing():
            app(args=None if arguments is None else list(arguments), prog_name="locore")
        code: object = 0
    except LocoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # what is read has errors of its own: this is a folder of results
        if error.filename is None:
            raise
        print(f"error: cannot use {error.filename}: {error.strerror}; choose another place.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        code = INTERRUPTED
    except SystemExit as error:
        code = error.code
    if code == INTERRUPTED:
        print("interrupted", file=sys.stderr)
    return code if isinstance(code, int) else 0
