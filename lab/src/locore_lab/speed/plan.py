"""How much is measured; the rows are the same in every plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from locore_lab.speed.llamas import Shape

Row = dict[str, Any]
Key = tuple[str | int, ...]
Case = tuple[Key, Callable[[], list[Row]]]  # its name in the journal, and what measures its rows
BUNDLED = "tiny"
LLAMA_3 = {
    "Llama 3.2 1B": Shape(128_256, 2048, 8192, 16, 32, shared_heads=8),
    "Llama 3 8B": Shape(128_256, 4096, 14_336, 32, 32, shared_heads=8, tied=False),
}


@dataclass(frozen=True)
class SpeedPlan:
    """Sizes.

    Attributes:
        shapes: of the Llamas with random weights, by name.
        n: tokens of a draft and of a continuation.
        ks: candidates at each position.
        rows: continuations that are drawn together.
        full_tokens: tokens of full sequences that one measurement of the plain Algorithm 1 reads, at most.
        repeats: of each measurement; the fastest counts.
        neighbour_prompts, sampling_prompts: tokens of the prompts.
        words: numbers of banned words; more words make larger circuits.
        formulas: variables, clauses and span of random 3-CNFs, for PySDD.
        batch: distributions of a circuit query, and prefixes of a mask.
        vocabulary: tokens, for masks.
        accelerator_shapes, accelerator_ks, accelerator_particles, accelerator_rows: of the part "accelerator".
        device: of that part, such as "cuda"; None to leave it out.
        lengths, candidates, particles, vocabularies, constraint_words: the points of the curves.
    """

    shapes: dict[str, Shape]
    n: int
    ks: tuple[int, int]
    rows: int
    full_tokens: int
    repeats: int
    neighbour_prompts: tuple[int, ...] = (16, 256, 1024)
    sampling_prompts: tuple[int, ...] = (16, 256)
    words: tuple[int, ...] = (50, 500, 5000)
    formulas: tuple[tuple[int, int, int], ...] = ((60, 150, 12), (60, 100, 25))
    batch: int = 64
    vocabulary: int = 128_000
    accelerator_shapes: dict[str, Shape] = field(default_factory=lambda: LLAMA_3)
    accelerator_ks: tuple[int, ...] = (10, 50)
    accelerator_particles: tuple[int, ...] = (16, 96)
    accelerator_rows: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    device: str | None = None
    lengths: tuple[int, ...] = (8, 16, 32, 64, 128, 256)
    candidates: tuple[int, ...] = (4, 8, 16, 32, 64)
    particles: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    vocabularies: tuple[int, ...] = (512, 2048, 8192, 32_000, 128_000)
    constraint_words: tuple[int, ...] = (10, 100, 1000, 10_000, 100_000)


FULL = SpeedPlan({"small": Shape(8192, 384, 1024, 10, 6), "large": Shape(32000, 768, 2048, 11, 12)}, 20, (16, 64), 32, 4096, 2)
QUICK = SpeedPlan(
    {"small": Shape(512, 64, 176, 2, 2), "large": Shape(2048, 128, 352, 4, 2)},
    8,
    (4, 8),
    8,
    4096,
    2,
    words=(5, 50, 500),
    formulas=((30, 60, 8), (60, 150, 12)),
    accelerator_shapes={"small": Shape(512, 64, 176, 2, 2), "large": Shape(2048, 128, 352, 4, 2)},
    accelerator_ks=(2, 4),
    accelerator_particles=(4, 8),
    accelerator_rows=(1, 4, 16),
    batch=16,
    vocabulary=8192,
    lengths=(8, 16, 32),
    candidates=(4, 8, 16),
    particles=(1, 4, 16),
    vocabularies=(512, 2048, 8192),
    constraint_words=(10, 100, 1000),
)
