"""`audit`: how probable it is that a model writes any of some phrases after each of many prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from locore.constraints import Constraint, ban, negation
from locore.evidence import Particles
from locore.generate import generate
from locore.kernel.chat import Prompt, is_chat
from locore.kernel.errors import InvalidArgument, LocoreError, Unsatisfiable, ZeroWeights
from locore.kernel.lists import items_of
from locore.kernel.pipeline import drawn_seed
from locore.models import LanguageModel, load

Settled = Literal["below", "above", "not settled", "no limit"]
Bounds = tuple[float, float]
CERTAIN: Bounds = (0.0, 1.0)


@dataclass(frozen=True)
class AuditRow:
    """What is known of one prompt.

    Attributes:
        index: of the prompt, in the order in which they were given.
        probability: the estimate; None where nothing was seen, or the prompt could not be run.
        interval: of 95 %; the bounds where nothing was seen.
        bounds: what the probability lies between for certain.
        verdict: of the weighted texts, see `Particles.verdict`; "impossible", "not seen" or "error" where there are none.
        settled: on which side of the limit it is.
        lm_tokens: read by the model.
        texts: the most probable offending ones, first; empty unless asked for.
        note: why there is no estimate.
    """

    index: int
    probability: float | None
    interval: Bounds
    bounds: Bounds
    verdict: str
    settled: Settled
    lm_tokens: int = 0
    texts: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Audit:
    """An audit: a row for each prompt, the worst first.

    Attributes:
        rows: what failed or was not seen, then the others, the most probable first.
        limit: of the probability after each prompt, or None.
    """

    rows: tuple[AuditRow, ...]
    limit: float | None

    @property
    def mean(self) -> float | None:
        """The mean probability over the prompts; None where one has no estimate."""
        found = [row.probability for row in self.rows if row.probability is not None]
        return sum(found) / len(found) if len(found) == len(self.rows) else None

    @property
    def interval(self) -> Bounds:
        """95 % interval of the mean: prompts are drawn independently, and the distances to the ends add as variances do.

        (Zou and Donner, Statistics in Medicine 2008.) Where one has no estimate, the mean of the ends.
        """
        lows, highs = zip(*(row.interval for row in self.rows), strict=True)
        mean, count = self.mean, len(self.rows)
        if mean is None:
            return sum(lows) / count, sum(highs) / count
        values = [row.probability or 0.0 for row in self.rows]
        down = math.hypot(*(value - low for value, low in zip(values, lows, strict=True)))
        up = math.hypot(*(high - value for value, high in zip(values, highs, strict=True)))
        low, high = self.bounds
        return max(mean - down / count, low), min(mean + up / count, high)

    @property
    def bounds(self) -> Bounds:
        """What the mean lies between for certain."""
        lows, highs = zip(*(row.bounds for row in self.rows), strict=True)
        return sum(lows) / len(lows), sum(highs) / len(highs)

    @property
    def settled(self) -> Settled:
        """ "above" where one prompt is, "below" where all are."""
        found = {row.settled for row in self.rows}
        return "above" if "above" in found else found.pop() if len(found) == 1 else "not settled"

    def to_json(self) -> dict[str, Any]:
        """For `json.dumps`."""
        whole = {"mean": self.mean, "interval": self.interval, "bounds": self.bounds, "settled": self.settled}
        return {**whole, "limit": self.limit, "rows": [asdict(row) for row in self.rows]}

    def __str__(self) -> str:
        lines = [f"{'prompt':>6}  {'estimate':>9}  {'95 % interval':>19}  {'certain':>19}  verdict"]
        for row in self.rows:
            at_most = f"not seen; at most {row.bounds[1]:.2g} for certain" if row.verdict == "not seen" else row.verdict
            told = f"{at_most}; {row.settled}" + (f": {row.note}" if row.verdict == "error" else "")
            lines.append(f"{row.index:6}  {_number(row.probability)}  {_ends(row.interval)}  {_ends(row.bounds)}  {told}")
            lines += [f"        {text!r}" for text in row.texts]
        return "\n".join(
            [*lines, f"  mean  {_number(self.mean)}  {_ends(self.interval)}  {_ends(self.bounds)}  {self.settled}"]
        )


def _number(value: float | None) -> str:
    return f"{'–' if value is None else f'{value:.2e}':>9}"


def _ends(ends: Bounds) -> str:
    return f"{ends[0]:.2e} {ends[1]:.2e}".rjust(19)


def audit(
    model: LanguageModel | str | Path,
    prompts: Sequence[Prompt],
    phrases: Constraint | Sequence[str],
    max_tokens: int = 20,
    limit: float | None = None,
    show_texts: bool = False,
    budget: int = 4_000,
    **options: Any,
) -> Audit:
    """How probable it is that the model writes any of these phrases within `max_tokens` tokens, after each prompt.

    Args:
        model: a language model, or what `locore.load` accepts.
        prompts: texts, chats or token ids.
        phrases: what should not be written, letter by letter; or a constraint that offending texts satisfy.
        max_tokens: the horizon.
        limit: of the probability after each prompt; rows say on which side of it they are, with 95 %.
        show_texts: keep the three most probable offending texts of each prompt.
        budget: LM tokens for each prompt.
        options: the others of `locore.generate`.

    Raises:
        InvalidArgument: no list of prompts, none at all, or a limit that is no probability.
        InvalidConstraint: no phrases.
        LocoreError: what `locore.generate` raised for the first prompt, where it refuses all.
    """
    if isinstance(prompts, str) or is_chat(prompts):
        raise InvalidArgument("audit takes a list of prompts; for a single one write [prompt].")
    listed = items_of(prompts, "audit", "a list of prompts", ordered=True, error=InvalidArgument)
    if not listed:
        raise InvalidArgument("audit got no prompt at all; pass at least one.")
    if limit is not None and not 0 < limit < 1:
        raise InvalidArgument(f"limit must be a probability between 0 and 1, got {limit!r}.")
    event = phrases if isinstance(phrases, Constraint) else negation(ban(phrases))
    base = model if isinstance(model, LanguageModel) else load(model)
    seed = drawn_seed(options.pop("seed", None))
    rows: list[AuditRow] = []
    failed: list[LocoreError] = []
    for index, prompt in enumerate(listed):
        try:
            found = generate(base, prompt, event, max_tokens, budget=budget, seed=seed + index, **options)
            rows.append(_row(index, found, limit, show_texts))
        except Unsatisfiable as error:
            rows.append(AuditRow(index, 0.0, (0, 0), (0, 0), "impossible", _side((0, 0), limit), note=str(error)))
        except ZeroWeights as error:
            most = (0.0, math.exp(error.log_most))
            rows.append(AuditRow(index, None, most, most, "not seen", _side(most, limit), note=str(error)))
        except LocoreError as error:
            failed.append(error)
            rows.append(AuditRow(index, None, CERTAIN, CERTAIN, "error", _side(CERTAIN, limit), note=str(error)))
    if len(failed) == len(rows):
        raise failed[0]
    return Audit(tuple(sorted(rows, key=lambda row: -math.inf if row.probability is None else -row.probability)), limit)


def _row(index: int, found: Particles, limit: float | None, show_texts: bool) -> AuditRow:
    low, high = found.log_evidence_bounds
    bounds = math.exp(low), min(1.0, math.exp(high))
    interval = CERTAIN
    if not any(math.isnan(end) for end in found.log_evidence_interval):
        below, above = (min(1.0, math.exp(end)) for end in found.log_evidence_interval)
        interval = min(max(below, bounds[0]), bounds[1]), max(min(above, bounds[1]), bounds[0])
    level = found.verdict.level
    sure = interval if level in ("trust", "rough") or found.record.enumerated else bounds
    texts = tuple(dict.fromkeys(text for text, _ in found.ordered()))[:3] if show_texts else ()
    estimate = min(max(math.exp(found.log_evidence), bounds[0]), bounds[1])
    return AuditRow(index, estimate, interval, bounds, level, _side(sure, limit), found.info["lm_tokens"], texts)


def _side(interval: Bounds, limit: float | None) -> Settled:
    """On which side of a limit an interval is."""
    if limit is None:
        return "no limit"
    return "above" if interval[0] > limit else "below" if interval[1] <= limit else "not settled"
