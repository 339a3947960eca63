"""Equality of halves, x_i = x_{i + n/2}: the size of the circuit for three ways to read the positions.

Left to right a state must remember the whole first half, so the circuit doubles with every pair. A vtree over pairs
(extra `locore[sdd]`) is linear. So is reading left to right in an *interleaved* order, x_0 x_{n/2} x_1 x_{n/2+1} …: what
separates the first from the others is the order, and this example alone does not show that vtrees beat every order.

    python -m locore_lab.micro.succinctness [--json lab/results/succinctness.json] [--markdown docs/succinctness.md]
"""

import argparse
import json
import resource
from collections.abc import Callable
from pathlib import Path

import torch

import locore
from locore import Constraint
from locore.circuits import Circuit
from locore_lab.micro.machine import machine


def equal_pairs(pairs: list[tuple[int, int]]) -> Constraint:
    """Both positions of every pair hold the same bit."""

    @locore.constraint
    def equal(tokens):
        return all((tokens[a] == 1) == (tokens[b] == 1) for a, b in pairs)

    return equal


def halves(length: int) -> list[tuple[int, int]]:
    return [(i, i + length // 2) for i in range(length // 2)]


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


def measure(length: int) -> list[dict]:
    rows = []
    for name, build in ways(length).items():
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
                "right_count": circuit.count() == 2 ** (length // 2),
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

A circuit need not read positions from left to right. The constraint "both halves are equal", x_i = x_(i + n/2)
over bits, has 2^(n/2) models. Nodes and edges of the compiled circuit, and CPU seconds to compile (with a
vtree these include starting PySDD's process):

{table}

- **Left to right** a state must remember the whole first half: the circuit doubles with every pair.
- **A vtree over pairs** reads x_i together with its partner: `locore.compile(constraint, 2, n, vtree=...)`, extra
  `locore[sdd]`.
- **A balanced vtree over x_1 … x_n** does not help: a vtree must keep together what depends on each other.
- **An interleaved order**, x_1 x_(n/2+1) x_2 x_(n/2+2) …, is linear too, without any vtree. What separates the first
  column from the others is the order of the variables. The example shows that circuits beat left-to-right automata
  where the positions cannot be reordered, as in text, which a model writes from left to right. It does not show that
  vtrees beat every order; for that see Bova, "SDDs are exponentially more succinct than OBDDs" (AAAI 2016), whose
  function we have not reproduced.

Made by `python -m locore_lab.micro.succinctness`; numbers in `lab/results/succinctness.json`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[8, 12, 16, 20, 24])
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument("--markdown", type=Path, help="also write a page here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for length in arguments.lengths for row in measure(length)]
    print(table(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(TEXT.format(table=table(rows)))


if __name__ == "__main__":
    main()
