"""The screen of the real model: a table for each example, and what it says."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.text import Text

from locore.kernel.constraints.spelling import cut
from locore_lab.demo.examples import CHOICES, QUESTION, TEMPERATURE, Answer, Example, Reference, percent, quoted

WIDTH = 80
LABEL, TRUTH, COLUMN = 22, 9, 12  # widths of the columns
BEST = 3  # texts of an open example that have a row
LARGE = 1e6  # from here on odds are written with an exponent
Found = tuple[Reference, list[Answer]]


def whole(first: Found | None, example: Example, ending: str, second: Found) -> Iterator[Text]:
    """All of it but the last line."""
    yield from intro()
    yield Text()
    if first is not None:
        yield from chat_lines(*first)
        yield Text()
    yield from text_lines(1 if first is None else 2, example, ending, *second)
    for line in conclusions(first, second):
        yield Text(f"* {line}")


def intro() -> Iterator[Text]:
    """What it is about."""
    yield Text("How does a model write under a rule? Masking, as most tools do it, forbids each")
    yield Text("token that breaks the rule. Locore draws what the model would write if it obeyed")
    yield Text("by itself. Both are here, on SmolLM2, beside the truth, which this run computes.")


def chat_lines(truth: Reference, answers: list[Answer]) -> Iterator[Text]:
    """What is shown of the question in a chat."""
    yield Text(f"1. {quoted(QUESTION)} The answer has to be one of five.", style="bold")
    yield Text(f"   {_cost(truth, f'all {truth.sequences:,} ways to write one, enumerated')}")
    yield from _table(list(CHOICES), "", truth, answers)


def text_lines(number: int, example: Example, ending: str, truth: Reference, answers: list[Answer]) -> Iterator[Text]:
    """What is shown of an open text."""
    yield Text(
        f"{number}. {quoted(str(example.prompt))} … to end with {quoted(ending)}, temperature {TEMPERATURE:g}.", style="bold"
    )
    yield Text(f"   {_cost(truth, f'pooled from two samplers, ± {1.96 * truth.error:.1%}')}")
    texts = list(truth.posterior)[:BEST]
    yield from _table(texts, "all others", truth, [answer for answer in answers if answer.in_table])
    for name, answer in (("Masking writes", answers[0]), ("Locore's default", answers[2])):
        line = " | ".join(_inline(text).strip() for text in answer.examples)
        yield Text(f"{name + ':':<18}{cut(line, WIDTH - 18)}")


def conclusions(first: Found | None, second: Found) -> Iterator[str]:
    """What the tables say, in plain words, whatever they turned out to say."""
    if first is not None:
        (truth, answers), masked = first, first[1][0].posterior
        worst = max(masked, key=lambda text: masked[text] - truth.posterior.get(text, 0.0))
        yield (
            f"In 1 masking answers {quoted(worst)} in {percent(masked[worst])} of its texts, the model itself in "
            f"{percent(truth.posterior.get(worst, 0.0))}: forbidding says nothing of where a beginning leads."
        )
    truth, answers = second
    yield (
        "A distance is that of a table of all texts: chance alone puts as many perfect draws that far off. A verdict is on one "
        "draw: may it be taken for one of the truth's? It does not know the truth."
    )
    for answer in answers:
        if not answer.in_table:
            name, distance = answer.name, truth.distance(answer.posterior)
            price = f"{answer.lm_tokens:,} LM tokens"
            yield f'The {name} in {1 if first is None else 2}: {price}, distance {distance:.2f}, "{_level(answer)}".'


def _cost(truth: Reference, how: str) -> str:
    return f"Truth: {how}; {truth.lm_tokens:,} LM tokens, {truth.seconds:.0f} s."


def _level(answer: Answer) -> str:
    return answer.level.replace("do not", "don't")


def _inline(text: str) -> str:
    return quoted(text)[1:-1]


def _odds(log_probability: float) -> str:
    if math.isnan(log_probability):
        return "?"
    times = math.exp(-log_probability)
    return f"1 in {times:,.0f}" if times < LARGE else f"1 in {times:.0e}"


def _table(texts: list[str], rest: str, truth: Reference, answers: list[Answer]) -> Iterator[Text]:
    """A row for each text, for all others if `rest` names them, then how good and how dear each answer is."""
    heads = [answer.name.partition("\n") for answer in answers]
    yield _row("", "", [head[0] for head in heads], "bold")
    yield _row("", "truth", [head[2] for head in heads], "bold")
    laws = [answer.posterior for answer in answers]
    for text in texts:
        yield _row(_inline(text).strip(), percent(truth.posterior[text]), [percent(law.get(text, 0.0)) for law in laws])
    if rest:
        others = [max(0.0, 1 - sum(law.get(text, 0.0) for text in texts)) for law in laws]
        yield _row(rest, percent(truth.rest(texts)), [percent(other) for other in others])
    yield Text("─" * (LABEL + TRUTH + COLUMN * len(answers)), style="dim")
    yield _row("distance from truth", "0", [f"{truth.distance(law):.2f}" for law in laws], "bold")
    chance = [f"{truth.distance_by_chance(answer.draws):.2f}" for answer in answers]
    yield _row("… of perfect draws", "0", chance)
    yield _row("obeys by itself", _odds(truth.log_evidence), [_odds(answer.log_evidence) for answer in answers])
    yield _row("verdict on one draw", "", [_level(answer) for answer in answers])
    yield _row("LM tokens, seconds", "", [f"{answer.lm_tokens:,}, {answer.seconds:.0f} s" for answer in answers])


def _row(label: str, truth: str, cells: list[str], style: str = "") -> Text:
    line = Text(f"{cut(label, LABEL):<{LABEL}}", style=style)
    line.append(f"{truth:>{TRUTH}}", style="green")
    for cell in cells:
        line.append(f"{cell:>{COLUMN}}")
    return line
