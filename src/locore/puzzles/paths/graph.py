"""Simple paths over edge indicators: position i says whether edge i of a graph is on the path."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from locore.kernel.constraints.constraint import Constraint, Json
from locore.kernel.constraints.sequence import TokenizerLike, TokenSequence
from locore.kernel.constraints.serial import VERTEX, described, id_list, register
from locore.kernel.errors import InvalidConstraint
from locore.kernel.lists import items_of

Edge = tuple[Hashable, Hashable]
Symbols = tuple[frozenset[int], frozenset[int]]  # ids that say "absent", ids that say "present"
NAMES = ("absent", "present")


def simple_path(
    graph: Iterable[tuple[Hashable, Hashable]],
    source: Hashable,
    target: Hashable,
    tokens: tuple[int | Iterable[int], int | Iterable[int]] | None = None,
) -> SimplePath:
    """The edges that are present form a path from `source` to `target` that visits no vertex twice.

    Position i of the sequence is edge i of the graph, in the order given; it holds the token for "absent" or the one for
    "present". Positions after the last edge may hold anything. The order decides how large the circuit becomes: neighbouring
    edges should come close together, as those of `locore.grid` do.

    Args:
        graph: undirected edges, pairs of hashable vertices, each edge once.
        source: where the path begins.
        target: where it ends, another vertex.
        tokens: the ids of "absent" and of "present", or two sets of ids. Default: ids 0 and 1 of a vocabulary of two bare ids,
            and with text all tokens that spell exactly "0" or "1".

    Raises:
        InvalidConstraint: no edges, an edge that is no pair, a loop, an edge twice, an unknown or equal source and target, no
            way from one to the other, or tokens that are not two sets of ids.
    """
    edges = edges_of(graph, source, target)
    return SimplePath(edges, source, target, None if tokens is None else _symbols(tokens))


@dataclass(frozen=True, eq=False)
class SimplePath(Constraint):
    """The present edges are a simple path from source to target; `symbols` is None until a tokenizer is known."""

    compiler = "locore.puzzles.paths.path_circuit"
    edges: tuple[Edge, ...]
    source: Hashable
    target: Hashable
    symbols: Symbols | None = None

    def leaf_at(self, length: int) -> Constraint:
        """Itself; `InvalidConstraint` when there are fewer positions than edges."""
        if length < len(self.edges):
            raise InvalidConstraint(
                f"simple_path has {len(self.edges)} edges, a position each, but the sequence has {length} tokens; use a length "
                f"of {len(self.edges)}"
            )
        return self

    def leaf_bound(self, tokenizer: TokenizerLike) -> SimplePath:
        """With the ids of this tokenizer."""
        symbols = self.symbols or _symbols_of(tokenizer)
        ends = [name for name, ids in zip(NAMES, symbols, strict=True) if ids & set(tokenizer.eos_ids)]
        if ends:
            raise InvalidConstraint(f"the token for {ends[0]!r} of simple_path ends the text; use another id")
        return SimplePath(self.edges, self.source, self.target, symbols)

    def named_ids(self) -> Iterable[int]:
        """The ids of both symbols."""
        return () if self.symbols is None else self.symbols[0] | self.symbols[1]

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The chosen edges are followed from the source on."""
        present = self._present(sequence)
        return not isinstance(present, str) and not fault_of(present, self.source, self.target)

    def why(self, sequence: TokenSequence) -> str:
        """What is wrong with the chosen edges, or how long the path is."""
        present = self._present(sequence)
        if isinstance(present, str):
            return present
        return fault_of(present, self.source, self.target) or f"a path of {len(present)} edges"

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "simple_path", "graph": [[a, b], ...], "source": a, "target": b}`, and "tokens" if they were given."""
        name = json_vertices([*(vertex for edge in self.edges for vertex in edge), self.source, self.target])
        json: Json = {
            "type": "simple_path",
            "graph": [[name(first), name(second)] for first, second in self.edges],
            "source": name(self.source),
            "target": name(self.target),
        }
        if self.symbols is not None:
            json["tokens"] = [sorted(ids) for ids in self.symbols]
        return json

    def _present(self, sequence: TokenSequence) -> list[Edge] | str:
        """The chosen edges, or what is wrong with the tokens."""
        self.leaf_at(len(sequence.tokens))
        tokenizer = sequence.tokenizer
        symbols = self.symbols or (DEFAULT if tokenizer is None else _symbols_of(tokenizer))
        present = []
        for position, edge in enumerate(self.edges):
            token = sequence.tokens[position]
            if token in symbols[1]:
                present.append(edge)
            elif token not in symbols[0]:
                return f"token {position} is {token}, which says neither that an edge is absent nor that it is present"
        return present


DEFAULT: Symbols = (frozenset({0}), frozenset({1}))


def _symbols(tokens: object) -> Symbols:
    """Two sets of ids that have nothing in common."""
    if isinstance(tokens, str) or not isinstance(tokens, Sequence) or len(tokens) != 2:
        raise InvalidConstraint(f"tokens of simple_path must be a pair (absent, present) of ids or sets of ids, got {tokens!r}")
    absent, present = (
        frozenset(id_list(ids, f"tokens of simple_path, {name},")) for ids, name in zip(tokens, NAMES, strict=True)
    )
    if not absent or not present or absent & present:
        raise InvalidConstraint(f"tokens of simple_path must be two sets of ids with nothing in common, got {tokens!r}")
    return absent, present


def _symbols_of(tokenizer: TokenizerLike) -> Symbols:
    """The tokens that spell "0" and "1", or the two ids of a bare vocabulary."""
    if any(tokenizer.token_bytes):
        symbols = [frozenset(i for i, t in enumerate(tokenizer.token_bytes) if t == digit) for digit in (b"0", b"1")]
        if not all(symbols):
            raise InvalidConstraint(
                'simple_path needs a token that spells "0" and one that spells "1", and this vocabulary has not both; name '
                "them with tokens=(absent, present)"
            )
        return symbols[0], symbols[1]
    bare = set(range(tokenizer.vocab_size)) - set(tokenizer.eos_ids)
    if bare != {0, 1}:
        raise InvalidConstraint(
            f"simple_path does not know which of {tokenizer.vocab_size} bare ids say that an edge is absent or present; name "
            "them with tokens=(absent, present)"
        )
    return DEFAULT


@described({"type": "array", "minItems": 2, "maxItems": 2})
def _read_tokens(value: Any, path: str) -> Any:
    if not isinstance(value, list):
        raise InvalidConstraint(f"{path} must be a list of two ids, or of two lists of ids, got {value!r}")
    return tuple(value)


def edges_of(graph: object, source: Hashable, target: Hashable) -> tuple[Edge, ...]:
    """The edges of a graph in which there can be a simple path from source to target.

    Raises:
        InvalidConstraint: see `simple_path`.
    """
    listed = items_of(graph, "simple_path", "a list of edges (locore.grid gives those of a grid)", ordered=True)
    edges = tuple(_edge(item, number) for number, item in enumerate(listed))
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
    if isinstance(item, str | bytes | Mapping) or not isinstance(item, Iterable):
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


register(
    "simple_path", simple_path, {"graph": read_graph, "source": read_vertex, "target": read_vertex}, {"tokens": _read_tokens}
)
