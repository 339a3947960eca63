"""What one exact draw costs under CARS' grammars and prompts: Locore, CARS, ASAp, SMC, masking and rejection, in one run.

The tasks are those of CARS (Parys et al. 2025, arXiv 2510.01902): SyGuS problems with bit vectors (BV4) and strings (SLIA), the
first two as in GAD, and test files for SQLite. Grammars and prompts are read from a clone of pparys/cars as they stand, GBNF
for their EBNF and Lark for their Lark. The model is a small one, the prompt plain text (its end, where the model's context is
shorter), and a text has no more tokens than the task says.

A run is worth as many exact draws as would miss the law of texts by as much: n = Σ p(1 − p) / E Σ (p̂ − p)², the mean over runs,
where p̂ is what the run says of each text. So bias counts as much as chance. "Tokens" and "seconds" of a draw are those of a run
over n. The law is known where reading the likeliest prefixes leaves out a small share of p(α).

Under SQL's grammar no sampler has an exact draw here: each has the same LM tokens to spend, three times.

`auto` has a budget of LM tokens. Others get the first number of particles, of powers of two, with which a run that is thrown
away took its CPU seconds or more; CARS runs until it has accepted one more, which makes its draws equally weighted. In the
rounds that are timed samplers take turns in beginning. The other rounds remember what the model said, which changes no law.

"Theirs" are the logs of CARS' authors in the same repository, for Llama-3.1-8B-Instruct: accepted draws of all calls, where a
run ends with 100 of them or after 2,000 calls.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import locore
from locore.circuits import Circuit
from locore.evidence import Particles
from locore.kernel.errors import InvalidArgument
from locore.models import Counted, HuggingFaceModel, LanguageModel, Remembered
from locore.samplers import BestFirst
from locore.stopping import StopWhenComplete
from locore_lab.fidelity.entries import choose
from locore_lab.fidelity.runs import call
from locore_lab.grammars import Syntax
from locore_lab.harness import Case, Row, Some, measurement, say
from locore_lab.shared import check_known, pinned, seed_of
from locore_lab.tasks.problem import NOTHING, OTHER, Law, averaged, distance, shortened

SOURCES = Path(__file__).parents[1] / "grammars" / "cars.json"
SAMPLERS = ["auto", "cars", "asap", "smc", "masking, unweighted", "rejection"]
AUTO = "auto"
CALLED = 32  # texts that a call of `auto` asks for, as by default
PER_TOKEN = 6  # LM tokens of its budget for each token of a text
SIZES = (8, 16, 32, 64, 128, 256)  # particles of the others
VALUES = 40  # texts that are compared one by one; the others are one
LEFT = 0.05  # share of p(α) that may be unread where the law counts as known
UNREAD = 0.01  # the share at which reading ends
SCARCE_RUNS = 3  # where exact draws are out of reach
ENOUGH = 100  # accepted draws after which a log of CARS is read no further


@dataclass(frozen=True)
class Listed:
    """A task of CARS: where its grammar and its prompt are, and what they hold."""

    suite: str
    name: str
    length: int  # tokens of a text, at most
    grammar: str
    grammar_sha256: str
    prompt: str
    prompt_sha256: str
    is_scarce: bool = False  # are exact draws out of reach of a small model?

    @property
    def syntax(self) -> Syntax:
        """As its authors meant it."""
        return "lark" if self.grammar.endswith(".lark") else "gbnf"


@dataclass(frozen=True)
class Truth:
    """The law of texts, and what is known of log p(α)."""

    law: Law
    log_z: float
    left: float  # share of p(α) that was not read, at most


@dataclass(frozen=True, eq=False)
class Task:
    """A task made ready."""

    listed: Listed
    model: LanguageModel  # has read the prompt, and is asked anew for everything else
    remembered: LanguageModel  # the same, which is asked for nothing twice
    circuit: Circuit

    @classmethod
    def of(cls, listed: Listed, clone: Path, model: HuggingFaceModel) -> Task:
        """From a clone of the repository."""
        grammar, prompt = read(listed, clone)
        circuit = locore.compile(locore.grammar(grammar, listed.syntax), model, listed.length)
        ids = model.tokenizer.encode_prompt(prompt)
        context = None if model.info is None else model.info.context
        ids = ids if context is None else ids[-(context - listed.length) :]
        prompted = model.prompted(ids)
        prompted.begin(1)  # reads the prompt, which is in nobody's seconds
        return cls(listed, prompted, Remembered(model).prompted(ids), circuit)

    def call(self, sampler: Any, num: int, budget: int | None, seed: int, timed: bool) -> tuple[Particles | None, Row]:
        """One run, and what it cost."""
        counted = Counted(self.model if timed else self.remembered)
        return call(sampler, counted, StopWhenComplete(counted, self.circuit), self.circuit, num, budget, seed)


def sources() -> dict[str, Any]:
    """What `cars.json` says."""
    record: dict[str, Any] = json.loads(SOURCES.read_text(encoding="utf-8"))
    return record


def local(name: str) -> HuggingFaceModel:
    """A model that can be remembered."""
    loaded = locore.load(name)
    if not isinstance(loaded, HuggingFaceModel):
        raise InvalidArgument(f"{name} is no model of transformers.")
    return loaded


def how_to_get() -> str:
    """In words."""
    record = sources()
    return f"git clone https://github.com/{record['repository']}, and there git checkout {record['commit']}"


def read(listed: Listed, clone: Path) -> tuple[str, str]:
    """Grammar and prompt."""
    [grammar] = pinned([clone / listed.grammar], listed.grammar_sha256, how_to_get())
    [prompt] = pinned([clone / listed.prompt], listed.prompt_sha256, how_to_get())
    return grammar.decode(), prompt.decode()


def theirs(clone: Path, files: str, sha256: str) -> Row:
    """What the logs of their runs say: of each run the calls, up to the hundredth draw."""
    logs = pinned(sorted(clone.glob(files)), sha256, how_to_get())
    runs = [calls_of(json.loads(log)["successes"]) for log in logs]
    accepted, calls = (sum(column) for column in zip(*runs, strict=True))
    return {"runs": len(runs), "accepted": accepted, "calls": calls, "acceptance": accepted / calls}


def calls_of(successes: list[bool]) -> tuple[int, int]:
    """Accepted draws, at most a hundred, and the calls up to then."""
    accepted = 0
    for calls, success in enumerate(successes, start=1):
        accepted += success
        if accepted == ENOUGH:
            return accepted, calls
    return accepted, len(successes)


def asked(name: str, size: int, length: int) -> tuple[int, int | None]:
    """Particles, and LM tokens, of a run of this size."""
    if name == AUTO:
        return CALLED, size
    if name == "rejection":  # by itself it would not end
        return size, size * (length - 1)
    return size, None


def once(task: Task, name: str, size: int, number: int, timed: bool) -> Row:
    """One run: what it says of texts, and its costs."""
    entry, seed = choose([name])[0], seed_of("cars", task.listed.name, name, number)
    particles, cost = task.call(entry.sampler, *asked(name, size, task.listed.length), seed, timed)
    row: Row = {"lm_tokens": cost["lm_tokens"], "cpu_seconds": cost["cpu_seconds"], "law": {}, "log_z": None}
    row["lm_contexts"] = cost["lm_contexts"]
    if particles is None:
        return row
    found = particles if entry.weighted else particles.unweighted()
    details = particles.record.details
    rate = details["accepted"] / details["attempts"] if "attempts" in details else None
    weighted = particles.record.weighted and entry.weighted and name != "asap"
    log_z = particles.log_evidence if weighted else None
    return {**row, "law": found.posterior(), "log_z": log_z, "acceptance": rate, "verdict": found.verdict.level}


def sizes(task: Task, names: list[str], budget: int) -> dict[str, int]:
    """For each sampler the size with which it takes the seconds of `auto`."""
    least = once(task, AUTO, budget, -1, True)["cpu_seconds"]
    found = {AUTO: budget}
    for name in names:
        for size in SIZES if name != AUTO else ():
            found[name] = size
            if once(task, name, size, -1, True)["cpu_seconds"] >= least:
                break
    return found


def said_of(known: Truth | None) -> Row:
    """For the table."""
    if known is None:
        return {"part": "truth"}
    return {"part": "truth", "texts": dict(list(known.law.items())[:5]), "log_z": known.log_z, "left": known.left}


def truth(task: Task, most: int) -> Truth | None:
    """By reading the likeliest prefixes; None where too much is left."""
    sampler = BestFirst(share=UNREAD, max_contexts=most)
    particles, _ = task.call(sampler, CALLED * CALLED, None, 0, False)
    if particles is None:
        return None
    low, high = particles.record.bounds
    left = -math.expm1(low - high)
    return Truth(shortened(particles.posterior(), VALUES), particles.log_evidence, left) if left <= LEFT else None


def worth(laws: list[Law], law: Law) -> float:
    """How many exact draws miss the law by as much, in the mean square."""
    spread = sum(p * (1 - p) for p in law.values())
    missed = mean(sum((seen.get(v, 0.0) - p) ** 2 for v, p in law.items()) for seen in (named(one, law) for one in laws))
    return spread / missed if missed else math.inf


def named(law: Law, truth: Law) -> Law:
    """On the texts of the truth, the others together."""
    kept = {text: law.get(text, 0.0) for text in truth if text in law}
    return kept | {OTHER: max(0.0, sum(law.values()) - sum(kept.values()))}


def whole(laws: list[Law]) -> Law:
    """The law of one draw; where a run found nothing some probability is missing."""
    law = averaged(laws)
    return law | {NOTHING: 1 - sum(law.values())}


def summed(name: str, size: int, runs: list[Row], timed: list[Row], known: Truth | None) -> Row:
    """All runs of one sampler."""
    laws = [row["law"] for row in runs]
    logs = [row["log_z"] for row in runs if row["log_z"] is not None]
    rates = [row["acceptance"] for row in runs if row.get("acceptance") is not None]
    row: Row = {"sampler": name, "size": size, "runs": len(runs), "failed": sum(not law for law in laws)}
    row |= {key: mean(one[key] for one in runs) for key in ("lm_tokens", "lm_contexts")}
    row["cpu_seconds"] = mean(one["cpu_seconds"] for one in timed)
    row |= {"acceptance": mean(rates) if rates else None, "log_zs": [round(one, 3) for one in logs]}
    row["verdicts"] = [one.get("verdict") for one in runs]
    if known is None:
        return row
    draws, half = worth(laws, known.law), len(laws) // 2
    row |= {"tv": distance(whole(laws), known.law), "worth": draws}
    row["noise"] = distance(whole(laws[:half]), shortened(whole(laws[half:]), VALUES)) / 2 if half else None
    row |= {"tokens_each": row["lm_tokens"] / draws, "seconds_each": row["cpu_seconds"] / draws}
    if logs:
        row["rmse"] = math.sqrt(mean((one - known.log_z) ** 2 for one in logs))
    return row


def measured(listed: Listed, clone: Path, model: HuggingFaceModel, names: list[str], options: Mapping[str, int]) -> list[Row]:
    """All samplers on one task."""
    task = Task.of(listed, clone, model)
    known = truth(task, options["most"]) if options["most"] else None
    chosen = sizes(task, names, PER_TOKEN * listed.length)
    say(f"{listed.name}: {chosen}")
    found: dict[str, list[Row]] = {name: [] for name in names}
    for number in range(options["timed"] + options["further"]):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            found[name].append(once(task, name, chosen[name], number, number < options["timed"]))
    rows = [summed(name, chosen[name], found[name], found[name][: options["timed"]], known) for name in names]
    return [said_of(known), *rows]


def scarce(listed: Listed, clone: Path, model: HuggingFaceModel, names: list[str]) -> list[Row]:
    """Some runs of each sampler with the same LM tokens to spend, where exact draws are out of reach."""
    task, rows = Task.of(listed, clone, model), []
    budget = PER_TOKEN * listed.length
    for name in names:
        entry = choose([name])[0]
        num = CALLED if name == AUTO else entry.particles(listed.length, model.vocab_size, budget)
        seeds = [seed_of("cars", listed.name, name, number) for number in range(SCARCE_RUNS)]
        calls = [task.call(entry.sampler, num, budget, seed, True) for seed in seeds]
        found = [particles for particles, _ in calls if particles is not None]
        row: Row = {"part": "scarce", "sampler": name, "budget": budget, "runs": len(calls), "failed": len(calls) - len(found)}
        row |= {what: mean(cost[what] for _, cost in calls) for what in ("lm_tokens", "cpu_seconds")}
        if found:
            row |= {"texts": mean(len(one.posterior()) for one in found), "best": found[0].texts[0]}
            row["verdicts"] = ", ".join(dict.fromkeys(one.verdict.level for one in found))
            if name != "asap" and all(one.record.weighted for one in found):
                row["log_z"] = sorted(one.log_evidence for one in found)
                row["each"] = "; ".join(f"{log_z:.1f}" for log_z in row["log_z"])
        rows.append(row)
    return rows


@measurement(
    "task | sampler | size | LM tokens | CPU s | accepted | TV of one draw | noise | worth draws | LM tokens a draw "
    "| CPU s a draw | RMSE of log Ẑ | runs, of them found nothing",
    "{suite}: {task} | {sampler} | {size} | {lm_tokens:.0f} | {cpu_seconds:.1f} | {acceptance:.2f} | {tv:.3f} | {noise:.3f} "
    "| {worth:.1f} | {tokens_each:.1f} | {seconds_each:.2f} | {rmse:.2f} | {runs}, {failed}",
    truth=("task | log p(α) | unread, at most | likely texts", "{suite}: {task} | {log_z:.3f} | {left:.4f} | {texts}"),
    scarce=(
        "exact draws out of reach | sampler | LM tokens | CPU s | texts | log Ẑ of each run | verdicts | runs, of them empty",
        "{task} | {sampler} | {lm_tokens:.0f} | {cpu_seconds:.0f} | {texts:.0f} | {each} | {verdicts} | {runs}, {failed}",
    ),
    theirs=(
        "Llama-3.1-8B-Instruct, as logged by CARS' authors | sampler | runs | accepted | calls | acceptance",
        "{suite} | {sampler} | {runs} | {accepted:,} | {calls:,} | {acceptance:.4f}",
    ),
    quick={"task": ["bvsge_bvneg"], "timed": 1, "further": 0, "most": 100},
)
def run(
    clone: Annotated[Path, "folder of the repository pparys/cars"] = Path("cars"),
    task: Annotated[Some, "only these"] = None,
    sampler: Annotated[list[str], "that are compared"] = SAMPLERS,
    model: Annotated[str, "as `locore.load` knows it"] = "smollm2",
    timed: Annotated[int, "rounds in which the model is asked anew for everything"] = 1,
    further: Annotated[int, "rounds after them"] = 5,
    most: Annotated[int, "LM tokens for the truth"] = 1500,
) -> Iterator[Case]:
    """Their numbers, then ours."""
    record = sources()
    tasks = [Listed(**one) for one in record["tasks"]]
    check_known("tasks", task, [listed.name for listed in tasks])
    loaded = local(model)
    for log in record["logs"]:
        key = {"part": "theirs", "suite": log["suite"], "sampler": log["style"]}
        yield key, partial(theirs, clone, log["files"], log["sha256"])
    for listed in tasks:
        if not task or listed.name in task:
            key, options = {"suite": listed.suite, "task": listed.name}, {"timed": timed, "further": further, "most": most}
            if listed.is_scarce:
                yield key, partial(scarce, listed, clone, loaded, list(sampler))
            else:
                yield key, partial(measured, listed, clone, loaded, list(sampler), options)
