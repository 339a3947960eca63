"""`locore reproduce warcraft`: the paper's first experiment."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from locore import simple_moves
from locore.errors import InvalidArgument, MissingExtra
from locore.io import Journal, Record, only_writer, write_report
from locore_lab.shared import seed_of, shown
from locore_lab.warcraft.dataset import Maps, generate_maps, horizon, load_maps
from locore_lab.warcraft.figures import draw_paths
from locore_lab.warcraft.grading import grade
from locore_lab.warcraft.methods import METHODS, Task
from locore_lab.warcraft.model import PathModel
from locore_lab.warcraft.paths import STOP
from locore_lab.warcraft.training import WEIGHTS, Settings, train

DATA_SEED = 0
MEASURED = ["exact %", "label %", "consistent %", "no answer", "LM tokens", "seconds"]
COLUMNS = ["row", *MEASURED, "paper: exact %", "paper: consistent %"]
SHARES = {"exact %": "exact", "label %": "equal", "consistent %": "consistent"}
PAPER = {
    "CNN-LSTM": (62.00, 76.60),
    "+ oversampling": (69.10, 84.50),
    "+ Locore, the paper's sampler (lcr)": (78.13, 100.00),
}
SHOWN_MAPS = 5


@dataclass(frozen=True)
class WarcraftPlan:
    """How large the experiment is.

    Attributes:
        size: rows and columns of cells.
        maps: test maps.
        samples: drafts or particles of every method but the first.
        seeds: models trained here, where no weights are given.
        train, epochs: maps and epochs of their training.
        memory: cells that the circuit remembers, see `locore.simple_moves`.
    """

    size: int = 12
    maps: int = 1000
    samples: int = 10
    seeds: int = 3
    train: int = 10_000
    epochs: int = Settings.epochs
    memory: int = 2


QUICK = WarcraftPlan(size=5, maps=12, samples=5, seeds=2, train=350, epochs=10)


def run(
    output: Path,
    quick: bool = False,
    data: Path | None = None,
    seed: int = 0,
    weights: Sequence[Path] = (),
    maps: int | None = None,
    samples: int | None = None,
    rows: Sequence[str] = (),
) -> list[Record]:
    """Draw one path for each test map by each method, and write `results.json`, `table.md` and `paths.png`.

    Args:
        output: folder of the results; a run that was killed goes on where it stopped.
        quick: maps of 4 × 4 and models trained in seconds; every row and column.
        data: folder of the original `.npy` files; maps are generated if it is not given.
        seed: of the draws.
        weights: files of trained models, one for each seed of the training; without any, models are trained here first.
        maps: how many of the test maps.
        samples: drafts or particles of every method but the first.
        rows: names of methods, or the beginnings of such names; all if empty.

    Returns:
        The rows of the table.

    Raises:
        InvalidArgument: there are not so many maps, no such method, or the folder holds results of other settings.
    """
    plan = QUICK if quick else WarcraftPlan()
    num, samples = maps or plan.maps, samples or plan.samples
    if num < 1 or samples < 1:
        raise InvalidArgument(f"maps and samples must be at least 1, got {num} and {samples}.")
    methods = _chosen(rows)
    with only_writer(output):
        test = load_maps(data, "test") if data else generate_maps(max(num, 1), DATA_SEED, "test", plan.size, plan.size)
        test = test.first(num)
        models = [_load(path, test) for path in weights] or _trained(plan, data, output)
        length = max(horizon(test), 2 * plan.size)
        corner = (test.height - 1, test.width - 1)
        alpha = simple_moves(test.height, test.width, (0, 0), corner, memory=plan.memory)
        settings: Record = {"seed": seed, "maps": num, "samples": samples, "horizon": length, "memory": plan.memory}
        settings |= {"data": _digest(test), "models": [model.fingerprint() for model in models]}
        journal = Journal(output / "rows.jsonl", settings)
        _measure(journal, models, test, Task(alpha, length, samples), methods, seed)
        table = [_row(name, journal, len(models), num) for name in methods]
        text = _text(test, settings, len(models))
        write_report(output, "Warcraft: minimum-cost paths", text, table, COLUMNS, settings=settings)
        _picture(output, journal, test, methods)
    return table


def _measure(journal: Journal, models: list[PathModel], test: Maps, task: Task, methods: Sequence[str], seed: int) -> None:
    """Fill the journal: one line for each method, model and map."""
    todo = [(name, m, i) for m in range(len(models)) for i in range(len(test)) for name in methods]
    todo = [key for key in todo if key not in journal]
    prompted: dict[tuple[int, int], PathModel] = {}
    for name, m, i in shown(todo, "warcraft"):
        if (m, i) not in prompted:
            prompted = {(m, i): models[m].prompted(test.images[i])}
        with torch.no_grad():
            answer = METHODS[name](prompted[m, i], task, seed_of(seed, name, m, i))
        record: Record = {"tokens": answer.tokens, "lm_tokens": answer.lm_tokens, "seconds": round(answer.seconds, 4)}
        one = Maps(test.images[i : i + 1], test.weights[i : i + 1], test.labels[i : i + 1])
        tokens = [STOP] * task.length if answer.tokens is None else answer.tokens
        grades = grade(torch.tensor([tokens]), one)
        record |= {share: bool(getattr(grades, share)[0]) for share in SHARES.values()}
        journal.append((name, m, i), {**record, **answer.notes})


def _row(name: str, journal: Journal, models: int, maps: int) -> Record:
    """Means over maps for each model, then over models, with the standard error over models."""
    found = [[journal[name, m, i] for i in range(maps)] for m in range(models)]
    row: Record = {"row": name}
    for column, share in SHARES.items():
        each = [100 * mean(record[share] for record in records) for records in found]
        row[column] = f"{mean(each):.2f}" + (f" ± {stdev(each) / math.sqrt(models):.2f}" if models > 1 else "")
        row[f"{share} by model"] = each
    flat = [record for records in found for record in records]
    row["no answer"] = sum(record["tokens"] is None for record in flat)
    row["LM tokens"] = round(mean(record["lm_tokens"] for record in flat))
    row["seconds"] = mean(record["seconds"] for record in flat)
    row["paper: exact %"], row["paper: consistent %"] = PAPER.get(name, (None, None))
    return row


def _text(test: Maps, settings: Record, models: int) -> str:
    return (
        f"{len(test)} test maps of {test.height} × {test.width} cells, {models} trained models (± is the standard error over "
        f"them), one path for each map and row; {settings['samples']} samples for each path where a row draws several, horizon "
        f"{settings['horizon']} tokens. Exact: a path of minimum cost. Label: the very path of the label. Consistent: a simple "
        "path between the corners. LM tokens and seconds (of wall time, one thread, without reading the picture) are for one "
        "path. The paper's model was trained on the original maps, which are not these."
    )


def _trained(plan: WarcraftPlan, data: Path | None, output: Path) -> list[PathModel]:
    """Models trained in the folder, as far as they are not there yet."""
    if data:
        maps, val = load_maps(data, "train"), load_maps(data, "val")
    else:
        maps = generate_maps(plan.train, DATA_SEED, "train", plan.size, plan.size)
        val = generate_maps(max(plan.train // 10, 1), DATA_SEED, "val", plan.size, plan.size)
    for seed in range(plan.seeds):
        settings = Settings(seed=seed, epochs=plan.epochs, warmup=min(Settings.warmup, plan.train // 70))
        train(settings, maps, val, output / f"model{seed}", lambda line, seed=seed: _say(seed, line))  # type: ignore[misc]
    return [PathModel.load(output / f"model{seed}" / WEIGHTS) for seed in range(plan.seeds)]


def _say(seed: int, line: dict[str, Any]) -> None:
    print(f"model {seed}, epoch {line['epoch']}: {line['exact']:.1%} exact on validation maps", file=sys.stderr, flush=True)


def _load(path: Path, test: Maps) -> PathModel:
    model = PathModel.load(path)
    if (model.network.height, model.network.width) != (test.height, test.width):
        raise InvalidArgument(
            f"{path} is a model of {model.network.height} × {model.network.width} maps, the test maps are {test.height} × "
            f"{test.width}; give others."
        )
    return model


def _chosen(rows: Sequence[str]) -> list[str]:
    """The methods whose names begin with, or contain in brackets, one of these."""
    unknown = [row for row in rows if not any(_is_meant(row, name) for name in METHODS)]
    if unknown:
        raise InvalidArgument(f"there is no row {unknown[0]!r}; the rows are {'; '.join(METHODS)}.")
    return [name for name in METHODS if not rows or any(_is_meant(row, name) for row in rows)]


def _is_meant(row: str, name: str) -> bool:
    return bool(row) and (name.startswith(row) or f"({row})" in name)


def _picture(output: Path, journal: Journal, test: Maps, methods: Sequence[str]) -> None:
    """The paths of the first maps by the first model; without matplotlib a line that says so."""
    num = min(SHOWN_MAPS, len(test))
    rows = {}
    for name in methods:
        paths = [journal[name, 0, i]["tokens"] for i in range(num)]
        if all(path is not None for path in paths):
            rows[name] = torch.tensor(paths)
    try:
        draw_paths(test.first(num), rows, output / "paths.png")
    except MissingExtra as error:
        print(f"no picture: {error}", file=sys.stderr)


def _digest(maps: Maps) -> str:
    return hashlib.sha256(maps.images.tobytes() + maps.weights.tobytes()).hexdigest()[:16]
