"""What a batch costs beside a bare loop over `locore.generate`, and what the cost model of docs/batch.md needs.

CPU seconds of one thread; both sides of a ratio take turns in one run, on the same rows with the same seeds.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import locore
from locore.batch import Settings
from locore.batch.driver import _states
from locore.batch.plan import Plan, results_folder, results_path
from locore.batch.rows import Tally, seed_of
from locore.batch.worker import Worker
from locore.io import Journal
from locore_lab.harness import Case, Row, measurement

BAN = {"type": "ban", "phrases": ["awful", "hate"]}
WORKLOADS = {
    "small: smc, 4 particles of 4 tokens": Settings(constraint=BAN, max_new_tokens=4, num_particles=4, sampler="smc"),
    "default: auto, 32 particles of 20 tokens": Settings(constraint=BAN),
}


def write_rows(path: Path, number: int) -> list[Row]:
    rows = [{"prompt": f"On day {i} the weather was", "id": i} for i in range(number)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def overhead(settings: Settings, number: int, turns: int, folder: Path) -> Row:
    """CPU seconds of the rows by `Worker.shard` and by a bare loop, in turns; the least of each counts."""
    path = folder / "prompts.jsonl"
    rows = write_rows(path, number)
    worker, plan = Worker(settings), Plan(path, number)
    seeds = [seed_of(settings.seed, row) for row in rows]
    options = {key: value for key, value in settings.defaults().items() if key not in ("constraint", "resample")}
    constraint = locore.from_json(settings.constraint)
    loop, shard, size = [], [], 0
    for turn in range(turns + 1):  # the first one warms up
        start = time.process_time()
        for row, seed in zip(rows, seeds, strict=True):
            locore.generate(worker.model, row["prompt"], constraint, seed=seed, **options)
        middle = time.process_time()
        output = folder / f"{turn}-{len(loop)}-{number}"
        for part in ("parts", "results"):
            (output / part).mkdir(parents=True)
        size = worker.shard(path, output, plan[0], "run")["bytes"]
        if turn:
            loop.append(middle - start)
            shard.append(time.process_time() - middle)
    return {
        "rows": number,
        "loop_ms_a_row": 1e3 * min(loop) / number,
        "batch_ms_a_row": 1e3 * min(shard) / number,
        "ratio": min(shard) / min(loop),
        "ratios": [b / a for a, b in zip(loop, shard, strict=True)],
        "bytes_a_row": size / number,
    }


def restart(folder: Path, scanned: int) -> Row:
    """What a start costs before the first row: the pass over the input, and looking at what is there."""
    path = folder / "large.jsonl"
    line = json.dumps({"prompt": "x" * 180}) + "\n"
    block = line * (2**20 // len(line))
    with path.open("w") as file:
        for _ in range(max(1, scanned // len(block))):
            file.write(block)
    start = time.process_time()
    plan = Plan(path, 10_000)
    scan = time.process_time() - start
    start = time.process_time()
    settings = WORKLOADS["small: smc, 4 particles of 4 tokens"]
    Worker(settings).facts()
    load = time.process_time() - start
    return {"scan_bytes_a_second": plan.num_bytes / scan, "load_tiny_seconds": load, **finished_shards(folder, 20_000)}


def finished_shards(folder: Path, shards: int) -> Row:
    """What a resumed run does for each shard that is finished."""
    path = folder / "short.jsonl"
    path.write_text("{}\n" * shards)
    results_folder(folder).mkdir()
    tally, line = Tally(rows=1).to_json(), '{"line":1,"seconds":0}\n'
    with (folder / "progress.jsonl").open("w") as journal:
        journal.write('{"settings":{}}\n')
        for shard in range(shards):
            results_path(folder, shard).write_text(line)
            journal.write(json.dumps({"key": [shard, len(line)], **tally}) + "\n")
    plan, start = Plan(path, 1), time.process_time()
    done = sum(report is not None for _, report in _states(folder, plan, Journal(folder / "progress.jsonl", {})))
    assert done == shards
    return {"ms_a_finished_shard": 1e3 * (time.process_time() - start) / shards}


@measurement(
    "workload | rows | a loop, ms a row | a batch | ratio | bytes a row",
    "{workload} | {rows} | {loop_ms_a_row:.1f} | {batch_ms_a_row:.1f} | {ratio:.3f} | {bytes_a_row:,.0f}",
    quick={"rows": 6, "turns": 1, "scanned": 2**20},
    start=(
        "input, bytes a CPU second | loading, s | a finished shard, ms",
        "{scan_bytes_a_second:,.0f} | {load_tiny_seconds:.2f} | {ms_a_finished_shard:.3f}",
    ),
)
def run(
    rows: int = 60, turns: int = 5, scanned: Annotated[int, "bytes of input for the speed of the first pass"] = 2**28
) -> Iterator[Case]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i, (workload, settings) in enumerate(WORKLOADS.items()):  # the second kind is dear
            yield {"workload": workload}, partial(overhead, settings, rows // (1 + 5 * i), turns, folder)
        yield {"part": "start"}, partial(restart, folder, scanned)
