"""Visiting an expression bottom-up: each distinct node once, without recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar


class HasChildren(Protocol):
    """A node of an expression."""

    def children(self) -> tuple[HasChildren, ...]:
        """The nodes directly below, in order."""


Node = TypeVar("Node", bound=HasChildren)
T = TypeVar("T")


def postorder(root: Node) -> Iterator[Node]:
    """Every node below and including `root`, children first, shared nodes once."""
    seen: set[int] = set()
    stack = [(root, False)]
    while stack:
        node, children_done = stack.pop()
        if id(node) in seen:
            continue
        if children_done:
            seen.add(id(node))
            yield node
        else:
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.children()))  # type: ignore[misc]


def fold(root: Node, rule: Callable[[Node, list[T]], T]) -> T:
    """The value of `root`, where `rule(node, values of its children)` gives that of each node."""
    values: dict[int, T] = {}
    for node in postorder(root):
        values[id(node)] = rule(node, [values[id(child)] for child in node.children()])
    return values[id(root)]
