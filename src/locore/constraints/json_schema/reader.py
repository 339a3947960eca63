"""From a JSON schema to the symbol of the texts whose value is valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from locore.automata.pushdown import Choice, Measure, Pushdown, Sequence
from locore.constraints.json_schema import arrays, properties
from locore.constraints.json_schema.documents import Document
from locore.constraints.json_schema.facts import Goal, Valid
from locore.constraints.json_schema.objects import object_
from locore.constraints.json_schema.rules import Rules, mentioned
from locore.constraints.json_schema.scalars import numbers
from locore.constraints.json_schema.shapes import Shapes
from locore.constraints.json_schema.style import Style
from locore.constraints.json_schema.value_symbols import Containers, Goals, Reading, string_of

MOST_SURVEYED = 5_000
CONTAINERS: Containers = {"array": arrays.array, "object": object_}


def bytes_of(text: bytes) -> float:
    """The measure of literal pieces by their bytes."""
    return len(text)


class Schema:
    """A JSON schema, read.

    Attributes:
        style, depth: how values are written, and how deep they nest at most.
        nests: is there no end to how deep values may nest? Known after `survey`.
    """

    def __init__(self, schema: Any, others: Mapping[str, Any], style: Style, depth: int, formats: bool) -> None:
        """Of schemas as `json.loads` gives them.

        Args:
            others: documents that it refers to, by URI.
            depth: how many arrays and objects may be inside each other.
            formats: is `format` asserted?
        """
        self.style, self.depth = style, depth
        self.document = Document(schema, others)
        self.rules = Rules(self.document, formats, style.objects == "closed")
        self.shapes = Shapes(self.rules)
        self.nests = False

    def survey(self) -> None:
        """Look at all that a value can hold, so that what is wrong or not supported is found at once.

        Raises:
            UnsupportedKeyword, InvalidConstraint, BudgetExceeded.
        """
        nodes = {self.document.root: True}
        todo = [self.document.root]
        for node in todo:  # grows while it is read
            new = [part for part in mentioned(self.rules.parts(node)) if part not in nodes]
            nodes.update(dict.fromkeys(new, True))
            todo += dict.fromkeys(new)
        reading = self.reading_of(self.style.layouts()[0])
        open_, done = 1, 2
        marks: dict[Goals, int] = {}
        pending: list[tuple[Goals, bool]] = [((Goal(Valid(self.document.root)),), False)]
        while pending and len(marks) < MOST_SURVEYED:
            goals, is_left = pending.pop()
            if is_left:
                marks[goals] = done
                continue
            if goals in marks:
                self.nests |= marks[goals] == open_
                continue
            marks[goals] = open_
            pending.append((goals, True))
            pending += [(inner, False) for inner in dict.fromkeys(parts_of(reading, goals))]
        self.nests |= bool(pending)

    @property
    def remarks(self) -> list[str]:
        """Pointers of keywords that constrain nothing."""
        return self.rules.remarks

    def reading_of(self, style: Style, measure: Measure = bytes_of, scalars: Reading | None = None) -> Reading:
        """What the symbols of one layout share; see `Reading`."""
        return Reading(self.shapes, CONTAINERS, style, measure, scalars)

    def reading(self, measure: Measure = bytes_of) -> Pushdown:
        """The automaton of the valid texts."""
        goals, ways, scalars = (Goal(Valid(self.document.root)),), [], None
        for style in self.style.layouts():
            reading = self.reading_of(style, measure, scalars)
            scalars = scalars or reading
            lead = scalars.gap() if style.whitespace in ("any", "single") else ()
            if self.style.whitespace == "consistent":
                lead = (scalars.space,)
            ways.append((*lead, reading.value(goals, self.depth, 0)))
        return Pushdown(_Text(tuple(ways)))


def parts_of(reading: Reading, goals: Goals) -> Iterator[Goals]:
    """What the items and properties of a value have to meet."""
    for shape in reading.shapes.of(goals):
        if "array" in shape.kinds:
            yield from reading.plan(arrays.Plan, shape.of("array")).parts()
        if "object" in shape.kinds:
            yield from reading.plan(properties.Plan, shape.of("object")).parts()
        if "string" in shape.kinds:
            string_of(reading, shape.of("string"))
        if "number" in shape.kinds:
            numbers(frozenset(shape.of("number")), reading.digits)


class _Text(Choice):
    """A whole text."""

    def __init__(self, ways: tuple[Sequence, ...]) -> None:
        self._ways = ways

    @property
    def ways(self) -> tuple[Sequence, ...]:
        """All of them."""
        return self._ways
