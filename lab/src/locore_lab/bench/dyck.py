"""Well-nested brackets: how far masking, a look of one step ahead, and samplers are from the law, in total variation.

The texts are all well-nested strings of one or two kinds of brackets with so many characters, under a chain that prefers to
open, as in "Future Validity is the Missing Statistic" (Nie et al. 2026, arXiv 2605.07698), or under a model behind a prompt of
such strings. All prefixes are read, so that the laws of p(y | α), of masking (which draws v ∝ p(v | x) among the tokens after
which the text can still be completed) and of the look ahead (v ∝ p(v | x) times what can follow xv in one more step, their
OneStep) are known and not drawn. Of samplers the law is that of one draw: normalised weights, averaged over the runs; a run
that finds nothing counts as wrong. Half the distance between two halves of the runs says what of it is chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch
from torch import Tensor

import locore
from locore import char_count, grammar
from locore.circuits import Circuit
from locore.evidence import Particles
from locore.kernel.numerics import NEG_INF, segment_logsumexp
from locore.kernel.samplers.sampler import Prefixes, left_to_right
from locore.kernel.tokenizer import Tokenizer
from locore.models import Counted, HuggingFaceModel, LanguageModel, MarkovModel, Remembered
from locore.stopping import stopped
from locore.testing import total_variation
from locore_lab.fidelity.entries import choose
from locore_lab.fidelity.runs import call
from locore_lab.harness import Case, Row, Some, measurement
from locore_lab.shared import check_known, seed_of
from locore_lab.tasks.problem import Law, averaged

AUTO = "auto"
SAMPLERS = ["smc", "cars", "rejection", AUTO]
BUDGETS = [300, 1000]
KINDS = {1: 'root ::= ("(" root ")")*', 2: 'root ::= ("(" root ")" | "[" root "]")*'}
NOTHING: dict[str, float] = {"nothing": 1.0}  # the law of a run that finds nothing
CALLED = 256  # texts that a call of `auto` asks for; more cost nothing where there is a budget
MORE = 16  # times the budget, that others may be given
NEARLY = 0.9  # of a budget: it counts as spent
FEWER = 10  # of the runs of `auto` one, for others: most of them are far off, and slow
AT_ONCE = 128  # prefixes whose distributions are held together
# p(next | last) of "(", ")", "[", "]"; it begins as after the first row.
ONE_KIND = [[0.999, 0.001]] * 2
TWO_KINDS = [[0.6, 0.05, 0.3, 0.05], [0.6, 0.1, 0.25, 0.05], [0.25, 0.03, 0.7, 0.02], [0.7, 0.02, 0.2, 0.08]]
SHOWN = "Well-nested brackets: (()) ()[] ([]) (()()) [()] (())() "


@dataclass(frozen=True)
class Problem:
    """A model and a language."""

    name: str
    kinds: int  # of brackets
    characters: int
    opened: Callable[[], LanguageModel]  # has read its prompt
    runs: int  # of `auto`

    def circuit(self, model: LanguageModel) -> Circuit:
        """Compiled."""
        words = grammar(KINDS[self.kinds], "gbnf") & char_count(self.characters, self.characters)
        return locore.compile(words, model, self.characters)


def chain(rows: list[list[float]]) -> LanguageModel:
    """Brackets, each by the one before it."""
    tokenizer = Tokenizer.from_tokens(["(", ")", "[", "]"][: len(rows)])
    return MarkovModel(rows[0], rows, tokenizer=tokenizer)


def real(name: str) -> LanguageModel:
    """A model that has read a few such strings, and forgets nothing, so that runs after the first are quick."""
    loaded = locore.load(name)
    assert isinstance(loaded, HuggingFaceModel)  # those of the problems are
    return Remembered(loaded).prompted(SHOWN)


PROBLEMS = [
    Problem("a chain that opens with .999, one kind", 1, 12, partial(chain, ONE_KIND), 100),
    Problem("a chain that opens with .9, two kinds", 2, 10, partial(chain, TWO_KINDS), 150),
    Problem("tiny, two kinds", 2, 8, partial(real, "tiny"), 60),
]


@dataclass(frozen=True)
class Known:
    """What reading all prefixes gives."""

    log_z: float  # log p(α)
    prefixes: int
    truth: Law
    masking: Law
    one_step: Law


def known(model: LanguageModel, circuit: Circuit) -> Known:
    """Level by level; the model ends complete texts at no cost."""
    prefixes, count = Prefixes.start(model, left_to_right(circuit)), 0
    masking = one_step = torch.zeros(1, dtype=torch.float64)
    steps, _ = following(prefixes)
    while not prefixes.are_complete:
        row, token, logs, local = steps
        count += int(prefixes.going().sum()) if prefixes.position else 0
        prefixes = prefixes.extended(row, token)
        if prefixes.are_complete:
            ahead = torch.zeros_like(local)
        else:
            steps, ahead = following(prefixes)
        masking = masking[row] + local
        one_step = one_step[row] + normalised(logs + ahead, row)
    total = prefixes.token_scores.sum(-1)
    log_z = float(total.logsumexp(0))
    texts = [model.tokenizer.decode(y) for y in prefixes.tokens.tolist()]
    return Known(log_z, count, *(law_of(texts, logs) for logs in (total - log_z, masking, one_step)))


def following(prefixes: Prefixes) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Of each child its prefix, its token, log p and the same among its siblings; and log of the mass after each prefix."""
    rows, tokens, logs, mass, first = [], [], [], [], 0
    for part in prefixes.split(AT_ONCE):
        masked = part.masked()
        row, token = (masked > NEG_INF).nonzero(as_tuple=True)
        rows.append(row + first)
        tokens.append(token)
        logs.append(masked[row, token])
        mass.append(masked.logsumexp(-1))
        first += len(part)
    row, log, masses = torch.cat(rows), torch.cat(logs), torch.cat(mass)
    return (row, torch.cat(tokens), log, log - masses[row]), masses


def normalised(logs: Tensor, group: Tensor) -> Tensor:
    """f64[num], so that those of a group sum to one."""
    return logs - segment_logsumexp(logs, group, int(group.max()) + 1)[group]


def law_of(texts: list[str], logs: Tensor) -> Law:
    """Tokenisations added up."""
    law: Law = {}
    for text, probability in zip(texts, logs.exp().tolist(), strict=True):
        law[text] = law.get(text, 0.0) + probability
    return law


def ending(model: LanguageModel, circuit: Circuit) -> LanguageModel:
    """Texts of models that know an end have it for free once they are complete."""
    return stopped(model, circuit) if model.tokenizer.eos_ids else model


def once(model: LanguageModel, circuit: Circuit, name: str, given: int, seed: int) -> tuple[Particles | None, int]:
    """One run, and the LM tokens it spent."""
    entry, counted = choose([name])[0], Counted(model)
    assert entry.sampler is not None
    num = CALLED if name == AUTO else entry.particles(circuit.length, model.vocab_size, given)
    particles, cost = call(entry.sampler, counted, ending(counted, circuit), circuit, num, given, seed)
    found = particles if particles is None or entry.weighted else particles.unweighted()
    return found, cost["lm_tokens"]


def enough(model: LanguageModel, circuit: Circuit, name: str, budget: int) -> int:
    """What to give a sampler so that it spends a budget."""
    given = budget
    while name != AUTO and given < MORE * budget and once(model, circuit, name, given, -1)[1] < NEARLY * budget:
        given *= 2
    return given


def sampled(model: LanguageModel, circuit: Circuit, found: Known, name: str, budget: int, runs: int) -> Row:
    """All of one sampler at one budget."""
    given, laws, gaps, tokens, failed = enough(model, circuit, name, budget), [], [], 0, 0
    runs = runs if name == AUTO else max(2, runs // FEWER)
    for number in range(runs):
        particles, spent = once(model, circuit, name, given, seed_of("dyck", name, budget, number))
        laws.append(NOTHING if particles is None else particles.posterior())
        tokens += spent
        failed += particles is None
        if particles is not None and particles.record.weighted:
            gaps.append(particles.log_evidence - found.log_z)
    half = runs // 2
    return {
        "given": given,
        "runs": runs,
        "tv": total_variation(averaged(laws), found.truth),
        "noise": total_variation(averaged(laws[:half]), averaged(laws[half:])) / 2,
        "one_run": sum(total_variation(law, found.truth) for law in laws) / runs,
        "failed": failed,
        "rmse": math.sqrt(sum(gap**2 for gap in gaps) / len(gaps)) if gaps else None,
        "lm_tokens": tokens / runs,
    }


def measured(problem: Problem, names: list[str], budgets: list[int], runs: int | None) -> list[Row]:
    """All of one problem."""
    model = problem.opened()
    circuit = problem.circuit(model)
    found = known(ending(model, circuit), circuit)
    size: Row = {"words": len(found.truth), "prefixes": found.prefixes, "log_z": found.log_z}
    rows: list[Row] = [
        {"sampler": name, **size, "tv": total_variation(law, found.truth)}
        for name, law in (("masking", found.masking), ("one step ahead", found.one_step))
    ]
    for budget in budgets:
        for name in names:
            row = sampled(model, circuit, found, name, budget, runs or problem.runs)
            rows.append({"sampler": name, "budget": budget, **size, **row})
    return rows


@measurement(
    "model | words, prefixes | log p(α) | sampler | budget | LM tokens | TV of one draw | noise | TV of one run "
    "| RMSE of log Ẑ | runs, of them found nothing",
    "{problem} | {words:,}, {prefixes:,} | {log_z:.2f} | {sampler} | {budget:,} | {lm_tokens:.0f} | {tv:.3f} | {noise:.3f} "
    "| {one_run:.3f} | {rmse:.3f} | {runs}, {failed}",
    quick={"problem": ["a chain"], "runs": 4, "budget": [100]},
)
def run(
    problem: Annotated[Some, "only those whose names begin like this"] = None,
    sampler: Annotated[list[str], "beside masking and one step ahead"] = SAMPLERS,
    budget: Annotated[list[int], "LM tokens"] = BUDGETS,
    runs: Annotated[int | None, "instead of those that are usual for a problem"] = None,
) -> Iterator[Case]:
    """The problems, one after the other."""
    chosen = [one for one in PROBLEMS if not problem or one.name.startswith(tuple(problem))]
    if not chosen:
        check_known("problems", problem, [one.name for one in PROBLEMS])
    for one in chosen:
        yield {"problem": one.name}, partial(measured, one, list(sampler), list(budget), runs)
