"""Circuits that took long to compile are kept, in memory and on disk, and found again by what they were compiled from."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from locore.cache import Kept, cache_folder, keep_within, read_tensors, write_tensors
from locore.circuits import Circuit
from locore.circuits.reached import Reached
from locore.constraints import Constraint
from locore.kernel.compilers.problem import Problem
from locore.kernel.constraints.structure import fold, postorder
from locore.kernel.errors import InvalidArgument

FORMAT = 4  # of the files
WORTH_SECONDS = 0.05  # what takes less to compile is not kept
MEMORY_BYTES = 256_000_000
GROWING_BYTES = 128_000_000  # of readings whose states are made when a text gets there
LEAST_GROWING = 1_000_000  # what one of them counts as, so that they are few enough to be weighed at each turn
DISK_BYTES = 1_000_000_000
SETTING = "LOCORE_COMPILE_CACHE_BYTES"
Make = Callable[[], Circuit]


@dataclass(frozen=True)
class Compiled:
    """A circuit and where it came from."""

    circuit: Circuit
    origin: Literal["compiled", "memory", "disk"]


def stored(problem: Problem, make: Make) -> Compiled:
    """The kept circuit of a problem, or what `make` returns, which is kept if it took long.

    Files are in the folder `circuits` of the cache; all together have at most `$LOCORE_COMPILE_CACHE_BYTES` (default 1 GB; 0:
    keep nothing, in memory neither). Circuits in memory have at most 256 MB. What was not used for longest goes first.

    A reading whose states are made when a text gets there is made in no time and grows with use, so it is kept in memory alone,
    whatever it took, and weighed anew whenever another is asked for; such readings have at most 128 MB.
    """
    most_bytes = _disk_bytes()
    key = key_of(problem) if most_bytes else None
    if key is None:
        return Compiled(_circuit_of(make), "compiled")
    circuit = _memory.get(key) or _growing.get(key)
    if circuit is not None:
        _growing.weigh()
        return Compiled(_within(circuit, problem), "memory")
    path = cache_folder() / "circuits" / f"{key}.safetensors"
    circuit = _read(path, key)
    if circuit is not None:
        _memory.put(key, circuit)
        return Compiled(_within(circuit, problem), "disk")
    start = time.perf_counter()
    circuit = _circuit_of(make)
    if circuit.written is None and isinstance(circuit.reader, Reached):
        if circuit.reader.steering.is_shared:
            _growing.put(key, circuit)
            _growing.weigh()
    elif time.perf_counter() - start >= WORTH_SECONDS and _bytes_of(circuit):
        _memory.put(key, circuit)
        if circuit.written is None and not (circuit.reader and circuit.reader.tables):  # there is nothing to write
            return Compiled(circuit, "compiled")
        from locore.compilers.circuit_files import to_tensors

        tensors, notes = to_tensors(circuit)
        if write_tensors(path, tensors, {**notes, "key": key}):
            keep_within(path.parent, most_bytes)
    return Compiled(circuit, "compiled")


def _within(circuit: Circuit, problem: Problem) -> Circuit:
    return circuit if circuit.limits == problem.limits else replace(circuit, limits=problem.limits)


_maker: ContextVar[Callable[[Make], Circuit] | None] = ContextVar("who makes circuits", default=None)


def _circuit_of(make: Make) -> Circuit:
    maker = _maker.get()
    return make() if maker is None else maker(make)


@contextmanager
def made_by(maker: Callable[[Make], Circuit]) -> Iterator[None]:
    """Inside the `with` block it is given the function that makes each circuit, and returns what that would."""
    token = _maker.set(maker)
    try:
        yield
    finally:
        _maker.reset(token)


def forget() -> None:
    """Forget the circuits in memory; files stay."""
    _memory.clear()
    _growing.clear()


# Within one request.


class Compilations:
    """What one request has compiled. Whatever it asks for again is the same object, also what no store keeps.

    Attributes:
        seconds: of wall time that it took, or to find it in a store.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._compiled: dict[Hashable, Compiled] = {}

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Inside the `with` block nothing is compiled that was compiled before, and what is compiled is remembered."""
        token = _request.set(self)
        try:
            yield
        finally:
            _request.reset(token)

    def once(self, key: Hashable, make: Callable[[], Compiled]) -> Compiled:
        """What `make` returned for this key."""
        if key not in self._compiled:
            start = time.perf_counter()
            self._compiled[key] = make()
            self.seconds += time.perf_counter() - start
        return self._compiled[key]


_request: ContextVar[Compilations | None] = ContextVar("what the request has compiled", default=None)


def once(problem: Problem, make: Callable[[], Compiled]) -> Compiled:
    """What the request that is being answered has compiled of this problem, or what `make` returns."""
    request = _request.get()
    if request is None or problem.vtree is not None:
        return make()
    return request.once(problem, make)


# What a circuit is found by.


def key_of(problem: Problem) -> str | None:
    """A sha256 of everything that a circuit depends on; None if the constraint is of a kind from outside Locore.

    Equal keys mean equal constraints. The JSON form of each node is hashed with the hashes of its children in their place, so
    that shared parts are written once. The order of fields is kept: in a JSON schema it can matter.
    """
    if any(not type(node).__module__.startswith("locore.") for node in postorder(problem.constraint)):
        return None

    def rule(node: Constraint, parts: list[Any]) -> str:
        return _digest(node.json_of(parts))

    arguments = [problem.length, problem.min_length, problem.limits.states, problem.limits.nodes, problem.vtree]
    return _digest([_version(), fold(problem.constraint, rule), problem.tokenizer.fingerprint(), arguments])


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


# In memory.


def _bytes_of(circuit: Circuit) -> int:
    """Of what a compiler has written and of the reading, as far as that has come."""
    return sum(part.num_bytes for part in (circuit.written, circuit.reader) if part is not None)


_memory: Kept[str, Circuit] = Kept(MEMORY_BYTES, _bytes_of)
_growing: Kept[str, Circuit] = Kept(GROWING_BYTES, lambda circuit: max(LEAST_GROWING, _bytes_of(circuit)))


# On disk.


def _read(path: Path, key: str) -> Circuit | None:
    content = read_tensors(path)
    if content is None:
        return None
    from locore.compilers.circuit_files import from_tensors

    tensors, notes = content
    try:
        return from_tensors(tensors, notes) if notes["key"] == key else None
    except Exception:  # whatever is wrong with the file, the circuit can be compiled again
        return None


def _disk_bytes() -> int:
    value = os.environ.get(SETTING) or str(DISK_BYTES)
    if not value.isdecimal():
        raise InvalidArgument(f"the environment variable {SETTING} must be a number of bytes, 0 for no cache; it is {value!r}.")
    return int(value)
