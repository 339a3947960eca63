"""What a text is worth beyond yes and no: functions and other models that multiply the probability of a text."""

from typing import TYPE_CHECKING

from locore.kernel.plugins import lazy_names
from locore.potentials.target import Bonus, Expert, Factor, Potential, Target, bonus, expert, potential, predicate, target_of
from locore.potentials.target_json import from_json, json_forms

if TYPE_CHECKING:
    from locore.potentials.scorer import Scorer

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

__getattr__ = lazy_names(__name__, {"Scorer": ".scorer"})
