"""Circuits for any vtree, through sentential decision diagrams (Darwiche 2011; PySDD, extra `locore[sdd]`).

A position with C classes becomes ceil(log2 C) Boolean variables that stay together in the vtree; reading the diagram back, what
lies inside one position is a set of classes, and what lies above is a decision over positions.
"""

from __future__ import annotations

import importlib.util
import itertools

import torch

from locore.circuits import Builder, Circuit
from locore.circuits.block import FALSE
from locore.compilers.formula import FormulaWriter
from locore.compilers.left_to_right import no_model
from locore.compilers.problem import Problem, blocked_tokens, classes_of
from locore.compilers.sdd_process import Diagram, run_pysdd
from locore.errors import InvalidArgument, MissingExtra

Vtree = int | tuple["Vtree", "Vtree"]  # a position, or a pair


def compile_sdd(problem: Problem, vtree: Vtree, deadline: float | None = None) -> Circuit:
    """The circuit of a formula for a vtree of positions.

    Args:
        vtree: a position, or a pair of vtrees; every position exactly once.
        deadline: seconds of wall time after which the compiler is killed; None: the limit of the problem.

    Raises:
        MissingExtra: PySDD is not installed.
        InvalidConstraint: the constraint has text or other automata, which have no variables.
        BudgetExceeded: the deadline passed, or PySDD crashed.
    """
    if importlib.util.find_spec("pysdd") is None:
        raise MissingExtra("compiling for a vtree needs PySDD; install it with: pip install 'locore[sdd]'")
    vtree = _as_pairs(vtree)
    order = _positions(vtree)
    if sorted(order) != list(range(problem.length)):
        raise InvalidArgument(
            f"the vtree must hold each position 0..{problem.length - 1} exactly once; it holds {sorted(order)}."
        )
    classes = classes_of(problem, problem.constraint, [])
    writer = FormulaWriter(problem, classes)
    diagram = run_pysdd(writer.formula(), _vtree_lines(vtree, writer.bits), deadline or problem.limits.seconds)
    allowed = [c for c, blocked in enumerate(blocked_tokens(problem)[classes.representative].tolist()) if not blocked]
    reader = _Reader(diagram, Builder(problem.length, classes.num_classes), writer.bits, allowed)
    root = reader.build(diagram.root, vtree)
    if root == FALSE:
        raise no_model(problem.length)
    return Circuit(
        problem.length,
        torch.from_numpy(classes.token_class),
        classes.num_classes,
        (reader.builder.finish(root),),
        (tuple(range(problem.length)),),
        torch.zeros(0, dtype=torch.bool),
    )


def _as_pairs(vtree: object) -> Vtree:
    """The vtree with lists as tuples, checked."""
    if isinstance(vtree, int) and not isinstance(vtree, bool):
        return vtree
    if isinstance(vtree, tuple | list) and len(vtree) == 2:
        return _as_pairs(vtree[0]), _as_pairs(vtree[1])
    raise InvalidArgument(f"a vtree is a position or a pair of vtrees, got {vtree!r}.")


def _positions(vtree: Vtree) -> list[int]:
    if isinstance(vtree, int):
        return [vtree]
    return _positions(vtree[0]) + _positions(vtree[1])


def _vtree_lines(vtree: Vtree, bits: int) -> list[str]:
    """The vtree over Boolean variables in libsdd's file format: in-order ids, children before parents.

    Bit j of position i is variable i·bits + j + 1; the bits of a position are a right-linear subtree.
    """
    lines: list[str] = []
    ids = itertools.count()

    def add(tree: Vtree, bit: int = 0) -> int:
        """Append the lines of a subtree; returns the id of its top."""
        if not isinstance(tree, int):
            left, own, right = add(tree[0]), next(ids), add(tree[1])
        else:
            left = next(ids)
            lines.append(f"L {left} {tree * bits + bit + 1}")
            if bit == bits - 1:
                return left
            own, right = next(ids), add(tree, bit + 1)
        lines.append(f"I {own} {left} {right}")
        return own

    add(vtree)
    return [f"vtree {len(lines)}", *lines]


class _Reader:
    """Reads a diagram into a Builder, smoothing it on the way."""

    def __init__(self, diagram: Diagram, builder: Builder, bits: int, allowed: list[int]) -> None:
        self.diagram = diagram
        self.builder = builder
        self.bits = bits
        self.allowed = allowed
        self._built: dict[tuple[int, Vtree], int] = {}

    def build(self, node: int, vtree: Vtree) -> int:
        """The builder's node for a diagram node, over exactly the positions of `vtree`."""
        key = (node, vtree)
        if key not in self._built:
            self._built[key] = self._build(node, vtree)
        return self._built[key]

    def _build(self, node: int, vtree: Vtree) -> int:
        if node == self.diagram.false:
            return FALSE
        if isinstance(vtree, int):
            classes = [c for c in self.allowed if self._holds(node, vtree, c)]
            return self.builder.leaf(vtree, classes)
        left, right = vtree
        if node == self.diagram.true:
            return self.builder.both(self.build(node, left), self.build(node, right))
        scope = self.diagram.scope(node, self.bits)
        if scope <= set(_positions(left)):
            return self.builder.both(self.build(node, left), self.build(self.diagram.true, right))
        if scope <= set(_positions(right)):
            return self.builder.both(self.build(self.diagram.true, left), self.build(node, right))
        elements = self.diagram.elements[node]
        return self.builder.either([(self.build(p, left), self.build(s, right)) for p, s in elements])

    def _holds(self, node: int, position: int, code: int) -> bool:
        """Is a diagram node over the bits of one position true for a class?"""
        if node in (self.diagram.true, self.diagram.false):
            return node == self.diagram.true
        literal = self.diagram.literals.get(node)
        if literal is not None:
            bit = abs(literal) - 1 - position * self.bits
            return bool(code >> (self.bits - 1 - bit) & 1) == (literal > 0)
        return any(self._holds(p, position, code) and self._holds(s, position, code) for p, s in self.diagram.elements[node])
