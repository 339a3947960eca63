"""Boolean Python functions over tokens as constraints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, overload

from locore.constraints.base import Constant, Constraint, Json
from locore.constraints.reading import Reading
from locore.constraints.sequence import TokenSequence
from locore.constraints.sums import Sum
from locore.constraints.trace import Function, as_constraint, run, trace
from locore.errors import InvalidConstraint

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
    each of at most `max_paths` paths, and what it raises passes through.

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
    def is_text(self) -> bool:  # type: ignore[override]
        """Not known before it is traced."""
        self._refuse("speaks about text or not")

    def leaf_at(self, length: int) -> Constraint:
        """The constraint that the function computes on sequences of `length` tokens."""
        return trace(self.function, self.name, length, self.max_paths)

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Runs the function once, on the finished tokens: no tracing."""
        reading = _FinishedTokens(sequence)
        result = run(self.function, reading, self.name, len(sequence.tokens))
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
