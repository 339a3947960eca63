"""A model with an encoder: spoken digits are written down, under what is known of them; word errors and calibration.

A small Whisper (`locore_lab.spoken`) hears digits of a synthesiser in noise. It was trained on digits that follow each other
at random. What is said here does not: it is a date, a number of eight digits with a check digit (EAN-8), or a number of a
list. All masks are of one circuit, with its look-ahead, and go to transformers' `generate` as `prefix_allowed_tokens_fn`; beams
have no length penalty. Locore's two answers are of one posterior over transcripts: the most probable one, and the one from
which the posterior expects fewest word errors. A word is a digit; errors are insertions, deletions and substitutions, as shares
of the words said. The second table puts answers together by how sure they were: Locore's most probable texts, and the best of
masked beams by its share among them.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.random import Generator, default_rng
from torch import Tensor
from transformers import GenerationMixin

import locore
from locore import Constraint
from locore.kernel.models.validation import positive
from locore.models import EncoderDecoder
from locore_lab.harness import Case, Row, measurement, table
from locore_lab.shared import TokenMeter, seed_of, timed
from locore_lab.spoken.recogniser import TOKENIZER, features, recogniser
from locore_lab.spoken.voice import spoken, with_noise

DIGITS, LENGTH = 8, 10
EAN_WEIGHTS = (3, 1) * 4
BOUNDS = (0.0, 0.5, 0.7, 0.9, 0.97, 1.0)  # of how sure an answer was
PEERS = ((1, False), (5, False), (1, True), (5, True), (20, True))  # beams, and is there a mask?
BEST, LEAST = "Locore, most probable", "Locore, fewest errors expected"


class Answer(NamedTuple):
    """What somebody wrote down, how sure, after how many distributions, in which CPU seconds."""

    text: str
    sure: float | None
    lm_tokens: int
    seconds: float


@dataclass(frozen=True)
class Kind:
    """What is known of the digits that are said.

    Attributes:
        draw: any such text.
        constraint: all such texts.
    """

    draw: Callable[[Generator], str]
    constraint: Constraint


@cache
def kinds() -> dict[str, Kind]:
    """By name."""
    listed = [f"{number:08d}" for number in default_rng(1).choice(10**DIGITS, 1000, replace=False)]
    return {
        "eight digits": Kind(_digits, locore.regex(r"\d{8}")),
        "EAN-8": Kind(_ean, _ean_constraint()),
        "a date": Kind(_date, locore.choice(dates())),
        "one of 1,000": Kind(lambda chance: str(chance.choice(listed)), locore.choice(listed)),
    }


def dates() -> list[str]:
    """DDMMYYYY, from 1920 to 2029."""
    days = [(year, month) for year in range(1920, 2030) for month in range(1, 13)]
    return [f"{d:02d}{month:02d}{year}" for year, month in days for d in range(1, calendar.monthrange(year, month)[1] + 1)]


def _digits(chance: Generator, number: int = DIGITS) -> str:
    return "".join(map(str, chance.integers(0, 10, number)))


def _ean(chance: Generator) -> str:
    body = _digits(chance, DIGITS - 1)
    return body + str(-sum(w * int(d) for w, d in zip(EAN_WEIGHTS, body, strict=False)) % 10)


def _date(chance: Generator) -> str:
    return str(chance.choice(dates()))


def _ean_constraint() -> Constraint:
    """Eight digits whose weighted sum is a multiple of ten."""
    sums = [locore.digit_sum(range(DIGITS), total, weights=EAN_WEIGHTS) for total in range(0, 9 * sum(EAN_WEIGHTS) + 1, 10)]
    return locore.regex(r"\d{8}") & locore.at_least(1, sums)


def written(module: Any, heard: Tensor, constraint: Constraint | None, beams: int) -> tuple[str, float, int]:
    """What transformers writes, its share among the beams, and the distributions that were asked for."""
    meter = TokenMeter(module.model.decoder)
    # Whisper's own `generate` is for its timestamps and languages.
    found = GenerationMixin.generate(
        module,
        input_features=heard,
        prefix_allowed_tokens_fn=None if constraint is None else masks(constraint),
        max_new_tokens=LENGTH,
        num_beams=beams,
        num_return_sequences=beams,
        length_penalty=None if beams == 1 else 0.0,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    sure = 1.0 if beams == 1 else float(found.sequences_scores.double().softmax(0)[0])
    return TOKENIZER.decode(found.sequences[0, 1:].tolist()), sure, meter.close()


def masks(constraint: Constraint) -> Callable[[int, Tensor], list[int]]:
    """Which tokens may follow, by the constraint's circuit."""
    reader = locore.compile(constraint, TOKENIZER, LENGTH).reader
    assert reader is not None

    def allowed(_: int, ids: Tensor) -> list[int]:
        states = reader.read(ids[None, 1:])
        found: list[int] = reader.allowed_tokens(len(ids) - 1, states)[0].nonzero()[:, 0].tolist()
        return found

    return allowed


def answers(model: EncoderDecoder, heard: Tensor, constraint: Constraint, budget: int, seed: int) -> dict[str, Answer]:
    """Everybody's."""
    found: dict[str, Answer] = {}
    for beams, known in PEERS:
        name = ("greedy" if beams == 1 else f"{beams} beams") + ", masked" * known
        work = partial(written, model.causal.module.whole, heard, constraint if known else None, beams)
        (text, sure, cost), seconds = timed(work)
        found[name] = Answer(text, sure if known and beams > 1 else None, cost, seconds)
    options = {"num_particles": 64, "budget": budget, "seed": seed, "ending": "eos"}
    p, seconds = timed(lambda: locore.generate(model, "", constraint, LENGTH, **options))
    posterior, cost = p.posterior(), p.info["lm_tokens"]
    best = next(iter(posterior))
    found[BEST] = Answer(best, posterior[best], cost, seconds)
    found[LEAST] = Answer(least_errors(posterior), None, cost, seconds)
    return found


def least_errors(posterior: Mapping[str, float]) -> str:
    """The text of a posterior that is expected to differ least from what was said."""
    return min(posterior, key=lambda text: sum(share * errors(text, other) for other, share in posterior.items()))


@cache
def errors(one: str, other: str) -> int:
    """Digits to insert, delete or replace."""
    row = list(range(len(other) + 1))
    for i, mine in enumerate(one, 1):
        before, row[0] = row[:], i
        for j, theirs in enumerate(other, 1):
            row[j] = min(row[j - 1] + 1, before[j] + 1, before[j - 1] + (mine != theirs))
    return row[-1]


def measured(kind: str, decibels: float, strings: int, budget: int, seed: int) -> list[Row]:
    """Word errors of all, for one kind of text in one noise."""
    listening, known = EncoderDecoder.of(recogniser(), TOKENIZER, input_features=features(np.zeros(1))[None]), kinds()[kind]
    said: dict[str, list[Row]] = {}
    for number in range(strings):
        chance = default_rng(seed_of(seed, kind, decibels, number))
        text = known.draw(chance)
        heard = features(with_noise(spoken(text, chance), decibels, chance))[None]
        model = listening.given(input_features=heard)
        for name, answer in answers(model, heard, known.constraint, budget, number).items():
            row = {"wrong": errors(answer.text, text), "words": len(text), **answer._asdict()}
            said.setdefault(name, []).append(row)
    return [{"decoder": name, **summed(rows)} for name, rows in said.items()]


def summed(rows: list[Row]) -> Row:
    """Of one decoder."""
    words = sum(row["words"] for row in rows)
    return {
        "word_errors": round(100 * sum(row["wrong"] for row in rows) / words, 2),
        "right": sum(row["wrong"] == 0 for row in rows),
        "strings": len(rows),
        "lm_tokens": round(float(np.mean([row["lm_tokens"] for row in rows])), 1),
        "seconds": round(float(np.mean([row["seconds"] for row in rows])), 3),
        "sure": [[round(row["sure"], 4), int(row["wrong"] == 0)] for row in rows if row["sure"] is not None],
    }


def calibration(rows: list[Row]) -> str:
    """How often answers were right, by how sure they were."""
    lines = []
    for decoder in (BEST, "20 beams, masked", "5 beams, masked"):
        said = [tuple(each) for row in rows if row["decoder"] == decoder for each in row["sure"]]
        lines += [
            {"decoder": decoder, "sure": f"{low:.2f}–{high:.2f}", **binned(said, low, high)} for low, high in pairwise(BOUNDS)
        ]
    return table(
        lines, ("decoder | sure | strings | mean sure, % | right, %", "{decoder} | {sure} | {strings} | {mean} | {right}")
    )


def binned(said: list[tuple[float, int]], low: float, high: float) -> Row:
    """Of answers that were so sure."""
    inside = [(sure, right) for sure, right in said if low < sure <= high]
    if not inside:
        return {"strings": 0, "mean": None, "right": None}
    mean, right = np.mean(np.array(inside), 0)
    return {"strings": len(inside), "mean": round(100 * float(mean), 1), "right": round(100 * float(right), 1)}


@measurement(
    "said | noise, dB | decoder | word errors, % | strings right | LM tokens | CPU s",
    "{kind} | {decibels} | {decoder} | {word_errors} | {right} of {strings} | {lm_tokens:.0f} | {seconds}",
    quick={"strings": 2, "decibels": (0.0,)},
    after=calibration,
)
def run(
    strings: Annotated[int, "of each kind, in each noise"] = 100,
    decibels: Annotated[list[float], "by which the noise is softer than the voice"] = (0.0, 5.0),
    budget: Annotated[int, "of Locore, LM tokens"] = 300,
    seed: int = 0,
) -> Iterator[Case]:
    positive(strings, "strings")
    for level in decibels:
        for kind in kinds():
            yield {"kind": kind, "decibels": level}, partial(measured, kind, level, strings, budget, seed)
