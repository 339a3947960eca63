"""`compile`: from a constraint and a vocabulary to a circuit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Protocol

from locore.circuits import Chain, Circuit
from locore.compilers.conflict import conflict_of
from locore.compilers.counted import counted_circuit
from locore.compilers.followed import followed, is_followed
from locore.compilers.lazily import needs_machine, read_lazily
from locore.compilers.left_to_right import compile_by_restriction
from locore.compilers.problem import CompilerLeaf, Problem, as_one_automaton, gathered, with_lifted
from locore.compilers.stored import Compiled, once, stored
from locore.compilers.unroll import unroll
from locore.constraints import AutomatonLeaf, Constraint, Not, check_vocabulary, has_text
from locore.constraints.spelling import spelled
from locore.errors import InvalidArgument, InvalidConstraint, Unsatisfiable
from locore.limits import Limits
from locore.models.validation import tokenizer_of
from locore.puzzles.sdd.compile import Vtree, compile_sdd
from locore.tokenizer import Tokenizer


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
    constraint: Constraint,
    target: HasTokenizer | Tokenizer | int,
    length: int,
    *,
    min_length: int = 0,
    vtree: Vtree | None = None,
    limits: Limits | None = None,
    use_cache: bool = True,
) -> Compiled:
    """As `compile`, and where the circuit came from."""
    limits = Limits() if limits is None else limits
    if not isinstance(limits, Limits):
        raise InvalidArgument(f"limits must be such as locore.Limits(states=100_000), got {type(limits).__name__}.")
    problem = _problem(constraint, target, length, min_length, limits)
    if not use_cache:
        return Compiled(_compiled(problem, vtree), "compiled")
    return once(problem, vtree, partial(_kept, problem, vtree))


def _kept(problem: Problem, vtree: Vtree | None) -> Compiled:
    """From the store. A search for an end has a bound of its own for each request, and is not shared by several."""
    if needs_machine(problem.constraint) and not is_followed(problem):
        return Compiled(_compiled(problem, vtree), "compiled")
    return stored(problem, vtree, partial(_compiled, problem, vtree))


def _problem(
    constraint: Constraint, target: HasTokenizer | Tokenizer | int, length: int, min_length: int, limits: Limits
) -> Problem:
    """The arguments, checked."""
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
    return Problem(bound, tokenizer, length, min_length, limits)


def _compiled(problem: Problem, vtree: Vtree | None) -> Circuit:
    try:
        with problem.limits.enforced():
            relaxed = is_relaxed(problem.constraint, problem.length)  # first: it refuses some constraints
            circuit = _left_to_right(problem) if vtree is None else _for_vtree(problem, vtree)
            return replace(circuit, relaxed=relaxed, limits=problem.limits)
    except Unsatisfiable as error:
        raise Unsatisfiable(f"{error}: {conflict_of(problem, _left_to_right)}") from None


def _for_vtree(problem: Problem, vtree: Vtree) -> Circuit:
    if needs_machine(problem.constraint):
        raise InvalidConstraint("a constraint with a grammar or a large schema is read from left to right; leave vtree out.")
    problem = problem.of_whole_characters()
    size = problem.tokenizer.vocab_size
    plain = gathered(problem.constraint, size).transform(
        lambda leaf: leaf.spelled_out(size) if isinstance(leaf, CompilerLeaf) else leaf
    )
    return compile_sdd(replace(problem, constraint=plain), vtree)


def _left_to_right(problem: Problem) -> Circuit:
    """The first compiler that knows the kind of constraint.

    | the constraint is | compiler |
    |---|---|
    | one leaf on nested text whose automaton is large | none: it is read, and its states are made as they are reached |
    | anything with a grammar in it, or with such a leaf | none: as above, with a search for the end of the text |
    | on text, and far is counted in it | none: an automaton is read, and the count beside it |
    | leaves that bring a compiler along, and what it reads beside them | that one: search, the frontier method |
    | one automaton, as any Boolean combination of text leaves is | its transitions, shared by all positions |
    | anything else | exploration of what is left of it after each prefix |
    """
    problem = problem.of_whole_characters()
    if is_followed(problem):
        return followed(problem)
    if needs_machine(problem.constraint):
        return read_lazily(problem)
    return counted_circuit(problem, partial(_nodes, problem)) or _written(problem)


def _nodes(problem: Problem) -> Chain:
    return replace(_written(problem), limits=problem.limits).chain


def _written(problem: Problem) -> Circuit:
    """Of whole characters, by one of the compilers that write all states down."""
    root = gathered(problem.constraint, problem.tokenizer.vocab_size)
    own = root.circuit(problem) if isinstance(root, CompilerLeaf) else None
    if own is not None:
        return own
    problem = replace(problem, constraint=root).with_end_apart()
    root = with_lifted(problem.constraint, problem.tokenizer.token_bytes)
    automaton = as_one_automaton(root, problem.tokenizer.eos_ids)
    return compile_by_restriction(problem, root) if automaton is None else unroll(problem, automaton)


def is_relaxed(constraint: Constraint, length: int) -> bool:
    """Does the circuit of a constraint let sequences through on which it does not hold?

    With a leaf that is let through too often, And and Or let through too much as well, and never too little; below a negation
    it would be the other way round.

    Raises:
        InvalidConstraint: a relaxed leaf stands below an odd number of negations.
    """
    relaxed = False
    seen: set[tuple[int, bool]] = set()
    pending = [(constraint, False)]
    while pending:
        node, negated = pending.pop()
        if (id(node), negated) in seen:
            continue
        seen.add((id(node), negated))
        if isinstance(node, AutomatonLeaf) and node.is_relaxed_at(length):
            relaxed = True
            if negated:
                raise InvalidConstraint(
                    f"{spelled(node)} stands below a negation (~, ^, >>, or `not` in a function), but its circuit lets through "
                    f"more than it says, so the negation would lose sequences. Negate other parts only, or use memory="
                    f"{length - 2} or more, with which the circuit of {length} tokens is exact"
                )
        pending += [(child, negated != isinstance(node, Not)) for child in node.children()]
    return relaxed
