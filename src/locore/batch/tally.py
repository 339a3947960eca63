"""Counts over the rows of results."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from locore.batch.plan import Span
from locore.batch.rows import Record, whole_rows


@dataclass
class Tally:
    """Counts over rows.

    Attributes:
        rows: all of them.
        lm_tokens: what they asked of the model.
        seconds: that they took, one after the other.
        errors: rows that failed, by the class of the error.
        verdicts: the others, by verdict.
    """

    rows: int = 0
    lm_tokens: int = 0
    seconds: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """Rows that are errors."""
        return self.errors.total()

    def add(self, row: Record) -> None:
        """Count one more row."""
        self.rows += 1
        self.seconds += row["seconds"]
        if "error" in row:
            self.errors[row["error"]["type"]] += 1
        else:
            self.lm_tokens += row["lm_tokens"]
            self.verdicts[row["verdict"]] += 1

    def merge(self, other: Record) -> None:
        """Count the rows of another tally, as `to_json` writes it."""
        self.rows += other["rows"]
        self.lm_tokens += other["lm_tokens"]
        self.seconds += other["seconds"]
        self.errors.update(other["errors"])
        self.verdicts.update(other["verdicts"])

    def to_json(self) -> Record:
        """As plain values."""
        counts = {"errors": dict(self.errors), "verdicts": dict(self.verdicts)}
        return {"rows": self.rows, "failed": self.failed, "lm_tokens": self.lm_tokens, "seconds": self.seconds, **counts}


def tally_of(path: Path, span: Span) -> Record | None:
    """The tally of the file of results of a shard; None if these are not exactly the rows that it should have."""
    tally, size = Tally(), 0
    for row, num_bytes in whole_rows(path, span.first):
        tally.add(row)
        size += num_bytes
    return tally.to_json() if tally.rows == span.rows and size == path.stat().st_size else None
