"""The process that runs PySDD: `python pysdd_process.py FOLDER`. It imports nothing of Locore, which would take seconds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pysdd.sdd import SddManager, SddNode, Vtree


def main(folder: Path) -> None:
    """Read `vtree` and `formula` in the folder, write `sdd`."""
    vtree = Vtree.from_file(str(folder / "vtree"))
    manager = SddManager.from_vtree(vtree)
    nodes: list[SddNode] = []
    for line in json.loads((folder / "formula").read_text()):
        nodes.append(_apply(manager, nodes, line))
    nodes[-1].save(str(folder / "sdd").encode())


def _apply(manager: SddManager, nodes: list[SddNode], line: list[Any]) -> SddNode:
    kind, *args = line
    if kind == "true":
        return manager.true()
    if kind == "false":
        return manager.false()
    if kind == "lit":
        return manager.literal(args[0])
    if kind == "not":
        return ~nodes[args[0]]
    result = nodes[args[0]]
    for number in args[1:]:
        result = result & nodes[number] if kind == "and" else result | nodes[number]
    return result


if __name__ == "__main__":
    main(Path(sys.argv[1]))
