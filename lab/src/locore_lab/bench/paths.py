"""Simple paths on grids: how large, how long to compile, how long to query; and how much a memory of moves lets through.

Each graph is measured in a process of its own, so that its peak of memory is its own.
"""

import resource
import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated

import torch

import locore
from locore.circuits import Circuit
from locore.circuits.chain import chain_of
from locore.kernel.tokenizer import Tokenizer
from locore_lab.harness import Case, Row, apart, measurement
from locore_lab.shared import least_seconds, timed

WEIGHTINGS = 32
DRAWS = 2000
PATHS_12 = 182413291514248049241470885236  # OEIS A007764(12)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def edges_row(side: int, neighbours: int) -> Row:
    """A path from corner to corner over edge indicators."""
    edges = locore.grid(side, side, neighbours)
    path = locore.simple_path(edges, (0, 0), (side - 1, side - 1))
    row: Row = {"edges": len(edges)}
    before = peak_bytes()
    start = time.process_time()
    try:
        circuit = locore.compile(path, 2, len(edges), use_cache=False)
    except locore.kernel.errors.BudgetExceeded as error:
        return row | {"refused": str(error), "compile_seconds": time.process_time() - start}
    row |= {"compile_seconds": time.process_time() - start, "peak_bytes": peak_bytes(), "bytes_before": before}
    count, seconds = timed(circuit.count)
    assert (side, neighbours) != (12, 4) or count == PATHS_12
    row |= {"nodes": circuit.num_nodes, "arcs": circuit.num_edges, "paths": str(count), "count_seconds": seconds}
    row["widest"] = max(len(block.outputs) for block in chain_of(circuit).blocks)
    return row | queries(circuit)


def queries(circuit: Circuit) -> Row:
    """CPU seconds of queries for random weightings."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(WEIGHTINGS, circuit.length, 2, generator=generator, dtype=torch.float64).log_softmax(-1)
    both = {"mass_fp64_seconds": weights, "mass_fp32_seconds": weights.float()}
    seconds = least_seconds({name: partial(circuit.log_mass, given) for name, given in both.items()}, 3)
    difference = (circuit.log_mass(weights) - circuit.log_mass(weights.float())).abs().max()
    (_, drawn), sample_seconds = timed(lambda: circuit.sample(weights, 0))
    assert bool(torch.isfinite(drawn).all())
    return seconds | {"fp32_error_nats": float(difference), "sample_seconds": sample_seconds, "query_peak_bytes": peak_bytes()}


def moves_row(neighbours: int, memory: int, length: int) -> Row:
    """Moves from corner to corner of 12 × 12 cells."""
    tokenizer = Tokenizer.integers(neighbours + 1, [neighbours])
    moves = locore.simple_moves(12, 12, (0, 0), (11, 11), neighbours=neighbours, memory=memory)
    start = time.process_time()
    try:
        circuit = locore.compile(moves, tokenizer, length, use_cache=False)
    except locore.kernel.errors.BudgetExceeded as error:
        return {"refused": str(error), "compile_seconds": time.process_time() - start}
    row: Row = {"compile_seconds": time.process_time() - start}
    row |= {"nodes": circuit.num_nodes, "arcs": circuit.num_edges, "walks": str(circuit.count())}
    row["states"] = len(chain_of(circuit).blocks[0].outputs)
    uniform = torch.zeros(WEIGHTINGS, length, neighbours + 1, dtype=torch.float64)
    row |= least_seconds({"mass_fp64_seconds": lambda: circuit.log_mass(uniform)}, 2)
    bound = moves.at(length).bind(tokenizer)
    draws, _ = circuit.sample(torch.zeros(DRAWS, length, neighbours + 1, dtype=torch.float64), 0)
    row["simple_share"] = sum(bound.evaluate(y, tokenizer) for y in draws.tolist()) / DRAWS
    return row


@measurement(
    "side | neighbours | edges | nodes | arcs | compile s | mass s | fp32 off by, nats | sample s",
    "{side} | {neighbours} | {edges} | {nodes:,} | {arcs:,} | {compile_seconds:.2f} | {mass_fp64_seconds:.3f} "
    "| {fp32_error_nats:.1e} | {sample_seconds:.3f}",
    quick={"largest": 3, "eight": [2], "length": [6]},
    moves=(
        "neighbours | memory | length | nodes | compile s | mass s | share of simple paths",
        "{neighbours} | {memory} | {length} | {nodes:,} | {compile_seconds:.2f} | {mass_fp64_seconds:.3f} | {simple_share:.3f}",
    ),
)
def run(
    largest: Annotated[int, "side of the largest 4-neighbour grid"] = 12,
    eight: Annotated[list[int], "sides of 8-neighbour grids"] = (5, 6, 7, 8, 12),
    length: Annotated[list[int], "moves"] = (24, 30, 44),
) -> Iterator[Case]:
    sizes = [(side, 4) for side in range(min(6, largest), largest + 1)] + [(side, 8) for side in eight]
    for side, neighbours in sizes:
        yield {"side": side, "neighbours": neighbours}, partial(apart, edges_row, side, neighbours)
    for neighbours in (4, 8):
        for memory in range(6):
            for moves in length:
                key = {"part": "moves", "neighbours": neighbours, "memory": memory, "length": moves}
                yield key, partial(moves_row, neighbours, memory, moves)
