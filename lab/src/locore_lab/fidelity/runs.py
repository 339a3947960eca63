"""One run of a sampler, through its protocol and a counting model; and runs added up."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.evidence import Particles, Run
from locore.kernel.errors import ZeroWeights
from locore.models import Counted, LanguageModel
from locore.samplers import Sampler
from locore_lab.fidelity.entries import Entry
from locore_lab.fidelity.truth import Truth

KEPT = 400  # sequences of a chunk's law that are written down, beside those that are most probable in truth
COSTS = ("lm_tokens", "lm_contexts", "seconds", "model_seconds", "cpu_seconds")
Law = dict[tuple[int, ...], float]


@dataclass(frozen=True, eq=False)
class Task:
    """A problem made ready: the model has read its prompt, the constraint is compiled."""

    model: LanguageModel
    circuit: Circuit
    truth: Truth

    @torch.no_grad()
    def score(self, tokens: Tensor) -> Tensor:
        """f64[batch], log p(y, α) of Long[batch, length]; −inf where a sequence violates the constraint."""
        return self.model.score(tokens).double().masked_fill(~self.circuit.accepts(tokens), float("-inf"))


@dataclass
class Chunk:
    """Sums over some runs of one sampler at one budget."""

    runs: int = 0  # how many, and how many of them returned nothing
    failed: int = 0
    violating: float = 0.0  # normalised weight of sequences that violate the constraint, added up
    # estimates of log p(α), −inf where a run failed; empty for samplers without weights
    log_z: list[float] = field(default_factory=list)
    lm_tokens: int = 0  # added up; the first two seconds are of the wall clock
    lm_contexts: int = 0
    seconds: float = 0.0
    model_seconds: float = 0.0
    cpu_seconds: float = 0.0
    verdicts: Counter[str] = field(default_factory=Counter)  # how often each was given
    law: Law = field(default_factory=dict)  # normalised weights of the sequences, added up; only the largest are kept
    # normalised weights of the first tokens, added up. Neither holds what violates the constraint
    first: dict[int, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values. They are rounded; what is read back and written again is the same."""
        record = {k: v for k, v in vars(self).items() if k not in ("law", "first", "log_z", "verdicts")}
        record["log_z"] = [None if z == float("-inf") else round(z, 7) for z in self.log_z]
        record["verdicts"] = dict(self.verdicts)
        record["law"] = [[list(y), float(f"{w:.9g}")] for y, w in self.law.items()]
        record["first"] = [[v, float(f"{w:.9g}")] for v, w in self.first.items()]
        return record

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Chunk:
        """What `to_json` wrote."""
        known = {k: v for k, v in record.items() if k in cls.__dataclass_fields__}
        known["log_z"] = [float("-inf") if z is None else z for z in record["log_z"]]
        known["verdicts"] = Counter(record["verdicts"])
        known["law"] = {tuple(y): w for y, w in record["law"]}
        known["first"] = {v: w for v, w in record["first"]}
        return cls(**known)


@torch.no_grad()
def call(
    sampler: Sampler, counted: Counted, law: LanguageModel, circuit: Circuit, num: int, budget: int | None, seed: int
) -> tuple[Particles | None, dict[str, Any]]:
    """What one call of a sampler gives, None if every weight was zero; and what it cost, whatever it gave.

    Args:
        counted: the prompted model, whose questions are counted.
        law: what is conditioned; `counted`, or what stops or steers it.
    """
    generator, draws = torch.Generator().manual_seed(seed), None
    start, cpu = time.perf_counter(), time.process_time()
    with suppress(ZeroWeights):
        draws = sampler(law, circuit, num, budget, generator)
    cost = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu, **counted.account()}
    if draws is None:
        return None, cost
    run = Run(sampler.name, seconds=cost["seconds"], **counted.account())
    return Particles.of(draws, counted.tokenizer, run), cost


def run_once(task: Task, sampler: Sampler, num: int, budget: int, seed: int) -> tuple[Particles | None, dict[str, Any]]:
    """One run on a task."""
    counted = Counted(task.model)
    return call(sampler, counted, counted, task.circuit, num, budget, seed)


def run_chunk(task: Task, entry: Entry, sampler: Sampler, budget: int, seeds: list[int]) -> Chunk:
    """Independent runs, added up; as they are read back from their JSON, so that a study that is continued gives the same."""
    chunk = Chunk()
    num = entry.particles(task.circuit.length, task.circuit.vocab_size, budget)
    for seed in seeds:
        particles, cost = run_once(task, sampler, num, budget, seed)
        chunk.runs += 1
        for name in COSTS:
            setattr(chunk, name, getattr(chunk, name) + cost[name])
        if particles is None:
            chunk.failed += 1
            chunk.log_z += [float("-inf")] if entry.weighted else []
            continue
        add_run(chunk, task, particles if entry.weighted else particles.unweighted())
    chunk.law = _shortened(chunk.law, task.truth)
    return Chunk.from_json(chunk.to_json())


def add_run(chunk: Chunk, task: Task, particles: Particles) -> None:
    """Add the law, the evidence and the verdict of one run."""
    if particles.record.weighted:
        chunk.log_z.append(particles.log_mean_weight)
    chunk.verdicts[particles.verdict.level] += 1
    right = task.circuit.accepts(particles.tokens).tolist()
    for y, weight, holds in zip(particles.tokens.tolist(), particles.weights.tolist(), right, strict=True):
        if not holds:
            chunk.violating += weight
            continue
        key = tuple(y)
        chunk.law[key] = chunk.law.get(key, 0.0) + weight
        chunk.first[y[0]] = chunk.first.get(y[0], 0.0) + weight


def _shortened(law: Law, truth: Truth) -> Law:
    """The largest entries, and all those that the truth is compared on."""
    wanted = truth.top
    ranked = sorted(law.items(), key=lambda item: -item[1])
    return dict([*ranked[:KEPT], *((y, w) for y, w in ranked[KEPT:] if y in wanted)])
