"""Walks that go abreast: what all of them want to know of the model next is one pass, and what two of them want is read once.

A pass takes nearly as long for few rows as for many: on a processor the weights are read once for all of them, on a GPU rows
hardly count. So a call should make few passes after each other, and wide ones. A walk is a generator: it yields the prefixes
that it wants to have read, is told what its share of the rows was, and goes on. Each decides by what was read before, whoever
wanted it, and by random numbers of its own; so, given the past, what one does next says nothing of what another does, and the
errors of unbiased walks are uncorrelated.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeAlias, TypeVar

import torch

from locore.kernel.certain import only
from locore.kernel.samplers.base import PlainPrefixes, Prefixes, read_together

T = TypeVar("T")
Walk: TypeAlias = Generator[
    PlainPrefixes, float, T
]  # yields what it wants to have read, and is told the LM tokens it answers for


def abreast(walks: Sequence[Walk[T]]) -> list[T]:
    """What each returns; all begin with the empty text of one prompted model, and go on by a token at a time."""
    done: dict[int, T] = {}
    wanted = {number: next(walk) for number, walk in enumerate(walks)}
    while wanted:
        for number, share in zip(list(wanted), read_together(list(wanted.values())), strict=True):
            try:
                wanted[number] = walks[number].send(share)
            except StopIteration as end:
                done[number] = end.value
                del wanted[number]
        if not done:
            _settle(list(wanted.values()))
    return [done[number] for number in range(len(walks))]


def _settle(parts: list[PlainPrefixes]) -> None:
    """Say that what is returned begins with one of them, to whoever listens; drafts of the model are not returned."""
    prefixes = [part for part in parts if isinstance(part, Prefixes)]
    if prefixes:
        tokens, states = torch.cat([part.tokens for part in prefixes]), torch.cat([part.states for part in prefixes])
        only(tokens, prefixes[0].reader, states)
