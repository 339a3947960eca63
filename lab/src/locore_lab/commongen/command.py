"""CommonGen: sentences of a real model with all concepts of a set, by Locore, masking and genlm-control, at equal seconds.

The model is asked, in the same words for every set, for one short sentence with the concepts. A text satisfies the constraint
if it has every concept in some inflection (`locore_lab.commongen.concepts`; letters of ASCII bound a word), no line break, and
ends with a full stop within the horizon. The law is the model's own, at temperature 1. `auto` gets a budget of LM tokens; the
peers get so many particles that they take its CPU seconds, or more: compare the last column. All are given Locore's circuit,
and so its look-ahead: masking without it would leave texts without their concepts. What it takes to compile the constraint is
in no row. On sets that peers do not get, `auto` has a smaller budget.

"Covered" counts runs whose texts, all of them, have all concepts, by a reading of the text without automata. "Draw" is log p(y)
of one text drawn from the particles, "best" that of the most probable one. "Masking, one text" is a masked sequence without its
weight, as engines return it. Log p(α) is judged where long runs of two samplers agree on it. Where genlm-control is not
installed (extra `peers` of the lab), Locore's own SMC with one population and its own adaptive rejection stand for it, under
their names.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Annotated, Any

import torch

import locore
from locore import Constraint, ban, contains, ends_with, pattern
from locore.evidence import Particles
from locore.kernel.chat import Prompt
from locore.kernel.errors import LocoreError, ZeroWeights
from locore.models import LanguageModel
from locore.samplers import Sampler
from locore_lab.commongen.concepts import ConceptSet, evenly, stored
from locore_lab.fidelity.entries import all_entries
from locore_lab.fidelity.peers import missing
from locore_lab.fidelity.truth import Estimate, agreed
from locore_lab.harness import Case, Row, measurement, table
from locore_lab.shared import seed_of

ASKED = "Write one short sentence with these words: {}."
MASKED, PLAIN = "masked", "masking, one text"
LONG = ("twisted", "swor")  # with a twist that is learned, and without any
KNOWN = 0.5  # standard error of a truth in nats, up to which it judges


def constraint_of(concepts: ConceptSet) -> Constraint:
    """All concepts, in one line that ends with a full stop."""
    parts = [
        contains(pattern(rf"(?<![A-Za-z])({'|'.join(map(_spelled, forms))})(?![A-Za-z])")) for forms in concepts.forms.values()
    ]
    whole: Constraint = ends_with(".") & ban("\n")
    for part in parts:
        whole = whole & part
    return whole


def _spelled(form: str) -> str:
    """A form, or the same with a capital."""
    return f"[{form[0].upper()}{form[0]}]{form[1:]}"


@dataclass(frozen=True)
class Task:
    """A set for a model."""

    model: LanguageModel
    concepts: ConceptSet
    length: int

    @property
    def prompt(self) -> Prompt:
        """The message of a user, or the same as plain text where a model knows no messages."""
        asked = ASKED.format(", ".join(self.concepts.forms))
        return [{"role": "user", "content": asked}] if self.model.tokenizer.chat_fingerprint() else asked

    def run(self, sampler: str | Sampler, seed: int, **options: Any) -> tuple[Particles, float]:
        """Particles, and CPU seconds without compiling."""
        constraint = constraint_of(self.concepts)
        locore.compile(constraint, self.model, self.length)
        start = time.process_time()
        p = locore.generate(self.model, self.prompt, constraint, self.length, sampler=sampler, seed=seed, **options)
        return p, time.process_time() - start

    def scores(self, p: Particles) -> torch.Tensor:
        """f64[particles], log p(y); asked of the model where the sampler did not say."""
        if p.token_scores is not None:
            return p.token_scores.sum(-1)
        distinct, which = torch.unique(p.tokens, dim=0, return_inverse=True)
        return self.model.prompted(self.prompt).score(distinct)[which]


def peers(particles: int, rejecting: int) -> dict[str, tuple[Sampler, int]]:
    """Name -> sampler, particles; genlm-control's where they are installed."""
    names = ("smc, 1 block", "awrs") if missing("genlm-control") else ("genlm-smc", "genlm-awrs")
    found = {name: all_entries()[name].sampler for name in (MASKED, *names)}
    return {name: (one, rejecting if "awrs" in name else particles) for name, one in found.items() if one is not None}


def described(task: Task, p: Particles, seconds: float, seed: int) -> Row:
    """What the table needs of one run."""
    scores = task.scores(p)
    row = torch.multinomial(p.weights, 1, generator=torch.Generator().manual_seed(seed)).item()
    best = int(scores.argmax())
    return {
        "seconds": round(seconds, 3),
        "lm_tokens": p.info["lm_tokens"],
        "particles": len(p),
        "covered": not any(task.concepts.missing(text) for text in p.texts),
        "log_z": round(p.log_evidence, 4) if p.info["guarantee"] != "biased" else None,
        "draw": p.texts[int(row)],
        "draw_log_p": round(float(scores[int(row)]), 3),
        "best": p.texts[best],
        "best_log_p": round(float(scores[best]), 3),
    }


def measured(task: Task, run: int, number: int, budget: int, others: Mapping[str, tuple[Sampler, int]]) -> list[Row]:
    """`auto`, and the others with so many particles."""
    seed = seed_of(number, run)
    p, seconds = task.run("auto", seed, budget=budget)
    rows: list[Row] = [{"sampler": "auto", "verdict": p.verdict.level, **described(task, p, seconds, seed)}]
    for name, (sampler, particles) in others.items():
        try:
            p, spent = task.run(sampler, seed, num_particles=particles)
        except ZeroWeights:
            rows.append({"sampler": name, "covered": None, "log_z": None})
            continue
        rows.append({"sampler": name, **described(task, p, spent, seed)})
        if name == MASKED:
            rows.append({"sampler": PLAIN, **described(task, p.unweighted(), spent, seed)})
    return rows


def truth(task: Task, number: int, budget: int, batches: int) -> Row:
    """Log p(α) by long runs of two samplers, and how well it is known."""
    logs = {
        name: [task.run(name, seed_of(number, name, k), budget=budget)[0].log_evidence for k in range(batches)] for name in LONG
    }
    estimates = [Estimate.of(name, found) for name, found in logs.items()]
    try:
        log_z, error, source = agreed(estimates)
    except LocoreError as reason:
        return {"source": str(reason)}
    return {"log_z": round(log_z, 4), "error": round(error, 4), "source": source}


def summary(rows: list[Row]) -> str:
    """A line for each sampler."""
    truths = {row["set"]: row["log_z"] for row in rows if row.get("part") == "truth" and row.get("error", math.inf) <= KNOWN}
    runs = [row for row in rows if "sampler" in row]
    lines = []
    for name in dict.fromkeys(row["sampler"] for row in runs):
        own = [row for row in runs if row["sampler"] == name and row["covered"] is not None]
        gaps = [row["log_z"] - truths[row["set"]] for row in own if row["set"] in truths and row["log_z"] is not None]
        beside = [row for row in own if row["beside"]]
        line: Row = {"sampler": name, "sets": len({row["set"] for row in own}), "compared": len({row["set"] for row in beside})}
        line |= {"covered": mean(row["covered"] for row in own), "texts": sum(row["particles"] for row in own)}
        line |= {key: mean(row[key] for row in beside) for key in ("seconds", "draw_log_p", "best_log_p") if beside}
        if gaps:
            line |= {"gaps": len(gaps), "mean": mean(gaps), "rmse": math.sqrt(mean(gap**2 for gap in gaps))}
        lines.append(line)
    return table(
        lines,
        (
            "sampler | covered | of sets | sets compared | log p of the draw | of the best text | RMSE of log Ẑ | mean error "
            "| runs | CPU s",
            "{sampler} | {covered:.0%} | {sets} | {compared} | {draw_log_p:.1f} | {best_log_p:.1f} | {rmse:.2f} | {mean:.2f} "
            "| {gaps} | {seconds:.1f}",
        ),
    )


def texts(rows: list[Row], most: int = 10) -> str:
    """Ten sets to read: the draw of each sampler."""
    runs = [row for row in rows if row.get("beside") and not row["run"] and "draw" in row]
    some = list(dict.fromkeys(row["set"] for row in runs))[:most]
    lines = [row | {"text": row["draw"].replace("|", "\\|")} for row in runs if row["set"] in some]
    return table(lines, ("set | sampler | log p | draw", "{set} | {sampler} | {draw_log_p:.1f} | {text}"))


def told(rows: list[Row]) -> str:
    """What is written behind all rows."""
    return f"{summary(rows)}\n\n{texts(rows)}"


def order(sets: int, compared: int, known: int) -> list[int]:
    """Numbers of sets: those with a truth first, then those that peers get, then the rest; each evenly from all."""
    beside = evenly(range(sets), compared)
    return list(dict.fromkeys([*evenly(beside, known), *beside, *range(sets)]))


@measurement(
    "set | sampler | particles | LM tokens | log Ẑ | draw | best | CPU s",
    "{set} | {sampler} | {particles} | {lm_tokens} | {log_z:.2f} | {draw_log_p:.1f} {draw} | {best_log_p:.1f} | {seconds:.1f}",
    truth=("truth of | log p(α) | its error | source", "{set} | {log_z:.2f} | {error:.2f} | {source}"),
    quick={
        "model": "tiny",
        "sets": 2,
        "compared": 1,
        "known": 1,
        "runs": 1,
        "budget": 200,
        "alone": 50,
        "long": 400,
        "batches": 2,
    },
    fields={"draw": lambda row: row["draw"].replace("|", "\\|")},
    after=told,
)
def run(
    model: Annotated[str, "as `locore.load` knows it"] = "smollm2",
    sets: Annotated[int, "concept sets, at most 200"] = 200,
    compared: Annotated[int, "of them peers get"] = 24,
    known: Annotated[int, "of these get a truth, and further runs"] = 8,
    runs: Annotated[int, "runs on sets with a truth"] = 2,
    length: Annotated[int, "tokens of a text, at most"] = 24,
    budget: Annotated[int, "LM tokens of auto"] = 500,
    alone: Annotated[int, "the same where it is only asked whether texts are covered"] = 100,
    particles: Annotated[int, "of masking and SMC, whose CPU seconds should be those of auto"] = 40,
    rejecting: Annotated[int, "of adaptive rejection, likewise"] = 14,
    long: Annotated[int, "LM tokens of a run for the truth"] = 1500,
    batches: Annotated[int, "runs for the truth, of each of two samplers"] = 3,
) -> Iterator[Case]:
    chosen, loaded, others = evenly(stored(), sets), locore.load(model), peers(particles, rejecting)
    without_rejection = {name: peer for name, peer in others.items() if "awrs" not in name}
    for place, number in enumerate(order(sets, compared, known)):
        task = Task(loaded, chosen[number], length)
        name = task.concepts.name
        if place < known:
            yield {"part": "truth", "set": name}, partial(truth, task, number, long, batches)
        for again in range(runs if place < known else 1):
            beside = place < compared
            asked = {} if not beside else others if place < known and not again else without_rejection
            paid = budget if beside else alone
            yield {"set": name, "run": again, "beside": beside}, partial(measured, task, again, number, paid, asked)
