"""What is known of each posterior: enumerated where it can be, else pooled from two unrelated unbiased samplers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from locore.evidence import Draws
from locore.io import Journal, write_whole
from locore.kernel.errors import InvalidArgument, LocoreError, ZeroWeights
from locore.kernel.evidence.blocks import relative_error
from locore.kernel.numerics import NEG_INF
from locore.kernel.samplers.enumeration import price_of_enumeration
from locore.models import Counted
from locore.samplers import Enumeration, Rejection, Sampler, SequentialMonteCarlo, Twisted
from locore_lab.shared import seed_of
from locore_lab.tasks.features import Law, laws_of, mean_distance, shortened
from locore_lab.tasks.problem import Problem, Task

ENUMERATED = 6_000  # contexts, at most
KEPT = 1_000_000  # sequences of an enumeration
PILOT = 64  # unconstrained draws that choose the samplers
LIKELY = 0.05  # share of accepted draws from which counting them is one of the two ways
BATCHES, BATCH_TOKENS = (8, 24), 2_500  # of each sampler; the more where the fewer do not agree
AGREE = 3.0  # standard errors
VALUES = 40  # of a feature that are written down
PROBES = 5  # texts whose probability tells whether a model is the one that the truth speaks of
SAME_MODEL = 0.05  # nats by which their scores may differ
SAME_IN_16_BITS = 2.0  # where the weights have 16 bits
LEAST_ERROR = 1e-6

METHODS: dict[str, Sampler] = {
    "rejection": Rejection(),
    "smc": SequentialMonteCarlo(blocks=1),
    "twisted": Twisted(table=None, blocks=1),
}


@dataclass(frozen=True)
class Truth:
    """What is known about a problem.

    Attributes:
        key: of the problem.
        log_z: log p(α), nats.
        log_z_error: its standard error; 0 where it is exact.
        laws: feature -> value -> probability given α.
        laws_error: mean total variation between the laws that two samplers found, halved; 0 where they are exact.
        probes: token ids of some likely texts, and their log p(y).
        source: in words.
    """

    key: str
    log_z: float
    log_z_error: float
    laws: dict[str, Law]
    laws_error: float
    probes: list[tuple[list[int], float]]
    source: str


@dataclass(frozen=True, eq=False)
class Batch:
    """One unbiased estimate: log Ẑ, the laws of the features under its weights, and its likeliest sequences."""

    log_z: float
    laws: dict[str, Law]
    probes: list[tuple[list[int], float]]

    @classmethod
    def of(cls, task: Task, draws: Draws) -> Batch:
        """From what a sampler returned."""
        weights = torch.softmax(draws.log_weights, 0).tolist()
        texts: dict[str, float] = {}
        for y, weight in zip(draws.tokens.tolist(), weights, strict=True):
            text = task.model.tokenizer.decode(y)
            texts[text] = texts.get(text, 0.0) + weight
        laws = laws_of(task.problem.features, texts)
        log_z = float(torch.logsumexp(draws.log_weights, 0)) - math.log(len(draws.log_weights))
        assert draws.token_scores is not None
        scores = draws.token_scores.sum(-1)
        best = scores.topk(min(PROBES, len(scores))).indices
        probes = [(draws.tokens[i].tolist(), round(float(scores[i]), 5)) for i in best.tolist()]
        return cls(log_z, {name: shortened(law, 4 * VALUES) for name, law in laws.items()}, probes)


def stored_truth(problem: Problem, folders: Iterable[Path] = ()) -> Truth | None:
    """The truth of a problem, from one of the folders or from the package; None if it was never made."""
    packaged = Path(str(files("locore_lab"))) / "tasks" / "truths"
    for folder in (*folders, packaged):
        path = folder / f"{problem.name}.json"
        if path.exists():
            record = json.loads(path.read_text(encoding="utf-8"))
            if record["key"] == problem.key():
                probes = [(tokens, score) for tokens, score in record.pop("probes")]
                return Truth(**{**record, "probes": probes})
    return None


def write_truth(truth: Truth, path: Path) -> None:
    """Write a truth, a feature a line."""
    record: dict[str, Any] = asdict(truth)
    laws = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(law)}" for name, law in record.pop("laws").items())
    text = json.dumps(record)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, f'{text[:-1]},\n "laws": {{\n  {laws}\n }}}}\n')


def check_model(task: Task, truth: Truth, tolerance: float = SAME_MODEL) -> None:
    """Is the model the one that the truth speaks of, up to so many nats?"""
    target = task.target(Counted(task.model))
    for tokens, expected in truth.probes[:2]:
        known = max(tokens) < target.vocab_size
        score = float(target.score(torch.tensor([tokens]))[0]) if known else NEG_INF
        if abs(score - expected) > tolerance:
            raise InvalidArgument(
                f"the truth of {task.problem.name} was made with another model: a text scores {score:.3f} nats here and "
                f"{expected:.3f} there. Use the weights that docs/tasks.md names, in 32 bits."
            )


def find_truth(task: Task, journal: Journal, batches: tuple[int, ...] = BATCHES) -> Truth:
    """Enumerate or pool; batches that are in the journal are not made again.

    Args:
        batches: how many of each sampler; the next number is tried where two samplers do not agree.
    """
    reader = task.circuit.reader
    assert reader is not None  # all problems are compiled from left to right
    price = price_of_enumeration(reader, task.model.tokenizer.eos_ids)
    if price <= ENUMERATED:
        return _enumerated(task, price)
    accepted = int(task.circuit.accepts(task.model.sample(PILOT, task.problem.length, 0).tokens).sum())
    names = ("rejection", "smc") if accepted >= LIKELY * PILOT else ("smc", "twisted")
    *fewer, most = batches
    for number in fewer:
        try:
            return _pooled_of(task, names, number, journal)
        except LocoreError:
            continue
    return _pooled_of(task, names, most, journal)


def _pooled_of(task: Task, names: tuple[str, ...], number: int, journal: Journal) -> Truth:
    return pooled(task, {name: [_batch(task, name, k, journal) for k in range(number)] for name in names})


def _enumerated(task: Task, price: float) -> Truth:
    target = task.target(Counted(task.model))
    draws = Enumeration(max_contexts=ENUMERATED)(target, task.circuit, KEPT, None, torch.Generator().manual_seed(0))
    batch = Batch.of(task, draws)
    laws = {name: _rounded(shortened(law, VALUES)) for name, law in batch.laws.items()}
    source = f"enumeration of {len(draws.tokens):,} sequences, {price:,.0f} contexts"
    return Truth(task.problem.key(), round(batch.log_z, 6), 0.0, laws, 0.0, batch.probes, source)


def _batch(task: Task, name: str, number: int, journal: Journal) -> Batch:
    """A batch of the journal, or a new one that is written there."""
    place = (task.problem.name, task.problem.key(), name, number)
    if place not in journal:
        journal.append(place, asdict(_estimate(task, METHODS[name], seed_of("truth", *place))))
    record = journal[place]
    return Batch(record["log_z"], record["laws"], [(tokens, score) for tokens, score in record["probes"]])


def _estimate(task: Task, sampler: Sampler, seed: int) -> Batch:
    budget = max(BATCH_TOKENS, 24 * task.problem.length)
    counted = Counted(task.model)
    try:
        draws = sampler(task.target(counted), task.circuit, budget, budget, torch.Generator().manual_seed(seed))
    except ZeroWeights:
        return Batch(NEG_INF, {}, [])
    if draws.token_scores is None:
        draws = replace(draws, token_scores=task.target(counted).token_scores(draws.tokens))
    return Batch.of(task, draws)


@dataclass(frozen=True, eq=False)
class Pool:
    """The batches of one sampler together."""

    name: str
    ratio: Tensor  # f64[batches], Ẑ relative to exp(shift)
    shift: float
    laws: dict[str, Law]

    @classmethod
    def of(cls, name: str, batches: list[Batch]) -> Pool:
        """Average Ẑ, and the laws in proportion to Ẑ."""
        logs = torch.tensor([batch.log_z for batch in batches], dtype=torch.float64)
        shift = float(logs.max())
        if shift == NEG_INF:
            raise LocoreError(f"{name} found nothing in {len(batches)} batches: this truth is out of its reach.")
        ratio = (logs - shift).exp()
        laws: dict[str, Law] = {}
        for batch, share in zip(batches, (ratio / ratio.sum()).tolist(), strict=True):
            for feature, law in batch.laws.items():
                total = laws.setdefault(feature, {})
                for value, probability in law.items():
                    total[value] = total.get(value, 0.0) + share * probability
        return cls(name, ratio, shift, laws)

    @property
    def log_z(self) -> float:
        """Log of the mean Ẑ."""
        return self.shift + math.log(float(self.ratio.mean()))

    @property
    def error(self) -> float:
        """Standard error of the mean, relative to it."""
        return max(LEAST_ERROR, relative_error(self.ratio.log().tolist()))


def pooled(task: Task, batches: dict[str, list[Batch]]) -> Truth:
    """Two samplers' estimates with weights 1/variance, if they agree."""
    a, b = (Pool.of(name, found) for name, found in batches.items())
    words = "; ".join(f"{p.name} {p.log_z:.3f} ± {p.error:.3f} ({len(p.ratio)} batches)" for p in (a, b))
    if abs(a.log_z - b.log_z) > AGREE * math.hypot(a.error, b.error):
        raise LocoreError(f"{task.problem.name}: two unbiased samplers disagree: {words}. Make more batches.")
    share = b.error**2 / (a.error**2 + b.error**2)
    laws = {name: _mixed(a.laws[name], b.laws[name], share) for name in a.laws}
    apart = mean_distance(a.laws, {name: shortened(law, VALUES) for name, law in b.laws.items()})
    probes = sorted(
        (probe for found in batches.values() for batch in found for probe in batch.probes), key=lambda probe: -probe[1]
    )
    return Truth(
        task.problem.key(),
        round(share * a.log_z + (1 - share) * b.log_z, 4),
        round(a.error * b.error / math.hypot(a.error, b.error), 4),
        {name: _rounded(shortened(law, VALUES)) for name, law in laws.items()},
        round(apart / 2, 4),
        probes[:PROBES],
        f"pooled: {words}",
    )


def _mixed(one: Law, other: Law, share: float) -> Law:
    return {value: share * one.get(value, 0.0) + (1 - share) * other.get(value, 0.0) for value in one.keys() | other.keys()}


def _rounded(law: Law) -> Law:
    return {value: round(probability, 6) for value, probability in law.items()}
