"""What all constraints on the text share: a count with bounds, and forms to be read by machines and by people."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import MISSING, fields
from typing import ClassVar

from locore.constraints.automaton import Automaton
from locore.constraints.base import Json
from locore.constraints.leaves import AutomatonLeaf
from locore.constraints.sequence import TokenSequence
from locore.constraints.spelling import called
from locore.constraints.tally import Tally, bounded


class TextLeaf(AutomatonLeaf):
    """Something is counted in the text, and the count is bounded.

    It is counted twice: by a machine over bytes, and plainly. A kind is a frozen dataclass whose fields are the parameters of
    the public function that makes it.
    """

    over = "bytes"
    kind: ClassVar[str]  # the name of that function

    @abstractmethod
    def tally(self) -> Tally:
        """The machine over bytes that counts."""

    @abstractmethod
    def number(self, content: bytes) -> int:
        """The count, plainly."""

    @abstractmethod
    def reason(self, content: bytes) -> str:
        """What was found in a text, in words; it explains why the constraint holds or not."""

    def bounds(self) -> tuple[int, int | None]:
        """Least and greatest count that is allowed; None: any."""
        return 1, None

    def automaton(self) -> Automaton:
        """Accepts when the count of the machine is within the bounds."""
        return bounded(self.tally(), *self.bounds())

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The plain count is within the bounds."""
        low, high = self.bounds()
        number = self.number(sequence.text)
        return low <= number and (high is None or number <= high)

    def why(self, sequence: TokenSequence) -> str:
        """What was found in the text of a sequence."""
        return self.reason(sequence.text)

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": kind, field: value, ...}` without the fields that have their default value."""
        json: Json = {"type": self.kind}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.default is MISSING or value != field.default:
                json[field.name] = list(value) if isinstance(value, tuple) else value
        return json

    def __repr__(self) -> str:
        return called(self.json_of([]))
