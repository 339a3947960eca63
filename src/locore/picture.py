"""Pictures of what is joined by and, or and not: in Graphviz's language, and as SVG, which notebooks show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeVar

CHARACTER, LINE, GAP, MARGIN = 7.2, 24, 18, 8  # pixels: of a letter, of a box's height, between boxes, and around all
BETWEEN = 34  # pixels between two rows
MOST_LETTERS = 48  # of a label in a picture; all of it is shown under the pointer
SWEEPS = 4  # of putting boxes near those that they are joined with
T = TypeVar("T")
_SHAPES = {"or": "ellipse", "and": "box, style=rounded", "not": "box, style=dashed"}


@dataclass(frozen=True)
class Box:
    """One node.

    Attributes:
        label: what it says.
        kind: "or", "and", "not", or anything else for what joins nothing.
        children: what it joins, as indices of the picture's boxes.
    """

    label: str
    kind: str
    children: tuple[int, ...] = ()


@dataclass(frozen=True)
class Picture:
    """Boxes, of which those are shown that the root leads to.

    Attributes:
        boxes: any number.
        root: the index of the one on top.
        name: of the graph.
    """

    boxes: tuple[Box, ...]
    root: int
    name: str = "circuit"

    def dot(self) -> str:
        """In Graphviz's language, for `dot -Tsvg`."""
        head = '  graph [ordering=out, ranksep=0.4]; node [fontname="Helvetica"]; edge [dir=none];'
        lines = [f"digraph {self.name} {{", head]
        for index in self._reached():
            box = self.boxes[index]
            lines.append(f"  n{index} [label={_quoted(box.label)}, shape={_SHAPES.get(box.kind, 'plaintext')}];")
            lines.extend(f"  n{index} -> n{child};" for child in box.children)
        return "\n".join([*lines, "}"]) + "\n"

    def svg(self) -> str:
        """As SVG, of which nothing is loaded from elsewhere."""
        rows = self._rows()
        widths = {index: CHARACTER * len(_short(self.boxes[index].label)) + 2 * MARGIN for row in rows for index in row}
        width = max(sum(widths[index] for index in row) + GAP * (len(row) - 1) for row in rows)
        middle: dict[int, tuple[float, float]] = {}
        for depth, row in enumerate(rows):
            left = (width - sum(widths[index] for index in row) - GAP * (len(row) - 1)) / 2
            for index in row:
                middle[index] = (left + widths[index] / 2, depth * (LINE + BETWEEN) + LINE / 2)
                left += widths[index] + GAP
        height = len(rows) * LINE + (len(rows) - 1) * BETWEEN
        lines = [_line(middle[index], middle[child]) for index in middle for child in self.boxes[index].children]
        boxes = [_drawn(self.boxes[index], *middle[index], widths[index]) for index in middle]
        around = f"{-MARGIN} {-MARGIN} {width + 2 * MARGIN:.0f} {height + 2 * MARGIN:.0f}"
        size = f'width="{width + 2 * MARGIN:.0f}" height="{height + 2 * MARGIN:.0f}"'
        style = 'font-family="Helvetica, Arial, sans-serif" font-size="12" text-anchor="middle"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="{around}" {style}>{"".join([*lines, *boxes])}</svg>'

    def _reached(self) -> list[int]:
        """Indices from the root downwards."""
        reached: dict[int, None] = {}
        pending = [self.root]
        while pending:
            index = pending.pop()
            if index not in reached:
                reached[index] = None
                pending.extend(reversed(self.boxes[index].children))
        return list(reached)

    def _rows(self) -> list[list[int]]:
        """Each box below all that join it, beside those of its row so that lines seldom cross."""
        reached = self._reached()
        depth = dict.fromkeys(reached, 0)
        pending = [self.root]
        while pending:
            index = pending.pop()
            for child in self.boxes[index].children:
                if depth[child] <= depth[index]:
                    depth[child] = depth[index] + 1
                    pending.append(child)
        rows: list[list[int]] = [[] for _ in range(max(depth.values()) + 1)]
        for index in reached:
            rows[depth[index]].append(index)
        above: dict[int, list[int]] = {index: [] for index in reached}
        for index in reached:
            for child in self.boxes[index].children:
                above[child].append(index)
        for sweep in range(SWEEPS):
            place = {index: (number + 0.5) / len(row) for row in rows for number, index in enumerate(row)}
            for row in rows:
                near = {index: above[index] if sweep % 2 == 0 else self.boxes[index].children for index in row}
                row.sort(key=lambda index: _mean(place[other] for other in near[index] or (index,)))
        return rows


def tree(root: T, children: Callable[[T], Sequence[T]], said: Callable[[T], tuple[str, str]], most: int) -> Picture | None:
    """What joins its children, each of which is there once; None where that would be more than `most` boxes.

    Args:
        root: what is on top; it and all below it can be told apart by `==`.
        children: what one joins.
        said: label and kind of one.
    """
    numbers: dict[T, int] = {root: 0}
    below: list[tuple[int, ...]] = []
    for each in (order := [root]):  # which grows
        for child in children(each):
            if child not in numbers:
                numbers[child] = len(order)
                order.append(child)
        if len(order) > most:
            return None
        below.append(tuple(numbers[child] for child in children(each)))
    return Picture(tuple(Box(*said(each), joined) for each, joined in zip(order, below, strict=True)), 0)


def _mean(numbers: Iterable[float]) -> float:
    listed = list(numbers)
    return sum(listed) / len(listed)


def _short(label: str) -> str:
    return label if len(label) <= MOST_LETTERS else label[: MOST_LETTERS - 1] + "…"


def _line(upper: tuple[float, float], lower: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = upper, lower
    return f'<line x1="{x1:.1f}" y1="{y1 + LINE / 2:.1f}" x2="{x2:.1f}" y2="{y2 - LINE / 2:.1f}" stroke="#777"/>'


def _drawn(box: Box, x: float, y: float, width: float) -> str:
    """A box with its label; white, so that it can be read on any page."""
    round_, dash = {"or": LINE / 2, "and": 5.0}.get(box.kind, 0.0), ' stroke-dasharray="4 3"' if box.kind == "not" else ""
    edge = "#333" if box.kind in _SHAPES else "#bbb"
    place = f'x="{x - width / 2:.1f}" y="{y - LINE / 2:.1f}" width="{width:.1f}" height="{LINE}" rx="{round_}"'
    label = f'<text x="{x:.1f}" y="{y + 4:.1f}" fill="#111">{escape(_short(box.label))}</text>'
    return f'<g><title>{escape(box.label)}</title><rect {place} fill="#fff" stroke="{edge}"{dash}/>{label}</g>'


def _quoted(text: str) -> str:
    """A string of Graphviz's language."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
