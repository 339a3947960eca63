"""The coarsest partition of the vocabulary that a constraint can see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Partition:
    """Token classes.

    Attributes:
        token_class: Int64[vocab].
        representative: Int64[classes], a token of each class.
    """

    token_class: NDArray[np.int64]
    representative: NDArray[np.int64]

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.representative)


def partition(vocab_size: int, features: Iterable[NDArray[np.int64]], sets: Iterable[frozenset[int]]) -> Partition:
    """Tokens are equal when every feature (Int64[vocab]) and the membership in every set agrees."""
    code = np.zeros(vocab_size, dtype=np.int64)
    for feature in features:
        code = _compress(code * (int(feature.max()) + 2) + feature + 1)
    return _from_code(_compress(code * vocab_size + _membership(vocab_size, sets)))


def merge_columns(columns: NDArray[np.int32], old: Partition) -> tuple[Partition, NDArray[np.int64]]:
    """Merge classes whose columns agree, and order them so that similar classes are neighbours.

    Args:
        columns: Int32[classes, rows], what each class does in every row of the constraint.

    Returns:
        The coarser partition, and for each of its classes an old class.
    """
    _, first, inverse = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    return Partition(inverse.ravel()[old.token_class], old.representative[first]), first


def _membership(vocab_size: int, sets: Iterable[frozenset[int]]) -> NDArray[np.int64]:
    """A number for each token: the list of sets it is in. Only members are touched, so many small sets are cheap."""
    member: dict[int, list[int]] = {}
    for number, tokens in enumerate(dict.fromkeys(sets)):
        for token in tokens:
            member.setdefault(token, []).append(number)
    names: dict[tuple[int, ...], int] = {(): 0}
    result = np.zeros(vocab_size, dtype=np.int64)
    for token, lists in member.items():
        result[token] = names.setdefault(tuple(lists), len(names))
    return result


def _compress(code: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(code, return_inverse=True)[1].ravel().astype(np.int64)


def _from_code(code: NDArray[np.int64]) -> Partition:
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return Partition(inverse.ravel().astype(np.int64), first.astype(np.int64))
