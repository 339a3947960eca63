"""Combinatorial constraints: size, CPU seconds and memory of what compiles them.

Rows are constraints; columns are Locore's search, PySDD through `vtree` (extra sdd; balanced, and right-linear), the layered
left-to-right diagram of the same constraint, and a plain automaton with one state for each reachable residual, one arc for each
state and class. Every cell runs in a process of its own, so that memory is its own.

    python -m locore_lab.micro.combinatorial [--json lab/results/combinatorial.json]
    python -m locore_lab.micro.combinatorial --puzzles ../shared/data/sudoku   # every puzzle of the collection, ten CPU minutes
"""

import argparse
import csv
import json
import lzma
import math
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import locore
from locore import Limits, all_different, all_equal, digit_sum, permutation, sudoku, token
from locore.circuits import Circuit
from locore.compilers.left_to_right import Extensions, explore, minimise, to_circuit, with_atoms
from locore.compilers.problem import Problem, classes_of, gather
from locore.compilers.residual import Residuals
from locore.tokenizer import Tokenizer
from locore_lab.micro.machine import machine

SECONDS = 30.0  # of wall time for one cell
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


def balanced(parts: list) -> object:
    middle = len(parts) // 2
    return parts[0] if len(parts) == 1 else (balanced(parts[:middle]), balanced(parts[middle:]))


def right_linear(parts: list) -> object:
    return parts[0] if len(parts) == 1 else (parts[0], right_linear(parts[1:]))


def layered(alpha: locore.Constraint, vocab: int, length: int, seconds: float) -> tuple[Circuit, int, int]:
    """The left-to-right diagram, and states and arcs of the automaton before it was minimised."""
    tokenizer = Tokenizer.integers(vocab)
    problem = Problem(alpha.at(length).bind(tokenizer), tokenizer, length, 0, Limits(seconds=seconds))
    with problem.limits.enforced():
        root = gather(problem.constraint, vocab)
        classes = classes_of(problem, root)
        residuals = Residuals(with_atoms(root, classes, length), classes, length, ())
        blocked = np.zeros(classes.num_classes, dtype=np.bool_)
        plain = explore(residuals, blocked, 0)
        states = sum(len(rows) for rows in plain.rows) + len(plain.final)
        arcs = sum(int((rows >= 0).sum()) for rows in plain.rows)
        return to_circuit(minimise(plain, Extensions(residuals, blocked)), classes), states, arcs


WAYS = ("search", "diagram", "sdd balanced", "sdd right")


def cell(name: str, way: str, seconds: float) -> dict:
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
    except locore.errors.LocoreError as error:
        return {"case": name, "way": way, "refused": type(error).__name__, "message": str(error)[:200]}
    after = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "case": name,
        "way": way,
        "nodes": circuit.num_nodes,
        "edges": circuit.num_edges,
        "models": str(circuit.count()),
        "cpu_seconds": round(cpu_seconds() - before, 4),
        "memory_mb": round((after - memory) / 1024, 1),
        **more,
    }


def cpu_seconds() -> float:
    """Of this process and of those that it has run: PySDD works in one of its own."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def apart(name: str, way: str, seconds: float) -> dict:
    """`cell` in a process of its own."""
    command = [sys.executable, __file__, "--cell", name, way, "--seconds", str(seconds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=4 * seconds + 60)
    except subprocess.TimeoutExpired:
        return {"case": name, "way": way, "refused": "killed", "message": f"no answer in {4 * seconds + 60:g} s"}
    if done.returncode:
        return {"case": name, "way": way, "refused": "crashed", "message": done.stderr[-200:]}
    return json.loads(done.stdout.splitlines()[-1])


def table(rows: list[dict]) -> str:
    heads = ["constraint", "models", "search", "diagram, left to right", "plain automaton", "SDD, balanced", "SDD, right"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name in cases():
        found = {row["way"]: row for row in rows if row["case"] == name}
        models = {row["models"] for row in found.values() if "models" in row}
        assert len(models) < 2, (name, models)
        plain = found["diagram"]
        automaton = "–" if "refused" in plain else f"{plain['automaton_states']:,} / {plain['automaton_arcs']:,}"
        cells = [_shown(found[way]) for way in WAYS]
        count = _number(models.pop()) if models else "–"
        lines.append(f"| {name} | {count} | {cells[0]} | {cells[1]} | {automaton} | {cells[2]} | {cells[3]} |")
    return "\n".join(lines)


def _number(digits: str) -> str:
    return f"{int(digits):,}" if len(digits) < 10 else f"{int(digits):.2e}"


def _shown(row: dict) -> str:
    if "refused" in row:
        return "refused" if row["refused"] == "BudgetExceeded" else row["refused"]
    return f"{row['nodes']:,} / {row['edges']:,}; {row['cpu_seconds']:.2f} s; {row['memory_mb']:.0f} MB"


def puzzles(folder: Path) -> list[dict]:
    """Compile every puzzle of the collection, and compare the counts."""
    rows = []
    for path in sorted([*folder.glob("*.csv"), *folder.glob("*.csv.xz")]):
        times, wrong = [], 0
        with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as file:
            for row in csv.DictReader(file):
                side = math.isqrt(len(row["puzzle"]))
                start = time.process_time()
                circuit = locore.compile(sudoku(row["puzzle"], box=math.isqrt(side)), side, side**2, use_cache=False)
                times.append(time.process_time() - start)
                wrong += circuit.count() != int(row.get("n_solutions") or 1)
        times.sort()
        rows.append(
            {
                "file": path.name,
                "puzzles": len(times),
                "wrong_counts": wrong,
                "median_seconds": times[len(times) // 2],
                "mean_seconds": sum(times) / len(times),
                "worst_seconds": times[-1],
            }
        )
        print(rows[-1], file=sys.stderr)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cell", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="wall seconds for one cell")
    parser.add_argument("--puzzles", type=Path, help="instead: compile every puzzle of this folder")
    parser.add_argument("--json", type=Path, help="also write the results here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.cell:
        print(json.dumps(cell(*arguments.cell, arguments.seconds)))
        return
    kept = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    if arguments.puzzles:
        kept |= {"machine": machine(), "puzzles": puzzles(arguments.puzzles)}
    else:
        rows = []
        for name in cases():
            for way in WAYS:
                rows.append(apart(name, way, arguments.seconds))
                print(rows[-1], file=sys.stderr)
        print(table(rows))
        kept |= {"machine": machine(), "seconds_for_a_cell": arguments.seconds, "rows": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
