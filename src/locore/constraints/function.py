"""Boolean Python functions over tokens as constraints: their paths, explored one by one.

The function runs again and again. Wherever Python asks a condition for its truth value (`and`, `or`, `not`, `if`, `while`,
`any`, `all`), the run takes one answer and remembers that the other is still open; answers that follow from earlier ones open
nothing. What the paths return becomes nested if-then-else, in which equal branches merge. n tests with an early return are n+1
paths; a loop that adds up without one has 2^n, which a budget stops.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, overload

import numpy as np

from locore.constraints.view import Sum, TokensView
from locore.kernel.constraints.constraint import Constant, Constraint, Json, Not, Reading, Several, if_then_else, reading_with
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.constraints.structure import fold
from locore.kernel.constraints.tokens import Literal
from locore.kernel.errors import BudgetExceeded, InvalidConstraint, LocoreError

Function = Callable[[Any], Any]
MAX_PATHS = 10_000


@overload
def constraint(function: Function, *, max_paths: int = MAX_PATHS) -> PythonFunction: ...
@overload
def constraint(function: None = None, *, max_paths: int = MAX_PATHS) -> Callable[[Function], PythonFunction]: ...
def constraint(function: Function | None = None, *, max_paths: int = MAX_PATHS) -> Any:
    """Decorator: a Boolean function of `tokens` becomes a constraint.

    Inside, `tokens(i, v)`, `tokens[i] == v` and `tokens[i].isin(vs)` are conditions;
    `tokens(i, [v, w])` means these ids one after the other from i; `(tokens == v)` has `.any()`,
    `.all()` and `.sum()`; slices, negative positions, `len` and `for` are those of a list. `and`,
    `or`, `not`, `if`, `all` and `any` work on conditions (but not `is True`), and so do `& | ~`,
    which stay cheap where `and` and `or` in a loop would take too many paths. Text constraints
    can be mixed in.

    The function must depend on nothing but its tokens. It is run when the length is known, for
    each of at most `max_paths` paths; what it raises is the cause of an `InvalidConstraint`.

    ```python
    @constraint
    def no_hate(tokens):
        return not any(token == hate for token in tokens)
    ```
    """
    if function is None:
        return lambda decorated: constraint(decorated, max_paths=max_paths)
    if not callable(function):
        raise InvalidConstraint(f"@constraint decorates a function of tokens, not {function!r}")
    return PythonFunction(function, max_paths)


@dataclass(frozen=True, eq=False, repr=False)
class PythonFunction(Constraint):
    """A Boolean function of `tokens`; `.at(length)` traces it. Calling it calls the function."""

    function: Function
    max_paths: int = MAX_PATHS
    is_function = True

    def __post_init__(self) -> None:
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            if hasattr(self.function, name):
                self.__dict__[name] = getattr(self.function, name)

    def __call__(self, tokens: Any) -> Any:
        """Part of another function: what this one returns for its `tokens`."""
        return self.function(tokens)

    @property
    def name(self) -> str:
        """The name of the function, for messages."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"function {self.name}"

    @property
    def is_text(self) -> bool:  # type: ignore[override]
        """Not known before it is traced."""
        self._refuse("speaks about text or not")

    def leaf_at(self, length: int) -> Constraint:
        """The constraint that the function computes on sequences of `length` tokens."""
        return trace(self.function, self.name, length, self.max_paths)

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Runs the function once, on the finished tokens: no tracing."""
        reading = _FinishedTokens(sequence)
        result = run(self.function, reading, self.name, len(sequence.tokens), sequence)
        return as_constraint(result, self.name).truth(sequence)

    def json_of(self, parts: list[Json]) -> Json:
        """None: `InvalidConstraint`."""
        self._refuse("has a JSON form (c.at(n).to_json())")

    def __repr__(self) -> str:
        return f"PythonFunction({self.name})"

    def __reduce__(self) -> str | tuple[Any, ...]:
        # A decorated function has taken the place of the plain one in its module: pickle its name.
        module = sys.modules.get(str(self.__dict__.get("__module__")))
        name = str(self.__dict__.get("__qualname__"))
        return name if getattr(module, name, None) is self else super().__reduce__()

    def _refuse(self, what: str) -> NoReturn:
        raise InvalidConstraint(f"the Python function `{self.name}` {what} only once it is traced at a length: use c.at(n)")


class _FinishedTokens(Reading):
    """Reads a function on tokens that are known: every condition is a constant or the text's."""

    def __init__(self, sequence: TokenSequence) -> None:
        self._sequence = sequence

    def literal(self, position: int, ids: frozenset[int]) -> Constraint:
        """Whether the token there is one of the ids."""
        return Constant(self._sequence.tokens[position] in ids)

    def decide(self, condition: Constraint) -> bool:
        """Whether the condition holds."""
        return condition.truth(self._sequence)

    def summand(self, condition: Constraint) -> Sum:
        """0 or 1."""
        return Sum.of(Constant(self.decide(condition)))


def trace(function: Function, name: str, length: int, max_paths: int) -> Constraint:
    """The constraint that `function` computes on sequences of `length` tokens.

    Raises:
        BudgetExceeded: there are more than `max_paths` paths.
        InvalidConstraint: the function raises, returns what is not Boolean, reads past the end,
            or decides differently when it runs again.
    """
    open_decisions: list[_Decision] = []
    for _ in range(max_paths):
        path = _Path(length, name, open_decisions)
        result = as_constraint(run(function, path, name, length), name).at(length)
        path.check_finished()
        while open_decisions and not open_decisions[-1].answer:
            done = open_decisions.pop()
            result = if_then_else(done.condition, done.when_true, result)
        if not open_decisions:
            return result
        open_decisions[-1].when_true = result
        open_decisions[-1].answer = False
    raise BudgetExceeded(
        f"`{name}` has more than {max_paths} paths at length {length}: each `and`, `or`, `not` or "
        "`if` on tokens can double them. Combine conditions with & | ~ instead, count with "
        "`(tokens == v).sum()`, or allow more with @constraint(max_paths=...)"
    )


def run(function: Function, reading: Reading, name: str, length: int, finished: TokenSequence | None = None) -> Any:
    """What the user's function returns when `reading` answers for its conditions.

    Raises:
        InvalidConstraint: it raises something else than a `LocoreError`, here on finished tokens or while it is traced.
    """
    with reading_with(reading):
        try:
            return function(TokensView(reading, range(length), name))
        except (LocoreError, MemoryError):
            raise
        except Exception as error:
            where = f"at {length} tokens"
            if finished is not None:
                where = f"on {_spelled(finished)}"
            raise InvalidConstraint(
                f"`{name}` raised {type(error).__name__}: {error} ({where}). A @constraint function compares tokens with ids "
                "and returns a condition; the traceback above says which of its lines it was."
            ) from error


def _spelled(finished: TokenSequence) -> str:
    """Finished tokens in a message: their text, where they have one."""
    if finished.tokenizer is None or finished.has_special:
        return f"the tokens {list(finished.tokens)}"
    return f"the text {finished.text.decode('utf-8', errors='replace')!r}"


def as_constraint(result: Any, name: str) -> Constraint:
    """A returned value as a constraint; `InvalidConstraint` when it is not Boolean."""
    if isinstance(result, Constraint):
        return result
    if isinstance(result, bool | np.bool_):
        return Constant(bool(result))
    shown = "a count" if isinstance(result, Sum) else f"{result!r}"
    raise InvalidConstraint(
        f"`{name}` returned {shown} ({type(result).__name__}); a constraint returns True, False "
        "or a condition on tokens, so check that every path ends in a `return` of one"
    )


@dataclass
class _Decision:
    """A condition whose truth value nothing implies, the answer of the current path to it, and
    what the paths with the answer True have made."""

    condition: Constraint
    answer: bool = True
    when_true: Constraint = field(default_factory=lambda: Constant(True))


class _Path(Reading):
    """One run: repeats the open decisions, then takes new ones, True first."""

    def __init__(self, length: int, name: str, decisions: list[_Decision]) -> None:
        self._length = length
        self._name = name
        self._decisions = decisions
        self._taken = 0
        self._replayed = len(decisions)
        self._knowledge = _Knowledge()

    def literal(self, position: int, ids: frozenset[int]) -> Constraint:
        """A literal."""
        return Literal(position, ids) if ids else Constant(False)

    def summand(self, condition: Constraint) -> Sum:
        """A sum of one condition."""
        return Sum.of(condition)

    def decide(self, condition: Constraint) -> bool:
        """What is known of the condition, or else the answer of this path."""
        with reading_with(None):
            condition = condition.at(self._length)
            implied = self._knowledge.value(condition)
            if implied is not None:
                return implied
            answer = self._answer(condition)
            self._knowledge.assume(condition, answer)
            return answer

    def check_finished(self) -> None:
        """`InvalidConstraint` when the run did not come to all decisions that it had to repeat."""
        if self._taken < self._replayed:
            self._refuse()

    def _answer(self, condition: Constraint) -> bool:
        if self._taken == len(self._decisions):
            self._decisions.append(_Decision(condition))
        decision = self._decisions[self._taken]
        if decision.condition != condition:
            self._refuse()
        self._taken += 1
        return decision.answer

    def _refuse(self) -> None:
        raise InvalidConstraint(
            f"`{self._name}` asked other questions when it ran again; a constraint must depend on "
            "its tokens only, not on random numbers, time or what earlier calls left behind"
        )


class _Knowledge:
    """What the answers of one path imply."""

    def __init__(self) -> None:
        self._facts: dict[Constraint, bool] = {}
        self._allowed: dict[int, frozenset[int]] = {}
        self._excluded: dict[int, frozenset[int]] = {}

    def value(self, condition: Constraint) -> bool | None:
        """The truth value that follows, or None."""
        return fold(condition, self._value_of)

    def _value_of(self, node: Constraint, parts: list[bool | None]) -> bool | None:
        if isinstance(node, Constant):
            return node.value
        if isinstance(node, Not):
            return None if parts[0] is None else not parts[0]
        if isinstance(node, Literal):
            return self._literal_value(node)
        if isinstance(node, Several) and (not node.neutral) in parts:
            return not node.neutral
        if isinstance(node, Several) and None not in parts:
            return node.neutral
        return self._facts.get(node)

    def _literal_value(self, literal: Literal) -> bool | None:
        allowed = self._allowed.get(literal.position)
        if allowed is not None and allowed <= literal.tokens:
            return True
        left = literal.tokens if allowed is None else literal.tokens & allowed
        return None if left - self._excluded.get(literal.position, frozenset()) else False

    def assume(self, condition: Constraint, value: bool) -> None:
        """Take the value for granted, and what follows from it for single tokens."""
        pending = [(condition, value)]
        while pending:
            node, holds = pending.pop()
            self._facts[node] = holds
            if isinstance(node, Not):
                pending.append((node.of, not holds))
            elif isinstance(node, Several) and holds == node.neutral:
                pending.extend((part, holds) for part in node.children())
            elif isinstance(node, Literal):
                self._assume_literal(node, holds)

    def _assume_literal(self, literal: Literal, holds: bool) -> None:
        position, tokens = literal.position, literal.tokens
        excluded = self._excluded.get(position, frozenset())
        if holds:
            self._allowed[position] = self._allowed.get(position, tokens) & tokens - excluded
        elif position in self._allowed:
            self._allowed[position] -= tokens
        else:
            self._excluded[position] = excluded | tokens
