"""The size of the circuit of two constraints, by the way in which positions are read.

Equality of halves, x_i = x_{i + n/2}: left to right a state must remember the whole first half, so the circuit doubles with
every pair. A vtree over pairs (extra `locore[sdd]`) is linear. So is reading left to right in an *interleaved* order,
x_0 x_{n/2} x_1 x_{n/2+1} …: what separates the first from the others is the order.

The hidden weighted bit with told values: no order is small, a vtree is. See `told_hidden_bit`.
The page on succinctness has its tables, by `locore bench text-tables`.
"""

import resource
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated

import locore
from locore import Constraint
from locore.circuits import Circuit
from locore.constraints import Constant, Count, Literal
from locore.kernel.limits import Limits
from locore_lab.harness import Case, Row, measurement


def equal_pairs(pairs: list[tuple[int, int]]) -> Constraint:
    """Both positions of every pair hold the same bit."""

    @locore.constraint
    def equal(tokens):
        return all((tokens[a] == 1) == (tokens[b] == 1) for a, b in pairs)

    return equal


def halves(length: int) -> list[tuple[int, int]]:
    return [(i, i + length // 2) for i in range(length // 2)]


def told_hidden_bit(order: Sequence[int]) -> tuple[Constraint, int]:
    """The hidden weighted bit of x_1 … x_n, told by a variable for each of its cases; and the number of positions.

    x has weight c = Σ x_i and hides the bit x_c (0 if c is 0). Each of the 2n + 1 cases (c, bit) has a variable z of its own,
    and the constraint is the z of the case that x is in. With z = bit for every case it is Bryant's hidden weighted bit
    function, which has exponentially many nodes in every order of x (Bryant 1991), and fixing bits makes no ordered diagram
    larger; so the constraint is as large in every order. A vtree that splits x from z has a prime for each case, a count of
    x with one bit known, quadratic in n each. So are sentential decision diagrams shown to be more succinct than ordered
    binary ones by Bova (AAAI 2016), with such a generalisation of the same function.

    Args:
        order: of x, position k holds x_(order[k] + 1); z follow.
    """
    n, one = len(order), frozenset({1})
    place = {index: position for position, index in enumerate(order)}
    alpha: Constraint = Constant(False)
    positions = n
    for weight in range(n + 1):
        for bit in (False, True) if weight else (False,):
            case: Constraint = Count(tuple(range(n)), one, weight, weight)
            if weight:
                hidden = Literal(place[weight - 1], one)
                case = case & (hidden if bit else ~hidden)
            alpha = alpha | (case & Literal(positions, one))
            positions += 1
    return alpha, positions


def from_both_ends(n: int) -> list[int]:
    """1, n, 2, n − 1, …, from 0."""
    return [k // 2 if k % 2 == 0 else n - 1 - k // 2 for k in range(n)]


def right_linear(positions: Sequence[int]) -> object:
    """The vtree that reads positions one after the other."""
    *before, tree = positions
    for position in reversed(before):
        tree = (position, tree)
    return tree


def hidden_bit_ways(n: int) -> dict[str, Callable[[], Circuit]]:
    alpha, length = told_hidden_bit(range(n))
    split = right_linear(range(n)), right_linear(range(n, length))
    ends, _ = told_hidden_bit(from_both_ends(n))
    limits = Limits(seconds=600)
    return {
        "left to right": lambda: locore.compile(alpha, 2, length, limits=limits, use_cache=False),
        "left to right, from both ends": lambda: locore.compile(ends, 2, length, limits=limits, use_cache=False),
        "vtree over (x, z)": lambda: locore.compile(alpha, 2, length, vtree=split, use_cache=False),
    }


def balanced(parts: list) -> object:
    """A balanced tree over the parts."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return (balanced(parts[:middle]), balanced(parts[middle:]))


def ways(length: int) -> dict[str, Callable[[], Circuit]]:
    pairs = halves(length)
    neighbours = [(2 * i, 2 * i + 1) for i in range(length // 2)]
    order = list(range(length))
    return {
        "left to right": lambda: locore.compile(equal_pairs(pairs), 2, length),
        "vtree, balanced x_1 … x_n": lambda: locore.compile(equal_pairs(pairs), 2, length, vtree=balanced(order)),
        "vtree over pairs": lambda: locore.compile(equal_pairs(pairs), 2, length, vtree=balanced(list(pairs))),
        "left to right, interleaved": lambda: locore.compile(equal_pairs(neighbours), 2, length),
    }


def cpu_seconds() -> float:
    """Of this process and of those that it has run: PySDD works in one of its own."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def measured(build: Callable[[], Circuit], models: int) -> Row:
    start = cpu_seconds()
    try:
        circuit = build()
    except locore.kernel.errors.LocoreError as error:
        return {"error": str(error)}
    sizes = {"nodes": circuit.num_nodes, "edges": circuit.num_edges}
    return {**sizes, "compile_cpu_seconds": cpu_seconds() - start, "right_count": circuit.count() == models}


def of(constraint: str) -> Callable[[list[Row]], str]:
    """The table of a constraint, with a column for each way."""

    def table(rows: list[Row]) -> str:
        here = [row for row in rows if row["constraint"] == constraint]
        names = list(dict.fromkeys(row["way"] for row in here))
        lines = ["| n | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for n in dict.fromkeys(row["n"] for row in here):
            found = {row["way"]: row for row in here if row["n"] == n}
            lines.append(f"| {n} | " + " | ".join(_cell(found[name]) for name in names) + " |")
        return "\n".join(lines)

    return table


def _cell(row: Row) -> str:
    if "error" in row:
        return "refused"
    return f"{row['nodes']:,} / {row['edges']:,}, {row['compile_cpu_seconds']:.2f} s"


@measurement(
    "constraint | way | n | nodes / edges, CPU s",
    "{constraint} | {way} | {n} | {size}",
    quick={"length": [8], "bits": [8]},
    fields={"size": _cell},
)
def run(
    length: Annotated[list[int], "of equal halves"] = (8, 12, 16, 20, 24),
    bits: Annotated[list[int], "of the hidden weighted bit"] = (8, 12, 16, 20, 24, 28, 32),
) -> Iterator[Case]:
    for name, sizes, made, models in (
        ("equal halves", length, ways, lambda n: 2 ** (n // 2)),
        ("hidden weighted bit", bits, hidden_bit_ways, lambda n: 2 ** (3 * n)),
    ):
        for n in sizes:
            for way, build in made(n).items():
                yield {"constraint": name, "n": n, "way": way}, partial(measured, build, models(n))
