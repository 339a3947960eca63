"""An audit: rows, worst first, with what they say together; as text, as JSON, and beside another one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from locore.auditing.prompt_audit import AuditRow, Bounds, Settled
from locore.kernel.errors import InvalidArgument

MOST_ROWS = 50  # that are printed


@dataclass(frozen=True)
class Audit:
    """An audit: a row for each prompt, the worst first.

    Attributes:
        rows: what failed or was not seen, then the others, the most probable first.
        limit: of the probability after each prompt, or None.
        question: what was asked, as JSON; two audits can be compared where it is the same.
    """

    rows: tuple[AuditRow, ...]
    limit: float | None
    question: Mapping[str, Any]

    @classmethod
    def of(cls, rows: list[AuditRow], limit: float | None, question: Mapping[str, Any]) -> Audit:
        """Rows in any order."""
        return cls(tuple(sorted(rows, key=_badness)), limit, question)

    @property
    def mean(self) -> float | None:
        """The mean probability over the prompts; None where one has no estimate."""
        estimates = [row.probability for row in self.rows if row.probability is not None]
        return sum(estimates) / len(estimates) if len(estimates) == len(self.rows) else None

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
        sides = {row.settled for row in self.rows}
        return "above" if "above" in sides else sides.pop() if len(sides) == 1 else "not settled"

    @property
    def failed(self) -> int:
        """Prompts that could not be run."""
        return sum(row.verdict == "error" for row in self.rows)

    @property
    def by_phrase(self) -> dict[str, float]:
        """Mean probability that each phrase is the first to be written, over the prompts that have an estimate."""
        total: dict[str, float] = {}
        for row in self.rows:
            for phrase, value in row.by_phrase.items():
                total[phrase] = total.get(phrase, 0.0) + value / self._estimated
        return dict(sorted(total.items(), key=lambda each: -each[1]))

    @property
    def by_position(self) -> tuple[float, ...]:
        """Mean probability that the first phrase is complete with each token, over the prompts that have an estimate."""
        most = max(len(row.by_position) for row in self.rows)
        padded = [(*row.by_position, *[0.0] * (most - len(row.by_position))) for row in self.rows]
        return tuple(sum(column) / self._estimated for column in zip(*padded, strict=True))

    @property
    def _estimated(self) -> int:
        return max(1, sum(row.probability is not None for row in self.rows))

    @property
    def cost(self) -> dict[str, float]:
        """LM tokens, passes of the model and seconds of all rows."""
        return {name: sum(getattr(row, name) for row in self.rows) for name in ("lm_tokens", "passes", "seconds")}

    def to_json(self) -> dict[str, Any]:
        """For `json.dumps`."""
        whole = {"mean": self.mean, "interval": self.interval, "bounds": self.bounds, "settled": self.settled}
        where = {"by_phrase": self.by_phrase, "by_position": self.by_position}
        about = {"limit": self.limit, "question": dict(self.question), "cost": self.cost}
        return {**whole, **where, **about, "rows": [row.to_json() for row in self.rows]}

    def compare(self, before: Audit) -> Comparison:
        """How much more probable offending texts are than in another audit of the same question and as many prompts.

        Raises:
            InvalidArgument: something else was asked, or after another number of prompts.
        """
        differ = [name for name in self.question if self.question[name] != before.question.get(name)]
        if differ or len(self.rows) != len(before.rows):
            what = f"their {differ[0]} differ" if differ else f"they have {len(self.rows)} and {len(before.rows)} prompts"
            raise InvalidArgument(f"these audits cannot be compared: {what}; audit the same phrases after the same prompts.")
        first, second = ({row.index: row for row in audit.rows} for audit in (self, before))
        rows = tuple(Change.between(index, first[index], second[index]) for index in sorted(first))
        whole = Change.of(-1, self.mean, self.interval, before.mean, before.interval)
        return Comparison(whole, tuple(sorted(rows, key=lambda row: -row.ratio if row.ratio is not None else -math.inf)))

    def __str__(self) -> str:
        lines = [f"{'prompt':>6}  {'estimate':>9}  {'95 % interval':>19}  {'certain':>19}  {'at':>4}  verdict"]
        for row in self.rows[:MOST_ROWS]:
            columns = f"{_number(row.probability)}  {_ends(row.interval)}  {_ends(row.bounds)}  {_at(row)}"
            lines.append(f"{row.index:6}  {columns}  {verdict_of(row)}")
            lines += [f"        {text!r}" for text in row.texts]
        lines += [f"   ...  and {len(self.rows) - MOST_ROWS:,} more"] if len(self.rows) > MOST_ROWS else []
        first = next(iter(self.by_phrase.items()), None)
        mostly = "" if first is None else f"; mostly {first[0]!r} ({first[1]:.1e})"
        whole = f"  mean  {_number(self.mean)}  {_ends(self.interval)}  {_ends(self.bounds)}        {self.settled}{mostly}"
        cost = self.cost
        return "\n".join(
            [*lines, whole, f"{cost['lm_tokens']:,} LM tokens, {cost['passes']:,} passes, {cost['seconds']:,.1f} s"]
        )


@dataclass(frozen=True)
class Change:
    """The probability of one audit over that of another.

    Attributes:
        index: of the prompt; -1 for the mean over all.
        ratio: new over old; None where one of them is not known, or the old one is 0.
        interval: of 95 %, as if the two were drawn independently; common random numbers make little of a difference.
    """

    index: int
    ratio: float | None
    interval: Bounds

    @classmethod
    def between(cls, index: int, row: AuditRow, before: AuditRow) -> Change:
        """Of two rows about one prompt."""
        return cls.of(index, row.probability, row.interval, before.probability, before.interval)

    @classmethod
    def of(cls, index: int, new: float | None, new_ends: Bounds, old: float | None, old_ends: Bounds) -> Change:
        """Distances to the ends add as variances do, in logarithms (Zou and Donner 2008)."""
        if not old or new is None:
            low = new_ends[0] / old_ends[1] if old_ends[1] else 0.0
            return cls(index, None, (low, new_ends[1] / old_ends[0] if old_ends[0] else math.inf))
        if not new:
            return cls(index, 0.0, (0.0, new_ends[1] / old_ends[0] if old_ends[0] else math.inf))
        ratio = math.log(new / old)
        down = math.hypot(_log(new, new_ends[0]), _log(old_ends[1], old))
        up = math.hypot(_log(new_ends[1], new), _log(old, old_ends[0]))
        return cls(index, math.exp(ratio), (math.exp(ratio - down), math.exp(ratio + up) if up < math.inf else math.inf))

    @property
    def is_change(self) -> bool:
        """Is 1 outside of the interval?"""
        return self.interval[0] > 1 or self.interval[1] < 1

    def __str__(self) -> str:
        ratio = "–" if self.ratio is None else f"{self.ratio:.3g}"
        return f"× {ratio}, 95 %: {self.interval[0]:.3g} to {self.interval[1]:.3g}"


@dataclass(frozen=True)
class Comparison:
    """Two audits of one question.

    Attributes:
        mean: of all prompts.
        rows: of each, what rose most first.
    """

    mean: Change
    rows: tuple[Change, ...]

    def to_json(self) -> dict[str, Any]:
        """For `json.dumps`; None where a number is infinite."""
        return {"mean": _plain(self.mean), "rows": [_plain(row) for row in self.rows]}

    def __str__(self) -> str:
        changed = sum(row.is_change for row in self.rows)
        lines = [f"mean {self.mean}; {changed} of {len(self.rows)} prompts changed"]
        return "\n".join([*lines, *(f"{row.index:6}  {row}" for row in self.rows if row.is_change)])


def _plain(change: Change) -> dict[str, Any]:
    low, high = change.interval
    return {"index": change.index, "ratio": change.ratio, "interval": [low, None if high == math.inf else high]}


def _log(high: float, low: float) -> float:
    return math.log(high / low) if low else math.inf


def _badness(row: AuditRow) -> tuple[float, int]:
    return (-math.inf if row.probability is None else -row.probability), row.index


def verdict_of(row: AuditRow) -> str:
    """The verdict of a row, and the side of the limit."""
    at_most = f"not seen; at most {row.bounds[1]:.2g} for certain" if row.verdict == "not seen" else row.verdict
    side = "" if row.settled == "no limit" else f"; {row.settled}"
    return at_most + side + (f": {row.note}" if row.note and row.verdict not in ("not seen", "impossible") else "")


def _at(row: AuditRow) -> str:
    return f"{'–' if row.position is None else f'{row.position:.1f}':>4}"


def _number(value: float | None) -> str:
    return f"{'–' if value is None else f'{value:.2e}':>9}"


def _ends(ends: Bounds) -> str:
    return f"{ends[0]:.2e} {ends[1]:.2e}".rjust(19)
