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
from locore.kernel.numerics import NEG_INF
from locore.models import Counted
from locore.samplers import Enumeration, Rejection, Sampler, SequentialMonteCarlo, Twisted
from locore.samplers.enumeration import price_of_enumeration
from locore_lab.fidelity.truth import Estimate, agreed
from locore_lab.shared import seed_of
from locore_lab.tasks.problem import Law, Problem, Task, laws_of, mean_distance, mixed, shortened

ENUMERATED = 6_000  # contexts, at most
KEPT = 1_000_000  # sequences of an enumeration
PILOT = 64  # unconstrained draws that choose the samplers
LIKELY = 0.05  # share of accepted draws from which counting them is one of the two ways
BATCHES, BATCH_TOKENS = (8, 24), 2_500  # of each sampler; the more where the fewer do not agree
VALUES = 40  # of a feature that are written down
PROBES = 5  # texts whose probability tells whether a model is the one that the truth speaks of
SAME_MODEL = 0.05  # nats by which their scores may differ
SAME_IN_16_BITS = 2.0  # where the weights have 16 bits

METHODS: dict[str, Sampler] = {
    "rejection": Rejection(),
    "smc": SequentialMonteCarlo(blocks=1),
    "twisted": Twisted(table=None, blocks=1),
}


@dataclass(frozen=True)
class Truth:
    """What is known about a problem."""

    key: str  # of the problem
    log_z: float  # log p(α), nats
    log_z_error: float  # its standard error; 0 where it is exact
    laws: dict[str, Law]  # feature -> value -> probability given α
    laws_error: float  # mean total variation between the laws that two samplers found, halved; 0 where they are exact
    probes: list[tuple[list[int], float]]  # token ids of some likely texts, and their log p(y)
    source: str  # in words


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


def tolerance(dtype: str) -> float:
    """Nats by which scores of weights of this type may differ from a truth."""
    return SAME_MODEL if dtype == "float32" else SAME_IN_16_BITS


def check_model(task: Task, truth: Truth, tolerance: float = SAME_MODEL) -> None:
    """Is the model the one that the truth speaks of, up to so many nats?"""
    target = task.target(Counted(task.model))
    for tokens, expected in truth.probes[:2]:
        known = max(tokens) < target.vocab_size
        score = float(target.score(torch.tensor([tokens]))[0]) if known else NEG_INF
        if abs(score - expected) > tolerance:
            raise InvalidArgument(
                f"the truth of {task.problem.name} was made with another model: a text scores {score:.3f} nats here and "
                f"{expected:.3f} there. Use the weights that docs/lab/tasks.md names, in 32 bits."
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


def pooled(task: Task, batches: dict[str, list[Batch]]) -> Truth:
    """Two samplers' estimates with weights 1/variance, if they agree; `LocoreError` if they do not."""
    a, b = (Estimate.of(name, [batch.log_z for batch in found]) for name, found in batches.items())
    log_z, error, source = agreed([a, b])
    ours, theirs = (_averaged(found, each.ratio) for found, each in zip(batches.values(), (a, b), strict=True))
    share = b.error**2 / (a.error**2 + b.error**2)
    laws = {name: mixed([(ours[name], share), (theirs[name], 1 - share)]) for name in ours}
    apart = mean_distance(ours, {name: shortened(law, VALUES) for name, law in theirs.items()})
    probes = [probe for found in batches.values() for batch in found for probe in batch.probes]
    return Truth(
        task.problem.key(),
        round(log_z, 4),
        round(error, 4),
        {name: _rounded(shortened(law, VALUES)) for name, law in laws.items()},
        round(apart / 2, 4),
        sorted(probes, key=lambda probe: -probe[1])[:PROBES],
        source,
    )


def _averaged(batches: list[Batch], ratio: Tensor) -> dict[str, Law]:
    """The laws of batches, in proportion to Ẑ."""
    shares = (ratio / ratio.sum()).tolist()
    names = dict.fromkeys(name for batch in batches for name in batch.laws)
    return {name: mixed([(b.laws.get(name, {}), share) for b, share in zip(batches, shares, strict=True)]) for name in names}


def _rounded(law: Law) -> Law:
    return {value: round(probability, 6) for value, probability in law.items()}
