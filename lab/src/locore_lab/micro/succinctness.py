"""The size of the circuit of two constraints, by the way in which positions are read.

Equality of halves, x_i = x_{i + n/2}: left to right a state must remember the whole first half, so the circuit doubles with
every pair. A vtree over pairs (extra `locore[sdd]`) is linear. So is reading left to right in an *interleaved* order,
x_0 x_{n/2} x_1 x_{n/2+1} …: what separates the first from the others is the order.

The hidden weighted bit with told values: no order is small, a vtree is. See `told_hidden_bit`.

    python -m locore_lab.micro.succinctness [--json lab/results/succinctness.json] [--markdown docs/succinctness.md]
"""

import argparse
import json
import resource
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

import locore
from locore import Constraint
from locore.circuits import Circuit
from locore.constraints import Constant, Count, Literal
from locore.limits import Limits
from locore_lab.micro.machine import machine


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


def measure(length: int, named: dict[str, Callable[[], Circuit]], models: int) -> list[dict]:
    rows = []
    for name, build in named.items():
        start = cpu_seconds()
        try:
            circuit = build()
        except locore.errors.LocoreError as error:
            rows.append({"n": length, "way": name, "error": str(error)})
            continue
        rows.append(
            {
                "n": length,
                "way": name,
                "nodes": circuit.num_nodes,
                "edges": circuit.num_edges,
                "compile_cpu_seconds": cpu_seconds() - start,
                "right_count": circuit.count() == models,
            }
        )
    return rows


def table(rows: list[dict]) -> str:
    names = list(dict.fromkeys(row["way"] for row in rows))
    lines = ["| n | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for n in dict.fromkeys(row["n"] for row in rows):
        found = {row["way"]: row for row in rows if row["n"] == n}
        cells = [_cell(found[x]) for x in names]
        lines.append(f"| {n} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(row: dict) -> str:
    if "error" in row:
        return "refused"
    return f"{row['nodes']:,} / {row['edges']:,}, {row['compile_cpu_seconds']:.2f} s"


TEXT = """# How small a circuit can be

A circuit need not read positions from left to right. Below, nodes and edges of the compiled circuit, and CPU seconds to compile
(with a vtree these include starting PySDD's process).

## Equal halves

The constraint "both halves are equal", x_i = x_(i + n/2) over bits, has 2^(n/2) models:

{halves}

- **Left to right** a state must remember the whole first half: the circuit doubles with every pair.
- **A vtree over pairs** reads x_i together with its partner: `locore.compile(constraint, 2, n, vtree=...)`, extra
  `locore[sdd]`.
- **A balanced vtree over x_1 … x_n** does not help: a vtree must keep together what depends on each other.
- **An interleaved order**, x_1 x_(n/2+1) x_2 x_(n/2+2) …, is linear too, without any vtree. What separates the first
  column from the others is the order of the variables. The example shows that circuits beat left-to-right automata
  where the positions cannot be reordered, as in text, which a model writes from left to right.

## The hidden weighted bit, told

Here vtrees beat every order. Bits x_1 … x_n of weight c = x_1 + … + x_n hide the bit x_c (0 if c = 0). Each of the 2n + 1
cases (c, x_c) has a bit z of its own, and the constraint says that the z of x's own case is 1:

{hidden}

- **In any order** the circuit grows exponentially: with z fixed to the hidden bit the constraint is the hidden weighted bit
  function, which is exponential for every order (Bryant 1991), and fixing bits makes no ordered diagram larger. Two orders of
  x are shown, z after x.
- **A vtree that splits x from z** has a part for each case, "x weighs c and x_c is this", of at most quadratic size: cubic in
  all.

The idea is that of Bova, "SDDs are exponentially more succinct than OBDDs" (AAAI 2016), whose function generalises the same
one.

Made by `python -m locore_lab.micro.succinctness`; numbers in `lab/results/succinctness.json`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[8, 12, 16, 20, 24], help="of equal halves")
    parser.add_argument("--bits", type=int, nargs="+", default=[8, 12, 16, 20, 24, 28, 32], help="of the hidden weighted bit")
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument("--markdown", type=Path, help="also write a page here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    halved = [row for n in arguments.lengths for row in measure(n, ways(n), 2 ** (n // 2))]
    hidden = [row for n in arguments.bits for row in measure(n, hidden_bit_ways(n), 2 ** (3 * n))]
    text = TEXT.format(halves=table(halved), hidden=table(hidden))
    print(text)
    if arguments.json:
        found = {"machine": machine(), "rows": halved, "hidden weighted bit": hidden}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(text)


if __name__ == "__main__":
    main()
