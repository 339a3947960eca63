"""Constraints with a grammar or a large schema in them: a reading whose states are made when they are reached."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from locore.automata.lazily import TokenMachine
from locore.circuits import Circuit
from locore.circuits.reached import Reached
from locore.compilers.explored import Exploration, MachineAtoms
from locore.compilers.left_to_right import with_atoms
from locore.compilers.problem import Partition, Problem, gathered, no_model, with_lifted
from locore.compilers.residual import Residuals
from locore.constraints import And, Constraint, Not, conjunction, disjunction, negation
from locore.constraints.machine import is_finite, is_machine, is_text_leaf, machine_of
from locore.constraints.structure import fold


def needs_machine(constraint: Constraint) -> bool:
    """Is there a leaf with any number of states, or with too many to make them all?"""
    return any(map(is_machine, constraint.leaves()))


def read_lazily(problem: Problem) -> Circuit:
    """The reading of a constraint whose states are made when they are first reached.

    Raises:
        Unsatisfiable: no text of this length satisfies the constraint.
        BudgetExceeded: of parts that are compiled beforehand.
    """
    explored = exploration(problem)
    if not explored.live(0, explored.start):
        raise no_model(problem.length)
    return Circuit(Reached(explored, torch.arange(problem.tokenizer.vocab_size)))


def exploration(given: Problem) -> Exploration:
    """What is left of a constraint after each prefix, of which nothing has been read."""
    tokenizer = given.tokenizer
    root = gathered(given.constraint, tokenizer.vocab_size)
    problem = replace(given, constraint=root).with_end_apart()
    every = np.arange(tokenizer.vocab_size)
    classes = Partition(every, every)
    lifted = with_lifted(with_machines(problem.constraint, tokenizer.token_bytes), tokenizer.token_bytes)
    residuals = Residuals(with_atoms(lifted, classes, problem.length), classes, problem.length, tokenizer.eos_ids)
    return Exploration(residuals, problem, partial(exploration, given))


def with_machines(constraint: Constraint, token_bytes: tuple[bytes | None, ...]) -> Constraint:
    """The constraint with an atom for each maximal combination of text leaves that no automaton of all states decides.

    Combining over 256 bytes is cheaper than over the vocabulary, as in `with_lifted`.
    """

    def read(part: Constraint) -> Constraint:
        return part if is_finite(part) else MachineAtoms(TokenMachine(machine_of(part), token_bytes)).atom(0)

    def rule(node: Constraint, parts: list[tuple[Constraint, bool]]) -> tuple[Constraint, bool]:
        if not parts:
            return node, is_text_leaf(node)
        if all(text for _, text in parts):
            return node, True
        if isinstance(node, Not):
            return negation(parts[0][0]), False
        joined = conjunction if isinstance(node, And) else disjunction
        texts = [part for part, text in parts if text]
        others = [part for part, text in parts if not text]
        return joined([*others, read(joined(texts))] if texts else others), False

    whole, text = fold(constraint, rule)
    return read(whole) if text else whole
