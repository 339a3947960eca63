"""Potentials beside genlm-control: the distance of one draw from the exact law, at equal LM tokens and calls.

Each problem is small enough that its law p(y) · 1[α] · φ(y) is enumerated. genlm-control runs SMC with N particles and the
potential as its critic, which it calls N times. Locore's `auto` gets the LM tokens that this took, in the mean, and N texts to
ask about; "distinct" gets as few texts as were different there (we remember answers for it, which it does not). The law of one
draw is that of a text: normalised weights, averaged over the runs; a run that finds nothing counts as wrong. Half the distance
between two halves of the runs says what of it is chance.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import torch

import locore
from locore import potential, predicate
from locore.kernel.errors import ZeroWeights
from locore.kernel.tokenizer import Tokenizer
from locore.models import Counted, LanguageModel, TableModel
from locore.potentials import Potential, Scorer
from locore.stopping import stopped
from locore.testing import total_variation
from locore_lab.fidelity.peers import seeded
from locore_lab.harness import Case, Row, Some, measurement
from locore_lab.shared import SHARED
from locore_lab.tasks.problem import Law, averaged

RUNS = {"table": 100, "stories": 30, "smollm2": 10}


@dataclass(frozen=True)
class Problem:
    """A target, and what it takes to sample it."""

    name: str
    constraint: locore.Constraint
    length: int
    ask: Callable[[str], Any]  # f of one text, a log-factor, or a yes or no
    ahead: Callable[[str], Any] | None = None  # the same of its beginnings; None for nothing
    is_predicate: bool = False
    prompt: Any = ""

    def factor(self, calls: Counter) -> Potential:
        """The potential, whose calls are counted."""

        def one(text: str) -> Any:
            calls["texts"] += 1
            return self.ask(text)

        def begun(text: str) -> Any:
            calls["beginnings"] += 1
            return self.ahead(text)

        prefix = None if self.ahead is None else begun
        if self.is_predicate:
            return predicate(one, prefix=prefix)
        asked = None if prefix is None else (lambda texts: [prefix(text) for text in texts])
        return potential(lambda texts: [one(text) for text in texts], prefix=asked)


def letters(text: str) -> float:
    """Two nats for each "a", less for each "c"."""
    return 2.0 * text.count("a") - 1.0 * text.count("c")


def cheerful(text: str) -> float:
    """A reward by a word list: nobody would sample from its extremes alone."""
    return sum(2.0 * text.count(word) for word in (" happy", " big", " sun", "smil")) - 1.5 * text.count(" sad")


def no_repeats(text: str) -> bool:
    """No word twice, which no regular expression says of all words."""
    words = text.replace(".", "").split()
    return len(words) == len(set(words))


def table() -> LanguageModel:
    """A peaked model over three letters with an end."""
    rows = [torch.randn(*(4,) * (t + 1), generator=torch.Generator().manual_seed(t), dtype=torch.float64) for t in range(7)]
    for row in rows:
        row[..., 3] -= 1.0
    tokenizer = Tokenizer.from_tokens(["a", "b", "c", None], eos_ids=[3])
    return TableModel([(1.5 * row).softmax(-1) for row in rows], tokenizer=tokenizer)


STORY = locore.regex(r" (big|happy|sad|red|little)( and (big|happy|sad|red))? (dog|cat|bird|sun)\.")
ANSWER = locore.regex(r"It is (a|the) (big|happy|sad|sunny|quiet) (day|dog|place)\.")
CHAT = [{"role": "user", "content": "Describe what you see in one short sentence."}]
LETTERS = locore.ban("bb")
PROBLEMS = {
    "table": [
        Problem("reward at the end", LETTERS, 7, letters),
        Problem("reward with prefix values", LETTERS, 7, letters, letters),
        Problem("palindromes", LETTERS, 7, lambda text: text == text[::-1], is_predicate=True),
    ],
    "stories": [
        Problem("reward at the end", STORY, 8, cheerful, prompt="Once upon a time there was a"),
        Problem("reward with prefix values", STORY, 8, cheerful, cheerful, prompt="Once upon a time there was a"),
        Problem("no word twice", STORY, 8, no_repeats, no_repeats, is_predicate=True, prompt="Once upon a time there was a"),
    ],
    "smollm2": [
        Problem("reward at the end", ANSWER, 8, cheerful, prompt=CHAT),
        Problem("reward with prefix values", ANSWER, 8, cheerful, cheerful, prompt=CHAT),
    ],
}


@dataclass
class Runs:
    """What was found: the law of one draw, of all runs and of two halves, and what it cost in the mean."""

    laws: list[Law]
    lm_tokens: float
    texts: float
    beginnings: float
    log_z: list[float]

    def law(self, part: slice = slice(None)) -> Law:
        """Averaged."""
        return averaged(self.laws[part])


def found_by(number: int, run: Callable[[int, Counter], tuple[Law, int, float]]) -> Runs:
    """So many runs by their seeds."""
    calls, found = Counter(), [None] * number
    for seed in range(number):
        found[seed] = run(seed, calls)
    laws, tokens, log_z = zip(*found, strict=True)
    return Runs(list(laws), sum(tokens) / number, calls["texts"] / number, calls["beginnings"] / number, list(log_z))


def of_genlm(problem: Problem, model: LanguageModel, num: int) -> Callable[[int, Counter], tuple[Law, int, float]]:
    """genlm-control's SMC; equal contexts of a run are asked about once, which is kinder than its own caching."""
    from locore_lab.fidelity.genlm_potentials import weighted_sequences

    circuit = locore.compile(problem.constraint, model, problem.length)
    ends = bool(model.tokenizer.eos_ids)

    def run(seed: int, calls: Counter) -> tuple[Law, int, float]:
        counted = Counted(model.prompted(problem.prompt))
        scorer = Scorer([problem.factor(calls)], model.tokenizer, lambda one: one)
        target = stopped(counted, circuit) if ends else counted
        with seeded(torch.Generator().manual_seed(seed)) as own:
            tokens, weights, _ = weighted_sequences(target, circuit.reader, num, 0.5, False, own, scorer)
        law: Law = {} if len(tokens) else {"": 1.0}
        for y, weight in zip(tokens.tolist(), torch.softmax(weights, 0).tolist(), strict=True):
            text = model.tokenizer.decode(y)
            law[text] = law.get(text, 0.0) + weight
        log_z = float(torch.logsumexp(weights, 0)) - math.log(num) if len(tokens) else -math.inf
        return law, counted.lm_tokens, log_z

    return run


def of_locore(
    problem: Problem, model: LanguageModel, num: int, budget: int | None
) -> Callable[[int, Counter], tuple[Law, int, float]]:
    """Ours, with a budget of LM tokens and a number of texts."""

    def run(seed: int, calls: Counter) -> tuple[Law, int, float]:
        target = problem.constraint * problem.factor(calls)
        options = {"num_particles": num, "budget": budget, "seed": seed}
        try:
            p = locore.generate(model, problem.prompt, target, problem.length, **options)
        except ZeroWeights:
            return {"": 1.0}, budget or 0, -math.inf
        return p.posterior(), p.info["lm_tokens"], p.log_evidence

    return run


def rmse(found: list[float], truth: float) -> float:
    """Of log Ẑ, nats; nothing found counts as Ẑ = e^-20 times the truth."""
    return math.sqrt(sum(max(value - truth, -20.0) ** 2 for value in found) / len(found))


def measured(problem: Problem, model: LanguageModel, number: int, num: int) -> list[Row]:
    """Of genlm-control with so many particles, and of ours with what it spent."""
    target = problem.constraint * problem.factor(Counter())
    exact = locore.generate(model, problem.prompt, target, problem.length, sampler="exact", num_particles=10**6)
    truth, rows = exact.posterior(), []
    peer = found_by(number, of_genlm(problem, model, num))
    budget = max(problem.length - 1, round(peer.lm_tokens))
    entries = {"genlm-control": peer}
    for name, texts in (("auto", num), ("auto, distinct", max(1, round(peer.texts)))):
        entries[name] = found_by(number, of_locore(problem, model, texts, budget))
    for name, runs in entries.items():
        half, tv = len(runs.laws) // 2, total_variation(runs.law(), truth)
        row: Row = {"texts": len(truth), "sampler": name, "tv": tv, "ratio": tv / total_variation(peer.law(), truth)}
        row["noise"] = total_variation(runs.law(slice(half)), runs.law(slice(half, None))) / 2
        row |= {"rmse": rmse(runs.log_z, exact.log_evidence), "lm_tokens": runs.lm_tokens}
        rows.append(row | {"calls": runs.texts, "calls_of_beginnings": runs.beginnings})
    return rows


@measurement(
    "problem | N | sampler | TV of one draw (ratio) | noise | RMSE of log Ẑ | LM tokens | calls of f | of beginnings",
    "{model}: {problem} | {particles} | {sampler} | {tv:.3f} ({ratio:.2f}) | {noise:.3f} | {rmse:.2f} | {lm_tokens:.0f} "
    "| {calls:.1f} | {calls_of_beginnings:.0f}",
    quick={"model": ["table"], "runs": 4, "particles": [8]},
)
def run(
    model: Annotated[Some, "only these: table, stories, smollm2"] = None,
    runs: Annotated[int | None, "instead of those that are usual for a model"] = None,
    particles: list[int] = (8, 32),
) -> Iterator[Case]:
    made = {
        "table": table,
        "stories": lambda: locore.load(SHARED / "models" / "stories260k"),
        "smollm2": lambda: locore.models.Remembered(locore.load("smollm2")),
    }
    for name in model or PROBLEMS:
        opened = made[name]()
        for problem in PROBLEMS[name]:
            for num in particles:
                key = {"model": name, "problem": problem.name, "particles": num}
                yield key, partial(measured, problem, opened, runs or RUNS[name], num)
