"""How constraints are drawn: what joins what, down to the leaves."""

from __future__ import annotations

from dataclasses import replace

from locore.constraints.function import PythonFunction
from locore.kernel.constraints.structure import Structural
from locore.kernel.errors import LocoreError
from locore.kernel.plugins import picture_of
from locore.picture import Box, Picture, tree

SHOWN = 100  # boxes of a picture
DRAWN_LENGTHS = (4, 8, 16, 1, 2, 3)


@picture_of.register
def joined(value: Structural) -> Picture | None:
    """How it is joined; None of a leaf, and of what is too large for a picture."""
    return tree(value, lambda node: node.children(), _box, SHOWN) if value.children() else None


@picture_of.register
def traced(value: PythonFunction) -> Picture | None:
    """What it computes at the first of a few lengths at which it can be traced; `c.at(n)` has the picture at another."""
    for length in DRAWN_LENGTHS:
        try:
            computed = value.at(length)
        except LocoreError:
            continue
        drawn = joined(computed) or Picture((Box(repr(computed), "leaf"),), 0)
        top = Box(f"{value.name}, of {length} tokens", "leaf", (drawn.root,))
        return replace(drawn, boxes=(*drawn.boxes, top), root=len(drawn.boxes))
    return None


def _box(node: Structural) -> tuple[str, str]:
    if not node.children():
        return node.label, "leaf"
    return (type(node).__name__ if node.gate == "leaf" else node.gate.upper()), node.gate
