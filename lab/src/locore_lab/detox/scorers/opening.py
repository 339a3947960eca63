"""A scorer by its name."""

from __future__ import annotations

from pathlib import Path

from locore.kernel.errors import InvalidArgument
from locore_lab.detox.scorers.protocol import Scorer


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

        return PerspectiveScorer(folder / "perspective.sqlite")
    if name == "detoxify" or name.startswith("detoxify-"):
        from locore_lab.detox.scorers.detoxify import DetoxifyScorer

        return DetoxifyScorer(name.removeprefix("detoxify").removeprefix("-") or "original", device=device)
    model, colon, label = name.rpartition(":")
    if not (model and colon and label):
        raise InvalidArgument(
            f"there is no scorer {name!r}; choose local, perspective, detoxify, or MODEL:LABEL for a text classifier of "
            "Hugging Face and one of its labels."
        )
    from locore_lab.detox.scorers.classifier import ClassifierScorer

    return ClassifierScorer(model, label, device=device)
