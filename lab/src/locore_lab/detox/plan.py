"""What a run does: which prompts and rows, and how often."""

from __future__ import annotations

from dataclasses import dataclass

from locore_lab.detox.exact import exact
from locore_lab.detox.methods import (
    MaskOf,
    alone,
    as_published,
    by_adaptive_rejection,
    constrained,
    first_token_banning,
    greedy_masking,
    masked,
    repaired,
    word_banning,
)
from locore_lab.detox.prompts import Material, Prompt
from locore_lab.detox.published import AUTHORS_REST, Reading
from locore_lab.detox.remembered import Memory
from locore_lab.detox.task import Law, Level, Method

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
        own_ks: of its rows with the token of the sequence among the candidates.
        both_kinds: candidates that occur in no banned phrase, and that occur in one, in the rows with as many as the authors'
            earlier code has.
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
    own_ks: tuple[int, ...] = (10, 50)
    both_kinds: tuple[int, int] = (9, 440)
    k: int = 10
    taus: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    resamples: int = 1000


QUICK = DetoxPlan(
    length=8,
    generations=4,
    g=(2, 4),
    costly=6,
    tuning=2,
    pairs=2,
    particles=4,
    ks=(2, 4),
    own_ks=(2,),
    both_kinds=(2, 2),
    k=4,
    taus=(0.5, 1.0),
    resamples=200,
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
        law: p of the row: differences from the exact law are from that of the same p.
    """

    name: str
    method: Method
    level: Level | None
    everywhere: bool = True
    seeds: str | None = None
    law: Law = "plain"


EXACT = {"text": "exact (rejection)", "tokens": "exact (rejection), token ban"}
ADAPTIVE = "Locore, one exact draw (cars)"
ALONE = "model alone"
LAWS: dict[Law, str] = {"plain": "", "nucleus": ", nucleus"}  # what the names of rows of this law end with
MASKS: tuple[tuple[str, MaskOf, Level | None], ...] = (
    (ALONE, alone, None),
    ("word banning (bad_words_ids)", word_banning, "tokens"),
    ("word banning (first tokens)", first_token_banning, "tokens"),
    ("greedy masking (automaton)", greedy_masking, "text"),
)


def exact_name(row: Row) -> str | None:
    """The row of the exact law with the constraint and the p of this row; None where there is no constraint."""
    return None if row.level is None else EXACT[row.level] + LAWS[row.law]


def rows_of(plan: DetoxPlan, tau: float | None) -> list[Row]:
    """All rows; those of the paper's sampler only once τ is known."""
    rows = [*_cheap_rows("plain"), *_cheap_rows("nucleus")]
    rows += [
        Row(ADAPTIVE, by_adaptive_rejection(), "text"),
        Row(AUTO, constrained("auto"), "text", everywhere=False),
        Row("Locore, without replacement (swor)", constrained("swor"), "text", everywhere=False),
        Row(TWISTED, constrained("twisted"), "text", everywhere=False),
    ]
    if tau is None:
        return rows
    memory = Memory()
    rows += [published_row(reading, memory) for reading in readings(plan, tau)]
    name = f"{PAPERS} repaired, k={plan.k}, τ={tau:g}"
    return [*rows, Row(name, repaired(plan.k, tau), "tokens", everywhere=False)]


def _cheap_rows(law: Law) -> list[Row]:
    """What draws whole batches of texts token by token."""
    masks = [Row(name + LAWS[law], masked(mask, law), level, law=law) for name, mask, level in MASKS]
    levels: tuple[Level, ...] = ("text", "tokens")
    return masks + [Row(EXACT[level] + LAWS[law], exact(level, law), level, law=law) for level in levels]


def readings(plan: DetoxPlan, tau: float) -> list[Reading]:
    """How the paper's sampler may be meant: the k likeliest tokens alone, and the candidates of the authors' earlier code."""
    likeliest = [*(Reading(k, tau) for k in plan.ks), *(Reading(plan.k, each) for each in plan.taus)]
    own = Reading(plan.own_ks[0], tau, own=True)
    laws: tuple[Law, ...] = ("plain", "nucleus")
    settings = dict.fromkeys([*((k, tau) for k in plan.own_ks), *((plan.own_ks[0], each) for each in plan.taus)])
    authors = [Reading(k, each, own=True, rest=AUTHORS_REST, law=law) for k, each in settings for law in laws]
    k, banned = plan.both_kinds
    authors += [Reading(k, tau, own=True, rest=AUTHORS_REST, law=law, banned=banned) for law in laws]
    return list(dict.fromkeys([*likeliest, own, *authors]))


def published_row(reading: Reading, memory: Memory) -> Row:
    """The paper's sampler, read so; with the same seeds, and so the same drafts, as with all other readings."""
    name, method = f"{PAPERS} as published, {reading.name}", as_published(reading, memory)
    return Row(name, method, "tokens", everywhere=False, seeds=PAPERS, law=reading.law)


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
