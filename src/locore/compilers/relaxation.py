"""Constraints whose circuit lets more through than holds: where that is sound, and where it is refused."""

from __future__ import annotations

from locore.constraints import AutomatonLeaf, Constraint, Not
from locore.constraints.spelling import spelled
from locore.errors import InvalidConstraint


def is_relaxed(constraint: Constraint, length: int) -> bool:
    """Does the circuit of a constraint let sequences through on which it does not hold?

    With a leaf that is let through too often, And and Or let through too much as well, and never too little; below a negation
    it would be the other way round.

    Raises:
        InvalidConstraint: a relaxed leaf stands below an odd number of negations.
    """
    found = False
    seen: set[tuple[int, bool]] = set()
    pending = [(constraint, False)]
    while pending:
        node, negated = pending.pop()
        if (id(node), negated) in seen:
            continue
        seen.add((id(node), negated))
        if isinstance(node, AutomatonLeaf) and node.is_relaxed_at(length):
            found = True
            if negated:
                raise InvalidConstraint(
                    f"{spelled(node)} stands below a negation (~, ^, >>, or `not` in a function), but its circuit lets through "
                    f"more than it says, so the negation would lose sequences. Negate other parts only, or use memory="
                    f"{length - 2} or more, with which the circuit of {length} tokens is exact"
                )
        pending += [(child, negated != isinstance(node, Not)) for child in node.children()]
    return found
