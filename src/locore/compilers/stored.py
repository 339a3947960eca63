"""A circuit as named tensors and a small JSON text, and back."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from locore.cache import Notes
from locore.circuits import Block, Circuit, ConditionedReader, LeftToRight
from locore.compilers.layers import SparseRows

INT32 = torch.iinfo(torch.int32)


def to_tensors(circuit: Circuit) -> tuple[dict[str, Tensor], Notes]:
    """Everything that `from_tensors` needs. Blocks and tensors that positions share are stored once."""
    shelf = _Shelf()
    blocks = {id(block): block for block in circuit.blocks}
    numbers = {key: number for number, key in enumerate(blocks)}
    parts: dict[str, Any] = {
        "length": circuit.length,
        "num_classes": circuit.num_classes,
        "structured": circuit.structured,
        "relaxed": circuit.relaxed,
        "positions": circuit.positions,
        "token_class": shelf.put(circuit.token_class),
        "final": shelf.put(circuit.final),
        "chain": [numbers[id(block)] for block in circuit.blocks],
        "blocks": [
            {
                "leaves": shelf.put(block.leaves),
                "num_inputs": block.num_inputs,
                "levels": [shelf.put(level) for level in block.levels],
                "outputs": shelf.put(block.outputs),
            }
            for block in blocks.values()
        ],
        "reader": None if circuit.reader is None else _reader_parts(circuit.reader, shelf),
    }
    parts["dtypes"] = shelf.dtypes
    return shelf.tensors, {"circuit": json.dumps(parts)}


def from_tensors(tensors: dict[str, Tensor], notes: Notes) -> Circuit:
    """The circuit that `to_tensors` was given: equal tensor by tensor, on the CPU."""
    parts = json.loads(notes["circuit"])
    kept = [tensors[str(i)].to(getattr(torch, dtype)).clone() for i, dtype in enumerate(parts["dtypes"])]
    blocks = [
        Block(
            kept[block["leaves"]],
            block["num_inputs"],
            tuple(kept[level] for level in block["levels"]),
            kept[block["outputs"]],
        )
        for block in parts["blocks"]
    ]
    return Circuit(
        parts["length"],
        kept[parts["token_class"]],
        parts["num_classes"],
        tuple(blocks[number] for number in parts["chain"]),
        tuple(tuple(positions) for positions in parts["positions"]),
        kept[parts["final"]],
        None if parts["reader"] is None else _reader(parts, blocks, kept),
        parts["structured"],
        parts["relaxed"],
    )


def _reader_parts(reader: LeftToRight, shelf: _Shelf) -> dict[str, Any]:
    if isinstance(reader, ConditionedReader):  # it is made again from the circuit
        return {"conditioned": True}
    tables = {id(rows): rows for rows in reader.rows}
    numbers = {key: number for number, key in enumerate(tables)}
    return {
        "token_class": shelf.put(reader.token_class),
        "tables": [_table_parts(rows, shelf) for rows in tables.values()],
        "rows": [numbers[id(rows)] for rows in reader.rows],
        "live": [shelf.put(live) for live in reader.live],
        "start": reader.start,
        "hopeful": None if reader.hopeful is None else shelf.put(reader.hopeful),
        "complete": None if reader.complete is None else [shelf.put(flags) for flags in reader.complete],
    }


def _reader(circuit: dict[str, Any], blocks: list[Block], kept: list[Tensor]) -> LeftToRight:
    parts = circuit["reader"]
    if "conditioned" in parts:
        return ConditionedReader(blocks[0], kept[circuit["token_class"]], circuit["num_classes"], circuit["length"])
    tables = [_table(table, kept) for table in parts["tables"]]
    return LeftToRight(
        kept[parts["token_class"]],
        tuple(tables[number] for number in parts["rows"]),
        tuple(kept[live] for live in parts["live"]),
        parts["start"],
        None if parts["hopeful"] is None else kept[parts["hopeful"]],
        None if parts["complete"] is None else tuple(kept[flags] for flags in parts["complete"]),
    )


def _table_parts(rows: Tensor, shelf: _Shelf) -> dict[str, int]:
    """Most rows of a large table are nearly the same: a default and what differs from it take a fiftieth of the bytes."""
    sparse = SparseRows.from_dense(rows.cpu().numpy())
    if 3 * len(sparse.state) >= rows.numel():
        return {"dense": shelf.put(rows)}
    arrays = {name: getattr(sparse, name) for name in ("default", "state", "column", "target")}
    return {"num_states": sparse.num_states, **{name: shelf.put(torch.from_numpy(array)) for name, array in arrays.items()}}


def _table(parts: dict[str, int], kept: list[Tensor]) -> Tensor:
    if "dense" in parts:
        return kept[parts["dense"]]
    arrays = (kept[parts[name]].numpy() for name in ("default", "state", "column", "target"))
    return torch.from_numpy(SparseRows(parts["num_states"], *arrays).dense())


class _Shelf:
    """Numbered tensors; equal ones have one number."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.dtypes: list[str] = []
        self._numbers: dict[tuple[str, tuple[int, ...], bytes], int] = {}

    def put(self, tensor: Tensor) -> int:
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
