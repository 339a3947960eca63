"""Graphs as lists of edges: checks, names of vertices in JSON, and what keeps edges from being a simple path."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import Any

from locore.constraints.serial import VERTEX, described
from locore.errors import InvalidConstraint

Edge = tuple[Hashable, Hashable]


def edges_of(graph: object, source: Hashable, target: Hashable) -> tuple[Edge, ...]:
    """The edges of a graph in which there can be a simple path from source to target.

    Raises:
        InvalidConstraint: see `simple_path`.
    """
    if isinstance(graph, str | bytes) or not isinstance(graph, Iterable):
        raise InvalidConstraint(f"simple_path needs a list of edges, got {graph!r}; locore.grid gives those of a grid")
    edges = tuple(_edge(item, number) for number, item in enumerate(graph))
    if not edges:
        raise InvalidConstraint("simple_path got a graph without edges")
    first: dict[frozenset[Hashable], int] = {}
    for number, (a, b) in enumerate(edges):
        earlier = first.setdefault(frozenset({a, b}), number)
        if earlier != number:
            raise InvalidConstraint(
                f"edges {earlier} and {number} of simple_path both join {a!r} and {b!r}; give each edge once"
            )
    vertices = dict.fromkeys(vertex for edge in edges for vertex in edge)
    for name, vertex in (("source", source), ("target", target)):
        if not isinstance(vertex, Hashable) or vertex not in vertices:
            shown = ", ".join(map(repr, islice(vertices, 5)))
            raise InvalidConstraint(
                f"the {name} {vertex!r} of simple_path is no vertex of the graph, whose vertices are {shown}, …"
            )
    if source == target:
        raise InvalidConstraint(f"source and target of simple_path are both {source!r}; they must be two vertices")
    reached = _reached(edges, source)
    if target not in reached:
        raise InvalidConstraint(
            f"the graph of simple_path is not connected: from {source!r} {len(reached)} of {len(vertices)} vertices can be "
            f"reached, and {target!r} is not among them"
        )
    return edges


def _edge(item: Any, number: int) -> Edge:
    if isinstance(item, str | bytes) or not isinstance(item, Iterable):
        raise InvalidConstraint(f"edge {number} of simple_path must be a pair of vertices, got {item!r}")
    ends = tuple(item)
    if len(ends) != 2 or not all(isinstance(vertex, Hashable) for vertex in ends):
        raise InvalidConstraint(f"edge {number} of simple_path must be a pair of hashable vertices, got {item!r}")
    if ends[0] == ends[1]:
        raise InvalidConstraint(
            f"edge {number} of simple_path joins {ends[0]!r} with itself; no simple path uses a loop, remove it"
        )
    return ends


def neighbours_of(edges: Iterable[Edge]) -> dict[Hashable, list[Hashable]]:
    """For each vertex those that an edge joins it with."""
    result: dict[Hashable, list[Hashable]] = {}
    for first, second in edges:
        result.setdefault(first, []).append(second)
        result.setdefault(second, []).append(first)
    return result


def _reached(edges: Iterable[Edge], start: Hashable) -> set[Hashable]:
    neighbours = neighbours_of(edges)
    seen, stack = {start}, [start]
    while stack:
        for vertex in neighbours[stack.pop()]:
            if vertex not in seen:
                seen.add(vertex)
                stack.append(vertex)
    return seen


def fault_of(edges: list[Edge], source: Hashable, target: Hashable) -> str:
    """Why these edges are no simple path from source to target, in words; "" if they are one."""
    neighbours = neighbours_of(edges)
    for vertex, others in neighbours.items():
        allowed = 1 if vertex in (source, target) else 2
        if len(others) > allowed:
            what = "an end" if allowed == 1 else "a vertex inside the path"
            return f"{len(others)} present edges meet at {vertex!r}, but {what} has {allowed}"
    if source not in neighbours:
        return f"no edge at the source {source!r} is present"
    # Every vertex has at most two edges and the source has one, so there is one way to go, which cannot run in circles.
    before, here, used = source, neighbours[source][0], 1
    while here != target:
        onward = [vertex for vertex in neighbours[here] if vertex != before]
        if not onward:
            return f"the path from {source!r} ends at {here!r}"
        before, here, used = here, onward[0], used + 1
    if used < len(edges):
        return f"{len(edges) - used} present edges are not on the path from {source!r} to {target!r}"
    return ""


def json_vertices(vertices: Iterable[Hashable]) -> Callable[[Hashable], Any]:
    """How to write vertices: as they are if all are strings, integers and tuples of them, otherwise as numbers."""
    number: dict[Hashable, int] = {}
    for vertex in vertices:
        number.setdefault(vertex, len(number))
    return _plain if all(map(_is_plain, number)) else number.__getitem__


def _is_plain(vertex: Hashable) -> bool:
    if type(vertex) is tuple:
        return all(map(_is_plain, vertex))
    return type(vertex) in (int, str)


def _plain(vertex: Any) -> Any:
    return [_plain(part) for part in vertex] if isinstance(vertex, tuple) else vertex


@described({"type": "array", "items": {"type": "array", "items": {"$ref": VERTEX}, "minItems": 2, "maxItems": 2}})
def read_graph(value: Any, path: str) -> Any:
    """Edges in JSON: a list of pairs of vertices."""
    if not isinstance(value, list) or not all(isinstance(edge, list) and len(edge) == 2 for edge in value):
        raise InvalidConstraint(f"{path} must be a list of pairs of vertices")
    return [tuple(read_vertex(vertex, f"{path}[{number}]") for vertex in edge) for number, edge in enumerate(value)]


@described({"$ref": VERTEX})
def read_vertex(value: Any, path: str) -> Any:
    """A vertex in JSON: a string, an integer, or a list of them, which stands for a tuple."""
    if isinstance(value, list):
        return tuple(read_vertex(part, path) for part in value)
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise InvalidConstraint(f"{path} must be a vertex: a string, an integer, or a list of them; got {value!r}")
