"""Circuits that took long to compile are kept, in memory and on disk, and found again by what they were compiled from."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from locore.cache import cache_folder, keep_within, read_tensors, write_tensors
from locore.circuits import Circuit
from locore.compilers.problem import Problem
from locore.compilers.stored import from_tensors, to_tensors
from locore.constraints import Constraint
from locore.constraints.structure import fold, postorder
from locore.errors import InvalidArgument

FORMAT = 2  # of the files
WORTH_SECONDS = 0.05  # what takes less to compile is not kept
MEMORY_BYTES = 256_000_000
DISK_BYTES = 1_000_000_000
SETTING = "LOCORE_COMPILE_CACHE_BYTES"


@dataclass(frozen=True)
class Compiled:
    """A circuit and where it came from."""

    circuit: Circuit
    origin: Literal["compiled", "memory", "disk"]


def remembered(problem: Problem, vtree: object, make: Callable[[], Circuit]) -> Compiled:
    """The kept circuit of a problem, or what `make` returns, which is kept if it took long.

    Files are in the folder `circuits` of the cache; all together have at most `$LOCORE_COMPILE_CACHE_BYTES` (default 1 GB; 0:
    keep nothing, in memory neither). Circuits in memory have at most 256 MB. What was not used for longest goes first.
    """
    most_bytes = _disk_bytes()
    key = key_of(problem, vtree) if most_bytes else None
    if key is None:
        return Compiled(make(), "compiled")
    circuit = _memory.get(key)
    if circuit is not None:
        return Compiled(circuit, "memory")
    path = cache_folder() / "circuits" / f"{key}.safetensors"
    circuit = _read(path, key)
    if circuit is not None:
        _memory.put(key, circuit)
        return Compiled(circuit, "disk")
    start = time.perf_counter()
    circuit = make()
    if time.perf_counter() - start >= WORTH_SECONDS:
        _memory.put(key, circuit)
        _write(path, key, circuit, most_bytes)
    return Compiled(circuit, "compiled")


def key_of(problem: Problem, vtree: object = None) -> str | None:
    """A sha256 of everything that a circuit depends on; None if the constraint is of a kind from outside Locore.

    Equal keys mean equal constraints. The JSON form of each node is hashed with the hashes of its children in their place, so
    that shared parts are written once. The order of fields is kept: in a JSON schema it can matter.
    """
    if any(not type(node).__module__.startswith("locore.") for node in postorder(problem.constraint)):
        return None

    def rule(node: Constraint, parts: list[Any]) -> str:
        return _digest(node.json_of(parts))

    arguments = [problem.length, problem.min_length, problem.limits.states, problem.limits.nodes, vtree]
    return _digest([_version(), fold(problem.constraint, rule), problem.tokenizer.fingerprint(), arguments])


def forget() -> None:
    """Forget the circuits in memory; files stay."""
    _memory.clear()


class _Memory:
    """Circuits by key, within a number of bytes; threads may share it."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._kept: OrderedDict[str, tuple[Circuit, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Circuit | None:
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: str, circuit: Circuit) -> None:
        size = _bytes_of(circuit)
        if size > self._most:
            return
        with self._lock:
            self._kept[key] = circuit, size
            while sum(kept for _, kept in self._kept.values()) > self._most:
                self._kept.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


_memory = _Memory(MEMORY_BYTES)


def _bytes_of(circuit: Circuit) -> int:
    """Of all tensors, each once."""
    tensors = [circuit.token_class, circuit.final]
    for block in circuit.blocks:
        tensors += [block.leaves, block.outputs, *block.levels]
    if circuit.reader is not None:
        tensors += circuit.reader.tables
    return sum(tensor.nbytes for tensor in {id(tensor): tensor for tensor in tensors}.values())


def _read(path: Path, key: str) -> Circuit | None:
    found = read_tensors(path)
    if found is None:
        return None
    tensors, notes = found
    try:
        return from_tensors(tensors, notes) if notes["key"] == key else None
    except Exception:  # whatever is wrong with the file, the circuit can be compiled again
        return None


def _write(path: Path, key: str, circuit: Circuit, most_bytes: int) -> None:
    tensors, notes = to_tensors(circuit)
    if write_tensors(path, tensors, {**notes, "key": key}):
        keep_within(path.parent, most_bytes)


def _disk_bytes() -> int:
    value = os.environ.get(SETTING) or str(DISK_BYTES)
    if not value.isdecimal():
        raise InvalidArgument(f"the environment variable {SETTING} must be a number of bytes, 0 for no cache; it is {value!r}.")
    return int(value)


@cache
def _version() -> list[str | int]:
    """What compiles: the release, every source file of it, and Python, whose tables say what a letter is."""
    try:
        release = importlib.metadata.version("locore")
    except importlib.metadata.PackageNotFoundError:  # read from a folder that was never installed
        release = ""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return [FORMAT, release, digest.hexdigest(), sys.version]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, default=repr).encode()).hexdigest()
