"""A real model writes a text for each of many real schemas; `jsonschema` judges them."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import numpy as np
from jsonschema.validators import validator_for

import locore
from locore import json_schema
from locore.io import Journal, write_whole
from locore.kernel.errors import LocoreError, MissingTemplate, Unsatisfiable
from locore.models import LanguageModel
from locore.models.meeting import together
from locore_lab.harness import Output, experiment, option
from locore_lab.json_suites.command import SchemaCase, maskbench
from locore_lab.shared import seed_of, shown

SHOWN = 2_000  # characters of the schema that the model is told
ASKED = "Write a JSON document that is valid for this JSON Schema. Answer with the document alone.\n\n"


@dataclass(frozen=True)
class Sample:
    """One schema, and what became of it."""

    outcome: str  # "text"; "no text" if none of the length is valid; "refused", or the kind of error
    reason: str = ""
    text: str = ""
    valid: bool = False  # does `jsonschema` accept the text?
    whole: bool = False  # can nothing follow it, or has the model ended it?
    tokens: int = 0  # of the text; seconds of compiling, and of all the rest, beside other schemas
    compile_seconds: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class SamplesPlan:
    """How texts are made; see `run`."""

    tokens: int
    sampler: str
    particles: int
    seed: int
    model: str
    together: int


@experiment("locore bench json-samples --data ../shared/data/json -o results", "samples.md")
def run(
    output: Output,
    data: Annotated[Path, option("Folder with maskbench_dev.jsonl.xz.")],
    schemas: Annotated[int, option("Of MaskBench, drawn by the seed.")] = 200,
    tokens: Annotated[int, option("The horizon.")] = 512,
    sampler: Annotated[str, option("By name.")] = "quick",
    particles: Annotated[int, option("Of each schema; one text is drawn of them by weight.")] = 1,
    seed: Annotated[int, option("Of the schemas and the texts.")] = 0,
    model: Annotated[str, option("As locore.load knows it.")] = "smollm2",
    beside: Annotated[int, option("Schemas that are written for beside each other.", "--together")] = 16,
) -> None:
    """A real model writes a text for each of many real schemas: how many are answered, valid and whole, and the seconds."""
    plan = SamplesPlan(tokens, sampler, particles, seed, model, beside)
    journal = Journal(output / "samples.jsonl", asdict(plan))  # what is in there is not made again
    cases = [case for _, case in maskbench(data, schemas, plan.seed)]
    todo = [case for case in cases if (case.name,) not in journal]

    def written(case: SchemaCase, model: LanguageModel) -> Sample:
        return sample(model, case.schema, plan, seed_of(plan.seed, case.name))

    found = together(locore.load(plan.model), (partial(written, case) for case in todo), plan.together)
    for case, one in zip(shown(todo, "texts"), found, strict=True):
        journal.append((case.name,), asdict(one))
    samples = [Sample(**journal[case.name,]) for case in cases]
    write_whole(output / "samples.md", table(samples))
    write_whole(output / "samples.json", json.dumps(_numbers(samples), indent=1))


def sample(model: LanguageModel, schema: Any, plan: SamplesPlan, seed: int) -> Sample:
    """One text, drawn by weight."""
    start = time.perf_counter()
    try:
        constraint = json_schema(schema)
        locore.compile(constraint, model, plan.tokens)
    except Unsatisfiable as error:
        return Sample("no text", str(error)[:300])
    except LocoreError as error:
        return Sample("refused", str(error)[:300])
    compiled = time.perf_counter()
    asked = ASKED + json.dumps(schema)[:SHOWN]
    try:
        prompted = model.prompted([{"role": "user", "content": asked}])
    except MissingTemplate:
        prompted = model.prompted(asked + "\n")
    try:
        found = locore.generate(
            prompted, "", constraint, plan.tokens, sampler=plan.sampler, num_particles=plan.particles, seed=seed
        )
    except LocoreError as error:
        return Sample(type(error).__name__, str(error)[:300], compile_seconds=compiled - start)
    text = found.resample(1, seed=seed).texts[0]
    written = len(model.tokenizer.encode(text))
    valid = _is_valid(schema, text)
    whole = constraint.evaluate(model.tokenizer.encode(text), model.tokenizer)
    return Sample("text", "", text, valid, whole, written, compiled - start, time.perf_counter() - compiled)


def _is_valid(schema: Any, text: str) -> bool:
    try:
        kind = validator_for(schema, default=jsonschema.Draft202012Validator)
        return bool(kind(schema).is_valid(json.loads(text)))
    except ValueError:
        return False


def _numbers(samples: list[Sample]) -> dict[str, Any]:
    texts = [one for one in samples if one.outcome == "text"]
    quantiles = {
        f"{name}_p{p}": float(np.percentile([getattr(one, name) for one in texts], p)) if texts else None
        for name in ("tokens", "compile_seconds", "seconds")
        for p in (50, 90)
    }
    return {
        "schemas": len(samples),
        "outcomes": dict(Counter(one.outcome for one in samples)),
        "valid": sum(one.valid for one in texts),
        "whole": sum(one.whole for one in texts),
        "seconds_per_token": sum(one.seconds for one in texts) / max(1, sum(one.tokens for one in texts)),
        **quantiles,
    }


def table(samples: list[Sample]) -> str:
    """What was asked, and why some were not answered."""
    found = _numbers(samples)
    lines = ["| | |", "|---|---:|", f"| schemas | {found['schemas']} |"]
    lines += [f"| {name} | {number} |" for name, number in found["outcomes"].items()]
    lines += [f"| of the texts, valid for `jsonschema` | {found['valid']} |", f"| whole | {found['whole']} |"]
    for name, unit in (("tokens", ""), ("compile_seconds", " s"), ("seconds", " s")):
        middle, high = found[f"{name}_p50"], found[f"{name}_p90"]
        if middle is not None:
            lines.append(f"| {name.replace('_', ' ')}, median and 90 % | {middle:.3g}{unit}, {high:.3g}{unit} |")
    lines.append(f"| seconds a token | {found['seconds_per_token']:.3f} |")
    reasons = Counter(f"{one.outcome}: {one.reason}" for one in samples if one.outcome != "text")
    lines += ["", *(f"- {number} × {reason}" for reason, number in reasons.most_common())]
    return "\n".join(lines) + "\n"
