"""Minimum-cost paths on terrain maps, the paper's first experiment: a CNN-LSTM with and without the constraint."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import torch

from locore.io import Journal, Record, only_writer, require_same
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
COLUMNS = ["row", "samples", "maps", "models", *MEASURED, "paper: exact %", "paper: consistent %"]
APART = ["exact %, earlier", "exact %, now"]  # where rows of an earlier run are joined
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
    model_seed: Annotated[list[int] | None, option("Training seeds of the models; several times.")] = None,
    bfloat16: Annotated[bool, option("Whether training reads pictures in 16 bits; slow without instructions for it.")] = True,
    earlier: Annotated[Path | None, option("results.json of other models on the same maps, whose rows are joined.")] = None,
    maps: Annotated[int | None, option("Test maps.")] = None,
    samples: Annotated[list[int] | None, option("Drafts, pairs or particles for each path; several times.")] = None,
    rows: Annotated[Some, option("Only these rows, such as lcr; may be given several times.", "--row")] = None,
) -> list[Record]:
    """Minimum-cost paths on terrain maps, from pictures: a CNN-LSTM with and without the constraint "a simple path"."""
    plan = _planned(encoding, quick, maps, samples or ())
    plan = replace(plan, settings=replace(plan.settings, bfloat16=bfloat16))
    wanted = rows_meant(ROWS[plan.encoding], rows or ())
    with only_writer(output):
        test = load_maps(data, "test").written(plan.paths) if data else plan.drawn("test", plan.maps)
        test = test.first(plan.maps)
        settings: Record = {"seed": seed, "encoding": encoding, "maps": plan.maps, "horizon": test.horizon}
        settings |= {"memory": plan.memory, "data": _digest(test)}
        before = _Earlier.read(earlier, settings) if earlier else _Earlier()
        models = _given(weights, model_seed, test) if weights else _trained(plan, model_seed, data, output)
        names = [model.fingerprint() for model in models.values()]
        before.check_others(names)
        alpha = plan.paths.constraint(test.height, test.width, plan.memory)
        journal = Journal(output / "rows.jsonl", settings)
        lines = _lines(wanted, plan, len(test))
        _measure(journal, models, test, Task(alpha, test.horizon, 1), lines, seed)
        table = [_record(line, journal, names, before) for line in lines]
        text = _text(test, settings, len(names), len(before.models))
        settings["models"] = [*before.models, *names]
        columns = COLUMNS + APART * bool(earlier)
        write_report(output, "Warcraft: minimum-cost paths", text, table, columns, settings=settings)
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


@dataclass(frozen=True)
class _Earlier:
    """Rows of models that are no longer there."""

    models: Sequence[str] = ()  # their fingerprints
    rows: Sequence[Record] = ()

    @classmethod
    def read(cls, path: Path, settings: Record) -> _Earlier:
        """A `results.json` of the same maps."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            found = {**record["settings"]}
            earlier = cls(found.pop("models"), record["rows"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(f"{path} is no results.json of this experiment: {error!r}.") from None
        require_same(path, found, settings)
        return earlier

    def check_others(self, models: Sequence[str]) -> None:
        """None of the models that are measured now may be among these."""
        if both := {*self.models} & {*models}:
            raise InvalidArgument(
                f"the earlier rows have a model that is measured now ({', '.join(sorted(both))}); leave it out."
            )

    def of(self, row: Record) -> Record:
        """What is known of a row of this name, with as many samples and maps."""
        same = ("row", "samples", "maps")
        return next((each for each in self.rows if all(each[name] == row[name] for name in same)), {})


def _measure(
    journal: Journal, models: Mapping[int, PathModel], test: Maps, task: Task, lines: Sequence[Line], seed: int
) -> None:
    """Fill the journal: one line for each method, number of samples, model and map."""
    names = {m: model.fingerprint() for m, model in models.items()}
    todo = [(line, m, i) for m in models for i in range(len(test)) for line in lines if i < line.maps]
    todo = [(line, m, i) for line, m, i in todo if (line.name, names[m], i) not in journal]
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
        journal.append((line.name, names[m], i), {**record, **answer.notes})


def _record(line: Line, journal: Journal, names: Sequence[str], before: _Earlier) -> Record:
    """Means over maps for each model, then over models, with the standard error over models."""
    found = [[journal[line.name, name, i] for i in range(line.maps)] for name in names]
    row: Record = {"row": line.row.name, "samples": line.samples or 1, "maps": line.maps}
    known = before.of(row)
    for column, share in SHARES.items():
        now = [100 * mean(record[share] for record in records) for records in found]
        earlier: list[float] = known.get(f"{share} by model", [])
        row[f"{share} by model"] = each = [*earlier, *now]
        row[column] = _spread(each)
        if share == "exact" and before.models:
            row |= dict(zip(APART, (_spread(earlier), _spread(now)), strict=True))
    flat = [record for records in found for record in records]
    row["models"] = len(row["exact by model"])
    row["no answer"] = sum(record["tokens"] is None for record in flat) + known.get("no answer", 0)
    row["LM tokens"] = round(mean(record["lm_tokens"] for record in flat))
    row["seconds"] = mean(record["seconds"] for record in flat)
    row["paper: exact %"], row["paper: consistent %"] = PAPER.get(line.row.name, (None, None))
    return row


def _spread(each: Sequence[float]) -> str | None:
    """Mean and standard error, if there are two to tell it; None of nothing."""
    if not each:
        return None
    return f"{mean(each):.2f}" + (f" ± {stdev(each) / math.sqrt(len(each)):.2f}" if len(each) > 1 else "")


def _text(test: Maps, settings: Record, models: int, earlier: int) -> str:
    bits = "one bit for each edge of the grid with 4 neighbours"
    written = bits if settings["encoding"] == "edges" else "moves to 8 neighbours"
    joined = (
        f" {earlier} of the models were measured by an earlier version of Locore, whose samplers may have been others; its "
        "rows are joined as far as it had them. LM tokens and seconds are of this run alone."
    )
    return (
        f"Test maps of {test.height} × {test.width} cells, {models + earlier} trained models (± is the standard error over "
        f"them), one path for each map and row; paths are written as {written}, {settings['horizon']} tokens at most. Exact: a "
        "path of minimum cost. Label: the very path of the label. Consistent: a simple path between the corners. LM tokens and "
        "seconds (of wall time, one thread, without reading the picture) are for one path. The paper's model was trained on "
        "the original maps, which are not these." + joined * bool(earlier)
    )


def _given(weights: Sequence[Path], seeds: Sequence[int] | None, test: Maps) -> dict[int, PathModel]:
    """Models in files by their seeds, or in their order."""
    numbers = seeds or range(len(weights))
    if not len({*numbers}) == len(numbers) == len(weights):
        raise InvalidArgument(
            f"{len(weights)} files of weights for the seeds {', '.join(map(str, numbers))}; give one for each."
        )
    return dict(zip(numbers, (_load(path, test) for path in weights), strict=True))


def _trained(plan: WarcraftPlan, seeds: Sequence[int] | None, data: Path | None, output: Path) -> dict[int, PathModel]:
    """Models trained in the folder, as far as they are not there yet, by their seeds."""
    if data:
        maps, val = (load_maps(data, split).written(plan.paths) for split in ("train", "val"))
    else:
        maps, val = plan.drawn("train", plan.train), plan.drawn("val", plan.val)
    models = {}
    for seed in seeds or range(plan.seeds):
        train(plan.seeded(seed), maps, val, output / f"model{seed}", lambda line, seed=seed: _say(seed, line))  # type: ignore[misc]
        models[seed] = PathModel.load(output / f"model{seed}" / WEIGHTS)
    return models


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
