"""A constraint made ready for a compiler, and what it sees of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from locore.automata.tables import number_rows
from locore.constraints import And, Constraint, Count, Finished, Literal, conjunction, has_text
from locore.constraints.base import Json
from locore.constraints.paths import SimplePath
from locore.constraints.sequence import TokenSequence
from locore.constraints.structure import postorder
from locore.errors import Unsatisfiable
from locore.limits import Limits
from locore.tokenizer import Tokenizer

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Problem:
    """A constraint made ready for a compiler: traced at its length, bound to its vocabulary.

    Attributes:
        must_end: must the text end within the length, beside satisfying the constraint?
    """

    constraint: Constraint
    tokenizer: Tokenizer
    length: int
    min_length: int
    limits: Limits = field(default_factory=Limits)
    must_end: bool = False

    def with_end_apart(self) -> Problem:
        """The same problem; if the whole constraint demands an end, and more than that, the problem does instead."""
        whole = self.constraint
        if not isinstance(whole, And) or not any(isinstance(part, Finished) for part in whole.of):
            return self
        rest = conjunction(part for part in whole.of if not isinstance(part, Finished))
        return replace(self, constraint=rest, must_end=True)

    def blocked_tokens(self) -> Flags:
        """Bool[vocab]: special tokens, if the constraint speaks about text. Ends are handled by the compilers."""
        if not has_text(self.constraint):
            return np.zeros(self.tokenizer.vocab_size, dtype=np.bool_)
        return np.array([content is None for content in self.tokenizer.token_bytes], dtype=np.bool_)


def no_model(length: int) -> Unsatisfiable:
    """The error of a constraint that nothing satisfies."""
    return Unsatisfiable(f"no sequence of {length} tokens satisfies the constraint")


class CompilerLeaf(Constraint):
    """A leaf that lives inside a compiler only: it is neither evaluated nor written down."""

    def token_sets(self) -> Iterable[frozenset[int]]:
        """The sets of tokens that it tells apart."""
        return ()

    def token_features(self) -> Iterable[Ints]:
        """Int64[vocab] each: it tells tokens of different numbers apart."""
        return ()

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Not known here."""
        raise NotImplementedError

    def json_of(self, parts: list[Json]) -> Json:
        """None."""
        raise NotImplementedError


@dataclass(frozen=True)
class Partition:
    """Token classes: the coarsest partition of the vocabulary that a constraint can see.

    Attributes:
        token_class: Int64[vocab].
        representative: Int64[classes], a token of each class.
    """

    token_class: Ints
    representative: Ints

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.representative)

    def merged(self, columns: NDArray[np.int32]) -> tuple[Partition, Ints]:
        """Merge classes whose columns agree, and order them so that similar classes are neighbours.

        Args:
            columns: Int32[classes, rows], what each class does in every row of the constraint.

        Returns:
            The coarser partition, and for each of its classes an old class.
        """
        _, first, inverse = np.unique(columns, axis=0, return_index=True, return_inverse=True)
        return Partition(inverse.ravel()[self.token_class], self.representative[first]), first


def classes_of(problem: Problem, root: Constraint) -> Partition:
    """The classes of tokens that token sets, automata, special tokens and ends do not tell apart.

    Args:
        root: the constraint of the problem, as a compiler has changed it.
    """
    tokenizer = problem.tokenizer
    features = [np.array([content is None for content in tokenizer.token_bytes], dtype=np.int64)]
    sets = [frozenset({token}) for token in tokenizer.eos_ids]
    for node in postorder(root):
        if isinstance(node, Literal | Count):
            sets.append(node.tokens)
        elif isinstance(node, CompilerLeaf | SimplePath):
            sets.extend(node.token_sets())
            features.extend(node.token_features() if isinstance(node, CompilerLeaf) else ())
    numbers, first = number_rows(np.column_stack([*features, _membership(tokenizer.vocab_size, sets)]))
    return Partition(numbers.astype(np.int64), first)


def _membership(vocab_size: int, sets: Iterable[frozenset[int]]) -> Ints:
    """A number for each token: the list of sets it is in. Only members are touched, so many small sets are cheap."""
    member: dict[int, list[int]] = {}
    for number, tokens in enumerate(dict.fromkeys(sets)):
        for token in tokens:
            member.setdefault(token, []).append(number)
    names: dict[tuple[int, ...], int] = {(): 0}
    result = np.zeros(vocab_size, dtype=np.int64)
    for token, numbers in member.items():
        result[token] = names.setdefault(tuple(numbers), len(names))
    return result
