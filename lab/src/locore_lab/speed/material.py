"""Words, vocabularies and formulas that are made up, so that nothing has to be fetched."""

from __future__ import annotations

import random
from functools import cache

import locore
from locore.constraints import Constraint, from_json

LETTERS = "abcdefghijklmnopqrstuvwxyz"
Clause = list[tuple[int, int]]  # (variable, value), one of which must hold


@cache
def words(number: int) -> tuple[str, ...]:
    """So many different words of four to nine letters; the first of many are those of few."""
    generator = random.Random(0)
    found: dict[str, None] = {}
    while len(found) < number:
        found["".join(generator.choices(LETTERS, k=generator.randint(4, 9)))] = None
    return tuple(found)


@cache
def vocabulary(size: int) -> locore.Tokenizer:
    """So many tokens: all bytes, then random strings of two to eight letters, half of them after a space; the last one ends."""
    generator = random.Random(1)
    tokens: dict[bytes, None] = {bytes([byte]): None for byte in range(256)}
    while len(tokens) < size - 1:
        text = "".join(generator.choices(LETTERS, k=generator.randint(2, 8)))
        tokens[(text if generator.random() < 0.5 else " " + text).encode()] = None
    return locore.Tokenizer.from_tokens([*tokens, None], eos_ids=[size - 1])


def formula(variables: int, clauses: int, span: int) -> list[Clause]:
    """A random 3-CNF; the three variables of a clause lie within a span."""
    generator = random.Random(1)
    found = []
    for _ in range(clauses):
        first = generator.randrange(variables - span + 1)
        chosen = generator.sample(range(first, first + span), 3)
        found.append([(variable, generator.randrange(2)) for variable in chosen])
    return found


def constraint_of(clauses: list[Clause]) -> Constraint:
    """The formula as a constraint on tokens 0 and 1."""
    one_of = [
        {"type": "or", "of": [{"type": "token", "position": variable, "in": [value]} for variable, value in clause]}
        for clause in clauses
    ]
    return from_json({"type": "and", "of": one_of})
