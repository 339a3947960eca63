"""What a text is worth beyond yes and no: functions and other models that multiply the probability of a text."""

from locore.potentials.scorer import Scorer
from locore.potentials.values import Expert, Factor, Potential, Target, expert, potential, predicate, target_of

__all__ = ["Expert", "Factor", "Potential", "Scorer", "Target", "expert", "potential", "predicate", "target_of"]
