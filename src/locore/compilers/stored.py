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
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from locore.cache import Kept, Notes, cache_folder, keep_within, read_tensors, write_tensors
from locore.circuits import Block, Chain, Circuit, TableReader
from locore.circuits.conditioned import conditioned
from locore.circuits.reached import Reached
from locore.constraints import Constraint
from locore.kernel.circuits.layers import SparseRows
from locore.kernel.compilers.problem import Problem
from locore.kernel.constraints.structure import fold, postorder
from locore.kernel.errors import InvalidArgument
from locore.kernel.limits import Limits

FORMAT = 4  # of the files
WORTH_SECONDS = 0.05  # what takes less to compile is not kept
MEMORY_BYTES = 256_000_000
GROWING_BYTES = 128_000_000  # of readings whose states are made when a text gets there
LEAST_GROWING = 1_000_000  # what one of them counts as, so that they are few enough to be weighed at each turn
DISK_BYTES = 1_000_000_000
SETTING = "LOCORE_COMPILE_CACHE_BYTES"
INT32 = torch.iinfo(torch.int32)
KINDS = {kind.__name__: kind for kind in (Block, Chain, TableReader, Circuit, Limits)}  # of objects in a file
SPARSE = ("default", "state", "column", "target")


@dataclass(frozen=True)
class Compiled:
    """A circuit and where it came from."""

    circuit: Circuit
    origin: Literal["compiled", "memory", "disk"]


def stored(problem: Problem, make: Callable[[], Circuit]) -> Compiled:
    """The kept circuit of a problem, or what `make` returns, which is kept if it took long.

    Files are in the folder `circuits` of the cache; all together have at most `$LOCORE_COMPILE_CACHE_BYTES` (default 1 GB; 0:
    keep nothing, in memory neither). Circuits in memory have at most 256 MB. What was not used for longest goes first.

    A reading whose states are made when a text gets there is made in no time and grows with use, so it is kept in memory alone,
    whatever it took, and weighed anew whenever another is asked for; such readings have at most 128 MB.
    """
    most_bytes = _disk_bytes()
    key = key_of(problem) if most_bytes else None
    if key is None:
        return Compiled(make(), "compiled")
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
    circuit = make()
    if circuit.written is None and isinstance(circuit.reader, Reached):
        if circuit.reader.steering.is_shared:
            _growing.put(key, circuit)
            _growing.weigh()
    elif time.perf_counter() - start >= WORTH_SECONDS and _bytes_of(circuit):
        _memory.put(key, circuit)
        if circuit.written is None and not (circuit.reader and circuit.reader.tables):  # there is nothing to write
            return Compiled(circuit, "compiled")
        tensors, notes = to_tensors(circuit)
        if write_tensors(path, tensors, {**notes, "key": key}):
            keep_within(path.parent, most_bytes)
    return Compiled(circuit, "compiled")


def _within(circuit: Circuit, problem: Problem) -> Circuit:
    return circuit if circuit.limits == problem.limits else replace(circuit, limits=problem.limits)


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
        """Nothing yet."""
        self.seconds = 0.0
        self._found: dict[Hashable, Compiled] = {}

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
        if key not in self._found:
            start = time.perf_counter()
            self._found[key] = make()
            self.seconds += time.perf_counter() - start
        return self._found[key]


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
    blocks = () if circuit.written is None else circuit.written.blocks
    written = [tensor for block in blocks for tensor in (block.leaves, block.outputs, *block.levels)]
    reading = 0 if circuit.reader is None else circuit.reader.num_bytes
    return reading + sum({id(tensor): tensor.nbytes for tensor in written}.values())


_memory: Kept[str, Circuit] = Kept(MEMORY_BYTES, _bytes_of)
_growing: Kept[str, Circuit] = Kept(GROWING_BYTES, lambda circuit: max(LEAST_GROWING, _bytes_of(circuit)))


# On disk: named tensors and a small JSON text.


def to_tensors(circuit: Circuit) -> tuple[dict[str, Tensor], Notes]:
    """Everything that `from_tensors` needs. Blocks and tensors that positions share are stored once."""
    writer = _Writer()
    writer.put(circuit)
    return writer.tensors, {"circuit": json.dumps({"objects": writer.objects, "dtypes": writer.dtypes})}


def from_tensors(tensors: dict[str, Tensor], notes: Notes) -> Circuit:
    """The circuit that `to_tensors` was given: equal tensor by tensor, on the CPU."""
    written = json.loads(notes["circuit"])
    objects: list[Any] = []

    def tensor(number: int) -> Tensor:
        return tensors[str(number)].to(getattr(torch, written["dtypes"][number])).clone()

    def value(form: Any) -> Any:
        if isinstance(form, list):
            return tuple(map(value, form))
        return objects[form["object"]] if isinstance(form, dict) else form

    for form in written["objects"]:
        if "tensor" in form:
            objects.append(tensor(form["tensor"]))
        elif "rows" in form:
            arrays = (tensor(form[name]).numpy() for name in SPARSE)
            objects.append(torch.from_numpy(SparseRows(form["rows"], *arrays).dense()))
        else:
            parts = {name: value(part) for name, part in form["of"].items()}
            if parts.get("reader") == "conditioned":
                parts["reader"] = conditioned(parts["written"])
            objects.append(KINDS[form["kind"]](**parts))
    circuit: Circuit = objects[-1]
    return circuit


class _Writer:
    """Objects in the order in which they can be made again, each once, and numbered tensors, of which equal ones are one."""

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.tensors: dict[str, Tensor] = {}
        self.dtypes: list[str] = []
        self._object_of: dict[int, int] = {}
        self._numbers: dict[tuple[str, tuple[int, ...], bytes], int] = {}

    def put(self, value: Any) -> Any:
        """What stands in JSON for a value."""
        if isinstance(value, tuple):
            return [self.put(part) for part in value]
        if isinstance(value, Reached):
            return "conditioned"  # it is made again from the circuit
        if not isinstance(value, (Tensor, *KINDS.values())):
            return value
        if id(value) not in self._object_of:
            form = self._rows(value) if isinstance(value, Tensor) else self._parts(value)
            self._object_of[id(value)] = len(self.objects)
            self.objects.append(form)
        return {"object": self._object_of[id(value)]}

    def _parts(self, value: Any) -> dict[str, Any]:
        return {"kind": type(value).__name__, "of": {part.name: self.put(getattr(value, part.name)) for part in fields(value)}}

    def _rows(self, tensor: Tensor) -> dict[str, int]:
        """Most rows of a large table are nearly the same: a default and what differs from it take a fiftieth of the bytes."""
        if tensor.ndim == 2 and tensor.dtype == torch.int32:
            sparse = SparseRows.from_dense(tensor.cpu().numpy())
            if 3 * len(sparse.state) < tensor.numel():
                arrays = {name: self._tensor(torch.from_numpy(getattr(sparse, name))) for name in SPARSE}
                return {"rows": sparse.num_states, **arrays}
        return {"tensor": self._tensor(tensor)}

    def _tensor(self, tensor: Tensor) -> int:
        """The number of a tensor. Whole numbers take four bytes where that is enough."""
        tensor = tensor.cpu().contiguous()
        key = (str(tensor.dtype), tuple(tensor.shape), tensor.numpy().tobytes())
        if key not in self._numbers:
            number = self._numbers[key] = len(self.dtypes)
            self.dtypes.append(str(tensor.dtype).removeprefix("torch."))
            small = tensor.dtype == torch.int64 and (
                not tensor.numel() or (INT32.min <= int(tensor.min()) and int(tensor.max()) <= INT32.max)
            )
            self.tensors[str(number)] = tensor.to(torch.int32) if small else tensor.clone()
        return self._numbers[key]


def _read(path: Path, key: str) -> Circuit | None:
    content = read_tensors(path)
    if content is None:
        return None
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
