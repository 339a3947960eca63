"""Constraints that see the prompt, too: what holds of the prompt with the text behind it.

By the derivative of the machine: it has read the prompt when the text begins, so that a phrase may begin in the prompt and end
in the text. The prompt of a request is known where it is sampled (`locore.shaping`); until then it is left open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from locore.automata.byte_machine import ByteMachine
from locore.automata.composed import Advanced
from locore.constraints.phrases import Occurrence, listed_beginnings
from locore.constraints.text_leaf import MachineLeaf, PartOfText, is_finite, is_text_leaf, machine_of
from locore.kernel.automata.tables import Automaton, minimise
from locore.kernel.constraints.constraint import Constant, Constraint, Json
from locore.kernel.constraints.sequence import TokenSequence, is_written
from locore.kernel.constraints.serial import read_constraint, read_string, register
from locore.kernel.constraints.spelling import quoted, spelled
from locore.kernel.constraints.tokens import AutomatonLeaf
from locore.kernel.errors import InvalidConstraint
from locore.kernel.plugins import cached_property

TEXT, BOTH = "text", "prompt+text"
UNKNOWN = (
    "{leaf} speaks of the prompt, which is not known here; whatever samples tells it its own, `holds` and `explain` have "
    "prompt=..., and elsewhere, as inside of a @constraint function, write .over(..., prompt=...)"
)


@runtime_checkable
class Begins(Protocol):
    """A leaf that forbids something, and knows where it has begun."""

    def begun(self, text: str) -> list[Occurrence]:
        """What it forbids and where that begins in a text which ends before it does, the furthest first."""


def over(constraint: Constraint, what: str, prompt: str | None = None) -> Constraint:
    """What `Constraint.over` says."""
    if not isinstance(what, str) or what not in (TEXT, BOTH):
        raise InvalidConstraint(f'over knows "{TEXT}" and "{BOTH}", not {what!r}')
    if prompt is not None and not isinstance(prompt, str):
        raise InvalidConstraint(
            f"the prompt of over is a string, got {type(prompt).__name__}; leave it out, and it is the request's"
        )

    if prompt is not None and not is_written(prompt):
        raise InvalidConstraint("the prompt of over has a lone surrogate, which has no UTF-8 bytes; remove it")

    def change(leaf: Constraint) -> Constraint:
        if leaf.is_function:
            raise InvalidConstraint("over cannot look into a Python function; call constraint.at(length) first")
        if isinstance(leaf, Constant | Over):
            return leaf
        if not is_text_leaf(leaf):
            raise InvalidConstraint(
                f"over is for constraints on text, and {spelled(leaf)} speaks of the tokens of the text; combine the two by & "
                "instead"
            )
        return Over(leaf, what, prompt)

    return constraint if what == TEXT else constraint.transform(change)


Constraint.made_over = over


@dataclass(frozen=True, eq=False, repr=False)
class Over(MachineLeaf):
    """A text leaf holds of the prompt with the text behind it.

    Attributes:
        of: the leaf.
        what: "prompt+text".
        prompt: as far as it is known; None: not yet.
    """

    of: Constraint
    what: str = BOTH
    prompt: str | None = None

    def leaf_at(self, length: int) -> Constraint:
        """Of the leaf at this length; `InvalidConstraint` where the prompt is not known."""
        self._given_prompt()
        return self._around(self.of.leaf_at(length))

    def leaf_told(self, prompt: str) -> Constraint:
        """With this prompt, if it has none of its own."""
        return self if self.prompt is not None else replace(self, prompt=prompt)

    def waits_for_prompt(self) -> bool:
        """Is the prompt not known?"""
        return self.prompt is None

    def _around(self, leaf: Constraint) -> Constraint:
        return self if leaf is self.of else Over(leaf, self.what, self.prompt)

    def _given_prompt(self) -> str:
        if self.prompt is None:
            raise InvalidConstraint(UNKNOWN.format(leaf=spelled(self)))
        return self.prompt

    @cached_property
    def is_small(self) -> bool:
        """As the leaf."""
        return is_finite(self.of)

    @cached_property
    def _automaton(self) -> Automaton:
        """That of the leaf, which has read the prompt."""
        assert isinstance(self.of, AutomatonLeaf)
        whole = self.of.automaton()
        state = whole.start
        for byte in self._given_prompt().encode():
            state = int(whole.table[state, whole.column.get(byte, whole.default)])
        return minimise(replace(whole, start=state))

    @cached_property
    def _machine(self) -> ByteMachine:
        """That of the leaf, which has read the prompt."""
        return Advanced(machine_of(self.of), self._given_prompt().encode())

    def is_relaxed_at(self, length: int) -> bool:
        """As the leaf."""
        return isinstance(self.of, AutomatonLeaf) and self.of.is_relaxed_at(length)

    def fate(self) -> bool | None:
        """Does it hold, or fail, whatever follows the prompt? None: that depends, or is not known."""
        if not self.is_small:
            return False if self.machine().least(0) == np.inf else None
        automaton = self.automaton()
        return bool(automaton.accepting[0]) if automaton.num_states == 1 else None

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The leaf is read plainly on both."""
        return self.of.holds_on(self._both(sequence), [])

    def _both(self, sequence: TokenSequence) -> PartOfText:
        return PartOfText(self._given_prompt().encode() + sequence.text)

    def why(self, sequence: TokenSequence) -> str:
        """What the leaf says of both, and where the text begins."""
        both, start = self._both(sequence), len(self._given_prompt())
        if hasattr(self.of, "why"):
            said = str(self.of.why(both))
        else:
            verb = "satisfies" if self.of.holds_on(both, []) else "does not satisfy"
            said = f"{quoted(both.text.decode('utf-8', errors='replace'))} {verb} {spelled(self.of)}"
        return f"{said} (counted from the start of the prompt; the text begins at {start})"

    def notes(self) -> tuple[str, ...]:
        """Those of the leaf, and what it forbids that has begun in the prompt."""
        begun = self.of.begun(self._given_prompt()) if isinstance(self.of, Begins) else []
        return self.of.notes() + ((f"{spelled(self)}: {listed_beginnings(begun)} of the prompt",) if begun else ())

    def __repr__(self) -> str:
        return spelled(self)

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "over", "what": "prompt+text", "of": ...}`, with `"prompt"` where it is known."""
        json: Json = {"type": "over", "what": self.what, "of": self.of.json_of([])}
        return json if self.prompt is None else json | {"prompt": self.prompt}


def _build(of: Constraint, what: Any = BOTH, prompt: Any = None) -> Constraint:
    return over(of, what, prompt)


register("over", _build, {"of": read_constraint}, {"what": read_string, "prompt": read_string})
