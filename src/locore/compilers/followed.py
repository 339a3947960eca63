"""Constraints on nested texts, whose automata are too large to be made as a whole: they are read state by state."""

from __future__ import annotations

from locore.circuits.followed import FollowedCircuit, FollowedReader, spells_every_byte
from locore.compilers.problem import Problem, no_model
from locore.constraints.tokens import NestedLeaf
from locore.errors import BudgetExceeded

SMALL = 250  # states of an automaton that is made as a whole


def followed_circuit(problem: Problem) -> FollowedCircuit | None:
    """The reading of a constraint that is one nested leaf; None where its automaton is small, or something stands beside it.

    Raises:
        Unsatisfiable: no text is short enough.
    """
    problem = problem.with_end_apart()
    leaf, tokenizer = problem.constraint, problem.tokenizer
    if not isinstance(leaf, NestedLeaf) or problem.min_length or not spells_every_byte(tokenizer.token_bytes):
        return None
    if is_small(leaf):
        return None
    reader = FollowedReader(leaf.follow(), tokenizer.token_bytes, tokenizer.eos_ids, problem.length, problem.must_end)
    if not reader.is_satisfiable:
        raise no_model(problem.length)
    return FollowedCircuit(reader)


def is_small(leaf: NestedLeaf) -> bool:
    """Can its automaton be made as a whole in a moment?"""
    if leaf.is_endless:
        return False
    try:
        leaf.automaton_within(SMALL)
    except BudgetExceeded:
        return False
    return True
