"""A constraint made ready for a compiler, and what it sees of the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from locore.compilers.lift import TokenAutomaton
from locore.compilers.partition import Partition, partition
from locore.compilers.search_gather import Conjunct
from locore.constraints import Constraint, Count, Literal, has_text
from locore.constraints.paths import SimplePath
from locore.constraints.structure import postorder
from locore.limits import Limits
from locore.tokenizer import Tokenizer


@dataclass(frozen=True)
class Problem:
    """A constraint made ready for a compiler: traced at its length, bound to its vocabulary."""

    constraint: Constraint
    tokenizer: Tokenizer
    length: int
    min_length: int
    limits: Limits = field(default_factory=Limits)


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
