"""Circuit queries: time at about 1e5 edges and a batch of 32, memory per edge, and PySDD beside it.

Times are the least of several repeats. CPU seconds on one thread stay put on a busy machine; wall
seconds on two threads do not, so the load average is recorded with them.

    python -m locore_lab.micro.circuits [--json lab/results/circuits.json]
"""

import os

# Idle threads must not spin: on a busy machine that makes two threads a hundred times slower than one.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

import locore
from locore.circuits import Circuit
from locore.compilers.left_to_right import Minimal, to_circuit
from locore.compilers.problem import Partition
from locore_lab.micro.machine import machine
from locore_lab.places import SHARED

WORDS = SHARED / "data" / "detox" / "ldnoobw_en.txt"
MODEL = SHARED / "models" / "stories260k"
GOAL_SECONDS = 0.05
BATCH = 32
ENOUGH_SECONDS = 1.5  # of repeats


def random_layers(states: int, classes: int, length: int, vocab: int, seed: int = 0) -> Circuit:
    """A layered automaton with random transitions: nothing in it can be shared or minimised."""
    generator = np.random.default_rng(seed)
    rows = [generator.integers(0, states, (states if i else 1, classes), dtype=np.int32) for i in range(length)]
    token_class = np.arange(vocab, dtype=np.int64) % classes
    partition = Partition(token_class, np.arange(classes, dtype=np.int64))
    complete = [np.zeros(len(table), dtype=np.bool_) for table in rows] + [np.zeros(states, dtype=np.bool_)]
    return to_circuit(Minimal(rows, complete), partition)


def ban_list(words: Path, model: Path, length: int, most: int | None = None) -> Circuit:
    """A list of bad words, on the decoded text."""
    phrases = [line.strip() for line in words.read_text().splitlines() if line.strip()]
    return locore.compile(locore.ban(phrases[:most]), locore.load(str(model)), length)


def distributions(circuit: Circuit, batch: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, circuit.length, circuit.vocab_size)
    return torch.randn(shape, generator=generator).log_softmax(-1)


def best(repeats: int, clock: Callable[[], float], work: Callable[[], object]) -> float:
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) < ENOUGH_SECONDS:
        start = clock()
        work()
        seconds.append(clock() - start)
    return min(seconds)


def queries(circuit: Circuit, batch: int) -> dict[str, Callable[[], object]]:
    log_probs = distributions(circuit, batch)

    def mass_and_sample() -> None:
        circuit.log_mass(log_probs)
        circuit.sample(log_probs, seed=0)

    return {
        "log_mass": partial(circuit.log_mass, log_probs),
        "sample": partial(circuit.sample, log_probs, seed=0),
        "log_mass + sample": mass_and_sample,
        "marginals": partial(circuit.marginals, log_probs),
        "most_probable": partial(circuit.most_probable, log_probs),
    }


def time_queries(circuit: Circuit, batch: int, repeats: int) -> dict:
    record: dict = {"length": circuit.length, "vocab": circuit.vocab_size, "batch": batch}
    record |= {"classes": circuit.num_classes, "edges": circuit.num_edges}
    record["stored_edges"] = sum(
        2 * level.shape[1] for block in {id(b): b for b in circuit.blocks}.values() for level in block.levels
    )
    work_of = queries(circuit, batch)
    for name, work in work_of.items():
        torch.set_num_threads(1)
        work()
        cpu = best(repeats, time.process_time, work)
        record[name] = {"cpu_seconds_1_thread": cpu, "edges_x_batch_per_second": circuit.num_edges * batch / cpu}
    torch.set_num_threads(2)
    record["log_mass + sample"]["wall_seconds_2_threads"] = best(repeats, time.perf_counter, work_of["log_mass + sample"])
    torch.set_num_threads(1)
    return record


def peak_bytes(states: int, batch: int) -> dict:
    """Peak resident memory of `sample` above that of its inputs, in a process of its own."""
    circuit = random_layers(states, 256, 20, 512)
    log_probs = distributions(circuit, batch)
    # A small query first, so that one-off allocations of the libraries are not charged.
    small = random_layers(2, 4, 4, 8)
    small.sample(distributions(small, 2), seed=0)
    before = _reset_peak()
    circuit.sample(log_probs, seed=0)
    peak = _peak()
    return {"edges": circuit.num_edges, "batch": batch, "peak_bytes": peak - before}


def _reset_peak() -> int:
    """Forget the peak (Linux); returns the resident bytes now."""
    Path("/proc/self/clear_refs").write_text("5")
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def memory(sizes: list[tuple[int, int]]) -> dict:
    """Peak memory at several sizes and the line through them."""
    points = []
    for states, batch in sizes:
        command = [sys.executable, __file__, "--memory-of", str(states), str(batch)]
        points.append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    work = np.array([p["edges"] * p["batch"] for p in points], dtype=float)
    peak = np.array([p["peak_bytes"] for p in points], dtype=float)
    slope, intercept = np.polyfit(work, peak, 1)
    line = slope * work + intercept
    return {
        "points": points,
        "bytes_per_edge_and_row": slope,
        "intercept_bytes": intercept,
        "largest_deviation": float(np.abs(peak / line - 1).max()),
    }


def against_pysdd(length: int, repeats: int) -> dict | None:
    """Weighted model count of "equal halves", pair order, by PySDD and by the same circuit here."""
    try:
        from pysdd.sdd import SddManager, Vtree
    except ImportError:
        return None
    order = [v for i in range(length // 2) for v in (i + 1, length // 2 + i + 1)]
    manager = SddManager.from_vtree(Vtree(length, order, "balanced"))
    node = manager.true()
    for i in range(length // 2):
        a, b = manager.literal(i + 1), manager.literal(length // 2 + i + 1)
        node = node & ((a & b) | (-a & -b))
    counter = node.wmc(log_mode=True)
    probs = torch.rand(length, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for variable, p in enumerate(probs.tolist(), 1):
        counter.set_literal_weight(manager.literal(variable), float(np.log(p)))
        counter.set_literal_weight(-manager.literal(variable), float(np.log1p(-p)))
    theirs_value = counter.propagate()

    @locore.constraint
    def equal(tokens: list[int]) -> bool:
        half = length // 2
        return all((tokens[i] == 1) == (tokens[half + i] == 1) for i in range(half))

    pairs: list = [(i, length // 2 + i) for i in range(length // 2)]
    while len(pairs) > 1:
        pairs = [tuple(pairs[i : i + 2]) if i + 1 < len(pairs) else pairs[i] for i in range(0, len(pairs), 2)]
    circuit = locore.compile(equal, 2, length, vtree=pairs[0])
    one = torch.stack([(1 - probs).log(), probs.log()], 1)[None]
    rows = one.expand(1024, -1, -1).contiguous()
    difference = float(circuit.log_mass(one)[0]) - float(theirs_value)
    theirs = best(repeats, time.process_time, counter.propagate)
    single = best(repeats, time.process_time, lambda: circuit.log_mass(one))
    batch = best(repeats, time.process_time, lambda: circuit.log_mass(rows)) / len(rows)
    return {
        "positions": length,
        "pysdd_edges": node.size(),
        "edges": circuit.num_edges,
        "difference_nats": difference,
        "pysdd_seconds": theirs,
        "seconds_batch_1": single,
        "seconds_per_row_batch_1024": batch,
        "speedup_batch_1": theirs / single,
        "speedup_batch_1024": theirs / batch,
    }


def show(record: dict) -> None:
    for name, row in record["circuits"].items():
        print(
            f"{name}: {row['edges']:,} edges, n = {row['length']}, {row['vocab']} tokens in "
            f"{row['classes']} classes, batch {row['batch']}"
        )
        for query, timed in row.items():
            if isinstance(timed, dict):
                wall = timed.get("wall_seconds_2_threads")
                print(
                    f"  {query:20}{1e3 * timed['cpu_seconds_1_thread']:9.1f} ms CPU"
                    f"{timed['edges_x_batch_per_second']:12.3g} edges·batch/s"
                    + (f"{1e3 * wall:9.1f} ms wall, 2 threads" if wall else "")
                )
    found = record["memory"]
    print(
        f"memory of sample: {found['bytes_per_edge_and_row']:.1f} bytes per edge and row, "
        f"and {found['intercept_bytes'] / 2**20:.1f} MiB; points lie within {found['largest_deviation']:.0%} of the line"
    )
    if record["pysdd"]:
        p = record["pysdd"]
        print(
            f"PySDD WMC {1e6 * p['pysdd_seconds']:.0f} µs; here {1e6 * p['seconds_batch_1']:.0f} "
            f"µs alone, {1e6 * p['seconds_per_row_batch_1024']:.2f} µs a row of 1024 "
            f"(difference {p['difference_nats']:.1e} nats)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=MODEL, help="tokenizer of the ban list")
    parser.add_argument("--words", type=Path, default=WORDS, help="phrases of the ban list")
    parser.add_argument("--repeats", type=int, default=7, help="the fastest counts")
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument("--memory-of", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory_of:
        print(json.dumps(peak_bytes(*arguments.memory_of)))
        return
    circuits = {
        "random layers": random_layers(11, 256, 20, 512),
        "random layers, 32k tokens": random_layers(11, 256, 20, 32_000),
    }
    if arguments.words.exists() and arguments.model.exists():
        circuits["ban 50 phrases"] = ban_list(arguments.words, arguments.model, 20, 50)
        circuits["ban 403 phrases"] = ban_list(arguments.words, arguments.model, 20)
    record = {"machine": machine(), "load": os.getloadavg(), "goal_seconds": GOAL_SECONDS}
    record["circuits"] = {k: time_queries(c, BATCH, arguments.repeats) for k, c in circuits.items()}
    record["memory"] = memory([(8, 32), (16, 32), (32, 32), (32, 64), (32, 128)])
    record["pysdd"] = against_pysdd(128, arguments.repeats)
    show(record)
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
