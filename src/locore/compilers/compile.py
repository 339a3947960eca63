"""`compile`: from a constraint and a vocabulary to a circuit, kept where it took long, and explained where there is none."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from locore.circuits import Circuit
from locore.compilers.stored import Compiled, once, stored
from locore.kernel.compilers.problem import Problem, Vtree
from locore.kernel.compilers.ways import circuit_of
from locore.kernel.constraints.constraint import Constraint, has_text
from locore.kernel.constraints.tokens import check_vocabulary
from locore.kernel.errors import InvalidArgument, InvalidConstraint, Unsatisfiable
from locore.kernel.limits import Limits
from locore.kernel.models.validation import tokenizer_of
from locore.kernel.tokenizer import Tokenizer


class HasTokenizer(Protocol):
    """A language model, as far as compiling goes."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Its vocabulary."""


def compile(
    constraint: Constraint,
    target: HasTokenizer | Tokenizer | int,
    length: int,
    *,
    min_length: int = 0,
    vtree: Vtree | None = None,
    limits: Limits | None = None,
    use_cache: bool = True,
) -> Circuit:
    """The circuit of a constraint over `length` positions, with the end of the text as padding.

    A token that follows an end of sequence and is not the padding has no model. A constraint with a text leaf also forbids
    special tokens before the end, and texts that end within a character or are no UTF-8 otherwise.

    What took long is kept in memory and on disk, and found again by constraint, tokenizer and version.

    Args:
        constraint: what must hold.
        target: a language model, a tokenizer, or a number of tokens (ids without text or end).
        length: number of positions, n.
        min_length: the text may not end before so many tokens.
        vtree: nested pairs of positions, for constraints that are small only when far positions are read together; compiled
            through sentential decision diagrams (extra `locore[sdd]`). Default: left to right.
        limits: what compiling may use: states, nodes, seconds, memory. Default: `Limits()`.
        use_cache: False: neither look for a kept circuit nor keep this one. `LOCORE_COMPILE_CACHE_BYTES=0` says so for good.

    Raises:
        Unsatisfiable: no sequence of this length satisfies the constraint.
        BudgetExceeded: it would take more than the limits allow; the message says of what, and what to change.
        InvalidConstraint, InvalidArgument: the constraint or an argument has no meaning here.
    """
    return compile_and_tell(
        constraint, target, length, min_length=min_length, vtree=vtree, limits=limits, use_cache=use_cache
    ).circuit


def compile_and_tell(
    constraint: Constraint, target: HasTokenizer | Tokenizer | int, length: int, *, use_cache: bool = True, **options: Any
) -> Compiled:
    """As `compile`, and where the circuit came from."""
    problem = _problem(constraint, target, length, **options)
    make = partial(_explained, problem)
    return once(problem, partial(stored, problem, make)) if use_cache else Compiled(make(), "compiled")


def _problem(
    constraint: Constraint,
    target: HasTokenizer | Tokenizer | int,
    length: int,
    min_length: int = 0,
    vtree: Vtree | None = None,
    limits: Limits | None = None,
) -> Problem:
    """The arguments, checked."""
    limits = Limits() if limits is None else limits
    if not isinstance(limits, Limits):
        raise InvalidArgument(f"limits must be such as locore.Limits(states=100_000), got {type(limits).__name__}.")
    if not isinstance(constraint, Constraint):
        raise InvalidConstraint(
            f"compile needs a constraint, got {type(constraint).__name__}; decorate a Boolean function with @constraint, or "
            "use ban, contains, ends_with, choice."
        )
    if length <= 0:
        raise InvalidArgument(f"the number of tokens must be at least 1, got {length}.")
    if not 0 <= min_length <= length:
        raise InvalidArgument(f"the least number of tokens must lie in 0..{length}, got {min_length}.")
    if isinstance(target, int) and not isinstance(target, bool):
        target = Tokenizer.integers(target)
    tokenizer = tokenizer_of(target, "compile")
    bound = constraint.at(length).bind(tokenizer)
    check_vocabulary(bound, tokenizer.vocab_size)
    if has_text(bound) and not tokenizer.has_text:
        raise InvalidConstraint("a constraint on text needs a model or a tokenizer; bare ids have no text.")
    return Problem(bound, tokenizer, length, min_length, limits, vtree=vtree)


def _explained(problem: Problem) -> Circuit:
    """The circuit, or why there is none."""
    try:
        return circuit_of(problem)
    except Unsatisfiable as error:
        from locore.compilers.conflict import conflict_of

        raise Unsatisfiable(f"{error}: {conflict_of(replace(problem, vtree=None), circuit_of)}") from None
