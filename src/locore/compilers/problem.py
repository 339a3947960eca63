"""A constraint made ready for a compiler, and what it sees of the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from locore.compilers.lift import TokenAutomaton
from locore.compilers.partition import Partition, partition
from locore.compilers.search_gather import Conjunct
from locore.constraints import And, Constraint, Count, Finished, Literal, conjunction, has_text
from locore.constraints.paths import SimplePath
from locore.constraints.structure import postorder
from locore.limits import Limits
from locore.tokenizer import Tokenizer


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


def with_end_apart(problem: Problem) -> Problem:
    """The same problem; if the whole constraint demands an end, and more than that, the problem does instead."""
    whole = problem.constraint
    if not isinstance(whole, And) or not any(isinstance(part, Finished) for part in whole.of):
        return problem
    rest = conjunction(part for part in whole.of if not isinstance(part, Finished))
    return replace(problem, constraint=rest, must_end=True)


def classes_of(problem: Problem, root: Constraint, lifted: list[TokenAutomaton]) -> Partition:
    """The coarsest partition that tells apart token sets, automaton functions, special tokens and ends."""
    tokenizer = problem.tokenizer
    special = np.array([content is None for content in tokenizer.token_bytes], dtype=np.int64)
    sets = [node.tokens for node in postorder(root) if isinstance(node, Literal | Count)]
    for node in postorder(root):
        sets.extend(node.token_sets() if isinstance(node, Conjunct | SimplePath) else ())
    ends = [frozenset({token}) for token in tokenizer.eos_ids]
    return partition(tokenizer.vocab_size, [special, *(a.function for a in lifted)], [*sets, *ends])


def blocked_tokens(problem: Problem) -> NDArray[np.bool_]:
    """Bool[vocab]: special tokens, if the constraint speaks about text. Ends are handled by the compilers."""
    if not has_text(problem.constraint):
        return np.zeros(problem.tokenizer.vocab_size, dtype=np.bool_)
    return np.array([content is None for content in problem.tokenizer.token_bytes], dtype=np.bool_)
