"""Targets beyond yes and no: p(y) · 1[y ⊨ α] · Π φ(y), normalised.

A factor φ ≥ 0 weighs a finished text: a `Potential` asks a Python function, an `Expert` another language model, a `Bonus` a
constraint. A `Target` is a constraint α with factors, made by `*` (and by `&`, where the factor is a yes or no). Functions and
models are code, not data: they have no JSON form, and nothing that reads JSON makes one. A bonus has one
(`locore.potentials.target_json`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from locore.constraints import Constant, Constraint, conjunction, negation
from locore.kernel.chat import Prompt
from locore.kernel.constraints.spelling import spelled
from locore.kernel.errors import InvalidArgument, InvalidConstraint
from locore.kernel.request import is_number
from locore.kernel.tokenizer import Tokenizer

if TYPE_CHECKING:
    from locore.models import LanguageModel

Asked = Callable[[list[str]], Sequence[float]]  # texts in, a log-factor for each out
NO_JSON = "potentials, predicates and experts are code and not data, so they have no JSON form: sample with locore.generate"


class Term:
    """What can be multiplied into a target: a factor, or a target itself."""

    __array_ufunc__ = None  # numpy's numbers leave `*` to the methods below

    def as_target(self) -> Target:
        """With everything that is multiplied."""
        raise NotImplementedError

    def __mul__(self, other: object) -> Target:
        mine, theirs = self.as_target(), target_of(other)
        if theirs is None:
            raise InvalidConstraint(
                f"a potential is multiplied with constraints and potentials, not with {type(other).__name__}; a number that "
                "its log-factors are multiplied with is potential(f, weight=...)"
            )
        return Target(conjunction([mine.constraint, theirs.constraint]), mine.factors + theirs.factors)

    def __rmul__(self, other: object) -> Target:
        return self * other

    def __and__(self, other: object) -> Target:
        for part in (self, other):
            _check_yes_or_no(part)
        return self * other

    def __rand__(self, other: object) -> Target:
        return self & other

    def _refuse(self, *_: object) -> NoReturn:
        raise InvalidConstraint(
            "potentials are multiplied only: there is no | ~ ^ or >> of them; write the Python function that says it, or, for "
            "~, a predicate of `not f(text)`"
        )

    __or__ = __ror__ = __xor__ = __rxor__ = __rshift__ = __rrshift__ = __invert__ = _refuse

    def __bool__(self) -> NoReturn:
        raise InvalidConstraint("a potential is neither true nor false before there is a text; combine with * or &")

    def to_json(self) -> dict[str, Any]:
        """`{"type": "product", "of": [...]}`, which `locore.from_json` reads back, of constraints and bonuses.

        Raises:
            InvalidConstraint: there is code in it.
        """
        raise InvalidConstraint(NO_JSON)


class Factor(Term):
    """One φ.

    Attributes:
        bound: upper bound of log φ, infinite where none is known.
    """

    bound: float

    def as_target(self) -> Target:
        """It alone, with the constraint that always holds."""
        return Target(Constant(True), (self,))


@dataclass(frozen=True, eq=False)
class Potential(Factor):
    """φ(y) = exp(weight · f(text of y)); made by `potential` and `predicate`.

    Attributes:
        ask: f, of many texts at once.
        prefix: the same of beginnings, which steers; None for nothing.
        weight: what log-factors are multiplied with.
        bound: of log φ.
        timeout: seconds that one text may take; None for any.
        is_predicate: is f a yes or no of one text, whose errors mean no?
        name: how messages call it.
    """

    ask: Callable[..., Any]
    prefix: Callable[..., Any] | None
    weight: float
    bound: float
    timeout: float | None
    is_predicate: bool
    name: str

    def __repr__(self) -> str:
        return f"{'predicate' if self.is_predicate else 'potential'}({self.name})"


@dataclass(frozen=True, eq=False)
class Expert(Factor):
    """φ(y) = q(y | prompt)^weight for another language model q; made by `expert`.

    Attributes:
        model: q after its prompt.
        weight: its exponent.
        bound: 0 unless the weight is negative.
    """

    model: LanguageModel
    weight: float
    bound: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", 0.0 if self.weight >= 0 else math.inf)

    def __repr__(self) -> str:
        return f"expert({type(self.model).__name__}, weight={self.weight:g})"


@dataclass(frozen=True)
class Bonus(Factor):
    """φ(y) = exp(nats · 1[y ⊨ constraint]); made by `bonus`.

    Attributes:
        constraint: what is worth something.
        nats: how much; finite.
        bound: of log φ.
    """

    constraint: Constraint
    nats: float

    @property
    def bound(self) -> float:  # type: ignore[override]  # it follows from the nats
        """Of log φ."""
        return max(0.0, self.nats)

    def to_json(self) -> dict[str, Any]:
        """`{"type": "bonus", "constraint": ..., "nats": ...}`."""
        return {"type": "bonus", "constraint": self.constraint.to_json(), "nats": self.nats}

    def __repr__(self) -> str:
        return f"bonus({spelled(self.constraint)}, {self.nats:+g})"


@dataclass(frozen=True, eq=False)
class Target(Term):
    """p(y) · 1[y ⊨ constraint] · Π φ(y).

    Attributes:
        constraint: α.
        factors: the φ; each counts once for each time it was multiplied.
    """

    constraint: Constraint
    factors: tuple[Factor, ...]

    def as_target(self) -> Target:
        """Itself."""
        return self

    def to_json(self) -> dict[str, Any]:
        """The constraint's, where there are no factors."""
        if not self.factors:
            return self.constraint.to_json()
        parts = [] if self.constraint == Constant(True) else [self.constraint.to_json()]
        parts += [factor.to_json() for factor in self.factors]
        return {"type": "product", "of": parts} if len(parts) > 1 else parts[0]

    def __repr__(self) -> str:
        return " * ".join([spelled(self.constraint), *map(repr, self.factors)])

    @property
    def bonuses(self) -> tuple[Bonus, ...]:
        """Those of the factors that are compiled."""
        return tuple(factor for factor in self.factors if isinstance(factor, Bonus))

    def constraints(self) -> list[Constraint]:
        """Its own, and those of its bonuses."""
        return [self.constraint, *(term.constraint for term in self.bonuses)]

    def read_with(self, change: Callable[[Constraint], Constraint]) -> Target:
        """With another constraint in place of its own, and of that of each bonus."""
        factors = (replace(phi, constraint=change(phi.constraint)) if isinstance(phi, Bonus) else phi for phi in self.factors)
        return Target(change(self.constraint), tuple(factors))

    def bonus_of(self, tokens: Sequence[int], tokenizer: Tokenizer) -> float:
        """Nats of the bonuses whose constraints hold on a finished sequence."""
        length = len(tokens)
        return sum(term.nats for term in self.bonuses if term.constraint.at(length).bind(tokenizer).evaluate(tokens, tokenizer))


def target_of(what: object) -> Target | None:
    """A constraint, a factor or a target as a target; None of anything else."""
    if isinstance(what, Term):
        return what.as_target()
    return Target(what, ()) if isinstance(what, Constraint) else None


def potential(f: Asked, *, prefix: Asked | None = None, weight: float = 1.0, bound: float | None = None) -> Potential:
    """A soft preference: texts are multiplied by exp(weight · f(text)).

    Multiply it with a constraint, `ban("awful") * potential(reward)`, or give it to `generate` alone.

    Args:
        f: a function of finished texts: a list of them in, as many log-factors out (natural logs; −inf excludes a text). It is
            called on each text once in a run, many at a time, and its answer must depend on the text alone.
        prefix: the same for beginnings of texts: about the log-factor that texts will have that begin so. It steers samplers
            that can be steered, and never enters a weight, so it may be wrong (what is above `bound`, or beyond a million
            nats, is clipped); but −inf is taken at its word: no text that begins so has a factor above zero.
        weight: what the answers of `f` and `prefix` are multiplied with.
        bound: the largest number that `f` ever returns. With it `sampler="rejection"` gives exact draws.

    Raises:
        InvalidArgument: an argument is of the wrong kind.
    """
    _check_function(f, "potential", "f")
    _check_function(prefix, "potential", "prefix", optional=True)
    number_of(weight, "weight", "potential")
    most = math.inf
    if bound is not None:
        most = number_of(bound, "bound", "potential") * weight
        if weight < 0:
            raise InvalidArgument("a bound from above says nothing with a negative weight; negate f instead of the weight.")
    return Potential(f, prefix, weight, most if weight else 0.0, None, False, _name_of(f))


def predicate(
    f: Callable[[str], bool], *, prefix: Callable[[str], bool] | None = None, timeout: float | None = 10.0
) -> Potential:
    """A yes or no in plain Python: "the SQL runs", "the code parses".

    Combine it with constraints by `&`. The target is p(y | α and f says yes).

    Args:
        f: a function of one finished text. It is called on each text once in a run. What it raises means no, and is counted in
            the report, as are texts on which it takes too long.
        prefix: may a text that begins so still get a yes? It is asked along the way by samplers that can be steered ("smc"
            asks it of every token that it tries), and believed where it says no. What it raises means yes.
        timeout: seconds for one text, None for any. Python code is interrupted; a call into another language (a query, a
            request) is interrupted only when it comes back, and should have a limit of its own.

    Raises:
        InvalidArgument: an argument is of the wrong kind.
    """
    _check_function(f, "predicate", "f")
    _check_function(prefix, "predicate", "prefix", optional=True)
    if timeout is not None and number_of(timeout, "timeout", "predicate") <= 0:
        raise InvalidArgument(f"timeout of predicate must be above 0 seconds, got {timeout!r}; None is no limit.")
    return Potential(f, prefix, 1.0, 0.0, timeout, True, _name_of(f))


def expert(model: LanguageModel | str | Path, prompt: Prompt = "", weight: float = 1.0) -> Expert:
    """Another model's opinion: texts are multiplied by q(text | prompt) to the power `weight`.

    A product of experts with a positive weight; contrastive decoding with a negative one; with two, a model that was tuned for
    a class over one that was not, a classifier (`expert(tuned) * expert(base, weight=-1)`).

    Args:
        model: q, with the tokenizer of the model that is sampled; or what `locore.load` accepts.
        prompt: what q reads before the text.
        weight: the exponent.

    Raises:
        InvalidArgument: the weight is no number. Errors of `locore.load` and of prompts.
    """
    from locore.models import LanguageModel, load  # and torch, which whoever reads JSON can do without

    number_of(weight, "weight", "expert")
    base = model if isinstance(model, LanguageModel) else load(model)
    return Expert(base.prompted(prompt), weight)


def bonus(constraint: Constraint, nats: float) -> Term:
    """A constraint that is worth something: texts that satisfy it are multiplied by exp(nats).

    "This phrase is worth w nats", for whole texts: p(y) · exp(nats · 1[y ⊨ constraint]), normalised, so that the constraint's
    odds are multiplied by exactly e^nats. Negative nats make it rarer, −inf forbids it. Multiply it with constraints, other
    bonuses and potentials: `ban("awful") * bonus(contains(" sun"), 2.0)`. It is no function that is asked at the end:
    texts with and without it are sampled apart, each as under a constraint, and put together.

    Args:
        constraint: what is worth something.
        nats: how much, in natural logs.

    Raises:
        InvalidConstraint: no constraint.
        InvalidArgument: no number, or +inf, which is the constraint itself.
    """
    if not isinstance(constraint, Constraint):
        raise InvalidConstraint(f"bonus needs a constraint, got {type(constraint).__name__}; use contains, ends_with, regex.")
    if nats == math.inf:
        raise InvalidArgument("nats of bonus must be a finite number, got inf; what must hold is a constraint alone.")
    forbidden = nats == -math.inf
    return Target(negation(constraint), ()) if forbidden else Bonus(constraint, number_of(nats, "nats", "bonus"))


def _check_yes_or_no(part: object) -> None:
    target = target_of(part)
    if target is None:
        raise InvalidConstraint(f"& takes constraints and predicates, got {type(part).__name__}")
    for factor in target.factors:
        if not (isinstance(factor, Potential) and factor.is_predicate):
            raise InvalidConstraint(f"{factor!r} is a number and no yes or no; multiply with * instead of &")


def _check_function(f: object, where: str, name: str, optional: bool = False) -> None:
    if not (callable(f) or (optional and f is None)):
        raise InvalidArgument(f"{name} of {where} must be a function of texts, got {f!r}.")


def number_of(value: Any, name: str, where: str) -> float:
    """A finite number as a float."""
    if not is_number(value):
        raise InvalidArgument(f"{name} of {where} must be a finite number, got {value!r}.")
    return float(value)


def _name_of(f: object) -> str:
    return str(getattr(f, "__name__", type(f).__name__))
