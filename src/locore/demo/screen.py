"""The screen of the real model: a heading, a table and what it means, for each example."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from locore.demo.answers import Answer, percent, quoted
from locore.demo.examples import CHOICES, MASKED, QUESTION, Example
from locore.demo.reference import Reference

WIDTH = 79
BEST = 3  # texts of an open example that have a row
MASKING, WEIGHTED, DEFAULT = 0, 1, 2  # places among the answers


def chat_lines(truth: Reference, answers: list[Answer]) -> Iterator[Text | Table]:
    """What is shown of the question in a chat."""
    yield Text(f"1. A chat: {quoted(QUESTION)} The answer has to be one of five.", style="bold")
    yield Text(f"   {_odds(truth)} Masking (as most tools do it) against the truth:")
    yield _table(list(CHOICES), "", truth, answers)


def text_lines(example: Example, ending: str, truth: Reference, answers: list[Answer]) -> Iterator[Text | Table]:
    """What is shown of an open text."""
    yield Text(f"2. {quoted(str(example.prompt))} … has to end with {quoted(ending)} ({example.length} tokens).", style="bold")
    yield Text(f"   {_odds(truth)} The first texts of masking, and draws of Locore:")
    for one, other in zip(answers[MASKING].examples, answers[DEFAULT].examples, strict=True):
        yield Text(f"     …{_inline(one):<34.34} …{_inline(other):.34}")
    texts = list(truth.posterior)[:BEST]
    yield _table(texts, f"{len(truth.posterior) - len(texts):,} others, and more", truth, answers)


def conclusions(first: tuple[Reference, list[Answer]] | None, second: tuple[Reference, list[Answer]]) -> Iterator[str]:
    """What the tables say, in plain words, whatever they turned out to say."""
    if first is not None:
        truth, answers = first
        masked, default = answers[MASKING].posterior, answers[DEFAULT].posterior
        best = next(iter(truth.posterior))
        yield (
            f"1: the model's answer is {quoted(best)} ({percent(truth.posterior[best])}); masking gives it in "
            f"{percent(masked.get(best, 0.0))} of {MASKED} texts, Locore with {percent(default.get(best, 0.0))}."
        )
    yield (
        "Masking takes what is likely now and may still be completed, not what leads to a good end. Locore pays each text "
        "back by a weight, looks for better texts, and says what its answer is worth."
    )


def _odds(truth: Reference) -> str:
    return f"The model does so by itself once in {math.exp(-truth.log_evidence):,.0f} texts."


def _inline(text: str) -> str:
    return quoted(text)[1:-1]


def _table(texts: list[str], rest: str, truth: Reference, answers: list[Answer]) -> Table:
    """A row for each text, for all others if `rest` names them, and how good and how dear each answer is."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1), header_style="bold", width=WIDTH)
    table.add_column("", no_wrap=True, overflow="ellipsis", ratio=1)
    how = "enumerated" if truth.sequences else "pooled"
    table.add_column(f"truth,\n{how}", justify="right", no_wrap=True, style="green")
    for answer in answers:
        table.add_column(answer.name, justify="right", no_wrap=True)
    for text in texts:
        laws = (truth.posterior, *(answer.posterior for answer in answers))
        table.add_row(Text(_inline(text)), *(percent(law.get(text, 0.0)) for law in laws))
    if rest:
        others = (1 - sum(answer.posterior.get(text, 0.0) for text in texts) for answer in answers)
        table.add_row(rest, percent(truth.rest(texts)), *(percent(max(0.0, other)) for other in others))
    table.add_section()
    table.add_row("distance to truth", "0", *(f"{truth.distance(a.posterior):.2f}" for a in answers), style="bold")
    error = f" ± {1.96 * truth.error:.2f}" if truth.error else ""
    table.add_row("log p(constraint)", f"{truth.log_evidence:.2f}{error}", *(a.evidence for a in answers))
    table.add_row("Locore's verdict", "", *(a.level for a in answers))
    table.add_row("LM tokens", f"{truth.lm_tokens:,}", *(f"{a.lm_tokens:,}" for a in answers))
    table.add_row("seconds", f"{truth.seconds:.0f}", *(f"{a.seconds:.1f}" for a in answers))
    return table
