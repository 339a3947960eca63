"""What a run does: which prompts and rows, and how often."""

from __future__ import annotations

from dataclasses import dataclass

from locore.errors import InvalidArgument
from locore.local import TopK
from locore_lab.detox.exact import exact
from locore_lab.detox.methods import (
    alone,
    as_published,
    by_adaptive_rejection,
    constrained,
    greedy_masking,
    repaired,
    word_banning,
)
from locore_lab.detox.prompts import Material, Prompt
from locore_lab.detox.remembered import Memory
from locore_lab.detox.task import Level, Method

TUNING_SHARE = 1 / 3  # of the prompts, at most, on which τ is chosen
PAPERS = "LCR"  # how the names of the rows of the paper's sampler begin
AUTO, TWISTED = "Locore, default (auto)", "Locore, guided by n-grams (twisted)"
PREPARED = (AUTO, TWISTED)  # rows that read the model's n-gram table


@dataclass(frozen=True)
class DetoxPlan:
    """How large the experiment is.

    Attributes:
        length: new tokens.
        generations: of each prompt, by the cheap rows.
        g: sizes of the sets whose worst is reported; the first one is that of the paper's table and of a run with one seed.
        costly: prompts of the table that has every row.
        tuning: other prompts, on which τ is chosen, with one generation for each.
        pairs: S of the paper's sampler.
        particles: of the library's samplers, for each generation.
        ks: candidates of the paper's sampler at a position.
        k: of them, in the rows that differ in τ.
        taus: temperatures of its local distribution.
        resamples: of the bootstrap.
    """

    length: int = 20
    generations: int = 25
    g: tuple[int, ...] = (5, 25)
    costly: int = 300
    tuning: int = 1000
    pairs: int = 5
    particles: int = 8
    ks: tuple[int, ...] = (5, 10, 25, 50)
    k: int = 10
    taus: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    resamples: int = 1000


QUICK = DetoxPlan(
    length=8, generations=4, g=(2, 4), costly=6, tuning=2, pairs=2, particles=4, ks=(2, 4), k=4, taus=(0.5, 1.0), resamples=200
)


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        name: as shown.
        method: what draws it.
        level: of its constraint; None for the model itself.
        everywhere: cheap enough for all prompts and `DetoxPlan.generations`; the others get `DetoxPlan.costly` prompts
            and the first `g`.
        seeds: rows with the same word draw with the same seeds; by default those of its own name.
    """

    name: str
    method: Method
    level: Level | None
    everywhere: bool = True
    seeds: str | None = None


EXACT = {"text": "exact (rejection)", "tokens": "exact (rejection), token ban"}
ADAPTIVE = "Locore, one exact draw (cars)"
ALONE = Row("model alone", alone, None)


def rows_of(plan: DetoxPlan, tau: float | None) -> list[Row]:
    """All rows; those of the paper's sampler only once τ is known."""
    rows = [
        ALONE,
        Row("word banning (bad_words_ids)", word_banning, "tokens"),
        Row("greedy masking (automaton)", greedy_masking, "text"),
        Row(EXACT["text"], exact("text"), "text"),
        Row(ADAPTIVE, by_adaptive_rejection(), "text"),
        Row(AUTO, constrained("auto"), "text", everywhere=False),
        Row("Locore, without replacement (swor)", constrained("swor"), "text", everywhere=False),
        Row(TWISTED, constrained("twisted"), "text", everywhere=False),
        Row(EXACT["tokens"], exact("tokens"), "tokens"),
    ]
    if tau is None:
        return rows
    settings = dict.fromkeys([*((k, tau) for k in plan.ks), *((plan.k, each) for each in plan.taus)])
    memory = Memory()
    rows += [published_row(k, each, memory) for k, each in settings]
    kernel = TopK(k=plan.k, temperature=tau)
    return [*rows, Row(f"{PAPERS} repaired, k={plan.k}, τ={tau:g}", repaired(kernel), "tokens", everywhere=False)]


def published_row(k: int, tau: float, memory: Memory) -> Row:
    """The paper's sampler with these settings; with the same seeds, and so the same drafts, as with all others."""
    method = as_published(TopK(k=k, temperature=tau, floor=0.0), memory)
    return Row(f"{PAPERS} as published, k={k}, τ={tau:g}", method, "tokens", everywhere=False, seeds=PAPERS)


def chosen_rows(rows: list[Row], wanted: tuple[str, ...]) -> list[Row]:
    """Those whose names begin with, or contain in brackets, one of these; all for none.

    Raises:
        InvalidArgument: one of them fits no row.
    """
    for each in wanted:
        if not any(_is_meant(each, row.name) for row in rows):
            raise InvalidArgument(f"there is no row {each!r}; the rows are {'; '.join(row.name for row in rows)}.")
    return [row for row in rows if not wanted or any(_is_meant(each, row.name) for each in wanted)]


def _is_meant(wanted: str, name: str) -> bool:
    return bool(wanted) and (name.startswith(wanted) or f"({wanted})" in name)


@dataclass(frozen=True)
class Split:
    """Prompts by their use; `costly` are the first of `final`, `tuning` are none of them."""

    tuning: tuple[Prompt, ...]
    final: tuple[Prompt, ...]
    costly: tuple[Prompt, ...]


def split(material: Material, plan: DetoxPlan, most: int | None) -> Split:
    """Which prompts are for what; `most` limits the final ones."""
    number = min(plan.tuning, int(len(material.prompts) * TUNING_SHARE))
    final = material.prompts[number:][:most]
    return Split(material.prompts[:number], final, final[: plan.costly])
