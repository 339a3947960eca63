"""Bonuses as strata: the same target as a few constraints, each with a number that its texts are multiplied by.

Whether the constraints of k bonuses hold divides the texts into 2^k parts, in each of which all bonuses together are one
number; parts with the same number are one. So Z = Σ_s e^{w_s} p(α ∧ s), every term of which a sampler of constraints finds by
its own means, and what is rare but worth much is a constraint of its own instead of something that draws may miss.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from locore.constraints import Constraint, conjunction, disjunction, negation
from locore.errors import InvalidConstraint
from locore.potentials.values import Bonus, Target

MOST_BONUSES = 6
DIGITS = 9  # of a number of nats, by which parts are told apart


@dataclass(frozen=True, eq=False)
class Stratum:
    """A part of the texts.

    Attributes:
        target: without bonuses.
        where: what tells it from the other parts.
        nats: what its texts are multiplied by, as a logarithm.
    """

    target: Target
    where: Constraint
    nats: float


def strata_of(aim: Target) -> list[Stratum]:
    """The parts that the bonuses of a target make, those that are worth most first; one where there are none.

    Raises:
        InvalidConstraint: more than MOST_BONUSES.
    """
    worth: dict[Constraint, float] = {}
    for one in aim.bonuses:
        worth[one.constraint] = worth.get(one.constraint, 0.0) + one.nats
    counted = [(constraint, nats) for constraint, nats in worth.items() if nats]
    if len(counted) > MOST_BONUSES:
        raise InvalidConstraint(
            f"there are {len(counted)} bonuses, at most {MOST_BONUSES} can be told apart; give what is worth the same as one, "
            "bonus(contains([...]), nats), or write a potential with bound=..."
        )
    others = tuple(factor for factor in aim.factors if not isinstance(factor, Bonus))
    parts: dict[float, list[Constraint]] = {}
    for holds in itertools.product([True, False], repeat=len(counted)):
        nats = sum(value for (_, value), flag in zip(counted, holds, strict=True) if flag)
        each = [one if flag else negation(one) for (one, _), flag in zip(counted, holds, strict=True)]
        parts.setdefault(round(nats, DIGITS), []).append(conjunction(each))
    strata = [(nats, disjunction(members)) for nats, members in sorted(parts.items(), reverse=True)]
    return [Stratum(Target(conjunction([aim.constraint, where]), others), where, nats) for nats, where in strata]
