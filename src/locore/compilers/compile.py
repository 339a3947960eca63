"""`compile`: from a constraint and a vocabulary to a circuit."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from locore.circuits import Circuit
from locore.compilers.atom import State
from locore.compilers.conflict import conflict_of
from locore.compilers.frontier_atom import with_paths
from locore.compilers.frontier_circuit import as_fixed_path, path_circuit
from locore.compilers.left_to_right import explore, minimise, to_circuit
from locore.compilers.longer import Longer
from locore.compilers.problem import Problem, blocked_tokens, classes_of, with_end_apart
from locore.compilers.relaxation import is_relaxed
from locore.compilers.remembered import Compiled, remembered
from locore.compilers.residual import Residuals
from locore.compilers.sdd import Vtree, compile_sdd
from locore.compilers.search import compile_by_search
from locore.compilers.search_gather import Conjunct, gather, without_combinatorial
from locore.compilers.search_store import with_stores
from locore.compilers.text import Automata
from locore.compilers.unroll import unroll
from locore.constraints import Constraint, Not, check_vocabulary, has_text
from locore.errors import InvalidArgument, InvalidConstraint, Unsatisfiable
from locore.limits import Limits, check_nodes
from locore.models.validation import tokenizer_of
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
    special tokens before the end.

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
    problem = _prepare(constraint, target, length, min_length, limits)
    if not use_cache:
        return Compiled(_compiled(problem, vtree), "compiled")
    return remembered(problem, vtree, lambda: _compiled(problem, vtree))


def _compiled(problem: Problem, vtree: Vtree | None) -> Circuit:
    try:
        with problem.limits.enforced():
            relaxed = is_relaxed(problem.constraint, problem.length)  # first: it refuses some constraints
            circuit = _left_to_right(problem) if vtree is None else compile_sdd(_without_combinatorial(problem), vtree)
            stored = sum(block.num_slots for block in set(circuit.blocks))  # positions share blocks
            check_nodes(stored, "the circuit", "a shorter sequence or a simpler constraint")
            return replace(circuit, relaxed=relaxed)
    except Unsatisfiable as error:
        raise Unsatisfiable(f"{error}: {conflict_of(problem, _left_to_right)}") from None


def _prepare(
    constraint: Constraint, target: HasTokenizer | Tokenizer | int, length: int, min_length: int, limits: Limits
) -> Problem:
    if not isinstance(constraint, Constraint):
        raise InvalidConstraint(
            f"compile needs a constraint, got {type(constraint).__name__}; decorate a Boolean function with @constraint, or "
            "use ban, contains, ends_with, choice."
        )
    if length <= 0:
        raise InvalidArgument(f"the number of tokens must be at least 1, got {length}.")
    if not 0 <= min_length <= length:
        raise InvalidArgument(f"the least number of tokens must lie in 0..{length}, got {min_length}.")
    tokenizer = _tokenizer_of(target)
    bound = constraint.at(length).bind(tokenizer)
    check_vocabulary(bound, tokenizer.vocab_size)
    if has_text(bound) and not tokenizer.has_text:
        raise InvalidConstraint("a constraint on text needs a model or a tokenizer; bare ids have no text.")
    return Problem(bound, tokenizer, length, min_length, limits)


def _without_combinatorial(problem: Problem) -> Problem:
    return replace(problem, constraint=without_combinatorial(problem.constraint, problem.tokenizer.vocab_size))


def _tokenizer_of(target: HasTokenizer | Tokenizer | int) -> Tokenizer:
    if isinstance(target, int) and not isinstance(target, bool):
        return Tokenizer.integers(target)
    return tokenizer_of(target, "compile")


def _left_to_right(problem: Problem) -> Circuit:
    """One automaton is unrolled with its transitions shared; anything else is explored by restriction.

    A simple path over edges has a compiler of its own.
    """
    fixed = as_fixed_path(problem.constraint)
    if fixed is not None:
        return path_circuit(fixed, problem)
    gathered = gather(problem.constraint, problem.tokenizer.vocab_size)
    if isinstance(gathered, Conjunct):
        return compile_by_search(gathered, problem)
    problem = with_end_apart(replace(problem, constraint=gathered))
    automata = Automata(problem.tokenizer.token_bytes)
    root = automata.atoms_of(problem.constraint)
    eos_ids = problem.tokenizer.eos_ids
    alone = root.of if isinstance(root, Not) else root
    if isinstance(alone, State) and automata.stops_at_end(alone.automaton, eos_ids):
        automaton = automata.lifted[alone.automaton]
        if isinstance(root, Not):
            automaton = replace(automaton, accepting=~automaton.accepting)
        return unroll(automaton, problem)
    classes = classes_of(problem, root, automata.lifted)
    root = with_paths(with_stores(root, classes, problem.length), classes)
    residuals = Residuals(problem.length, classes, automata.lifted, automata.ends_with_text, eos_ids)
    blocked = blocked_tokens(problem)[classes.representative]
    layered = explore(root, residuals, blocked, problem.min_length, problem.must_end)
    return to_circuit(minimise(layered, Longer(residuals, blocked, problem.must_end)), classes, problem.length)
