"""The demonstration on the bundled model, where every text of three tokens can be enumerated.

Next to the truth p(text | ending) stand draws from the model itself, masked decoding as everybody ships it, the same sequences
with Locore's weights, Locore's default sampler, and the sampler of the paper.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD as HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

import locore
from locore.kernel.errors import ZeroWeights
from locore.testing import enumerate_posterior, total_variation
from locore_lab.demo.examples import Answer, described, percent, quoted

LENGTH = 3  # tokens; short enough to enumerate every text
DRAWS = 1000
LCR_DRAWS = 128  # it pays for a neighbourhood around each of its draws
MAX_CONTEXTS = 50_000  # of the enumeration, 20 seconds or so
BEST, MASKED = 5, 3  # rows: the most probable texts, and then what masking alone returns most
WIDTH, FIRST = 79, 19  # of the table and its first column


@dataclass(frozen=True)
class Truth:
    """What enumeration says: the posterior, log p(α), and what it cost."""

    posterior: dict[str, float]
    log_evidence: float
    sequences: int
    contexts: int


def enumerate_truth(model: locore.models.LanguageModel, circuit: locore.circuits.Circuit) -> Truth:
    """The exact posterior, by walking every prefix that can still be completed."""
    found = enumerate_posterior(model, circuit, max_contexts=MAX_CONTEXTS)
    return Truth(found.texts(model.tokenizer), found.log_evidence, len(found.tokens), found.contexts)


def unconstrained(model: locore.models.LanguageModel, circuit: locore.circuits.Circuit, seed: int) -> Answer:
    """Draws from the model, and which of them happen to satisfy the constraint."""
    counted = locore.models.Counted(model)
    tokens = counted.sample(DRAWS, LENGTH, seed).tokens
    kept = [model.tokenizer.decode(y) for y in tokens[circuit.accepts(tokens)].tolist()]
    posterior = {text: number / len(kept) for text, number in Counter(kept).items()}
    evidence = f"{math.log(len(kept) / DRAWS):.2f}" if kept else "unknown"
    return Answer("model,\nuncon-\nstrained", DRAWS, len(kept), posterior, counted.lm_tokens, evidence=evidence)


def perfect_distance(truth: Truth, seed: int) -> float:
    """Distance from the truth of as many draws from the truth itself: what chance alone does."""
    drawn = random.Random(seed).choices(list(truth.posterior), list(truth.posterior.values()), k=DRAWS)
    return total_variation({text: number / DRAWS for text, number in Counter(drawn).items()}, truth.posterior)


def run(prompt: str, ending: str, seed: int, model_name: str = "tiny") -> tuple[Truth, list[Answer]]:
    """The truth, and the answers side by side."""
    model, constraint = locore.load(model_name), locore.ends_with(ending)
    circuit = locore.compile(constraint, model, LENGTH)
    prompted = model.prompted(prompt)
    truth = enumerate_truth(prompted, circuit)
    chosen = locore.generate(model, prompt, constraint, LENGTH, num_particles=DRAWS, seed=seed)
    weighted = locore.generate(model, prompt, constraint, LENGTH, num_particles=DRAWS, sampler="masked", seed=seed)
    answers = [
        unconstrained(prompted, circuit, seed),
        described("masking\nwithout\nweights", weighted.unweighted()),
        described("Locore:\nmasking,\nweighted", weighted),
        described("Locore:\ndefault\nsampler", chosen),
    ]
    try:
        lcr = locore.generate(model, prompt, constraint, LENGTH, num_particles=LCR_DRAWS, sampler="lcr-published", seed=seed)
        answers.append(described("Locore:\npaper's\nsampler", lcr))
    except ZeroWeights:
        answers.append(Answer("Locore:\npaper's\nsampler", LCR_DRAWS, 0, {}, 0, verdict="it found nothing."))
    return truth, answers


def table_of(truth: Truth, answers: list[Answer]) -> Table:
    """Texts by their probability, then how far each answer is from the truth."""
    table = Table(box=HEAD, pad_edge=False, padding=(0, 0, 0, 1), header_style="bold", width=WIDTH)
    table.add_column("", width=FIRST, no_wrap=True, overflow="ellipsis")
    table.add_column("truth, by\nenumer-\nation", justify="right", no_wrap=True, style="green")
    for answer in answers:
        table.add_column(answer.name, justify="right", no_wrap=True)
    texts = _rows(truth.posterior, answers[1].posterior)
    for text in texts:
        table.add_row(Text(quoted(text)), *(_cell(p.get(text, 0.0), p) for p in _columns(truth, answers)))
    rest = [{"": 1 - sum(p.get(text, 0.0) for text in texts)} if p else {} for p in _columns(truth, answers)]
    table.add_row(f"{len(truth.posterior) - len(texts):,} other texts", *(_cell(p.get("", 0.0), p) for p in rest))
    table.add_section()
    table.add_row("draws", f"all {truth.sequences:,}", *(f"{answer.draws:,}" for answer in answers))
    table.add_row("satisfy it", "all", *(_share(answer) for answer in answers))
    table.add_row("distance to truth", "0", *(_distance(answer, truth) for answer in answers), style="bold")
    table.add_row("log p(constraint)", f"{truth.log_evidence:.2f}", *(answer.evidence for answer in answers))
    table.add_row("", "", *(answer.margin for answer in answers))
    table.add_row("ESS", "", *(answer.ess for answer in answers))
    table.add_row("LM tokens", f"{truth.contexts:,}", *(f"{answer.lm_tokens:,}" for answer in answers))
    return table


def _columns(truth: Truth, answers: list[Answer]) -> list[dict[str, float]]:
    return [truth.posterior, *(answer.posterior for answer in answers)]


def _rows(truth: dict[str, float], masked: dict[str, float]) -> list[str]:
    """The texts that the truth favours most, then those of the rest that masking favours most."""
    best = list(truth)[:BEST]
    return best + [text for text in masked if text not in best][:MASKED]


def _cell(probability: float, posterior: dict[str, float]) -> str:
    return percent(probability) if posterior else "–"


def _share(answer: Answer) -> str:
    return "all" if answer.satisfying == answer.draws else f"{answer.satisfying:,}"


def _distance(answer: Answer, truth: Truth) -> str:
    return f"{total_variation(answer.posterior, truth.posterior):.2f}" if answer.posterior else "–"


def conclusion(truth: Truth, answers: list[Answer], seed: int) -> list[str]:
    """What the table says, in plain words, whatever it turned out to say."""
    masked, weighted = answers[1].posterior, answers[2].posterior
    before, after = total_variation(masked, truth.posterior), total_variation(weighted, truth.posterior)
    worst = max(truth.posterior, key=lambda text: abs(masked.get(text, 0.0) - truth.posterior[text]))
    change = "nearer to" if after < before else "no nearer to"
    return [
        f"Masking alone writes {quoted(worst)} in {masked.get(worst, 0.0):.1%} of its texts; the model itself, where it ends "
        f"so, in {truth.posterior[worst]:.1%}.",
        f"Weighted by what the masks cost, the same texts are {change} the truth: distance {after:.2f} instead of {before:.2f} "
        f"({DRAWS:,} perfect draws: {perfect_distance(truth, seed):.2f}).",
        f"What Locore says of these weights: {answers[2].verdict}",
        f"Of its default sampler: {answers[3].verdict}",
        f"Of the paper's sampler: {answers[4].verdict}",
    ]


def show(prompt: str, ending: str, seed: int) -> None:
    """Run it, and print the screen.

    Raises:
        LocoreError: the example cannot be run.
    """
    print(f"Prompt: {quoted(prompt)}. At most {LENGTH} tokens, which must end with {quoted(ending)}.", flush=True)
    truth, answers = run(prompt, ending, seed)
    console = Console(width=WIDTH + 1, highlight=False)
    chance = math.exp(truth.log_evidence)
    console.print(f"The model does so with probability {chance:.2g}; {truth.sequences:,} token sequences can.\n")
    console.print(table_of(truth, answers))
    console.print()
    for line in conclusion(truth, answers, seed):
        console.print(Text(f"* {line}"))
