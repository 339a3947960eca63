"""What a step of many rows costs behind a long prompt: seconds, memory, and what is left when contexts are remembered.

Rows share one copy of the prompt's keys and values; "rows of their own" is the road of models that cannot, with a copy for each
row. Both take turns in one process. Parents are drawn at random at each step, as resampling does. Memory is measured in a
process for each prompt: the prompt is read, then the rows go on.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

import locore
from locore.models import Cursor, HuggingFaceModel, Remembered
from locore_lab.harness import Case, Row, apart, measurement
from locore_lab.shared import peak_bytes, timed

ROWS, SHORT = 96, 16
PROMPTS, COPIED_PROMPTS = (SHORT, 100, 400, 1_500, 6_000), (SHORT, 100, 400)
MEMORY_PROMPTS, MEMORY_STEPS = (256, 1_500, 6_000), 64
WARM, STEPS, TURNS = 4, 4, 3
DRAWN, LENGTH, REMEMBERED_PROMPT = 96, 16, 400


class Rows:
    """Rows behind a prompt of random tokens."""

    def __init__(self, model: HuggingFaceModel, length: int) -> None:
        self._generator = torch.Generator().manual_seed(length)
        self._vocab_size = model.vocab_size
        self.model = model.prompted(self._random(length).tolist())

    def walk(self, steps: int) -> Cursor:
        """A cursor that has read so many tokens."""
        cursor = self.model.begin(ROWS)
        for _ in range(steps):
            cursor = self.step(cursor)
        return cursor

    def step(self, cursor: Cursor) -> Cursor:
        """One token after rows that are chosen at random."""
        return cursor.advance(self._random(ROWS), torch.randint(ROWS, (ROWS,), generator=self._generator))

    def _random(self, count: int) -> Tensor:
        return torch.randint(self._vocab_size, (count,), generator=self._generator)


def step_seconds(model: HuggingFaceModel) -> list[Row]:
    """The least CPU seconds of one step behind each prompt, all in turns."""
    roads = [(True, length) for length in PROMPTS] + [(False, length) for length in COPIED_PROMPTS]
    found: dict[tuple[bool, int], list[float]] = {road: [] for road in roads}
    for _ in range(TURNS):
        for shares, length in roads:
            model.causal.shares = shares
            rows = Rows(model, length)
            cursor = rows.walk(WARM if shares else 1)
            for _ in range(STEPS if shares else 1):
                # From the same cursor each time: all of these steps are equally long.
                found[shares, length].append(timed(lambda cursor=cursor, rows=rows: rows.step(cursor))[1])
    model.causal.shares = True
    short = min(found[True, SHORT])
    rows = [{"shares": shares, "prompt": length, "seconds": min(found[shares, length])} for shares, length in roads]
    return [{**row, "of_short": row["seconds"] / short} for row in rows]


def memory(name: str, length: int) -> Row:
    """The most memory that a prompt and its rows take beyond the model, and what keys and values of all tokens take."""
    model = opened(name)
    Rows(model, 2).walk(2)  # what is made once, at the first steps
    rows = Rows(model, length)
    peak = peak_bytes(lambda: rows.walk(MEMORY_STEPS))
    tokens, each = length + ROWS * MEMORY_STEPS, model.causal.bytes_per_token
    return {"tokens": tokens, "bytes_per_token": each, "peak": peak, "ratio": peak and peak / (tokens * each)}


def drawing(model: HuggingFaceModel) -> list[Row]:
    """CPU seconds of drawing texts, by the model and by one that remembers, which is asked again and again."""
    prompt = Rows(model, REMEMBERED_PROMPT).model.prompt_ids
    plain = model.prompted(prompt)
    plain.sample(1, 1, 0)
    found = [{"kind": "the model itself", "seconds": timed(lambda: plain.sample(DRAWN, LENGTH, 1))[1], "new": None, "bytes": 0}]
    for keeps in ("log_probs", "hidden"):
        remembered = Remembered(model, keeps=keeps).prompted(prompt)
        remembered.sample(1, 1, 0)
        for kind, seed in (("first", 1), ("the same texts", 1), ("other texts", 2)):
            before = remembered.contexts
            _, seconds = timed(lambda seed=seed, asked=remembered: asked.sample(DRAWN, LENGTH, seed))
            new, held = remembered.contexts - before, remembered.bytes
            found.append({"kind": f"remembered, {keeps}: {kind}", "seconds": seconds, "new": new, "bytes": held})
    return found


def opened(name: str) -> HuggingFaceModel:
    model = locore.load(name)
    assert isinstance(model, HuggingFaceModel) and model.causal.shares, "the rows of this model cannot share a prompt"
    return model


@measurement(
    "prompt | rows share it | a step, CPU s | of that behind 16 tokens",
    "{prompt:,} | {shares} | {seconds:.3f} | {of_short:.2f}",
    memory=(
        "prompt | tokens read | bytes of keys and values of one | most memory | ratio",
        "{prompt:,} | {tokens:,} | {bytes_per_token:,} | {peak:,} | {ratio:.2f}",
    ),
    drawing=("96 texts of 16 tokens | CPU s | new contexts | bytes", "{kind} | {seconds:.2f} | {new} | {bytes:,}"),
)
def run(model: str = "smollm2") -> Iterator[Case]:
    known = opened(model)
    yield {}, partial(step_seconds, known)
    for length in MEMORY_PROMPTS:
        yield {"part": "memory", "prompt": length}, partial(apart, memory, model, length)
    yield {"part": "drawing"}, partial(drawing, known)
