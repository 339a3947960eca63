"""Constraints on nested texts, whose automata are too large to be made as a whole: they are read state by state."""

from __future__ import annotations

from locore.circuits.followed import FollowedCircuit, FollowedReader, spells_every_byte
from locore.compilers.problem import Problem, no_model
from locore.constraints.machine import NestedLeaf


def is_followed(problem: Problem) -> bool:
    """Is the constraint one large nested leaf, with nothing beside it?"""
    leaf = problem.with_end_apart().constraint
    return (
        isinstance(leaf, NestedLeaf)
        and not problem.min_length
        and spells_every_byte(problem.tokenizer.token_bytes)
        and not leaf.is_small
    )


def followed_circuit(problem: Problem) -> FollowedCircuit:
    """The reading of a constraint that is one large nested leaf.

    Raises:
        Unsatisfiable: no text is short enough.
    """
    problem = problem.with_end_apart()
    leaf, tokenizer = problem.constraint, problem.tokenizer
    assert isinstance(leaf, NestedLeaf)
    reader = FollowedReader(leaf.follow(), tokenizer.token_bytes, tokenizer.eos_ids, problem.length, problem.must_end)
    if not reader.is_satisfiable:
        raise no_model(problem.length)
    return FollowedCircuit(reader)
