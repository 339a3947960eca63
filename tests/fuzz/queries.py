"""What the fuzzing asks of circuits."""

from __future__ import annotations

import codecs
import random
from collections import Counter
from functools import cache

import torch
from hypothesis import assume

import locore
from locore.circuits import Circuit
from locore.circuits.masks import MaskReader
from locore.kernel.errors import BudgetExceeded, Unsatisfiable
from locore.kernel.numerics import NEG_INF

from .cases import Problem, Vocabulary

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
    """Of all that are padded well, and without special tokens are UTF-8."""
    tokenizer = problem.vocabulary.tokenizer
    if with_special:
        usual = tokenizer.vocab_size - len(tokenizer.eos_ids)
        whole = [usual**k for k in range(problem.length + 1)]
    else:
        whole = whole_texts(problem.vocabulary, problem.length)
    return whole[problem.length] + sum(whole[: problem.length]) * len(tokenizer.eos_ids)


def whole_texts(vocabulary: Vocabulary, length: int) -> list[int]:
    """How many sequences of 0, 1, … usual tokens are UTF-8, by the bytes of a character that is begun."""
    begun, found = Counter({b"": 1}), [1]
    for _ in range(length):
        after: Counter[bytes] = Counter()
        for pending, count in begun.items():
            for then, ways in continued(vocabulary, pending).items():
                after[then] += count * ways
        begun = after
        found.append(begun[b""])
    return found


@cache
def continued(vocabulary: Vocabulary, pending: bytes) -> Counter[bytes]:
    """What usual tokens leave begun behind these bytes of a character, and how many do."""
    found: Counter[bytes] = Counter()
    special = set(vocabulary.special)
    for token, piece in enumerate(vocabulary.tokenizer.token_bytes):
        if token not in special and piece is not None:
            decoder = codecs.getincrementaldecoder("utf-8")()
            try:
                decoder.decode(pending + piece)
            except UnicodeDecodeError:
                continue
            found[alike(decoder.getstate()[0])] += 1
    return found


def alike(pending: bytes) -> bytes:
    """One of the beginnings of a character that the same bytes may complete; Python notices half a surrogate pair late."""
    if not pending or pending in (b"\xe0", b"\xed", b"\xf0", b"\xf4") or pending[:2] >= b"\xed\xa0" > pending[:1] >= b"\xed":
        return pending
    size = 2 if pending[0] < 0xE0 else 3 if pending[0] < 0xF0 else 4
    return {1: b"\xc2", 2: b"\xe1", 3: b"\xf1"}[size - len(pending)]
