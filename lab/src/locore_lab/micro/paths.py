"""Simple paths on grids: how large, how long to compile, how long to query; and how much a memory of moves lets through.

Each graph is measured in a process of its own, so that its peak of memory is its own.

    python -m locore_lab.micro.paths --json lab/results/paths.json [--largest 12]
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

import locore
from locore.circuits import Circuit
from locore.tokenizer import Tokenizer
from locore_lab.micro.machine import machine

WEIGHTINGS = 32
DRAWS = 2000
PATHS_12 = 182413291514248049241470885236  # OEIS A007764(12)


def cpu(function, *arguments):
    """What a function returns, and its CPU seconds."""
    start = time.process_time()
    result = function(*arguments)
    return result, time.process_time() - start


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def edges_row(side: int, neighbours: int) -> dict:
    """A path from corner to corner over edge indicators."""
    edges = locore.grid(side, side, neighbours)
    path = locore.simple_path(edges, (0, 0), (side - 1, side - 1))
    row = {"side": side, "neighbours": neighbours, "edges": len(edges)}
    before = peak_bytes()
    start = time.process_time()
    try:
        circuit = locore.compile(path, 2, len(edges), use_cache=False)
    except locore.errors.BudgetExceeded as error:
        return row | {"refused": str(error), "compile_seconds": time.process_time() - start}
    row |= {"compile_seconds": time.process_time() - start, "peak_bytes": peak_bytes(), "bytes_before": before}
    count, seconds = cpu(circuit.count)
    assert (side, neighbours) != (12, 4) or count == PATHS_12
    row |= {"nodes": circuit.num_nodes, "arcs": circuit.num_edges, "paths": str(count), "count_seconds": seconds}
    row["widest"] = max(len(block.outputs) for block in circuit.blocks)
    return row | queries(circuit)


def queries(circuit: Circuit) -> dict:
    """CPU seconds of queries for random weightings."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(WEIGHTINGS, circuit.length, 2, generator=generator, dtype=torch.float64).log_softmax(-1)
    seconds = {}
    for name, given in (("fp64", weights), ("fp32", weights.float())):
        seconds[f"mass_{name}_seconds"] = min(cpu(circuit.log_mass, given)[1] for _ in range(3))
    difference = (circuit.log_mass(weights) - circuit.log_mass(weights.float())).abs().max()
    (_, drawn), sample_seconds = cpu(circuit.sample, weights, 0)
    assert bool(torch.isfinite(drawn).all())
    return seconds | {"fp32_error_nats": float(difference), "sample_seconds": sample_seconds, "query_peak_bytes": peak_bytes()}


def moves_row(neighbours: int, memory: int, length: int) -> dict:
    """Moves from corner to corner of 12 × 12 cells."""
    tokenizer = Tokenizer.integers(neighbours + 1, [neighbours])
    moves = locore.simple_moves(12, 12, (0, 0), (11, 11), neighbours=neighbours, memory=memory)
    row = {"neighbours": neighbours, "memory": memory, "length": length}
    start = time.process_time()
    try:
        circuit = locore.compile(moves, tokenizer, length, use_cache=False)
    except locore.errors.BudgetExceeded as error:
        return row | {"refused": str(error), "compile_seconds": time.process_time() - start}
    row["compile_seconds"] = time.process_time() - start
    row |= {"nodes": circuit.num_nodes, "arcs": circuit.num_edges, "walks": str(circuit.count())}
    row["states"] = len(circuit.blocks[0].outputs)
    uniform = torch.zeros(WEIGHTINGS, length, neighbours + 1, dtype=torch.float64)
    row["mass_fp64_seconds"] = min(cpu(circuit.log_mass, uniform)[1] for _ in range(2))
    bound = moves.at(length).bind(tokenizer)
    draws, _ = circuit.sample(torch.zeros(DRAWS, length, neighbours + 1, dtype=torch.float64), 0)
    row["simple_share"] = sum(bound.evaluate(y, tokenizer) for y in draws.tolist()) / DRAWS
    return row


def apart(side: int, neighbours: int) -> dict:
    """A row of a graph, measured in another process."""
    command = [sys.executable, __file__, "--row", str(side), str(neighbours)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def shown(row: dict) -> dict:
    print({name: value for name, value in row.items() if name not in ("paths", "walks")}, file=sys.stderr, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=12, help="side of the largest 4-neighbour grid")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--row", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.row:
        print(json.dumps(edges_row(*arguments.row)))
        return
    sizes = [(side, 4) for side in range(6, arguments.largest + 1)] + [(side, 8) for side in range(5, 9)] + [(12, 8)]
    edges = [shown(apart(*size)) for size in sizes]
    walks = [(n, memory, length) for n in (4, 8) for memory in range(6) for length in (24, 30, 44)]
    moves = [shown(moves_row(*numbers)) for numbers in walks]
    result = {"machine": machine(), "edges": edges, "moves": moves}
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
