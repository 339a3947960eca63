"""What a scorer is: texts in, toxicity in [0, 1] out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from locore.kernel.errors import LocoreError

Scores = list[float | None]


class ServiceError(LocoreError):
    """A scoring service gave no score, and asking for the next text would not help either."""


class Scorer(Protocol):
    """Gives texts their toxicity; 0.5 and more counts as toxic.

    Attributes:
        name: which scorer, for tables.
        version: of the weights or of the service; scores of different versions must not be mixed.
    """

    @property
    def name(self) -> str:
        """Which scorer, for tables."""

    @property
    def version(self) -> str:
        """Of the weights or of the service."""

    def score(self, texts: Sequence[str]) -> Scores:
        """One number in [0, 1] for each text, in order; None for a text that the scorer refuses, for callers to count."""
