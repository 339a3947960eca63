"""Are the probabilities of fields the model's own, and what do they cost? Orders whose truth is known, read by the clerk.

The clerk is a small model that learned to read orders (`locore_lab.extraction`). Each case is an order and a schema of its own,
one to four fields. The model's posterior is found by reading all its probable texts (`locore_lab.extraction.truth`). Beside
`locore.parse` stand what people do without it, on the same orders: the product of the probabilities of a value's tokens in the
masked text of the likeliest ones, and the share of eight masked texts that agree. Shown are the largest error of a marginal,
seconds beside those of one masked text, and over all fields: expected calibration error against the model's posterior, against
Bayes' posterior given the sentence, and against what is true; Brier score, and how well errors are found (AUROC).

What is true is one draw from Bayes' posterior for each field: over a few hundred fields even probabilities that are true to the
last digit would seem off by what chance does, which is shown beside.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Annotated, Any

import torch

import locore
from locore.kernel.chat import Prompt
from locore.models import LanguageModel
from locore.parsing import Answer
from locore_lab.extraction.truth import MISSING, Truth, enumerated, plain, value_at
from locore_lab.extraction.world import Order, record
from locore_lab.harness import Case, Row, measurement
from locore_lab.shared import auroc
from locore_lab.tiny_lm.models import RECIPES

LENGTH, AGAIN, BINS, DRAWS = 64, 8, 10, 500
NEAR, ABSTAIN, GREEDY = 0.02, 0.8, 0.01
METHODS = ("locore", "tokens", "agreement")
Said = dict[str, tuple[str, float]]  # by pointer: a value and how probable it is said to be


@dataclass(frozen=True)
class Question:
    """A text to read, and what is right."""

    prompt: Prompt
    schema: Mapping[str, Any]
    record: Mapping[str, Any]
    length: int = LENGTH


def masked(model: LanguageModel, question: Question, number: int, seed: int, **more: Any) -> locore.Particles:
    """What others do: texts that the constraint masks, without weights."""
    kind, options = locore.json_schema(question.schema), {"num_particles": number, "seed": seed, **more}
    return locore.generate(model, question.prompt, kind, question.length, sampler="masked", **options)


def by_tokens(model: LanguageModel, question: Question, pointers: Sequence[str], seed: int) -> Said:
    """Of the text of the likeliest tokens: the product of the probabilities of those in which a value is spelled."""
    ids = masked(model, question, 1, seed, temperature=GREEDY).tokens[0].tolist()
    scores = model.prompted(question.prompt).log_probs(torch.tensor([ids]))[0, range(len(ids)), ids]
    tokenizer = model.tokenizer
    texts = [tokenizer.text_bytes(ids[:end]).decode("utf-8", "replace") for end in range(len(ids) + 1)]
    record, found = json.loads(texts[-1]), {}
    for pointer in pointers:
        value = value_at(record, pointer)
        name = json.dumps(pointer.split("/")[-1])
        start = texts[-1].find(name) + len(name) if value != MISSING else len(texts[-1])
        end = start + len(value) + 3
        inside = [k for k, (one, other) in enumerate(pairwise(texts)) if len(one) < end and len(other) > start]
        found[pointer] = value, float(scores[inside].sum().exp())
    return found


def by_agreement(particles: locore.Particles, pointers: Sequence[str]) -> Said:
    """Of several texts: the value of most of them, and their share."""
    records = [json.loads(text) for text in particles.texts]
    votes = {pointer: Counter(value_at(record, pointer) for record in records).most_common(1)[0] for pointer in pointers}
    return {pointer: (value, number / len(records)) for pointer, (value, number) in votes.items()}


def worst_error(answer: Answer, truth: Truth, pointers: Sequence[str]) -> float:
    """The largest, over all values of all fields."""
    worst = 0.0
    for pointer in pointers:
        said = {plain(one.value) if one.present else MISSING: one.probability for one in answer.particles.marginal(pointer)}
        known = truth.marginal(pointer)
        worst = max(worst, *(abs(said.get(value, 0.0) - known.get(value, 0.0)) for value in {*said, *known}))
    return worst


def asked(model: LanguageModel, question: Question, seed: int, prefixes: int | None = None) -> tuple[Answer, Row]:
    """What Locore says of every field, and others beside it."""
    start = time.process_time()
    masked(model, question, 1, seed)
    between = time.process_time()
    budget = {} if prefixes is None else {"budget": prefixes * (question.length - 1)}
    answer = locore.parse(model, question.prompt, question.schema, question.length, seed=seed, **budget)
    fields = dict(answer.fields)
    seconds = {"masked_seconds": between - start, "seconds": time.process_time() - between}
    own = {name: (plain(one.value) if one.present else MISSING, one.probability) for name, one in fields.items()}
    tokens, agreement = (
        by_tokens(model, question, list(fields), seed),
        by_agreement(masked(model, question, AGAIN, seed + 1), list(fields)),
    )
    said = [
        {
            "pointer": name,
            "true": value_at(question.record, name),
            "locore": own[name],
            "unrounded": answer.particles.marginal(name)[0].probability,
            "tokens": tokens[name],
            "agreement": agreement[name],
        }
        for name in fields
    ]
    return answer, {"fields": len(fields), **seconds, "verdict": answer.particles.verdict.level, "said": said}


def measured(model: LanguageModel, number: int, prefixes: int, floor: float) -> Row:
    """One order."""
    order = Order.drawn(random.Random(f"records/{number}"))
    truth = enumerated(model, order.prompt, order.schema, LENGTH, floor)
    answer, row = asked(model, Question(order.prompt, order.schema, order.record), number, prefixes)
    for field in row["said"]:
        name = field["pointer"]
        field["model"] = truth.marginal(name).get(field["locore"][0], 0.0)
        chances = by_bayes(order, name)
        field["bayes"] = {method: chances.get(field[method][0], 0.0) for method in METHODS}
        low, high = answer.fields[name].interval
        field["covered"] = low - truth.off <= field["model"] <= high + truth.off
    return {**row, "worst": worst_error(answer, truth, list(answer.fields)), "off": truth.off}


def by_bayes(order: Order, pointer: str) -> dict[str, float]:
    """p(value | sentence) at a pointer, which nobody knows but the generator."""
    found: dict[str, float] = {}
    for values, chance in order.posterior().items():
        value = value_at(record(dict(zip(order.asked, values, strict=True))), pointer)
        found[value] = found.get(value, 0.0) + chance
    return found


def calibration_error(pairs: Sequence[tuple[float, float]]) -> float:
    """Expected: |mean said − mean true| over bins of what was said, weighted by how many are in each."""
    bins: dict[int, list[tuple[float, float]]] = {}
    for said, true in pairs:
        bins.setdefault(min(BINS - 1, int(said * BINS)), []).append((said, true))
    return sum(abs(sum(said - true for said, true in inside)) for inside in bins.values()) / len(pairs)


def error_by_chance(said: Sequence[float]) -> float:
    """The calibration error that probabilities would have in the mean if all of them were true."""
    rng = random.Random(0)
    drawn = ([(p, float(rng.random() < p)) for p in said] for _ in range(DRAWS))
    return sum(map(calibration_error, drawn)) / DRAWS


def probability(field: Row, method: str) -> float:
    """As a method says it of a field; of one that Locore calls unknown, what was found of it, or else 0."""
    said = field[method][1]
    return float(field.get("unrounded", 0.0) if said is None else said)


def is_right(field: Row, method: str) -> bool:
    """Is the value that a method gives the true one?"""
    return bool(field[method][0] == field["true"])


def known_fields(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """All fields, and those that Locore does not call unknown."""
    said = [field for row in rows for field in row["said"]]
    return said, [field for field in said if field["locore"][1] is not None]


def rated(rows: Sequence[Row], methods: Sequence[str] = METHODS) -> list[str]:
    """Of each method: over the fields that Locore knows, and over all, where unknown ones count with what was found."""
    said, known = known_fields(rows)
    seconds = sum(row["seconds"] for row in rows) / sum(row["masked_seconds"] for row in rows)
    lines = [f"{len(said)} fields, {len(said) - len(known)} unknown; CPU seconds to those of one masked text {seconds:.2f}"]
    written = all("unrounded" in field for field in said if field not in known)
    everything = f"all fields, unknown ones {'as found' if written else 'as 0'}"
    for heading, fields in {"known fields": known, everything: said}.items():
        lines += [f"{heading} ({len(fields)}):", *(_rating(fields, name) for name in methods if fields)]
    kept = [field for field in known if field["locore"][1] >= ABSTAIN]
    right = sum(is_right(field, "locore") for field in kept) / max(1, len(kept))
    return [*lines, f"abstain_below={ABSTAIN}: {len(kept)} of {len(said)} fields kept, right {right:.3f}"]


def _rating(fields: Sequence[Row], name: str) -> str:
    pairs = [(probability(field, name), float(is_right(field, name))) for field in fields]
    brier = sum((p - true) ** 2 for p, true in pairs) / len(pairs)
    accuracy = sum(true for _, true in pairs) / len(pairs)
    found = auroc([true == 1 for _, true in pairs], [p for p, _ in pairs])
    error, chance = calibration_error(pairs), error_by_chance([p for p, _ in pairs])
    known = [(probability(field, name), field["bayes"][name]) for field in fields if "bayes" in field]
    bayes = f"  to Bayes {calibration_error(known):.3f}" if known else ""
    errors = f"calibration error {error:.3f} (by chance {chance:.3f}){bayes}"
    return f"{name:10} right {accuracy:.3f}  {errors}  Brier {brier:.3f}  AUROC {found:.3f}"


def summary(rows: list[Row]) -> str:
    """Over all fields of all orders."""
    said, fields = known_fields(rows)
    known = [(field["locore"][1], field["model"]) for field in fields]
    over = sum(row["worst"] > NEAR + row["off"] for row in rows)
    covered = sum(field["covered"] for field in said) / len(said)
    own = f"intervals cover the model's posterior in {covered:.1%}; calibration error against it {calibration_error(known):.3f}"
    return "\n".join([f"{len(rows)} schemas: a marginal is off by more than {NEAR} in {over}", own, *rated(rows)])


@measurement(
    "order | fields | largest error | truth known to | seconds | of one masked text | verdict",
    "{order} | {fields} | {worst:.3f} | {off:.3f} | {seconds:.2f} | {masked_seconds:.2f} | {verdict}",
    quick={"orders": 3},
    after=summary,
)
def run(
    orders: int = 100,
    prefixes: Annotated[int, "at each position"] = 160,
    floor: Annotated[float, "of the probability of prefixes that the truth is found by"] = 1e-5,
) -> Iterator[Case]:
    model = locore.load(RECIPES["clerk"].folder)
    for number in range(orders):
        yield {"order": number}, partial(measured, model, number, prefixes, floor)
