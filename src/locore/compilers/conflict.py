"""Why nothing satisfies a constraint: few of its parts that already exclude each other, and whether more tokens would help."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from locore.kernel.compilers.problem import Problem
from locore.kernel.constraints.constraint import And, Constant, Constraint, Not, Or, conjunction, negation
from locore.kernel.constraints.spelling import spelled
from locore.kernel.constraints.tokens import AutomatonLeaf
from locore.kernel.errors import BudgetExceeded, Unsatisfiable

SECONDS = 3.0
MAX_STATES = 20_000  # of one attempt: a reason must not cost more than a compile
LONGEST = 4  # times as many tokens as asked for are tried, and at least LEAST
LEAST = 64
SHOWN = 6

Solve = Callable[[Problem], object]


@dataclass(frozen=True)
class Conflict:
    """Parts of a constraint that no sequence satisfies together.

    Attributes:
        parts: the parts.
        min_length: the least number of tokens, where that is part of the conflict; else 0.
        minimal: does every proper subset of them have a model? False: not known, the budget was spent.
        length: the number of tokens that was asked for.
        enough: a number of tokens with which the parts have a model; None: none is known.
        tried: the largest number of tokens with which they are known to have none.
        at_least: is `enough` known to be the least such number?
    """

    parts: tuple[Constraint, ...]
    min_length: int
    minimal: bool
    length: int
    enough: int | None
    tried: int
    at_least: bool

    def __str__(self) -> str:
        if self.parts == (Constant(False),):
            return (
                "the constraint contradicts itself, so no text of any length satisfies it; take out one of the parts that do."
            )
        names = [spelled(part) for part in self.parts[:SHOWN]]
        if len(self.parts) > SHOWN:
            names.append(f"{len(self.parts) - SHOWN} more")
        if self.min_length:
            names.append(f"at least {self.min_length} tokens")
        what = f"{names[0]} cannot hold" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} cannot hold together"
        if not self.minimal:
            what += " (nor perhaps some of these alone)"
        return f"{what}{self._remedy()}"

    def _remedy(self) -> str:
        weaken = "weaken it" if len(self.parts) == 1 else "weaken one of them"
        if self.enough is not None:
            number = f"at least {self.enough}" if self.at_least else f"{self.enough}"
            return f" in {self.length} tokens; ask for {number} tokens, or {weaken} to fit into the number of tokens."
        if self.tried > self.length:
            return f", nor would it help to have {self.tried} tokens; {weaken}."
        return f" in {self.length} tokens; {weaken}, or change the number of tokens."


def conflict_of(problem: Problem, solve: Solve, seconds: float = SECONDS) -> Conflict:
    """A small conflict in a problem that has no model: no part can be left out, if the budget suffices to see that.

    Parts are left out in halves, quarters and so on down to one at a time, as long as what is left has no model (delta
    debugging, Zeller and Hildebrandt, 2002). A leaf that is a conjunction, as a ban of several phrases, counts as its pieces.

    Args:
        problem: a problem without a model.
        solve: raises `Unsatisfiable` when a problem has no model and `BudgetExceeded` when it cannot tell.
        seconds: after which it ends.
    """
    limits = replace(problem.limits, states=min(problem.limits.states, MAX_STATES))
    attempts = _Attempts(replace(problem, limits=limits), solve, time.monotonic() + seconds)
    parts = attempts.reduced(list(_conjuncts(problem.constraint)))
    parts = attempts.reduced([piece for part in parts for piece in part.conjuncts()])
    needs_length = problem.min_length > 0 and not attempts.has_no_model(parts, problem.length, 0)
    minimal = attempts.certain
    min_length = problem.min_length if needs_length else 0
    enough, tried, at_least = attempts.lengths(parts, min_length)
    return Conflict(tuple(parts), min_length, minimal, problem.length, enough, tried, at_least)


@dataclass
class _Attempts:
    """What can be found out before the deadline; `certain` until something could not."""

    problem: Problem
    solve: Solve
    deadline: float
    certain: bool = True

    def has_no_model(self, parts: Sequence[Constraint], length: int | None = None, min_length: int | None = None) -> bool:
        """Is it known that these parts together have no model?"""
        if time.monotonic() > self.deadline:
            self.certain = False
            return False
        problem = replace(
            self.problem,
            constraint=conjunction(_joined(parts)),
            length=self.problem.length if length is None else length,
            min_length=self.problem.min_length if min_length is None else min_length,
        )
        try:
            left = replace(problem.limits, seconds=max(self.deadline - time.monotonic(), 1e-3))
            with left.enforced():
                self.solve(problem)
        except Unsatisfiable:
            return True
        except BudgetExceeded:
            self.certain = False
        return False

    def reduced(self, parts: list[Constraint]) -> list[Constraint]:
        """Parts without a model, of which (if `certain`) none can be left out."""
        size = len(parts)
        while size > 1:
            size = (size + 1) // 2
            start = 0
            while start < len(parts):
                rest = parts[:start] + parts[start + size :]
                if rest and self.has_no_model(rest):
                    parts = rest
                else:
                    start += size
        return parts

    def lengths(self, parts: list[Constraint], min_length: int) -> tuple[int | None, int, bool]:
        """A number of tokens that suffices, the largest known not to, and whether the first is the least."""
        failing, enough = self.problem.length, None
        longest = max(LONGEST * failing, LEAST)
        if not all(isinstance(leaf, AutomatonLeaf) for part in parts for leaf in part.leaves()):
            return None, failing, False  # positions mean something else in a longer sequence
        self.certain = True
        while enough is None and failing < longest:
            length = min(2 * failing, longest)
            if self.has_no_model(parts, length, min_length):
                failing = length
            elif self.certain:
                enough = length
            else:
                return None, failing, False
        while enough is not None and enough - failing > 1 and self.certain:
            middle = (failing + enough) // 2
            if self.has_no_model(parts, middle, min_length):
                failing = middle
            elif self.certain:
                enough = middle
        # Without an end of sequence, a text has exactly so many tokens, and fewer may do where more do not.
        return enough, failing, self.certain and bool(self.problem.tokenizer.eos_ids)


def _conjuncts(constraint: Constraint) -> Iterator[Constraint]:
    if isinstance(constraint, And):
        for part in constraint.of:
            yield from _conjuncts(part)
    elif isinstance(constraint, Not) and isinstance(constraint.of, Or):
        for part in constraint.of.of:
            yield from _conjuncts(negation(part))
    else:
        yield constraint


def _joined(parts: Sequence[Constraint]) -> list[Constraint]:
    """The same parts, those that can be merged in one."""
    joined: dict[type[Constraint], list[Constraint]] = {}
    for part in parts:
        alike = joined.setdefault(type(part), [])
        both = ((number, merged) for number, other in enumerate(alike) if (merged := other.merged(part)) is not None)
        number, merged = next(both, (len(alike), part))
        alike[number : number + 1] = [merged]
    return [part for alike in joined.values() for part in alike]
