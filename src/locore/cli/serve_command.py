"""`locore serve`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

import typer

from locore.cli.inputs import MODEL_HELP, SteerDtype, ThreadNumber, grouped, read_text
from locore.kernel.errors import MissingExtra
from locore.server.settings import Settings

KEY_HELP = "File with the keys that clients may send, one a line; or set LOCORE_API_KEY."


@dataclass(frozen=True)
class Options:
    """Settings as the shell has them."""

    model: Annotated[str, typer.Option(help=f"{MODEL_HELP} Or an engine.")] = Settings.model
    name: Annotated[str | None, typer.Option(help="What clients call the model; as --model by default.")] = None
    host: Annotated[str, typer.Option(help="Address to listen at; any but this machine's own needs a key.")] = Settings.host
    port: Annotated[int, typer.Option(help="0 for a free one.")] = Settings.port
    requests_per_minute: Annotated[int | None, typer.Option(help="Of each key.")] = None
    lm_tokens_per_minute: Annotated[int | None, typer.Option(help="Of each key.")] = None
    json_logs: Annotated[bool, typer.Option("--json-logs", help="A line of JSON for each request.")] = False
    device: Annotated[str, typer.Option(help="Where the model computes.")] = Settings.device
    threads: ThreadNumber = None
    steer_dtype: SteerDtype = None
    workers: Annotated[int, typer.Option(help="Processes that sample, each with its own copy of the model.")] = Settings.workers
    together: Annotated[int, typer.Option(help="Requests that a worker runs beside each other, in shared forward passes.")] = (
        Settings.together
    )
    max_rows: Annotated[int, typer.Option(help="Rows of one forward pass.")] = Settings.max_rows
    exact_batches: Annotated[bool, typer.Option("--exact-batches", help="The same bits alone and beside others.")] = False
    queue_size: Annotated[int, typer.Option(help="Requests that may wait; more get 429.")] = Settings.queue_size
    timeout: Annotated[float, typer.Option(help="Seconds from a request to its answer; later ones get 504.")] = Settings.timeout
    compile_seconds: Annotated[float, typer.Option(help="For compiling one constraint.")] = Settings.compile_seconds
    compile_memory: Annotated[int, typer.Option(help="Bytes that compiling may take.")] = Settings.compile_memory
    memory: Annotated[int | None, typer.Option(help="Bytes of all workers; three quarters of what is free by default.")] = None
    body_bytes: Annotated[int, typer.Option(help="Of a request.")] = Settings.body_bytes
    keep_alive: Annotated[float, typer.Option(help="Seconds between the comments that keep a stream open.")] = (
        Settings.keep_alive
    )
    max_tokens: Annotated[int, typer.Option(help="The largest max_tokens of a request.")] = Settings.max_tokens
    max_particles: Annotated[int, typer.Option(help="The largest num_particles.")] = Settings.max_particles
    max_budget: Annotated[int, typer.Option(help="The largest budget.")] = Settings.max_budget


@grouped
def serve(
    options: Options,
    allow_host: Annotated[list[str] | None, typer.Option(help="Another name by which the server may be asked.")] = None,
    api_key_file: Annotated[str | None, typer.Option(metavar="FILE", help=KEY_HELP)] = None,
) -> None:
    """Serve a model over HTTP in the manner of OpenAI's API, with constraints.

    The address is printed once the server listens; /ready answers 200 once the model is loaded.
    """
    try:
        from locore.server import serve as run
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the server needs {error.name}, which is not installed: pip install 'locore[server]'.") from error
    given = {name: value for name, value in vars(options).items() if (name, value) != ("memory", None)}
    run(Settings(**given, hosts=tuple(allow_host or ()), api_key=_key(api_key_file)))


def _key(path: str | None) -> tuple[str, ...] | str | None:
    """Never an option itself: other users of a machine see the options of a process."""
    if path is not None:
        return tuple(line.strip() for line in read_text(path).splitlines() if line.strip())
    return os.environ.get("LOCORE_API_KEY") or None
