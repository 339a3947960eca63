"""`run`: a file of prompts in, a folder of results out, made by this process or by the workers of a Ray cluster."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import locore
from locore.batch.batch_settings import Settings
from locore.batch.engine import Crew, Engine, Job
from locore.batch.plan import Plan, Span, parts_folder, remove_parts, results_folder, results_path, tally_of, writing
from locore.batch.rows import Record, Tally
from locore.batch.worker import Watch, Worker
from locore.io import Journal, machine, only_writer, require_same, write_whole
from locore.kernel.errors import InvalidArgument
from locore.samplers import sampler_by_name

FORMAT = 1  # of the results
SHARD_ROWS = 100
Progress = Callable[[int, int, int], None]  # rows done, of these failed, rows there are


def crew(engine: Engine, settings: Settings) -> AbstractContextManager[Crew]:
    """The workers of an engine, for the time of a `with` block.

    Raises:
        MissingExtra: Ray is not installed.
    """
    if engine.name == "local":
        return _local(settings)
    from locore.batch.on_ray import cluster

    return cluster(engine, settings)


@contextmanager
def _local(settings: Settings) -> Iterator[Crew]:
    yield Local(settings)


class Local:
    """This process."""

    def __init__(self, settings: Settings) -> None:
        self._worker = Worker(settings)

    def facts(self) -> Record:
        """Of the worker."""
        return self._worker.facts()

    def reports(self, job: Job, spans: Sequence[Span], watch: Watch) -> Iterator[Record]:
        """One shard after the other; `watch` is called for every row."""
        for span in spans:
            yield self._worker.shard(job.path, job.output, span, job.run, watch)


@dataclass(frozen=True)
class Summary:
    """What became of a batch.

    Attributes:
        tally: of all rows, those of earlier runs included.
        computed: rows that this run computed.
        results: the folder with a file for each shard; their names in order give the order of the input.
    """

    tally: Tally
    computed: int
    results: Path


def run(
    path: str | Path,
    output: str | Path,
    settings: Settings | None = None,
    engine: Engine | None = None,
    *,
    shard_rows: int = SHARD_ROWS,
    resume: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Sample for every line of a file; nothing of it is held in memory but some hundred bytes for each shard.

    Args:
        path: JSON Lines, see docs/batch.md.
        output: folder for results, settings and what a resumed run needs.
        settings: what rows depend on.
        engine: who computes them; the results are the same.
        shard_rows: rows in one file of results, which one worker computes.
        resume: go on with what is in the folder; without it a folder that has results is refused.
        progress: is called as rows are done.

    Raises:
        InvalidArgument: a setting has no meaning, the folder holds results of other input, settings or versions, or the input
            cannot be read.
        LocoreError: no worker can go on. What is finished is kept.
    """
    settings, engine = settings or Settings(), engine or Engine()
    path, output = Path(path).resolve(), Path(output).resolve()
    _check(settings)
    plan = Plan(path, shard_rows)
    with ExitStack() as stack:
        with writing(output):
            stack.enter_context(only_writer(output))
        _check_output(output, plan, resume)
        workers = stack.enter_context(crew(engine, settings))
        job = Job(settings, path, output, uuid.uuid4().hex[:12], workers.facts())
        wanted = json.loads(json.dumps({**_about(plan, settings), **job.facts}))
        _check_witness(output, wanted)
        with writing(output):
            journal = Journal(output / "progress.jsonl", wanted)
            _write_config(output, plan, engine, job)
            for folder in (results_folder(output), parts_folder(output)):
                folder.mkdir(exist_ok=True)
        return _work(workers, job, plan, journal, progress or _silent)


def _work(workers: Any, job: Job, plan: Plan, journal: Journal, progress: Progress) -> Summary:
    total, computed = Tally(), 0
    todo: list[Span] = []
    for span, report in _states(job.output, plan, journal):
        if report is None:
            todo.append(span)
        else:
            total.merge(report)
    current = Tally()  # rows of shards that are not finished, where an engine tells

    def tell(row: Record | None = None) -> None:
        if row is not None:
            current.add(row)
        progress(total.rows + current.rows, total.failed + current.failed, plan.rows)

    tell()
    for report in workers.reports(job, todo, tell) if todo else ():
        current = Tally()
        computed += report["rows"] - report.pop("adopted")
        key = report.pop("shard"), report.pop("bytes")
        if key not in journal:
            with writing(job.output):
                journal.append(key, report)
        total.merge(report)
        tell()
    missing = next((span.number for span in todo if not results_path(job.output, span.number).is_file()), None)
    if missing is not None or total.rows != plan.rows:
        raise InvalidArgument(
            f"{results_folder(job.output)} lacks shard {missing}, which a worker finished; is this folder on shared storage?"
        )
    remove_parts(job.output)
    return Summary(total, computed, results_folder(job.output))


def _states(output: Path, plan: Plan, journal: Journal) -> Iterator[tuple[Span, Record | None]]:
    """Each shard with the tally of its file of results, if that is there and whole."""
    for number in range(len(plan)):
        path, span, report = results_path(output, number), plan[number], None
        if path.is_file():
            key = (number, path.stat().st_size)
            if key in journal:
                report = journal[key]
            # Else the driver was killed between the worker's last step and its own, or somebody touched the file.
            elif (report := tally_of(path, span)) is not None:
                with writing(output):
                    journal.append(key, report)
        yield span, report


def _check(settings: Settings) -> None:
    """Refuse here what would otherwise be refused in every row."""
    locore.from_json({"type": "true"} if settings.constraint is None else settings.constraint)
    sampler_by_name(settings.sampler)


def _check_output(output: Path, plan: Plan, resume: bool) -> None:
    config = _config(output)
    begun = config is not None or (output / "progress.jsonl").exists()
    if not begun and _has_rows(output):
        raise InvalidArgument(f"{output} has results, but no progress.jsonl to say what they are of; choose another folder.")
    if begun and not resume:
        raise InvalidArgument(f"{output} holds a batch already; add --resume to go on with it, or choose another folder.")
    if config is not None and config["input_digest"] != plan.digest and config["shard_rows"] == plan.shard_rows:
        raise InvalidArgument(
            f"{plan.path} is not the file that {output} was begun with ({config['input_rows']:,} rows, "
            f"{config['input_bytes']:,} bytes then, {plan.rows:,} and {plan.num_bytes:,} now): restore it to go on, or "
            "choose another folder."
        )


def _check_witness(output: Path, wanted: Record) -> None:
    """Where there are rows, `progress.jsonl` says what they are of, or else `config.json` does."""
    journal = output / "progress.jsonl"
    if not _has_rows(output) or (journal.exists() and b"\n" in journal.read_bytes()):
        return
    config = _config(output)
    if config is None:
        raise InvalidArgument(
            f"{journal} has lost its first line, and there is no config.json to say what the rows in {output} are of; choose "
            "another folder."
        )
    require_same(output / "config.json", config, wanted)


def _has_rows(output: Path) -> bool:
    return any(any(folder(output).glob("*")) for folder in (results_folder, parts_folder))


def _config(output: Path) -> Record | None:
    """The settings in `config.json`; None if it is not there.

    Raises:
        InvalidArgument: it is damaged.
    """
    path = output / "config.json"
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))["settings"]
        whole = {"input_digest", "input_rows", "input_bytes", "shard_rows"} <= settings.keys()
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        whole = False
    if not whole:
        raise InvalidArgument(
            f"{path} is damaged: it does not say what the rows are of. Remove it; --resume then goes by progress.jsonl."
        )
    return dict(settings)


def _about(plan: Plan, settings: Settings) -> Record:
    """What rows depend on, by one name each."""
    plain = settings.to_json()
    limits = {f"limit_{name}": value for name, value in plain.pop("limits").items()}
    of_input = {"input_digest": plan.digest, "input_rows": plan.rows, "input_bytes": plan.num_bytes}
    return {"format": FORMAT, **of_input, "shard_rows": plan.shard_rows, **plain, **limits}


def _write_config(output: Path, plan: Plan, engine: Engine, job: Job) -> None:
    config = {
        "run": job.run,
        "input": plan.path.name,
        "shards": len(plan),
        "settings": {**_about(plan, job.settings), **job.facts},
        "engine": {"name": engine.name, "workers": engine.workers},
        "machine": machine(),
    }
    write_whole(output / "config.json", json.dumps(config, indent=1, ensure_ascii=False) + "\n")


def _silent(done: int, failed: int, rows: int) -> None:
    """No progress is shown."""
