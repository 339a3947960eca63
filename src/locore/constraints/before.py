"""What holds of a text before the first of some stop strings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from locore.automata.byte_machine import ByteMachine
from locore.automata.stops import CutMachine, StopMachine, search_for
from locore.constraints.text import read_phrases, sequence_of
from locore.constraints.text_leaf import MachineLeaf, PartOfText, is_finite, is_text_leaf, machine_of
from locore.kernel.automata.tables import Automaton, minimise
from locore.kernel.constraints.constraint import Constant, Constraint, Json
from locore.kernel.constraints.sequence import TokenizerLike, TokenSequence
from locore.kernel.constraints.serial import read_constraint, register
from locore.kernel.constraints.spelling import quoted, spelled
from locore.kernel.constraints.tokens import AutomatonLeaf
from locore.kernel.errors import InvalidConstraint
from locore.kernel.plugins import cached_property
from locore.kernel.request import MOST_STOPS, cut_before


def before(stops: str | Iterable[str], constraint: Constraint) -> Constraint:
    """What a constraint says of the text, said of the text before the first of these strings; what follows may be anything.

    Of several strings that one counts which ends first, and of those that end together the longest. A text that holds none
    is meant as a whole. What the constraint says of tokens and positions stays as it is. A model whose texts end at a stop
    string is `locore.models.EndingAt`.

    Args:
        stops: up to 64 strings, none of them empty.
        constraint: any but a Python function.

    Raises:
        InvalidConstraint: no strings, too many, an empty one, or a Python function.
    """
    distinct = tuple(dict.fromkeys(sequence_of(stops, "before")))
    if not 0 < len(distinct) <= MOST_STOPS or not all(distinct):
        raise InvalidConstraint(f"before needs 1 to {MOST_STOPS} strings, none of them empty, got {len(distinct)}")
    if not isinstance(constraint, Constraint):
        raise InvalidConstraint(f"before needs a constraint, got {type(constraint).__name__}")

    def change(leaf: Constraint) -> Constraint:
        if leaf.is_function:
            raise InvalidConstraint("before cannot look into a Python function; call constraint.at(length) first")
        if isinstance(leaf, Constant) or not leaf.is_text:
            return leaf
        if not is_text_leaf(leaf):
            raise InvalidConstraint(f"before cannot cut what {type(leaf).__name__} reads, which is more than the text")
        return Before(distinct, leaf)

    return constraint.transform(change)


Constraint.made_before = lambda constraint, stops: before(stops, constraint)


@dataclass(frozen=True, eq=False)
class Before(MachineLeaf):
    """A text leaf holds of the text before the first of `stops`.

    Attributes:
        stops: the strings.
        leaf: what holds of the text before the first of them.
    """

    stops: tuple[str, ...]
    leaf: Constraint

    @property
    def is_small(self) -> bool:
        """As the leaf."""
        return is_finite(self.leaf)

    @cached_property
    def _automaton(self) -> Automaton:
        """The leaf's own, with the bytes held back that may become a string."""
        assert isinstance(self.leaf, AutomatonLeaf)
        return minimise(self.search.before(self.leaf.automaton()))

    @cached_property
    def _machine(self) -> ByteMachine:
        """The leaf's own, with the bytes held back that may become a string."""
        return CutMachine(machine_of(self.leaf), self.search)

    def is_relaxed_at(self, length: int) -> bool:
        """As the leaf."""
        return isinstance(self.leaf, AutomatonLeaf) and self.leaf.is_relaxed_at(length)

    @cached_property
    def search(self) -> StopMachine:
        """Looks for the strings."""
        return search_for(self.stops)

    def leaf_at(self, length: int) -> Constraint:
        """Of the leaf at this length."""
        return self._around(self.leaf.leaf_at(length))

    def leaf_bound(self, tokenizer: TokenizerLike) -> Constraint:
        """Of the leaf in terms of these ids."""
        return self._around(self.leaf.leaf_bound(tokenizer))

    def leaf_told(self, prompt: str) -> Constraint:
        """Of the leaf that knows the prompt."""
        return self._around(self.leaf.leaf_told(prompt))

    def waits_for_prompt(self) -> bool:
        """As the leaf."""
        return self.leaf.waits_for_prompt()

    def _around(self, leaf: Constraint) -> Constraint:
        return self if leaf is self.leaf else before(self.stops, leaf)

    def notes(self) -> tuple[str, ...]:
        """Those of the leaf."""
        return self.leaf.notes()

    def cut(self, text: bytes) -> bytes:
        """What comes before the string that ends first."""
        return cut_before(text, map(str.encode, self.stops))

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The leaf is read plainly on the part before a string."""
        return self.leaf.holds_on(PartOfText(self.cut(sequence.text)), [])

    def why(self, sequence: TokenSequence) -> str:
        """Where the text is cut, and what the leaf says of the part before."""
        whole, part = sequence.text, PartOfText(self.cut(sequence.text))
        shown = part.text.decode("utf-8", errors="replace")
        stops = [stop for stop in self.stops if whole.startswith(stop.encode(), len(part.text))]
        where = f"{quoted(min(stops, key=len))} is at character {len(shown)}" if stops else "no stop string occurs"
        if hasattr(self.leaf, "why"):
            return f"{where}; before it, {self.leaf.why(part)}" if stops else f"{where}; {self.leaf.why(part)}"
        verb = "satisfies" if self.leaf.holds_on(part, []) else "does not satisfy"
        return f"{where}; {quoted(shown)} {verb} {spelled(self.leaf)}"

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "before", "stops": [...], "of": ...}`."""
        return {"type": "before", "stops": list(self.stops), "of": self.leaf.json_of([])}


def _build(stops: Any, of: Constraint) -> Constraint:
    return before(stops, of)


register("before", _build, {"stops": read_phrases, "of": read_constraint})
