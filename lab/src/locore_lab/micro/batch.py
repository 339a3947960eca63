"""What a batch costs beside a bare loop over `locore.generate`, and what the cost model of docs/batch.md needs.

    python -m locore_lab.micro.batch [--ray] [--json lab/results/batch.json]

CPU seconds of one thread; both sides of a ratio take turns in one run, on the same rows with the same seeds. `--ray` adds the
throughput of the local engine, and of Ray with one and two workers, one after the other (extra `ray`). That is wall time: only
an idle machine gives rows a second, and a busy one at most their ratios.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

import locore
from locore.batch import Engine, Settings, run
from locore.batch.driver import _states
from locore.batch.plan import Plan, results_folder, results_path
from locore.batch.rows import Tally, seed_of
from locore.batch.worker import Worker
from locore.io import Journal
from locore_lab.micro.machine import machine

BAN = {"type": "ban", "phrases": ["awful", "hate"]}
WORKLOADS = {
    "small: smc, 4 particles of 4 tokens": Settings(constraint=BAN, max_new_tokens=4, num_particles=4, sampler="smc"),
    "default: auto, 32 particles of 20 tokens": Settings(constraint=BAN),
}
SHARD_ROWS = 5  # for the throughput
SCANNED = 2**28  # bytes of input for the speed of the first pass


def write_rows(path: Path, number: int) -> list[dict]:
    rows = [{"prompt": f"On day {i} the weather was", "id": i} for i in range(number)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def overhead(name: str, settings: Settings, number: int, turns: int, folder: Path) -> dict:
    """CPU seconds of the rows by `Worker.shard` and by a bare loop, in turns; the least of each counts."""
    path = folder / "prompts.jsonl"
    rows = write_rows(path, number)
    worker, plan = Worker(settings), Plan(path, number)
    seeds = [seed_of(settings.seed, row) for row in rows]
    options = {key: value for key, value in settings.defaults().items() if key not in ("constraint", "resample")}
    constraint = locore.from_json(settings.constraint)
    loop, batch, size = [], [], 0
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
            batch.append(time.process_time() - middle)
    return {
        "workload": name,
        "rows": number,
        "loop_ms_a_row": 1e3 * min(loop) / number,
        "batch_ms_a_row": 1e3 * min(batch) / number,
        "ratio": min(batch) / min(loop),
        "ratios": [b / a for a, b in zip(loop, batch, strict=True)],
        "bytes_a_row": size / number,
    }


def restart(folder: Path) -> dict:
    """What a start costs before the first row: the pass over the input, and looking at what is there."""
    path = folder / "large.jsonl"
    line = json.dumps({"prompt": "x" * 180}) + "\n"
    block = line * (2**20 // len(line))
    with path.open("w") as file:
        for _ in range(SCANNED // len(block)):
            file.write(block)
    start = time.process_time()
    plan = Plan(path, 10_000)
    scan = time.process_time() - start
    start = time.process_time()
    settings = WORKLOADS["small: smc, 4 particles of 4 tokens"]
    Worker(settings).facts()
    load = time.process_time() - start
    return {"scan_bytes_a_second": plan.num_bytes / scan, "load_tiny_seconds": load, **finished_shards(folder, 20_000)}


def finished_shards(folder: Path, shards: int) -> dict:
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


def throughput(engine: Engine, number: int, folder: Path) -> dict:
    """From the end of the first shards (one for each worker, and one more) to that of the last, so that no start counts."""
    path, workers = folder / "throughput.jsonl", engine.workers or 1
    write_rows(path, number)
    output = folder / f"{engine.name}{workers}"
    start = time.perf_counter()
    run(path, output, WORKLOADS["default: auto, 32 particles of 20 tokens"], engine, shard_rows=SHARD_ROWS)
    wall = time.perf_counter() - start
    ended = sorted((file.stat().st_mtime, file) for file in (output / "results").iterdir())
    before, counted = ended[: 1 + workers], ended[1 + workers :]
    rows = [json.loads(line) for _, file in counted for line in file.open()]
    span = counted[-1][0] - before[-1][0]
    in_rows = sum(row["seconds"] for row in rows)
    return {
        "engine": engine.name,
        "workers": workers,
        "rows_a_second": len(rows) / span,
        "seconds_in_a_row": in_rows / len(rows),
        "ms_a_row_outside_of_rows": 1e3 * (workers * span - in_rows) / len(rows),
        "wall_seconds": wall,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [
            overhead(name, settings, arguments.rows // (1 + 5 * i), arguments.turns, folder)  # the second kind is dear
            for i, (name, settings) in enumerate(WORKLOADS.items())
        ]
        result = {"machine": machine(), "load": os.getloadavg()[0], "overhead": rows, "restart": restart(folder)}
        if arguments.ray:
            os.environ.update(RAY_worker_niceness="0")  # as the local engine
            engines = Engine(), Engine("ray", workers=1), Engine("ray", workers=2)
            result["throughput"] = [throughput(engine, arguments.rows * 2, folder) for engine in engines]
    json.dump(result, sys.stdout, indent=2)
    print()
    print(f"median ratios: {[round(statistics.median(row['ratios']), 3) for row in rows]}", file=sys.stderr)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
