"""Constraints: immutable Boolean values over a sequence of token ids.

A constraint α says of every sequence y of `length` token ids whether it holds. `And`, `Or` and
`Not` combine leaves; the leaves are in `tokens` and beyond. Equal parts may be shared, so an expression is a
graph: every walk visits a node once and never recurses, however deep the expression is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from locore.kernel.constraints.sequence import TokenizerLike, TokenSequence
from locore.kernel.constraints.structure import Structural, check_tree, fold
from locore.kernel.errors import InvalidArgument, InvalidConstraint

Json = dict[str, Any]
# Of the steps of a JSON pointer: None where something may be, else the names at the first step that leads nowhere.
Places = Callable[[tuple[str, ...]], list[str] | None]


class Reading(ABC):
    """One run of a Python function over `tokens`: who answers when Python asks a constraint for its truth value.

    Outside a function decorated with `@constraint` nobody does, and `bool(constraint)` is an error. While such a function runs,
    one `Reading` answers: a trace that explores both answers, or a plain reading of finished tokens. It is kept in a context
    variable, so threads do not disturb each other.
    """

    @abstractmethod
    def decide(self, condition: Constraint) -> bool:
        """The truth value with which the function goes on."""

    @abstractmethod
    def literal(self, position: int, ids: frozenset[int]) -> Constraint:
        """The condition "the token at `position` is one of `ids`"."""

    @abstractmethod
    def summand(self, condition: Constraint) -> Any:
        """The condition as a number, 0 or 1, that can be added to others."""


_current: ContextVar[Reading | None] = ContextVar("locore_reading", default=None)


def current_reading() -> Reading | None:
    """The reading of the function that is running now, or None outside of one."""
    return _current.get()


@contextmanager
def reading_with(reading: Reading | None) -> Iterator[None]:
    """Let `reading` answer inside the `with` block; None: constraints are plain values there."""
    token = _current.set(reading)
    try:
        yield
    finally:
        _current.reset(token)


class Constraint(Structural):
    """An immutable Boolean value; combine with `&`, `|`, `~`, `^` and `>>` (implies).

    Kinds are frozen dataclasses with structural equality and hash.
    """

    __array_ufunc__ = None  # numpy's bools leave the operators to the methods below
    is_text = False  # does it speak about the text?
    is_utf8 = False  # does it hold of texts that are UTF-8 only?
    is_function = False  # is it Python code, of which nothing is known before it is traced at a length?
    # The module, if any, whose `gathered(constraint, vocab_size)` brings a constraint that has such leaves into the form that
    # a compiler for them reads, with leaves of `locore.kernel.compilers.problem.CompilerLeaf` in their places.
    compiler: ClassVar[str | None] = None
    # What `over` and `before` do. They are made of leaves, which are made of this class, so their modules put them here.
    made_over: ClassVar[Callable[[Constraint, str, str | None], Constraint]]
    made_before: ClassVar[Callable[[Constraint, Iterable[str]], Constraint]]
    __hash__ = Structural.__hash__

    # What a kind says about itself.

    @abstractmethod
    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Does it hold, given which of its children hold?"""

    @abstractmethod
    def json_of(self, parts: list[Json]) -> Json:
        """Its JSON form, given those of its children."""

    def leaf_at(self, length: int) -> Constraint:
        """A leaf, checked and traced at a length; see `at`."""
        return self

    def leaf_bound(self, tokenizer: TokenizerLike) -> Constraint:
        """A leaf in terms of the ids of one tokenizer; see `bind`."""
        return self

    def leaf_told(self, prompt: str) -> Constraint:
        """A leaf that knows the prompt, if it speaks of it; see `over`."""
        return self

    def waits_for_prompt(self) -> bool:
        """Does a leaf speak of a prompt that it does not know yet?"""
        return False

    @property
    def is_small(self) -> bool:
        """Of a leaf: can all of its states be made in a moment?"""
        return True

    @property
    def tables_mislead(self) -> bool:
        """Of a leaf: is it known that n-gram tables foretell little of it?"""
        return not self.is_small

    @property
    def title(self) -> str | None:
        """What messages call a leaf that has no JSON form."""
        return None

    def conjuncts(self) -> list[Constraint]:
        """What a leaf is the conjunction of."""
        return [self]

    def merged(self, other: Constraint) -> Constraint | None:
        """One leaf that says what two say, where that is quicker than both."""
        return None

    def places(self) -> Places | None:
        """Where its texts, which are JSON, may have values; None where that is not known."""
        return None

    def notes(self) -> tuple[str, ...]:
        """What a report on texts of a leaf should say."""
        return ()

    def named_ids(self) -> Iterable[int]:
        """The token ids that a leaf names."""
        return ()

    # What one can ask of any constraint.

    def at(self, length: int) -> Constraint:
        """The constraint on sequences of `length` tokens, Python functions traced.

        Raises:
            InvalidConstraint: a position lies outside 0..length-1.
            BudgetExceeded: a Python function has too many paths.
            InvalidArgument: the length is below 1.
        """
        if length < 1:
            raise InvalidArgument(f"a constraint needs a length of at least 1, got {length}")
        return self.transform(lambda leaf: leaf.leaf_at(length))

    def bind(self, tokenizer: TokenizerLike) -> Constraint:
        """The constraint with phrases that speak of a tokenizer's ids turned into these ids."""
        return self.transform(lambda leaf: leaf.leaf_bound(tokenizer))

    def over(self, what: str, prompt: str | None = None) -> Constraint:
        """The same, said of more than the text; each leaf that speaks of text is asked about both.

        With "prompt+text" phrases may begin in the prompt and end in the text, and counts count in both. The prompt is the text
        that was given as such; of a chat how the answer begins, the assistant's last message, and nothing of what others said;
        of token ids what follows the last special token.

        Args:
            what: "prompt+text"; or "text", which changes nothing.
            prompt: this one; None: that of the request, which `generate` knows.

        Raises:
            InvalidConstraint: another `what`, or a part that speaks of tokens, or is a Python function.
        """
        return self.made_over(what, prompt)

    def before(self, stops: Iterable[str]) -> Constraint:
        """The same, said of the text before the first of some strings; see `locore.before`."""
        return self.made_before(stops)

    def evaluate(self, tokens: Iterable[int], tokenizer: TokenizerLike | None = None) -> bool:
        """Does the constraint hold on these tokens? Read plainly, without any automaton.

        Never true when anything but padding follows the first end of sequence, nor when an
        expression about text meets a special token before the end, or a text that is no UTF-8.
        """
        sequence = TokenSequence(tokens, tokenizer)
        if not sequence.padded:
            return False
        speaks_of_text = bool(sequence.tokens) and has_text(self.at(len(sequence.tokens)))
        if speaks_of_text and (sequence.has_special or sequence.is_broken):
            return False
        return self.truth(sequence)

    def truth(self, sequence: TokenSequence) -> bool:
        """The Boolean value alone, without the rules on padding and special tokens."""
        return bool(fold(self, lambda node, parts: node.holds_on(sequence, parts)))

    def to_json(self) -> Json:
        """The JSON form, which `from_json` reads back.

        Raises:
            InvalidConstraint: it has none, being an untraced Python function, or deeper than 100
                or of more than a million parts when written out.
        """
        check_tree(self)
        return fold(self, lambda node, parts: node.json_of(parts))

    # Combining.

    def __and__(self, other: Any) -> Any:
        return _combined(self, other, lambda a, b: conjunction([a, b]))

    def __or__(self, other: Any) -> Any:
        return _combined(self, other, lambda a, b: disjunction([a, b]))

    def __xor__(self, other: Any) -> Any:
        return _combined(self, other, lambda a, b: if_then_else(a, negation(b), b))

    def __rshift__(self, other: Any) -> Any:
        return _combined(self, other, lambda a, b: disjunction([negation(a), b]))

    def __rrshift__(self, other: Any) -> Any:
        return _combined(self, other, lambda a, b: disjunction([negation(b), a]))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Constraint:
        return negation(self)

    # What it can do only while a function is read: truth value, `==`, arithmetic. There `==` means "has the same truth value",
    # as for Python's bools; elsewhere it is structural.

    def __bool__(self) -> bool:
        reading = current_reading()
        if reading is None:
            raise InvalidConstraint(
                "a constraint is neither true nor false before the tokens are known; combine "
                "with & | ~ >> instead of and, or, not, if, or write a @constraint function"
            )
        return reading.decide(self)

    def summand(self) -> Any:
        """This constraint as a number, 0 or 1."""
        reading = current_reading()
        if reading is None:
            raise InvalidConstraint(
                "constraints are added up inside a @constraint function only; outside of one use count_tokens"
            )
        return reading.summand(self)

    def __eq__(self, other: object) -> Any:
        if current_reading() is None:
            return self.same_as(other)
        if isinstance(other, Constraint | bool | np.bool_):
            return ~(self ^ other)
        return self.summand() == other

    def __ne__(self, other: object) -> Any:
        same = self == other
        return ~same if isinstance(same, Constraint) else not same

    def __int__(self) -> int:
        return int(bool(self))

    def __add__(self, other: Any) -> Any:
        return self.summand() + other

    def __sub__(self, other: Any) -> Any:
        return self.summand() - other

    def __rsub__(self, other: Any) -> Any:
        return other - self.summand()

    def __mul__(self, other: Any) -> Any:
        if current_reading() is None and not isinstance(other, int | float | np.number | Constraint):
            return NotImplemented  # what may be multiplied with a constraint, such as a potential, knows how
        return self.summand() * other

    __radd__, __rmul__ = __add__, __mul__


@dataclass(frozen=True, eq=False)
class Constant(Constraint):
    """Always or never."""

    value: bool

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Its value."""
        return self.value

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "true"}` or `{"type": "false"}`."""
        return {"type": "true" if self.value else "false"}


@dataclass(frozen=True, eq=False, repr=False)
class Several(Constraint):
    """`And` or `Or` of any number of constraints, in the user's order."""

    of: tuple[Constraint, ...]
    neutral: ClassVar[bool]  # the value of none at all; one part with the other value decides

    def children(self) -> tuple[Constraint, ...]:
        """The parts."""
        return self.of

    def rebuilt(self, parts: list[Constraint]) -> Constraint:
        """The same operation on other parts."""
        return _several(type(self), parts)

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """All parts hold, or some part holds."""
        return all(parts) if self.neutral else any(parts)

    def places(self) -> Places | None:
        """Of `&` one part that says so is enough, of `|` all alternatives have to."""
        lookups = [places for part in self.of if (places := part.places()) is not None]
        return partial(_refused, lookups, self.neutral) if lookups and (self.neutral or len(lookups) == len(self.of)) else None

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "and" or "or", "of": [...]}`."""
        return {"type": "and" if self.neutral else "or", "of": parts}


def _refused(lookups: list[Places], by_one: bool, steps: tuple[str, ...]) -> list[str] | None:
    """The names where one part, or where all parts have nothing at a place."""
    refused = [names for places in lookups if (names := places(steps)) is not None]
    if by_one:
        return refused[0] if refused else None
    return [name for names in refused for name in names] if len(refused) == len(lookups) else None


class And(Several):
    """All of them hold."""

    neutral, gate = True, "and"


class Or(Several):
    """At least one of them holds."""

    neutral, gate = False, "or"


@dataclass(frozen=True, eq=False, repr=False)
class Not(Constraint):
    """It does not hold."""

    of: Constraint
    gate = "not"

    def children(self) -> tuple[Constraint, ...]:
        """The one part."""
        return (self.of,)

    def rebuilt(self, parts: list[Constraint]) -> Constraint:
        """The negation of another part."""
        return negation(parts[0])

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The part does not hold."""
        return not parts[0]

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "not", "of": ...}`."""
        return {"type": "not", "of": parts[0]}


def negation(part: Constraint) -> Constraint:
    """Not `part`; double negations and constants are resolved."""
    if isinstance(part, Constant):
        return Constant(not part.value)
    return part.of if isinstance(part, Not) else Not(part)


def conjunction(parts: Iterable[Constraint]) -> Constraint:
    """All of `parts`: flattened, without repetitions and constants; always true when empty.

    What decides the value alone stands for all, unless another part speaks about text, which says more than its value.
    """
    return _several(And, list(parts))


def disjunction(parts: Iterable[Constraint]) -> Constraint:
    """Some of `parts`: flattened, without repetitions and constants; never true when empty. As `conjunction` otherwise."""
    return _several(Or, list(parts))


def decided(kind: type[Several], parts: Iterable[Constraint]) -> Constraint:
    """As `conjunction` or `disjunction` for values alone: whether a part speaks about text is known elsewhere."""
    distinct: dict[Constraint, None] = {}
    with reading_with(None):  # the dictionary asks for structural equality
        for part in parts:
            for piece in part.of if isinstance(part, kind) else (part,):
                if isinstance(piece, Constant) and piece.value != kind.neutral:
                    return piece
                if not isinstance(piece, Constant):
                    distinct[piece] = None
        if any(isinstance(piece, Not) and piece.of in distinct for piece in distinct):
            return Constant(not kind.neutral)
    if len(distinct) == 1:
        return next(iter(distinct))
    return kind(tuple(distinct)) if distinct else Constant(kind.neutral)


def _several(kind: type[Several], parts: list[Constraint]) -> Constraint:
    simple = decided(kind, parts)
    if not isinstance(simple, Constant) or simple.value == kind.neutral:
        return simple
    text = [part for part in parts if may_be_text(part)]
    # The constant first: it decides the value, and the others exclude special tokens.
    return kind((simple, *dict.fromkeys(text))) if text else simple


def may_be_text(constraint: Constraint) -> bool:
    """As `has_text`; a Python function may speak about text until it is traced."""
    try:
        return has_text(constraint)
    except InvalidConstraint:
        return True


def if_then_else(test: Constraint, then: Constraint, other: Constraint) -> Constraint:
    """`then` where `test` holds and `other` where it does not."""
    with reading_with(None):
        if then == other and not may_be_text(test):
            return then
    return disjunction([conjunction([test, then]), conjunction([negation(test), other])])


def has_text(constraint: Constraint) -> bool:
    """Does any leaf speak about the text, so that special tokens are excluded?"""
    return any(leaf.is_text for leaf in constraint.leaves())


def _combined(left: Constraint, right: object, rule: Callable[[Constraint, Constraint], Constraint]) -> Any:
    if isinstance(right, bool | np.bool_):
        right = Constant(bool(right))
    return rule(left, right) if isinstance(right, Constraint) else NotImplemented
