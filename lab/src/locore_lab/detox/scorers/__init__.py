"""Scorers of toxicity: texts in, numbers in [0, 1] out."""

from locore_lab.detox.scorers.protocol import Scorer, Scores, ServiceError

__all__ = ["Scorer", "Scores", "ServiceError"]
