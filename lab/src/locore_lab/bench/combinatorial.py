"""Combinatorial constraints: size, CPU seconds and memory of what compiles them.

Rows are constraints; columns are Locore's search, PySDD through `vtree` (extra sdd; balanced, and right-linear), the layered
left-to-right diagram of the same constraint, and a plain automaton with one state for each reachable residual, one arc for each
state and class. Every cell runs in a process of its own, so that memory is its own.
"""

import csv
import lzma
import math
import random
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np

import locore
from locore import Limits, all_different, all_equal, digit_sum, permutation, sudoku, token
from locore.circuits import Circuit
from locore.kernel.compilers.problem import Problem, classes_of, gathered
from locore.kernel.compilers.residual import Residuals
from locore.kernel.compilers.restriction import Extensions, explore, minimise, to_circuit, with_atoms
from locore.kernel.tokenizer import Tokenizer
from locore_lab.bench.succinctness import balanced, cpu_seconds, right_linear
from locore_lab.harness import Case, Row, apart, measurement

SOLVED = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"


def opened(cells: int, seed: int = 0) -> str:
    """The known grid above with so many random cells open."""
    board = list(SOLVED)
    for cell in random.Random(seed).sample(range(81), cells):
        board[cell] = "."
    return "".join(board)


def all_pairs_equal(length: int) -> locore.Constraint:
    half = length // 2
    alpha = all_equal([0, half])
    for i in range(1, half):
        alpha &= all_equal([i, i + half])
    return alpha


def cases() -> dict[str, tuple[Callable[[], locore.Constraint], int, int]]:
    """Name: (constraint, vocabulary, length)."""
    return {
        "sudoku 4 × 4, open": (lambda: sudoku("." * 16, box=2), 4, 16),
        "sudoku 6 × 6, 12 given": (lambda: sudoku("123456456123" + "." * 24, box=(2, 3)), 6, 36),
        "sudoku 9 × 9, 10 open": (lambda: sudoku(opened(10)), 9, 81),
        "sudoku 9 × 9, 50 open": (lambda: sudoku(opened(50)), 9, 81),
        "sudoku 9 × 9, 55 open": (lambda: sudoku(opened(55)), 9, 81),
        "sudoku 9 × 9, 57 open": (lambda: sudoku(opened(57)), 9, 81),
        "sudoku 9 × 9, open": (lambda: sudoku("." * 81), 9, 81),
        "permutation of 8": (lambda: permutation(range(8), range(8)), 8, 8),
        "permutation of 12": (lambda: permutation(range(12), range(12)), 12, 12),
        "all different, 6 of 12": (lambda: all_different(range(6)), 12, 6),
        "20 digits that sum to 90": (lambda: digit_sum(range(20), 90), 10, 20),
        "equal halves, 24 of 4 tokens": (lambda: all_pairs_equal(24), 4, 24),
        "exactly 10 of 20": (lambda: locore.exactly(10, [token(i, 1) for i in range(20)]), 2, 20),
    }


def layered(alpha: locore.Constraint, vocab: int, length: int, seconds: float) -> tuple[Circuit, int, int]:
    """The left-to-right diagram, and states and arcs of the automaton before it was minimised."""
    tokenizer = Tokenizer.integers(vocab)
    problem = Problem(alpha.at(length).bind(tokenizer), tokenizer, length, 0, Limits(seconds=seconds))
    with problem.limits.enforced():
        root = gathered(problem.constraint, vocab)
        classes = classes_of(problem, root)
        residuals = Residuals(with_atoms(root, classes, length), classes, length, ())
        blocked = np.zeros(classes.num_classes, dtype=np.bool_)
        plain = explore(residuals, blocked, 0)
        states = sum(len(rows) for rows in plain.rows) + len(plain.final)
        arcs = sum(int((rows >= 0).sum()) for rows in plain.rows)
        return to_circuit(minimise(plain, Extensions(residuals, blocked)), classes), states, arcs


WAYS = ("search", "diagram", "sdd balanced", "sdd right")


def cell(name: str, way: str, seconds: float) -> Row:
    """Compile one constraint in one way."""
    build, vocab, length = cases()[name]
    alpha = build()
    limits = Limits(seconds=seconds)
    locore.compile(token(0, 0), 2, 2)  # imports are not counted
    before, memory = cpu_seconds(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    more = {}
    try:
        if way == "search":
            circuit = locore.compile(alpha, vocab, length, limits=limits, use_cache=False)
        elif way == "diagram":
            circuit, states, arcs = layered(alpha, vocab, length, seconds)
            more = {"automaton_states": states, "automaton_arcs": arcs}
        else:
            tree = (balanced if "balanced" in way else right_linear)(list(range(length)))
            circuit = locore.compile(alpha, vocab, length, vtree=tree, limits=limits, use_cache=False)
    except locore.kernel.errors.LocoreError as error:
        return {"refused": type(error).__name__, "message": str(error)[:200]}
    after = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "nodes": circuit.num_nodes,
        "edges": circuit.num_edges,
        "models": str(circuit.count()),
        "cpu_seconds": round(cpu_seconds() - before, 4),
        "memory_mb": round((after - memory) / 1024, 1),
        **more,
    }


def in_time(name: str, way: str, seconds: float) -> Row:
    """`cell` in a process of its own, which is given up after a while."""
    try:
        found: Row = apart(cell, name, way, seconds, seconds=4 * seconds + 60)
    except subprocess.TimeoutExpired:
        return {"refused": "killed", "message": f"no answer in {4 * seconds + 60:g} s"}
    except locore.kernel.errors.LocoreError as error:
        return {"refused": "crashed", "message": str(error)}
    return found


def puzzles_of(path: Path, most: int | None) -> Row:
    """Compile every puzzle of a file, and compare the counts."""
    times, wrong = [], 0
    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as file:
        for row in list(csv.DictReader(file))[:most]:
            side = math.isqrt(len(row["puzzle"]))
            start = time.process_time()
            circuit = locore.compile(sudoku(row["puzzle"], box=math.isqrt(side)), side, side**2, use_cache=False)
            times.append(time.process_time() - start)
            wrong += circuit.count() != int(row.get("n_solutions") or 1)
    found = {"puzzles": len(times), "wrong_counts": wrong, "median_seconds": sorted(times)[len(times) // 2]}
    return found | {"mean_seconds": sum(times) / len(times), "worst_seconds": max(times)}


def shown(row: Row) -> str:
    if "refused" in row:
        return "refused" if row["refused"] == "BudgetExceeded" else str(row["refused"])
    plain = f"; plain {row['automaton_states']:,} / {row['automaton_arcs']:,}" if "automaton_states" in row else ""
    return f"{row['nodes']:,} / {row['edges']:,}; {row['cpu_seconds']:.2f} s; {row['memory_mb']:.0f} MB{plain}"


@measurement(
    "constraint | way | nodes / edges | models",
    "{case} | {way} | {size} | {number}",
    quick={"seconds": 10.0, "constraint": ["sudoku 4 × 4, open", "exactly 10 of 20"]},
    fields={"size": shown, "number": lambda row: f"{n:,}" if (n := int(row["models"])) < 10**10 else f"{n:.2e}"},
    puzzles=(
        "file | puzzles | wrong counts | median s | mean s | worst s",
        "{file} | {puzzles:,} | {wrong_counts} | {median_seconds:.4f} | {mean_seconds:.4f} | {worst_seconds:.3f}",
    ),
)
def run(
    seconds: Annotated[float, "wall seconds for one cell"] = 30.0,
    constraint: Annotated[list[str] | None, "only these"] = None,
    puzzles: Annotated[Path | None, "instead: compile every puzzle of this folder, ten CPU minutes"] = None,
    most: Annotated[int | None, "puzzles of a file"] = None,
) -> Iterator[Case]:
    if puzzles:
        for path in sorted([*puzzles.glob("*.csv"), *puzzles.glob("*.csv.xz")]):
            yield {"part": "puzzles", "file": path.name}, partial(puzzles_of, path, most)
        return
    for name in constraint or cases():
        for way in WAYS:
            yield {"case": name, "way": way}, partial(in_time, name, way, seconds)
