"""Minimum-cost paths on terrain maps, the paper's first experiment: a CNN-LSTM with and without the constraint."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import torch

from locore.io import Journal, Record, only_writer
from locore.kernel.errors import InvalidArgument
from locore_lab.harness import Data, Output, Quick, Seed, Some, experiment, option, write_report
from locore_lab.shared import rows_meant, seed_of, shown
from locore_lab.warcraft.dataset import Maps, generate_maps, grade, load_maps
from locore_lab.warcraft.methods import ROWS, Row, Task, few_edges
from locore_lab.warcraft.model import PathModel
from locore_lab.warcraft.paths import ENCODINGS, Encoding
from locore_lab.warcraft.training import WEIGHTS, Settings, train

DATA_SEED = 0


@dataclass(frozen=True)
class WarcraftPlan:
    """Sizes."""

    encoding: str = "edges"  # how paths are written as tokens, a name of `ENCODINGS`
    size: int = 8  # rows and columns of cells
    maps: int = 300  # test maps
    costly: int = 100  # how many of them where a row asks for every neighbour of a draft
    # drafts, pairs or particles of a row that draws several; such a row is repeated for each
    samples: tuple[int, ...] = (2, 5, 10)
    seeds: int = 3  # models trained here, where no weights are given
    train: int = 20_000  # maps to train on and to validate on
    val: int = 500
    # of their training
    settings: Settings = field(
        default_factory=lambda: Settings(epochs=6, looks=4, batch=50, draws=1, aside=1.0, encoder_epochs=2.5)
    )
    memory: int = 2  # cells that the circuit remembers, see `locore.simple_moves`

    @property
    def paths(self) -> Encoding:
        """How they are written."""
        return ENCODINGS[self.encoding]

    def drawn(self, split: str, num: int) -> Maps:
        """Maps of this size."""
        return generate_maps(num, DATA_SEED, split, self.size, self.size, encoding=self.paths)

    def seeded(self, seed: int) -> Settings:
        """The settings of one training."""
        return replace(self.settings, seed=seed, warmup=min(self.settings.warmup, self.train // self.settings.batch))


WHOLE = {
    "edges": WarcraftPlan(),
    "moves": WarcraftPlan(
        encoding="moves", size=12, maps=1000, costly=1000, samples=(10,), train=10_000, val=1000, settings=Settings()
    ),
}
QUICK = {
    "edges": WarcraftPlan(
        size=4, maps=2, costly=2, samples=(2, 5), seeds=2, train=80, val=20, settings=Settings(epochs=3, batch=40, draws=1)
    ),
    "moves": WarcraftPlan(
        encoding="moves", size=5, maps=12, costly=12, samples=(5,), seeds=2, train=350, val=35, settings=Settings(epochs=10)
    ),
}


MEASURED = ["exact %", "label %", "consistent %", "no answer", "LM tokens", "seconds"]
COLUMNS = ["row", "samples", "maps", *MEASURED, "paper: exact %", "paper: consistent %"]
SHARES = {"exact %": "exact", "label %": "equal", "consistent %": "consistent"}
PAPER = {"CNN-LSTM": (62.00, 76.60), "+ oversampling": (69.10, 84.50), "+ the paper's sampler (lcr-published)": (78.13, 100.00)}


@dataclass(frozen=True)
class Line:
    """A line of the table: a row with the number of samples that it draws, and the maps that it gets."""

    row: Row
    samples: int | None
    maps: int

    @property
    def name(self) -> str:
        """In the journal."""
        return self.row.name if self.samples is None else f"{self.row.name}, {self.samples}"


@experiment("locore reproduce warcraft --quick -o results")
def run(
    output: Output,
    quick: Quick = False,
    data: Data = None,
    seed: Seed = 0,
    encoding: Annotated[str, option("How a path is written: edges, as the authors do, or moves.")] = "edges",
    weights: Annotated[list[Path] | None, option("Trained models, one for each training seed.")] = None,
    maps: Annotated[int | None, option("Test maps.")] = None,
    samples: Annotated[list[int] | None, option("Drafts, pairs or particles for each path; several times.")] = None,
    rows: Annotated[Some, option("Only these rows, such as lcr; may be given several times.", "--row")] = None,
) -> list[Record]:
    """Minimum-cost paths on terrain maps, from pictures: a CNN-LSTM with and without the constraint "a simple path"."""
    plan = _planned(encoding, quick, maps, samples or ())
    wanted = rows_meant(ROWS[plan.encoding], rows or ())
    with only_writer(output):
        test = load_maps(data, "test").written(plan.paths) if data else plan.drawn("test", plan.maps)
        test = test.first(plan.maps)
        models = [_load(path, test) for path in weights or ()] or _trained(plan, data, output)
        alpha = plan.paths.constraint(test.height, test.width, plan.memory)
        settings: Record = {
            "seed": seed,
            "encoding": encoding,
            "maps": plan.maps,
            "horizon": test.horizon,
            "memory": plan.memory,
        }
        settings |= {"data": _digest(test), "models": [model.fingerprint() for model in models]}
        journal = Journal(output / "rows.jsonl", settings)
        lines = _lines(wanted, plan, len(test))
        _measure(journal, models, test, Task(alpha, test.horizon, 1), lines, seed)
        table = [_record(line, journal, len(models)) for line in lines]
        text = _text(test, settings, len(models))
        write_report(output, "Warcraft: minimum-cost paths", text, table, COLUMNS, settings=settings)
    return table


def _planned(encoding: str, quick: bool, maps: int | None, samples: Sequence[int]) -> WarcraftPlan:
    """The plan with what was asked for."""
    plans = QUICK if quick else WHOLE
    if encoding not in plans:
        raise InvalidArgument(f"there is no encoding {encoding!r}; the encodings are {', '.join(plans)}.")
    plan = plans[encoding]
    plan = replace(plan, maps=plan.maps if maps is None else maps, samples=tuple(samples) or plan.samples)
    if plan.maps < 1 or min(plan.samples) < 1:
        raise InvalidArgument(f"maps and samples must be at least 1, got {plan.maps} and {', '.join(map(str, plan.samples))}.")
    return plan


def _lines(rows: Sequence[Row], plan: WarcraftPlan, maps: int) -> list[Line]:
    """Every row with each number of samples."""
    fewer = min(plan.costly, maps)
    return [
        Line(row, number, fewer if row.costly else maps)
        for row in rows
        for number in (plan.samples if row.samples else (None,))
    ]


def _measure(journal: Journal, models: list[PathModel], test: Maps, task: Task, lines: Sequence[Line], seed: int) -> None:
    """Fill the journal: one line for each method, number of samples, model and map."""
    todo = [(line, m, i) for m in range(len(models)) for i in range(len(test)) for line in lines if i < line.maps]
    todo = [(line, m, i) for line, m, i in todo if (line.name, m, i) not in journal]
    prompted: dict[tuple[int, int], PathModel] = {}
    for line, m, i in shown(todo, "warcraft"):
        if (m, i) not in prompted:
            prompted = {(m, i): models[m].prompted(test.images[i])}
        one = test.one(i)
        asked = replace(task, samples=line.samples or 1)
        if line.row.few_edges:
            asked = few_edges(asked, test.height, test.width)
        with torch.no_grad():
            answer = line.row.method(prompted[m, i], asked, seed_of(seed, line.name, m, i))
        record: Record = {"tokens": answer.tokens, "lm_tokens": answer.lm_tokens, "seconds": round(answer.seconds, 4)}
        grades = None if answer.tokens is None else grade(torch.tensor([answer.tokens]), one)
        record |= {share: grades is not None and bool(getattr(grades, share)[0]) for share in SHARES.values()}
        journal.append((line.name, m, i), {**record, **answer.notes})


def _record(line: Line, journal: Journal, models: int) -> Record:
    """Means over maps for each model, then over models, with the standard error over models."""
    found = [[journal[line.name, m, i] for i in range(line.maps)] for m in range(models)]
    row: Record = {"row": line.row.name, "samples": line.samples or 1, "maps": line.maps}
    for column, share in SHARES.items():
        each = [100 * mean(record[share] for record in records) for records in found]
        row[column] = f"{mean(each):.2f}" + (f" ± {stdev(each) / math.sqrt(models):.2f}" if models > 1 else "")
        row[f"{share} by model"] = each
    flat = [record for records in found for record in records]
    row["no answer"] = sum(record["tokens"] is None for record in flat)
    row["LM tokens"] = round(mean(record["lm_tokens"] for record in flat))
    row["seconds"] = mean(record["seconds"] for record in flat)
    row["paper: exact %"], row["paper: consistent %"] = PAPER.get(line.row.name, (None, None))
    return row


def _text(test: Maps, settings: Record, models: int) -> str:
    bits = "one bit for each edge of the grid with 4 neighbours"
    written = bits if settings["encoding"] == "edges" else "moves to 8 neighbours"
    return (
        f"Test maps of {test.height} × {test.width} cells, {models} trained models (± is the standard error over them), one "
        f"path for each map and row; paths are written as {written}, {settings['horizon']} tokens at most. Exact: a path of "
        "minimum cost. Label: the very path of the label. Consistent: a simple path between the corners. LM tokens and seconds "
        "(of wall time, one thread, without reading the picture) are for one path. The paper's model was trained on the "
        "original maps, which are not these."
    )


def _trained(plan: WarcraftPlan, data: Path | None, output: Path) -> list[PathModel]:
    """Models trained in the folder, as far as they are not there yet."""
    if data:
        maps, val = (load_maps(data, split).written(plan.paths) for split in ("train", "val"))
    else:
        maps, val = plan.drawn("train", plan.train), plan.drawn("val", plan.val)
    for seed in range(plan.seeds):
        train(plan.seeded(seed), maps, val, output / f"model{seed}", lambda line, seed=seed: _say(seed, line))  # type: ignore[misc]
    return [PathModel.load(output / f"model{seed}" / WEIGHTS) for seed in range(plan.seeds)]


def _say(seed: int, line: dict[str, Any]) -> None:
    if line["learns"] == "encoder":
        found = f"the encoder learns, {line['train_loss']:.1f} nats a path"
    else:
        found = f"{line['exact']:.1%} exact on validation maps"
    print(f"model {seed}, epoch {line['epoch']:g}: {found}", file=sys.stderr, flush=True)


def _load(path: Path, test: Maps) -> PathModel:
    model = PathModel.load(path)
    if model.network.encoding != test.encoding:
        raise InvalidArgument(
            f"{path} is a model of {model.network.encoding.name}, not of {test.encoding.name}; give others, or --encoding."
        )
    if (model.network.height, model.network.width) != (test.height, test.width):
        raise InvalidArgument(
            f"{path} is a model of {model.network.height} × {model.network.width} maps, the test maps are {test.height} × "
            f"{test.width}; give others."
        )
    return model


def _digest(maps: Maps) -> str:
    return hashlib.sha256(maps.images.tobytes() + maps.weights.tobytes()).hexdigest()[:16]
