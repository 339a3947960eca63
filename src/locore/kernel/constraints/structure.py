"""Immutable expressions as graphs: equality, hash, pickling, and walks without recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

from locore.kernel.errors import InvalidConstraint
from locore.kernel.plugins import Pictured

MAX_DEPTH = 100  # of a JSON form
MAX_SIZE = 1_000_000
N = TypeVar("N", bound="Structural")
T = TypeVar("T")


class Structural(Pictured):
    """A frozen dataclass whose equality and cached hash are those of its fields."""

    gate: ClassVar[str] = "leaf"  # how it joins its children, in a picture

    def children(self) -> tuple[Any, ...]:
        """The nodes directly below, in order; none for a leaf."""
        return ()

    def rebuilt(self, parts: list[Any]) -> Any:
        """The same kind of node over other children."""
        return self

    def leaves(self: N) -> Iterator[N]:
        """The distinct nodes without children, in the order in which they are written."""
        yield from dict.fromkeys(node for node in postorder(self) if not node.children())

    def transform(self: N, change: Callable[[N], N]) -> N:
        """The same expression with `change(leaf)` in the place of every leaf."""

        def rule(node: N, parts: list[N]) -> N:
            if not parts:
                return change(node)
            unchanged = all(new is old for new, old in zip(parts, node.children(), strict=True))
            return node if unchanged else node.rebuilt(parts)

        return fold(self, rule)

    def same_as(self, other: object) -> bool:
        """Structural equality; shared parts are compared once, however often they occur."""
        pending: list[tuple[Any, Any]] = [(self, other)]
        compared: set[tuple[int, int]] = set()
        while pending:
            mine, theirs = pending.pop()
            key = (id(mine), id(theirs))
            if mine is theirs or key in compared:
                continue
            compared.add(key)
            if not _alike(mine, theirs):
                return False
            pending.extend(zip(mine.children(), theirs.children(), strict=True))
        return True

    def __hash__(self) -> int:
        if "_hash" not in self.__dict__:
            self.__dict__["_hash"] = hash((type(self), self._values()))
        return int(self.__dict__["_hash"])

    def _values(self) -> tuple[Any, ...]:
        # The names of a dataclass's fields, without the search that `dataclasses.fields` makes.
        return tuple(getattr(self, name) for name in self.__match_args__)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return _outline(self, levels=4) if self.children() else f"{type(self).__name__}()"

    @property
    def label(self) -> str:
        """Of a leaf, in a picture."""
        return repr(self)

    def __reduce__(self) -> str | tuple[Any, ...]:
        # Without the cached hash: Python salts the hashes of strings anew in every process.
        return type(self), self._values()


def _alike(mine: Any, theirs: Any) -> bool:
    """Equal, but perhaps for their children; a node that has children has no other fields."""
    if type(mine) is not type(theirs) or hash(mine) != hash(theirs):
        return False
    if mine.children():
        return len(mine.children()) == len(theirs.children())
    return bool(mine._values() == theirs._values())


def _outline(node: Structural, levels: int) -> str:
    """The upper levels only: written out in full, a graph can be exponentially long."""
    if not node.children():
        return repr(node)
    parts = [_outline(child, levels - 1) for child in node.children()] if levels else ["…"]
    return f"{type(node).__name__}({', '.join(parts)})"


def postorder(root: N) -> Iterator[N]:
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
            stack.extend((child, False) for child in reversed(node.children()))


def fold(root: N, rule: Callable[[N, list[T]], T]) -> T:
    """The value of `root`, where `rule(node, values of its children)` gives that of each node."""
    if not root.children():
        return rule(root, [])
    values: dict[int, T] = {}
    for node in postorder(root):
        values[id(node)] = rule(node, [values[id(child)] for child in node.children()])
    return values[id(root)]


def check_tree(root: Structural) -> None:
    """`InvalidConstraint` when `root`, every shared part written out, is too big for JSON."""

    def rule(node: Structural, parts: list[tuple[int, int]]) -> tuple[int, int]:
        return 1 + max((depth for depth, _ in parts), default=0), 1 + sum(n for _, n in parts)

    depth, size = fold(root, rule)
    if depth > MAX_DEPTH or size > MAX_SIZE:
        raise InvalidConstraint(
            f"a constraint of depth {depth} with {size} parts has no JSON form (at most depth "
            f"{MAX_DEPTH} and {MAX_SIZE} parts); say it with ban, token or count_tokens"
        )
