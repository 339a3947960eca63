"""What the fuzzing asks of circuits."""

from __future__ import annotations

import random

import torch
from hypothesis import assume

import locore
from locore.circuits import Circuit
from locore.circuits.left_to_right import MaskReader
from locore.errors import BudgetExceeded, Unsatisfiable
from locore.numerics import NEG_INF

from .cases import Problem

DRAWS = 6


def compiled(constraint, problem: Problem, **options) -> Circuit | None:
    """The circuit; None if there is nothing that satisfies the constraint."""
    try:
        return locore.compile(constraint, problem.vocabulary.tokenizer, problem.length, use_cache=False, **options)
    except Unsatisfiable:
        return None
    except BudgetExceeded:
        assume(False)


def points(sequences: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Float[batch, length, vocab]: distributions that are certain of one sequence."""
    rows = torch.full((*sequences.shape, vocab_size), NEG_INF, dtype=torch.float64)
    return rows.scatter_(-1, sequences[..., None], 0.0)


def walked(circuit: Circuit, ids: tuple[int, ...]) -> bool:
    """Is every token allowed after those before it?"""
    reader = MaskReader(circuit.reader)
    for one in ids:
        if not reader.mask()[one]:
            return False
        reader.advance(one)
    return True


def drawn(circuit: Circuit | None, problem: Problem, generator: random.Random) -> list[tuple[int, ...]]:
    if circuit is None:
        return []
    rows = problem.vocabulary.likely(problem.texts, problem.length, DRAWS, generator)
    return [tuple(ids) for ids in circuit.sample(rows, seed=generator.randrange(2**31))[0].tolist()]


def nearby(ids: tuple[int, ...], problem: Problem, generator: random.Random) -> tuple[int, ...]:
    """The same but for one token."""
    place = generator.randrange(len(ids))
    pool = [*problem.vocabulary.sequence(problem.texts, 3, generator), *problem.vocabulary.special]
    return (*ids[:place], generator.choice(pool), *ids[place + 1 :])


def number_of_sequences(problem: Problem, with_special: bool) -> int:
    """Of all that are padded well."""
    tokenizer = problem.vocabulary.tokenizer
    usual = tokenizer.vocab_size - len(tokenizer.eos_ids if with_special else problem.vocabulary.special)
    ended = sum(usual**k for k in range(problem.length)) * len(tokenizer.eos_ids)
    return usual**problem.length + ended
