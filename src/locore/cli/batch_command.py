"""`locore batch`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locore.batch.batch_settings import Settings
from locore.cli.inputs import MODEL_HELP, AbstainBelow, Asked, Parse, SteerDtype, grouped, read_constraint
from locore.cli.output import Progress

if TYPE_CHECKING:
    from locore.batch.driver import Summary

ALL_ROWS = "of rows that do not say it themselves"


@dataclass(frozen=True)
class Workers:
    """Who computes rows, as `batch` and `audit` take it."""

    device: Annotated[str, typer.Option(help="Where the model computes.")] = Settings.device
    threads: Annotated[int, typer.Option(help="Of the arithmetic of one worker.")] = Settings.threads
    steer_dtype: SteerDtype = None
    together: Annotated[int, typer.Option(help="Rows of one worker that share forward passes.")] = Settings.together
    engine: Annotated[str, typer.Option(metavar="local|ray", help="A loop in this process, or workers on Ray.")] = "local"
    workers: Annotated[int | None, typer.Option(help="On Ray: copies of the model; as many as there is room for.")] = None

    def settings(self) -> dict[str, Any]:
        """Those of one worker."""
        return {name: getattr(self, name) for name in ("device", "threads", "steer_dtype", "together")}


@contextmanager
def rows_are_kept(resumable: bool = True) -> Iterator[None]:
    """Say so where the work is stopped from the keyboard."""
    try:
        yield
    except KeyboardInterrupt:
        if resumable:
            print("finished rows are kept; the same command with --resume goes on from them", file=sys.stderr)
        raise


@grouped
def batch(
    prompts: Annotated[Path, typer.Argument(metavar="PROMPTS.jsonl", help="A JSON object a line, with at least a prompt.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")],
    constraint: Annotated[str | None, typer.Option(metavar="JSON|@FILE", help=f"{ALL_ROWS.capitalize()}.")] = None,
    model: Annotated[str, typer.Option(help=MODEL_HELP)] = Settings.model,
    *,
    asked: Asked,
    seed: Annotated[int, typer.Option(help="Of the run; each row gets its own from it.")] = Settings.seed,
    resample: Annotated[int | None, typer.Option(metavar="N", help="Write N equally probable draws instead.")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Write token ids too.")] = Settings.tokens,
    parse: Parse = False,
    abstain_below: AbstainBelow = None,
    by: Workers,
    shard_rows: Annotated[int, typer.Option(help="Rows in one file of results.")] = 100,
    cpus_per_worker: Annotated[float, typer.Option(help="On Ray: cores set aside for one.")] = 1.0,
    gpus_per_worker: Annotated[float, typer.Option(help="On Ray: accelerators set aside for one.")] = 0.0,
    ray_address: Annotated[str | None, typer.Option(help="A running cluster, or auto; without it one starts here.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is in the folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Sample for every line of a file, on this machine or on many; a killed run goes on with --resume.

    The options of `locore generate` are defaults of rows. Exit code 1 if some rows failed; their lines of the results say why.
    """
    settings = Settings(
        model=model,
        **by.settings(),
        seed=seed,
        constraint=None if constraint is None else read_constraint(constraint).to_json(),
        **asked.read(),
        resample=resample,
        tokens=tokens,
        parse=parse,
        abstain_below=abstain_below,
    )
    from locore.batch import Engine, run

    chosen = Engine(by.engine, by.workers, cpus_per_worker, gpus_per_worker, ray_address)  # type: ignore[arg-type]  # it checks
    with rows_are_kept(), Progress() as progress:
        summary = run(prompts, output, settings, chosen, shard_rows=shard_rows, resume=resume, progress=progress.show)
    _show(summary, output, progress.seconds, by.together, as_json)
    if summary.tally.failed:
        raise typer.Exit(1)


def _show(summary: Summary, output: Path, seconds: float, together: int, as_json: bool) -> None:
    tally = summary.tally
    if as_json:
        facts: dict[str, Any] = {**tally.to_json(), "computed_now": summary.computed, "wall_seconds": seconds}
        print(json.dumps(facts))
        return
    print(f"{tally.rows - tally.failed:,} of {tally.rows:,} rows done, {tally.failed:,} failed")
    for what, counts in (("verdict", tally.verdicts), ("failed", tally.errors)):
        for name, number in counts.most_common():
            print(f"  {what} {name}: {number:,}")
    beside = f" in rows, of which {together} run beside each other" if together > 1 else " of work"
    print(f"{tally.lm_tokens:,} LM tokens, {tally.seconds:,.1f} s{beside}")
    if summary.computed:
        print(f"{summary.computed:,} rows now, in {seconds:,.1f} s: {summary.computed / seconds:,.1f} a second")
    print(f"results: {output / 'results'}")
    if tally.failed:
        print(f"some rows failed; what is wrong: grep '\"error\":{{' {shlex.quote(str(output / 'results'))}/*", file=sys.stderr)
