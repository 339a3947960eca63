"""What holds of a text before the first of some stop strings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from locore.automata.stops import MOST_STOPS, StopMachine
from locore.automata.tables import Automaton
from locore.constraints.base import Constraint, Json
from locore.constraints.function import PythonFunction
from locore.constraints.sequence import TokenizerLike, TokenSequence
from locore.constraints.serial import read_constraint, register
from locore.constraints.text import read_phrases, sequence_of
from locore.constraints.tokens import AutomatonLeaf
from locore.errors import InvalidConstraint


def before(stops: str | Iterable[str], constraint: Constraint) -> Constraint:
    """What a constraint says of the text, said of the text before the first of these strings; what follows may be anything.

    Of several strings that one counts which ends first, and of those that end together the longest. A text that holds none
    is meant as a whole. What the constraint says of tokens and positions stays as it is. A model whose texts end at a stop
    string is `locore.models.EndingAt`.

    Args:
        stops: up to 64 strings, none of them empty.
        constraint: any but a Python function.

    Raises:
        InvalidConstraint: no strings, too many, an empty one, or what is no automaton over the text, as a Python function or
            a grammar.
    """
    known = tuple(dict.fromkeys(sequence_of(stops, "before")))
    if not 0 < len(known) <= MOST_STOPS or not all(known):
        raise InvalidConstraint(f"before needs 1 to {MOST_STOPS} strings, none of them empty, got {len(known)}")
    if not isinstance(constraint, Constraint):
        raise InvalidConstraint(f"before needs a constraint, got {type(constraint).__name__}")

    def change(leaf: Constraint) -> Constraint:
        if isinstance(leaf, PythonFunction):
            raise InvalidConstraint("before cannot look into a Python function; call constraint.at(length) first")
        if isinstance(leaf, AutomatonLeaf) and leaf.over == "bytes":
            return Before(known, leaf)
        if leaf.is_text:
            raise InvalidConstraint(f"before cannot cut what {type(leaf).__name__} reads, which is no automaton over bytes")
        return leaf

    return constraint.transform(change)


@dataclass(frozen=True, eq=False)
class Before(AutomatonLeaf):
    """A text leaf holds of the text before the first of `stops`."""

    over = "bytes"
    stops: tuple[str, ...]
    leaf: AutomatonLeaf

    @cached_property
    def machine(self) -> StopMachine:
        """Looks for the strings."""
        return StopMachine(stop.encode("utf-8") for stop in self.stops)

    def leaf_at(self, length: int) -> Constraint:
        """Of the leaf at this length."""
        return self._around(self.leaf.leaf_at(length))

    def leaf_bound(self, tokenizer: TokenizerLike) -> Constraint:
        """Of the leaf in terms of these ids."""
        return self._around(self.leaf.leaf_bound(tokenizer))

    def _around(self, leaf: Constraint) -> Constraint:
        return self if leaf is self.leaf else before(self.stops, leaf)

    def automaton(self) -> Automaton:
        """The leaf's own, with the bytes held back that may become a string."""
        return self.machine.before(self.leaf.automaton())

    def is_relaxed_at(self, length: int) -> bool:
        """As the leaf."""
        return self.leaf.is_relaxed_at(length)

    def notes(self) -> tuple[str, ...]:
        """Those of the leaf."""
        return self.leaf.notes()

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Of the text that is cut by plain search."""
        return self.leaf.holds_on(_Cut(sequence, self.stops), [])

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "before", "stops": [...], "of": ...}`."""
        return {"type": "before", "stops": list(self.stops), "of": self.leaf.json_of([])}


class _Cut(TokenSequence):
    """The same tokens with less text."""

    def __init__(self, sequence: TokenSequence, stops: tuple[str, ...]) -> None:
        super().__init__(sequence.tokens, sequence.tokenizer)
        self._stops = stops

    @cached_property
    def text(self) -> bytes:
        """What comes before the string that ends first, by `bytes.find` for each."""
        whole = super().text
        found = [(place + len(stop), place) for stop in map(str.encode, self._stops) if (place := whole.find(stop)) >= 0]
        return whole[: min(found)[1]] if found else whole


def _build(stops: Any, of: Constraint) -> Constraint:
    return before(stops, of)


register("before", _build, {"stops": read_phrases, "of": read_constraint})
