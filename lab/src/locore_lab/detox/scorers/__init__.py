"""Scorers of toxicity: texts in, numbers in [0, 1] out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from locore.kernel.errors import InvalidArgument, LocoreError

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
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def score(self, texts: Sequence[str]) -> Scores:
        """One number in [0, 1] for each text, in order; None for a text that the scorer refuses, for callers to count."""


def open_scorer(name: str, folder: Path, device: str = "cpu") -> Scorer:
    """The scorer that a name stands for; what it needs is imported only then.

    Args:
        name: "local", "perspective", "detoxify", "detoxify-unbiased" and the like, or MODEL:LABEL for a text classifier of
            Hugging Face, such as "s-nlp/roberta_toxicity_classifier:toxic".
        folder: for the cache of a service.
        device: where classifiers compute.
    """
    if name == "local":
        from locore_lab.detox.scorers.local import LocalScorer

        return LocalScorer()
    if name == "perspective":
        from locore_lab.detox.scorers.perspective import PerspectiveScorer

        return PerspectiveScorer(folder / "perspective.jsonl")
    from locore_lab.detox.scorers.classifier import ClassifierScorer, DetoxifyScorer

    if name == "detoxify" or name.startswith("detoxify-"):
        return DetoxifyScorer(name.removeprefix("detoxify").removeprefix("-") or "original", device=device)
    model, colon, label = name.rpartition(":")
    if not (model and colon and label):
        raise InvalidArgument(
            f"there is no scorer {name!r}; choose local, perspective, detoxify, or MODEL:LABEL for a text classifier of "
            "Hugging Face and one of its labels."
        )
    return ClassifierScorer(model, label, device=device)
