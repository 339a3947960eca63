"""Ways from a constraint to a circuit. Two are here, which write all states down; others register, and are asked first.

| the constraint is | who makes its circuit |
|---|---|
| read by a vtree | `puzzles/sdd`: sentential decision diagrams |
| anything with a grammar or a large schema in it | `read_on_demand`: its states are made as they are reached |
| on text, with a count far up in it | `counted_circuit`: an automaton is read, and the count beside it |
| leaves that bring a compiler along, and what it reads beside them | that one: search, the frontier method |
| one automaton, as any Boolean combination of text leaves is | `unroll`: its transitions, shared by all positions |
| anything else | `restriction`: exploration of what is left of it after each prefix |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from locore.kernel.circuits.circuit import Circuit
from locore.kernel.circuits.nodes import Nodes
from locore.kernel.compilers.problem import CompilerLeaf, Problem, as_one_automaton, gathered, with_lifted
from locore.kernel.compilers.restriction import compile_by_restriction
from locore.kernel.compilers.unroll import unroll
from locore.kernel.constraints.constraint import Constraint, Not
from locore.kernel.constraints.spelling import spelled
from locore.kernel.constraints.tokens import AutomatonLeaf
from locore.kernel.errors import InvalidConstraint
from locore.kernel.plugins import COMPILERS, load

Way = Callable[[Problem], Circuit | None]  # None of a problem of another kind
WAYS: list[Way] = []  # those that registered, in the order in which they are asked
BY_VTREE: list[Way] = []  # of problems with a vtree


def register(way: Way) -> Way:
    """Have a way asked before all states are written down, behind those that registered before."""
    WAYS.append(way)
    return way


@cache
def ways() -> tuple[list[Way], list[Way]]:
    """All that are installed: from left to right, and by a vtree."""
    load(COMPILERS)
    return WAYS, BY_VTREE


def circuit_of(problem: Problem) -> Circuit:
    """By the first way that knows the kind of constraint, within the limits of the problem.

    Raises:
        Unsatisfiable: no sequence of this length satisfies the constraint.
        BudgetExceeded: it would take more than the limits allow.
        InvalidConstraint: a relaxed leaf stands below a negation.
    """
    with problem.limits.enforced():
        relaxed = is_relaxed(problem.constraint, problem.length)  # first: it refuses some constraints
        whole = problem.of_whole_characters()
        circuits = (circuit for way in ways()[problem.vtree is not None] if (circuit := way(whole)) is not None)
        return replace(next(circuits, None) or written(whole), relaxed=relaxed, limits=problem.limits)


def nodes_of(problem: Problem) -> Nodes:
    """Those that `written` makes, for a reading that can do without until somebody asks for them."""
    return replace(written(problem), limits=problem.limits).chain


def written(problem: Problem) -> Circuit:
    """Of whole characters, by one of the compilers that write all states down."""
    root = gathered(problem.constraint, problem.tokenizer.vocab_size)
    own = root.circuit(problem) if isinstance(root, CompilerLeaf) else None
    if own is not None:
        return own
    problem = replace(problem, constraint=root).with_end_apart()
    root = with_lifted(problem.constraint, problem.tokenizer.token_bytes)
    automaton = as_one_automaton(root, problem.tokenizer.eos_ids)
    return compile_by_restriction(problem, root) if automaton is None else unroll(problem, automaton)


def is_relaxed(constraint: Constraint, length: int) -> bool:
    """Does the circuit of a constraint let sequences through on which it does not hold?

    With a leaf that is let through too often, And and Or let through too much as well, and never too little; below a negation
    it would be the other way round.

    Raises:
        InvalidConstraint: a relaxed leaf stands below an odd number of negations.
    """
    relaxed = False
    seen: set[tuple[int, bool]] = set()
    pending = [(constraint, False)]
    while pending:
        node, negated = pending.pop()
        if (id(node), negated) in seen:
            continue
        seen.add((id(node), negated))
        if isinstance(node, AutomatonLeaf) and node.is_relaxed_at(length):
            relaxed = True
            if negated:
                raise InvalidConstraint(
                    f"{spelled(node)} stands below a negation (~, ^, >>, or `not` in a function), but its circuit lets through "
                    f"more than it says, so the negation would lose sequences. Negate other parts only{node.exact_with(length)}"
                )
        pending += [(child, negated != isinstance(node, Not)) for child in node.children()]
    return relaxed
