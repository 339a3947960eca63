"""Circuits as files: named tensors and a small JSON text."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from locore.cache import Notes
from locore.circuits import Block, Chain, Circuit, TableReader
from locore.circuits.conditioned import conditioned
from locore.circuits.reached import Reached
from locore.kernel.circuits.reading import SparseRows
from locore.kernel.limits import Limits

INT32 = torch.iinfo(torch.int32)
KINDS = {kind.__name__: kind for kind in (Block, Chain, TableReader, Circuit, Limits)}  # of objects in a file
SPARSE = ("default", "state", "column", "target")


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
