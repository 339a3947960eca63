"""Free text up to a marker, and then a constraint on what follows: think, then answer.

The marker counts where it occurs first, so that the free text does not contain it. Both parts are drawn from one distribution:
the free text is written as the model writes it given that an answer follows which satisfies the constraint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from locore.automata.byte_machine import ByteMachine
from locore.automata.composed import AutomatonMachine, Following
from locore.automata.regex import byte_automaton
from locore.automata.regex.language import ANYTHING, concat
from locore.automata.regex.pattern import first_match
from locore.constraints.pattern_phrases import Pattern
from locore.constraints.regular_expression import Regex
from locore.constraints.text import phrase_of
from locore.constraints.text_leaf import MachineLeaf, PartOfText, is_finite, machine_of, require_text
from locore.kernel.automata.tables import aho_corasick
from locore.kernel.constraints.constraint import Constraint, Json
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.constraints.serial import described, from_json, read_constraint, register
from locore.kernel.constraints.spelling import quoted, spelled
from locore.kernel.errors import InvalidConstraint
from locore.kernel.plugins import cached_property


def after(marker: str | Pattern | Regex, of: Constraint) -> After:
    """Any text, then a marker where it occurs first, and then a text on which a constraint holds.

    Args:
        marker: a string; or `regex(...)` or `pattern(...)`, which counts at the first place where a match of it ends, even
            if it could go on.
        of: a constraint on text, which sees nothing but what follows the marker.

    Raises:
        InvalidConstraint: an empty marker, one that matches the empty text, or a constraint that speaks of more than text.
    """
    require_text(of, "after")
    if isinstance(marker, Pattern):
        marker = Regex(marker.regex, marker.ignore_case)
    if not isinstance(marker, Regex):
        marker = phrase_of(marker, "after")
    elif marker.matches(""):
        raise InvalidConstraint(
            f"the marker {spelled(marker)} of after matches the empty text, so that nothing stands before it"
        )
    return After(marker, of)


@dataclass(frozen=True, eq=False)
class After(MachineLeaf):
    """What follows a marker satisfies a constraint.

    Attributes:
        marker: what has to come first.
        of: what holds of the text that follows.
    """

    marker: str | Regex
    of: Constraint

    @property
    def is_small(self) -> bool:
        """As what holds behind the marker."""
        return is_finite(self.of)

    @cached_property
    def _machine(self) -> ByteMachine:
        """Looks for the marker, and then reads what follows."""
        if isinstance(self.marker, Regex):
            search = byte_automaton(concat(ANYTHING, self.marker.language))
        else:
            search = aho_corasick([tuple(self.marker.encode())])
        return Following(AutomatonMachine(search), machine_of(self.of))

    def split(self, text: bytes) -> tuple[bytes, bytes, bytes] | None:
        """The free text with the marker's own bytes apart, and what follows; None where there is no marker.

        Of a regular expression the marker is the longest match that ends at the first place where one does.
        """
        if not isinstance(self.marker, Regex):
            free, marker, rest = text.partition(self.marker.encode())
            return (free, marker, rest) if marker else None
        try:
            read = text.decode()
        except UnicodeDecodeError as error:  # no character ends behind it, nor a match
            read = text[: error.start].decode()
        found_at = first_match(self.marker.parsed, read)
        if found_at is None:
            return None
        start, end = (len(read[:place].encode()) for place in found_at)
        return text[:start], text[start:end], text[end:]

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The constraint is read plainly on what follows the marker."""
        pieces = self.split(sequence.text)
        return pieces is not None and self.of.truth(PartOfText(pieces[2]))

    def why(self, sequence: TokenSequence) -> str:
        """Where the marker is, and what follows it."""
        pieces = self.split(sequence.text)
        if pieces is None:
            return "the marker does not occur"
        place = len(pieces[0].decode("utf-8", errors="replace"))
        rest = pieces[2].decode("utf-8", errors="replace")
        verb = "satisfies" if self.of.truth(PartOfText(pieces[2])) else "does not satisfy"
        return f"the marker is at character {place}; what follows, {quoted(rest)}, {verb} {spelled(self.of)}"

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "after", "marker": ..., "of": ...}`."""
        marker: Any = self.marker.to_json() if isinstance(self.marker, Regex) else self.marker
        return {"type": "after", "marker": marker, "of": self.of.to_json()}


@described({"anyOf": [{"type": "string"}, {"$ref": "constraint_regex"}]})
def read_marker(value: Any, path: str) -> str | Regex:
    """A string, or a regular expression as a constraint is written."""
    if isinstance(value, str):
        return value
    marker = from_json(value) if isinstance(value, dict) and value.get("type") == "regex" else None
    if not isinstance(marker, Regex):
        raise InvalidConstraint(f'{path} must be a string, or {{"type": "regex", "pattern": ...}}, got {value!r}')
    return marker


register("after", after, {"marker": read_marker, "of": read_constraint})
