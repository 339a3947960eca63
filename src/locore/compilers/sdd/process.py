"""PySDD in a process of its own: its calls cannot be interrupted and can crash the interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from locore.errors import BudgetExceeded

Line = list[object]  # ["lit", variable] | ["not", line] | ["and" | "or", line, ...] | ["true"] | ["false"]
WORKER = Path(__file__).with_name("worker.py")  # run as a file: as a module it would import torch first


@dataclass
class Diagram:
    """A sentential decision diagram as read from libsdd's file format.

    Attributes:
        root, true, false: node ids; -1 where a constant does not occur.
        literals: node id -> signed variable.
        elements: node id -> (prime, sub) pairs.
    """

    root: int = -1
    true: int = -1
    false: int = -1
    literals: dict[int, int] = field(default_factory=dict)
    elements: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    _scopes: dict[int, frozenset[int]] = field(default_factory=dict)

    def scope(self, node: int, bits: int) -> frozenset[int]:
        """Positions that a node speaks about, with `bits` variables each."""
        if node not in self._scopes:
            if node in self.literals:
                scope = frozenset({(abs(self.literals[node]) - 1) // bits})
            else:
                pairs = self.elements.get(node, [])
                scope = frozenset().union(*(self.scope(x, bits) for pair in pairs for x in pair))
            self._scopes[node] = scope
        return self._scopes[node]


def run_pysdd(formula: list[Line], vtree: list[str], deadline: float) -> Diagram:
    """Compile numbered formula lines for a vtree; the last line is the root.

    Raises:
        BudgetExceeded: no answer within `deadline` seconds, or the process died.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "vtree").write_text("\n".join(vtree) + "\n")
        (folder / "formula").write_text(json.dumps(formula))
        try:
            done = subprocess.run(
                [sys.executable, "-P", str(WORKER), name], timeout=deadline, capture_output=True, text=True, check=False
            )
        except subprocess.TimeoutExpired:
            raise BudgetExceeded(
                f"PySDD did not finish within {deadline:g} s; use a vtree that keeps dependent positions together, or leave "
                "vtree out."
            ) from None
        if done.returncode:
            raise BudgetExceeded(
                f"PySDD failed (exit code {done.returncode}): {done.stderr.strip()[-300:] or 'it crashed'}; the diagram is "
                "too large for it. Leave vtree out, or make the constraint smaller."
            )
        return _parse((folder / "sdd").read_text())


def _parse(text: str) -> Diagram:
    """Read libsdd's format: lines "F id", "T id", "L id vtree literal", "D id vtree n prime sub ..."; the root is last."""
    diagram = Diagram()
    for line in text.splitlines():
        kind, *rest = line.split() or ["c"]
        if kind in ("c", "sdd"):
            continue
        numbers = [int(x) for x in rest]
        diagram.root = numbers[0]
        if kind == "F":
            diagram.false = numbers[0]
        elif kind == "T":
            diagram.true = numbers[0]
        elif kind == "L":
            diagram.literals[numbers[0]] = numbers[2]
        elif kind == "D":
            pairs = numbers[3:]
            diagram.elements[numbers[0]] = list(zip(pairs[0::2], pairs[1::2], strict=True))
    if diagram.true < 0:
        diagram.true = max([diagram.root, diagram.false, *diagram.literals, *diagram.elements]) + 1
    return diagram
