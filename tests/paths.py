"""Simple paths by depth-first search, and small graphs to look for them in: the oracle of the path tests."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

STEPS = {4: [(-1, 0), (0, -1), (0, 1), (1, 0)], 8: [(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)]}


def all_paths(edges, source, target):
    """Every simple path as a tuple of 0 and 1, one for each edge."""
    found = set()

    def walk(vertex, visited, used):
        if vertex == target:
            found.add(tuple(int(number in used) for number in range(len(edges))))
            return
        for number, edge in enumerate(edges):
            if vertex in edge:
                other = edge[1] if edge[0] == vertex else edge[0]
                if other not in visited:
                    walk(other, visited | {other}, used | {number})

    walk(source, {source}, frozenset())
    return found


def all_moves(rows, columns, source, target, neighbours, blocked, most, memory=None):
    """Walks from source to target of at most so many moves, as tuples of directions.

    With `memory` they come back neither to the source nor to the last so many cells; without, to no cell.
    """
    found = set()

    def walk(cells, moves):
        if cells[-1] == target:
            found.add(tuple(moves))
            return
        if len(moves) == most:
            return
        kept = cells if memory is None else [source, *cells[max(0, len(cells) - 1 - memory) : -1]]
        for number, (down, right) in enumerate(STEPS[neighbours]):
            cell = cells[-1][0] + down, cells[-1][1] + right
            inside = 0 <= cell[0] < rows and 0 <= cell[1] < columns
            if inside and cell not in blocked and cell not in kept:
                walk([*cells, cell], [*moves, number])

    walk([source], [])
    return found


@st.composite
def graphs(draw, most_vertices=6, most_edges=10):
    """Edges of a random graph in random order, and two vertices that they connect."""
    vertices = draw(st.integers(2, most_vertices))
    names = draw(st.permutations(["a", "b", 3, (4, 5), -6, "ü"]))[:vertices]
    pairs = list(itertools.combinations(names, 2))
    edges = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=most_edges, unique=True))
    edges = [edge if draw(st.booleans()) else edge[::-1] for edge in edges]
    source = draw(st.sampled_from(edges))[0]
    reached = {source}
    for _ in edges:
        reached |= {vertex for edge in edges if reached & set(edge) for vertex in edge}
    return edges, source, draw(st.sampled_from([name for name in names if name in reached - {source}]))
