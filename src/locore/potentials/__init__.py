"""What a text is worth beyond yes and no: functions and other models that multiply the probability of a text."""

from locore.potentials.scorer import Scorer
from locore.potentials.serial import from_json, json_forms
from locore.potentials.values import Bonus, Expert, Factor, Potential, Target, bonus, expert, potential, predicate, target_of

__all__ = [
    "Bonus",
    "Expert",
    "Factor",
    "Potential",
    "Scorer",
    "Target",
    "bonus",
    "expert",
    "from_json",
    "json_forms",
    "potential",
    "predicate",
    "target_of",
]
